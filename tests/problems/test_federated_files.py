"""Published federated data sets, from small files in their formats."""

import json

import numpy as np
import pytest
import torch

from fedcef.core.errors import ConfigError, DataError
from fedcef.core.parts import make
from fedcef.problems.catalog import DATA

TINY = {"name": "lstm", "layers": 1, "width": 4, "embedding": 2}


def build(num_clients, model=None, **section):
    return make("data", DATA, section).build(num_clients, 0, model or {})


def write_leaf(folder, part, *files):
    (folder / part).mkdir()
    for i, clients in enumerate(files):
        counts = [len(data["y"]) for data in clients.values()]
        table = {"users": list(clients), "num_samples": counts, "user_data": clients}
        (folder / part / f"all_data_{i}.json").write_text(json.dumps(table))


def writer(*labels):
    return {"x": [[label / 100] * 784 for label in labels], "y": list(labels)}


@pytest.fixture
def femnist(tmp_path):
    write_leaf(tmp_path, "train", {"f2": writer(3, 4), "f0": writer(1)}, {"f1": writer(61, 5, 3)})
    write_leaf(tmp_path, "test", {"f0": writer(2), "f1": writer(7)})
    return str(tmp_path)


def test_femnist_of_leaf(femnist):
    problem = build(2, name="leaf", path=femnist)
    assert problem.sizes.tolist() == [1, 3]  # f0 and f1
    assert problem.train.inputs.shape == (4, 1, 28, 28)
    assert problem.client_samples(1).targets.tolist() == [61, 5, 3]
    assert torch.allclose(problem.client_samples(1).inputs.flatten(1)[:, 0], torch.tensor([0.61, 0.05, 0.03]))
    assert problem.test.targets.tolist() == [2, 7]
    assert problem.dim == 784 * 62 + 62
    assert build(1, name="leaf", path=femnist, classes=62, shape=[784]).train.inputs.shape == (1, 784)


def line(text):
    return {"x": [text[i : i + 5] for i in range(len(text) - 5)], "y": [text[i + 5] for i in range(len(text) - 5)]}


def test_shakespeare_of_leaf(tmp_path):
    write_leaf(
        tmp_path, "train", {"HAMLET": line("to be or not"), "YORICK": {"x": [], "y": []}, "OPHELIA": line("my lord")}
    )
    write_leaf(tmp_path, "test", {"HAMLET": line("alas, poor")})
    problem = build(2, TINY, name="leaf", path=str(tmp_path), test_windows=3)
    assert problem.sizes.tolist() == [7, 2]
    samples = problem.client_samples(1)
    pairs = {bytes(x.tolist()): bytes(y.tolist()) for x, y in zip(samples.inputs, samples.targets, strict=True)}
    assert pairs == {b"my lo": b"y lor", b"y lor": b" lord"}
    who = torch.tensor([0])
    drawn = problem.data.batches(who, problem.data.draw(who, torch.tensor([3]), 1, 200))(0)
    assert {bytes(x.tolist()) for x in drawn.inputs[0]} == {text.encode() for text in line("to be or not")["x"]}
    assert problem.test.inputs.shape == (3, 5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda table: table.pop("users"), "not in LEAF's format"),
        (lambda table: table["num_samples"].__setitem__(0, 9), "says that f1 has 9 samples, but holds 3"),
        (lambda table: table["user_data"]["f1"].update(x=["a", "b", "c"]), "neither numbers with classes nor text"),
        (lambda table: table["user_data"]["f1"].update(y=[0.5, 1, 2]), "neither numbers with classes nor text"),
        (lambda table: table["users"].__setitem__(0, "f0"), "not in LEAF's format|f0"),
    ],
)
def test_files_that_are_not_leaf_s(femnist, change, sentence, tmp_path):
    file = tmp_path / "train" / "all_data_1.json"
    table = json.loads(file.read_text())
    change(table)
    file.write_text(json.dumps(table))
    with pytest.raises(DataError, match=sentence):
        build(3, name="leaf", path=femnist)


def test_what_does_not_fit_is_told(femnist, tmp_path):
    with pytest.raises(ConfigError, match="num_clients is 9, but the files have 3 clients"):
        build(9, name="leaf", path=femnist)
    with pytest.raises(ConfigError, match="path is missing"):
        build(9, name="leaf")
    with pytest.raises(DataError, match=r"has no files \*.json; data.path must be the folder"):
        build(9, name="leaf", path=str(tmp_path / "train"))
    with pytest.raises(ConfigError, match=r"data.shape is \[3, 3\]; an input has 784 numbers"):
        build(1, name="leaf", path=femnist, shape=[3, 3])


def write_tff(path, clients):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, arrays in clients.items():
            for key, values in arrays.items():
                file.create_dataset(f"examples/{name}/{key}", data=values)


@pytest.mark.extras
def test_femnist_of_tff(tmp_path):
    def client(*labels):
        pixels = np.stack([np.full((28, 28), label / 10, np.float32) for label in labels])
        return {"pixels": pixels, "label": np.array(labels, np.int32)}

    write_tff(tmp_path / "fed_emnist_train.h5", {"f1": client(3, 9), "f0": client(1)})
    write_tff(tmp_path / "fed_emnist_test.h5", {"f0": client(2)})
    problem = build(2, name="tff", path=str(tmp_path))
    assert problem.sizes.tolist() == [1, 2]
    assert problem.train.inputs.shape == (3, 1, 28, 28)
    assert problem.train.targets.tolist() == [1, 3, 9]
    assert problem.dim == 784 * 10 + 10


@pytest.mark.parametrize("key", ["snippets", "tokens"])
@pytest.mark.extras
def test_texts_of_tff(tmp_path, key):
    write_tff(tmp_path / "train.h5", {"b": {key: [b"to be", b"or not"]}, "a": {key: [b"x"]}, "c": {key: [b"my lord"]}})
    write_tff(tmp_path / "test.h5", {"a": {key: [b"alas, poor yorick"]}})
    problem = build(2, TINY, name="tff", path=str(tmp_path), context=4, test_windows=0)
    assert bytes(problem.data.tokens.tolist()) == b"to be\0or not\0my lord\0"  # a has less than a window
    assert problem.data.lengths.tolist() == [13, 8]
    assert len(problem.test) == 4
    with pytest.raises(ConfigError, match="num_clients is 3, but the files have 2 clients"):
        build(3, TINY, name="tff", path=str(tmp_path), context=4)


def test_tff_s_files_need_h5py(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(DataError, match="pip install h5py"):
        build(1, name="tff", path=str(tmp_path))
