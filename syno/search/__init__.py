"""Searching the space: policies that propose operators, rewards, and studies that store the trials."""
