"""Secure aggregation: the server learns the sum of its clients' messages, and none of them (SecAgg+).

Bonawitz et al. (2017), with the neighbourhoods of Bell et al. (2020, eprint 2020/704).  Four stages, each of which some
clients may not survive:

    keys      client → server   two public keys, new in every attempt
    shares    client → server   of two seeds, for its neighbours, each sealed for one of them
    masked    client → server   the message plus its own mask and one mask with each neighbour
    unmask    client → server   shares of the own masks of those who are in the sum, of the keys of those who are not

    primitives.py   key agreement, sealing, secret sharing and masks, by the `cryptography` and `pycryptodome` packages
    stages.py       what travels in the first, second and fourth stage, as bytes
    ring.py         who is whose neighbour
    signing.py      signatures under public keys, for clients who have been given everyone's
    client.py       a client's session          store.py    the same on its disk
    server.py       the server's session        section.py  the section [secure], and which methods can have it

Everything but section.py does without torch: a client starts a new process for every message.
"""
