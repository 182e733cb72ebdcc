"""The compiler of this package for processors: one C++ function for a whole operator at given sizes."""
