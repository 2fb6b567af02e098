"""What stands at the entries that are sent, one file for each kind.

Plain numbers in a float format (`number_formats.py`), multiples of a scale or levels of a table (`levels.py`, with the
named tables in `tables.py`), or powers of two (`powers.py`).  Any form of a vector can hold any of them; their
interface is in `values.py`, and `registry.py` reads values of any kind.
"""
