"""One file a study; each builds the list `POINTS`."""
