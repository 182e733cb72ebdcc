"""Training a network on a data set: settings, recipes, the loop, checkpoints and the record of a training."""
