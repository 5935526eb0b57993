"""Studies: many runs, one report; for now the demo."""
