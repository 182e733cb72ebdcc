"""The shape distances of the paper and of its authors' program, for ablations."""
