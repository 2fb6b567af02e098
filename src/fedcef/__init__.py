"""fedcef: composite federated learning over a narrow network."""

__version__ = "0.1.0"
