"""The forms of a vector on the wire, one file for each.

A form is a kind of payload: it knows its decoded value, its exact size and its bytes, for one vector or for a stack of
them.  Dense, sparse, seeded, rotated, low rank and relay have numbers of their own on the wire; `Nonzeros` and
`Smallest` are sent as whichever of those is shortest.  `registry.py` reads a payload of any form.
"""
