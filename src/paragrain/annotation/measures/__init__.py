"""What annotations are like: lengths, scores, agreement of judges, and truth where it is known."""
