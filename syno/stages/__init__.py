"""The stages of an experiment. Each reads the files of earlier stages, and writes its own files atomically."""
