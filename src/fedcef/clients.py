"""Clients whose samples are read when they are needed: what `Problem.build` takes in place of a list.

    from_function       a function load(client)
    from_folder         a folder with a file for each client: npz, safetensors, parquet
    from_dataset        a map-style data set of torch, and the numbers of each client's samples
    from_hugging_face   a `datasets.Dataset` with a column of clients' ids
    from_arrays         arrays in memory, and the numbers of each client's samples
    drawn               any number of clients drawn over one data set, of whom nothing is stored

A round reads its cohort, and the next one's in a thread meanwhile.  Results are those of the same samples in one table,
to the last bit.
"""

from fedcef.problems.clients.dataset import from_dataset
from fedcef.problems.clients.drawn import drawn
from fedcef.problems.clients.folder import from_folder
from fedcef.problems.clients.hugging_face import from_hugging_face
from fedcef.problems.clients.loaded import from_function
from fedcef.problems.clients.pool import from_arrays

__all__ = ["drawn", "from_arrays", "from_dataset", "from_folder", "from_function", "from_hugging_face"]
