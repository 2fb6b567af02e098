"""Flower's quickstart with a small convolutional network in PyTorch."""
