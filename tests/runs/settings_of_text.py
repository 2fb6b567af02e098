"""Small settings, as the text of a file."""

LASSO = """
rounds = 7
num_clients = 3

[data]
name = "lasso"
dim = 12
samples = 5
support = 4

[algorithm]
name = "fedcef"
mixing = 0.5

[compressor]
name = "topk"
ratio = 0.25

[regularizer]
name = "l1"
weight = 0.1
"""

DIGITS = """
num_clients = 3
[data]
name = "digits"
partition = "iid"
[model]
name = "mlp"
"""
