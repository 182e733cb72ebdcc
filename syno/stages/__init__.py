"""The stages of an experiment. Each reads the files of those before it, and writes its own, whole."""
