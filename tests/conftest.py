"""Settings of all tests. That this file is here lets tests import `golden_files` and `strategies` from beside it."""
