"""Two lines for an app that is not ours: compression both ways, and a count of bytes.

    client.py     `compressed()`: the mod              strategy.py   `Compressed`, `Counted`: they wrap strategies
    node.py       an order in, an answer out           grid.py       `CompressedGrid`, for messages sent by hand
    store.py      what a node keeps on its disk        channel.py    a model, its replica, and the log of differences

                                                       server.py     which node has what, and which messages count

    notation.py   "topk(0.01, sign)"                   messages.py   orders and answers in bytes
    layout.py     arrays as one vector, and the rest   coding.py     a vector in frames, piece by piece
    counting.py   bytes by round, direction and part   folder.py     rounds as a run folder

docs/guides/flower_two_lines.md says how they are used.
"""
