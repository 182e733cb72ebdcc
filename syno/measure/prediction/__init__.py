"""Prediction of how fast a network with an operator is, learnt from measurements."""
