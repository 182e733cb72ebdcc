"""Native kernels: compiled, timed and stored on this machine, and used in networks."""
