"""Training a network on a data set: settings, recipes, the training loop, checkpoints, and records of trainings."""
