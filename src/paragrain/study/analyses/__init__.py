"""What the analyses of a study look at, one file each, and those that other packages add."""
