"""Clients whose samples are read when they are needed, one file for each source; `fedcef.clients` has their names."""
