"""Simulated time: a virtual clock for rounds on a network of unequal clients (docs/network.md).

presets.py        usual speeds of links            arrivals.py      who takes part, and when a round ends
links.py          how long a client's round takes  timed_rounds.py  rounds with a clock
population.py     who the clients are              jobs.py          work that clients have been given
trace.py          the same from a file             asynchronous.py  a server that does not wait
asking.py         whom the server asks             checks.py        what does not go together
counting.py       bytes outside of rounds          playing.py       from options to what plays
clock.py          what is remembered
"""
