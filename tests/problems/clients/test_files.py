"""Files and rows: what they may hold, and what is said of those that cannot be read."""

import doctest
import importlib
import re
import sys

import numpy as np
import pytest
import torch

from fedcef import FedcefError, Problem, clients
from fedcef.core.errors import ConfigError, DataError

from .sources import Rows, problem, tables


def refused(sentence, kind=FedcefError):
    return pytest.raises(kind, match=re.escape(sentence))


def saved(folder, count=3, **arrays):
    for i in range(count):
        np.savez(
            folder / f"{i}.npz", **(arrays or {"inputs": np.zeros((2, 4), "float32"), "targets": np.array([0, 1])})
        )
    return folder


def test_files_in_the_order_of_their_names(tmp_path):
    for name in ("b", "a", "ü"):
        np.savez(tmp_path / f"{name}.npz", inputs=np.full((2, 1), ord(name), "float32"), targets=np.zeros(2))
    (tmp_path / "notes.txt").write_text("no client")
    data = clients.from_folder(tmp_path)
    assert [chr(int(data.samples(i).inputs[0])) for i in range(3)] == ["a", "b", "ü"]
    assert clients.from_folder(tmp_path, "[ab].npz").num_clients == 2


def test_numbers_in_names_count_as_numbers(tmp_path):
    names = ["client-2", "client-10", "client-9b", "client-09b", "other"]
    for number, name in enumerate(names):
        np.savez(tmp_path / f"{name}.npz", inputs=np.full((1, 1), number, "float32"), targets=np.zeros(1))
    data = clients.from_folder(tmp_path)
    found = [names[int(data.samples(i).inputs[0])] for i in range(5)]
    assert found == ["client-2", "client-09b", "client-9b", "client-10", "other"]


def test_words_in_files(tmp_path):
    saved(tmp_path, 3, inputs=np.zeros((2, 4), "float32"), targets=np.array(["dog", "cat"]))
    data, order = clients.from_folder(tmp_path), ["ant", "cat", "dog"]
    task = Problem.build(torch.nn.Linear(4, 3), torch.nn.functional.cross_entropy, data, classes=order)
    assert task.client_samples(2).targets.tolist() == [2, 1]


def test_a_file_may_be_missing_until_its_client_is_needed(tmp_path):
    saved(tmp_path, 1)
    data = clients.from_folder(tmp_path, "{}.npz", num_clients=1_000_000)
    assert data.num_clients == 1_000_000
    assert len(data.samples(0)) == 2
    with refused(f"The data of client 7 cannot be read: there is no file {tmp_path / '7.npz'}."):
        data.samples(7)


def test_columns_and_a_transform(tmp_path):
    for i in range(2):
        np.savez(
            tmp_path / f"{i}.npz", age=np.array([1, 2, 3]), size=np.array([4, 5, 6]), ill=np.array([True, False, True])
        )
    data = clients.from_folder(
        tmp_path, inputs=["age", "size"], targets="ill", transform=lambda x, y: (x / 10, y.long())
    )
    assert torch.equal(data.samples(1).inputs, torch.tensor([[0.1, 0.4], [0.2, 0.5], [0.3, 0.6]]))
    assert data.samples(1).targets.tolist() == [1, 0, 1]


def test_files_that_cannot_be_read(tmp_path):
    saved(tmp_path, 1, x=np.zeros((2, 4)), y=np.array(["cat", "dog"]))
    file = f"The data of client 0 cannot be read: in {tmp_path / '0.npz'}, "
    with refused(file + "there is no column inputs; there are x, y."):
        clients.from_folder(tmp_path).samples(0)
    with refused(
        f"In {tmp_path / '0.npz'}, the targets of client 0 are words or other objects, such as 'cat'; name the classes"
    ):
        clients.from_folder(tmp_path, inputs="x", targets="y").samples(0)
    saved(tmp_path, 1, inputs=np.zeros((2, 4)), targets=np.array(["cat", 7], dtype=object))
    with refused(file + "targets is an array of Python objects, which is not read, since that could run code; save it"):
        clients.from_folder(tmp_path).samples(0)
    saved(tmp_path, 1, inputs=np.zeros((2, 4)), targets=np.zeros(3))
    with refused(f"In {tmp_path / '0.npz'}, the data of client 0 has 2 inputs but 3 targets."):
        clients.from_folder(tmp_path).samples(0)
    (tmp_path / "0.npz").write_bytes(b"broken")
    with refused(file + "there is no .npz archive; the file is damaged or of another kind."):
        clients.from_folder(tmp_path).samples(0)
    (tmp_path / "0.csv").write_text("1, 2")
    with refused(
        "The data of client 0 cannot be read: 0.csv is of no known kind; there are .npz, .safetensors, .parquet."
    ):
        clients.from_folder(tmp_path, "{}.csv", num_clients=1).samples(0)


