"""Integers in few bits: codes without loss, whose sizes are known before a bit is written.

`indices.py` codes which entries of a vector are sent, in Rice codes (`rice.py`), a bitmap or as they are; `symbols.py`
codes small symbols such as the numbers of levels, packed or in Huffman codes (`huffman.py`).  All of them write streams
of bits (`bits.py`).
"""
