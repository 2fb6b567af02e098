"""Flower's quickstart with a two-layer network in plain NumPy."""
