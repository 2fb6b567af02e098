"""Flower's quickstart with logistic regression in scikit-learn."""
