"""Compiling, tuning and measuring with TVM, on this machine or on devices that are reached from it."""