def test_folders_that_hold_no_clients(tmp_path):
    with refused(
        f"The folder {tmp_path} has no files * of the kinds .npz, .safetensors, .parquet; there must be", DataError
    ):
        clients.from_folder(tmp_path)
    with refused(f"The folder {tmp_path / 'other'} cannot be read: No such file or directory.", DataError):
        clients.from_folder(tmp_path / "other")
    with refused("The files {}.npz are not counted; give num_clients, too.", ConfigError):
        clients.from_folder(tmp_path, "{}.npz")
    with refused("num_clients is for a pattern with a number in it", ConfigError):
        clients.from_folder(tmp_path, num_clients=3)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "0.parquet").touch()
    with refused(f"The data of client 0 cannot be read: in {tmp_path / '0.parquet'}, reading .parquet needs pyarrow"):
        clients.from_folder(tmp_path).samples(0)


@pytest.mark.extras
def test_parquet(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    shards = tables(3)
    for i, (x, y) in enumerate(shards):
        columns = {"inputs": list(x.numpy()), "targets": y.numpy(), **{f"f{j}": x[:, j].numpy() for j in range(4)}}
        parquet.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    for inputs in ("inputs", [f"f{j}" for j in range(4)]):
        data = problem(clients.from_folder(tmp_path, inputs=inputs)).data
        for i, (x, y) in enumerate(shards):
            assert torch.equal(data.samples(i).inputs, x)
            assert torch.equal(data.samples(i).targets, y)
    pictures = pa.table({"inputs": np.arange(8.0).reshape(2, 2, 2).tolist(), "targets": [0, 1]})
    parquet.write_table(pictures, tmp_path / "0.parquet")
    assert torch.equal(clients.from_folder(tmp_path).samples(0).inputs, torch.arange(8.0).double().view(2, 2, 2))


def test_rows_of_clients_named_by_words():
    rows = Rows({"user": ["b", "a", "b", "c"], "x": [[1.0], [2.0], [3.0], [4.0]], "y": [0, 1, 1, 0]})
    data = clients.from_hugging_face(rows, "user", "x", "y")
    assert data.sizes.tolist() == [1, 2, 1]
    assert not data.equal_sizes
    assert data.samples(1).inputs.tolist() == [[1.0], [3.0]]
    assert data.samples(1).inputs.dtype == torch.float32
    several = clients.from_hugging_face(
        rows, "user", inputs=["y", "y"], targets="y", transform=lambda x, y: (x + 0.5, y)
    )
    assert several.samples(1).inputs.tolist() == [[0.5, 0.5], [1.5, 1.5]]


def test_rows_that_hold_arrays_or_tensors():
    for kind in (np.float32, torch.tensor):
        rows = Rows({"user": [0, 0], "x": [kind([1.0, 2.0]), kind([3.0, 4.0])], "y": [0, 1]})
        found = clients.from_hugging_face(rows, "user", "x", "y").samples(0).inputs
        assert torch.equal(found, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    rows = Rows({"user": [0, 0], "x": [[1.0], [2.0, 3.0]], "y": [0, 1]})
    with refused("The data of client 0 cannot be read: "):
        clients.from_hugging_face(rows, "user", "x", "y").samples(0)


@pytest.mark.extras
def test_rows_that_hold_pictures():
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    rows = Rows({"user": [0, 0], "x": [image.fromarray(picture) for picture in pixels], "y": [0, 1]})
    data = clients.from_hugging_face(rows, "user", "x", "y", transform=lambda x, y: (x.float() / 255, y))
    assert torch.equal(data.samples(0).inputs, torch.from_numpy(pixels).float() / 255)


def test_rows_that_are_none():
    with refused("dict is no datasets.Dataset; choose a split, and load it without streaming."):
        clients.from_hugging_face({"train": []}, "user", "x", "y")
    with refused("The data set has no column who; it has user, x, y."):
        clients.from_hugging_face(Rows({"user": [], "x": [], "y": []}), "who", "x", "y")


@pytest.mark.extras
def test_a_hugging_face_data_set(tmp_path):
    datasets = pytest.importorskip("datasets")
    shards = tables(4)
    rows = {"user": [], "x": [], "y": []}
    for i, (x, y) in enumerate(shards):
        rows = {"user": rows["user"] + [i] * len(x), "x": rows["x"] + x.tolist(), "y": rows["y"] + y.tolist()}
    whole = datasets.Dataset.from_dict(rows)
    for dataset in (whole, whole.with_format("numpy"), whole.with_format("torch")):
        data = clients.from_hugging_face(dataset, "user", "x", "y")
        for i, (x, y) in enumerate(shards):
            assert torch.equal(data.samples(i).inputs, x)
            assert torch.equal(data.samples(i).targets, y)


@pytest.mark.parametrize("name", ["dataset", "drawn", "folder", "hugging_face", "loaded", "pool"])
def test_the_examples_in_docstrings(name, tmp_path):
    class datasets:  # the names that examples use
        class Dataset:
            from_dict = Rows

    module = importlib.import_module(f"fedcef.problems.clients.{name}")
    names = {**vars(module), "np": np, "torch": torch, "datasets": datasets, "folder": tmp_path}
    found = doctest.testmod(module, extraglobs=names)
    assert (found.failed, found.attempted > 1) == (0, True)
