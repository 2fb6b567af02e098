import builtins
import hashlib
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcef.core.errors import ConfigError, DataError
from fedcef.core.extras import install_extra
from fedcef.problems.catalog import Classification
from fedcef.problems.data import datasets
from fedcef.problems.data.datasets import (
    DATASETS,
    DataFile,
    DatasetInfo,
    build_libsvm,
    cache_folder,
    load,
)
from fedcef.problems.data.formats import csv_to_idx, parse_cifar, parse_idx, parse_libsvm, write_idx
from fedcef.problems.data.sources import fetch


def idx(*dims, payload, magic=(0, 0, 8)):
    return bytes([*magic, len(dims)]) + struct.pack(f">{len(dims)}I", *dims) + payload


# --- formats


def test_idx_is_read_by_the_format_page():
    assert parse_idx(idx(2, 2, 3, payload=bytes(range(12))), "f", (2, 3)).tolist() == [
        [[0, 1, 2], [3, 4, 5]],
        [[6, 7, 8], [9, 10, 11]],
    ]
    assert parse_idx(idx(3, payload=b"\x01\x02\xff"), "f", ()).tolist() == [1, 2, 255]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "ends within its header: 0 of 12 bytes"),
        (idx(2, 2, payload=b"")[:11], "ends within its header"),
        (
            idx(2, 2, payload=b"abcd", magic=(0, 0, 9)),
            "not an idx file of 2-dimensional bytes: it starts with 00000902",
        ),
        (idx(2, 2, payload=b"abcd", magic=(31, 139, 8)), "starts with 1f8b0802"),
        (idx(4, payload=b"abcdefgh"), "not an idx file of 2-dimensional"),
        (idx(2, 3, payload=b"abcdef"), r"shape \(3,\) instead of \(2,\)"),
        (idx(2, 2, payload=b"abc"), "should have 16 bytes by its header, but has 15"),
        (idx(2, 2, payload=b"abcde"), "should have 16 bytes by its header, but has 17"),
        (idx(0xFFFFFFFF, 2, payload=b"abcd"), "should have 8,589,934,602 bytes"),
    ],
)
def test_damaged_idx_is_refused(content, message):
    with pytest.raises(DataError, match=f"train-images.*{message}"):
        parse_idx(content, "train-images", (2,))


def test_idx_is_written_as_it_is_read():
    content = idx(2, 2, 3, payload=bytes(range(12)))
    assert write_idx(content[16:], 2, (2, 3)) == content


def test_csv_becomes_idx():
    images, labels = csv_to_idx(b"label,a,b,c,d\r\n7,0,255,1,2\r\n3,4,5,6,7\r\n", (2, 2))
    assert images == idx(2, 2, 2, payload=bytes([0, 255, 1, 2, 4, 5, 6, 7]))
    assert labels == idx(2, payload=bytes([7, 3]))
    with pytest.raises(ValueError, match="range"):
        csv_to_idx(b"label,a\n1,256\n", (1,))


def test_cifar_records_are_label_then_channels():
    record = bytes([4]) + bytes([10] * 1024 + [20] * 1024 + [30] * 1024)
    images, labels = parse_cifar(record * 2, "f")
    assert images.shape == (2, 3, 32, 32)
    assert images[1, :, 5, 6].tolist() == [10, 20, 30]
    assert labels.tolist() == [4, 4]


@pytest.mark.parametrize("content", [b"", bytes(3072), bytes(3074)])
def test_cut_cifar_batch_is_refused(content):
    with pytest.raises(DataError, match=r"test_batch\.bin .* not a whole number of 3073-byte records"):
        parse_cifar(content, "test_batch.bin")


def test_libsvm_lines_become_a_dense_table():
    table, labels = parse_libsvm(b"+1 1:0.5 4:-2e1 \r\n-1 2:1\n\n1\n", "f", 4)
    assert table.tolist() == [[0.5, 0, 0, -20], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert labels.tolist() == [1, 0, 1]
    assert table.dtype == np.float32
    assert labels.dtype == np.int64
    assert parse_libsvm(b"", "f", 4)[0].shape == (0, 4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"0 1:1", "the label is 0, not -1 or \\+1"),
        (b"1:1 2:1", "the label is 1:1"),
        (b"\x1f\x8b\x08", "the label is"),
        (b"<html>", "the label is <html>"),
        (b"-1 1:1 3", "'3' is not index:value"),
        (b"-1 1:1 3:", "'3:' is not index:value"),
        (b"-1 a:1", "'a:1' is not index:value"),
        (b"-1 1:2:3", "'1:2:3' is not index:value"),
        (b"-1 0:1", "index 0 is not in 1 to 3"),
        (b"-1 4:1", "index 4 is not in 1 to 3"),
        (b"-1 2:1 2:1", "index 2 is not in 3 to 3"),
        (b"-1 3:1 1:1", "index 1 is not in 4 to 3"),
        (b"-1 1:nan", "the value of 1 is nan"),
        (b"-1 1:inf", "the value of 1 is inf"),
    ],
)
def test_damaged_libsvm_is_refused(line, message):
    with pytest.raises(DataError, match=rf"a9a\.t, line 2: {message}"):
        parse_libsvm(b"+1 1:1\n" + line + b"\n", "a9a.t", 3)


def test_label_out_of_range_is_refused():
    with pytest.raises(DataError, match="labels-file has a label 10; labels go from 0 to 9"):
        datasets.to_targets(np.array([0, 10], np.uint8), "labels-file", 10)


def test_standardise_per_channel():
    pixels = np.array([[[[0]], [[255]]]], np.uint8)
    torch.testing.assert_close(
        datasets.standardise(pixels, (0.5, 0.25), (0.5, 0.25)), torch.tensor([[[[-1.0]], [[3.0]]]])
    )


# --- building


def mnist_contents(train=3, test=2, labels=None):
    def images(count):
        return idx(count, 28, 28, payload=bytes([count]) * (784 * count))

    return {
        "train-images-idx3-ubyte": images(train),
        "train-labels-idx1-ubyte": labels or idx(train, payload=bytes(range(train))),
        "t10k-images-idx3-ubyte": images(test),
        "t10k-labels-idx1-ubyte": idx(test, payload=bytes(range(test))),
    }


def test_mnist_like_files_become_a_dataset():
    data = DATASETS["fashion_mnist"].build(mnist_contents())
    assert data.train_inputs.shape == (3, 1, 28, 28)
    assert data.train_inputs.dtype == torch.float32
    assert data.train_inputs[0, 0, 0, 0].item() == pytest.approx((3 / 255 - 0.2860) / 0.3530)
    assert data.train_targets.tolist() == [0, 1, 2]
    assert data.test_inputs.shape == (2, 1, 28, 28)
    assert data.test_targets.dtype == torch.int64


def test_images_and_labels_must_be_as_many():
    with pytest.raises(
        DataError, match="train-images-idx3-ubyte has 3 images, but train-labels-idx1-ubyte has 2 labels"
    ):
        DATASETS["mnist"].build(mnist_contents(labels=idx(2, payload=b"\x00\x01")))


def test_cifar_batches_are_joined_in_order():
    contents = {f"data_batch_{i}.bin": bytes([i]) + bytes([i] * 3072) for i in range(1, 6)}
    data = DATASETS["cifar10"].build({**contents, "test_batch.bin": bytes([9]) + bytes(3072)})
    assert data.train_targets.tolist() == [1, 2, 3, 4, 5]
    assert data.train_inputs[4, 0, 0, 0].item() == pytest.approx((5 / 255 - 0.4914) / 0.24703)
    assert data.test_targets.tolist() == [9]
    with pytest.raises(DataError, match=r"test_batch\.bin has a label 10"):
        DATASETS["cifar10"].build({**contents, "test_batch.bin": bytes([10]) + bytes(3072)})


def test_libsvm_files_become_a_dataset():
    contents = {"x": b"+1 1:1\n-1 3:2\n", "x.t": b"-1 2:1\n"}
    data = build_libsvm(contents, features=3, counts={"x": 2, "x.t": 1})
    assert data.train_inputs.tolist() == [[1, 0, 0], [0, 0, 2]]
    assert data.train_targets.tolist() == [1, 0]
    assert data.test_inputs.tolist() == [[0, 1, 0]]
    assert data.test_targets.tolist() == [0]
    assert data.num_classes == 2
    assert data.train_inputs.dtype == torch.float32
    with pytest.raises(DataError, match="x has 2 samples instead of 32,561; fetch it again"):
        build_libsvm(contents, features=3, counts={"x": 32_561, "x.t": 1})


@pytest.mark.parametrize("name", ["a9a", "w8a"])
def test_libsvm_files_are_the_user_s_to_fetch(name, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDCEF_DATA", str(tmp_path))
    folder = tmp_path / name
    advice = rf"fetch {name} and {name}\.t by hand from https://.*libsvm.* put them, uncompressed, into .*{name}\.$"
    with pytest.raises(DataError, match=rf"{name} is missing; {advice}"):
        load(name)
    with pytest.raises(DataError, match=advice):
        fetch(name)
    folder.mkdir()
    (folder / name).write_bytes(b"+1 1:1\n")
    with pytest.raises(DataError, match=rf"{name}\.t is missing; {advice}"):
        load(name)
    (folder / f"{name}.t").write_bytes(b"-1 1:1\n")
    lines = []
    assert fetch(name, log=lines.append) == folder
    assert lines == [f"{name} is already in {folder}; its files are checked when they are read."]
    with pytest.raises(DataError, match=f"{name} has 1 samples instead of"):
        load(name)


# --- breast cancer


def test_breast_cancer():
    pytest.importorskip("sklearn")
    data = load("breast_cancer")
    assert data.train_inputs.shape == (455, 30)
    assert data.test_inputs.shape == (114, 30)
    assert data.train_inputs.dtype == torch.float32
    assert data.num_classes == 2
    assert data.train_inputs.mean(0).abs().max() < 1e-5
    assert (data.train_inputs.std(0) - 1).abs().max() < 1e-5
    assert data.test_inputs.mean(0).abs().max() > 1e-3  # the training part's statistics, not its own
    assert torch.equal(data.test_inputs, load("breast_cancer").test_inputs)
    # The split is part of every recorded result: it may not drift.
    assert data.test_targets.bincount().tolist() == [46, 68]


def test_softmax_takes_a_table_of_features():
    pytest.importorskip("sklearn")
    problem = Classification(name="breast_cancer").build(5, 0, {"name": "softmax"})
    assert problem.dim == 2 * 30 + 2
    assert problem.num_clients == 5
    assert problem.outputs(problem.model, problem.z0, problem.test.inputs).shape == (114, 2)


# --- digits


def test_digits():
    pytest.importorskip("sklearn")
    data = load("digits")
    assert data.train_inputs.shape == (1437, 1, 8, 8)
    assert data.test_inputs.shape == (360, 1, 8, 8)
    assert data.train_inputs.mean().item() == pytest.approx(0, abs=1e-5)
    assert data.train_inputs.std().item() == pytest.approx(1, abs=1e-5)
    assert data.test_targets.bincount().min() >= 25  # 36 on average: no class is left out of the test set
    assert data.train_targets.bincount().min() >= 125
    assert torch.equal(data.test_inputs, load("digits").test_inputs)
    # The split is part of every recorded result on digits: it may not drift.
    assert data.test_targets.bincount().tolist() == [43, 37, 29, 33, 41, 30, 34, 46, 32, 35]


@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_without_scikit_learn(name, monkeypatch):
    real_import = builtins.__import__

    def without_sklearn(name, *rest, **options):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real_import(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without_sklearn)
    with pytest.raises(DataError, match=rf"{name} .*{re.escape(install_extra('data'))}"):
        load(name)


# --- the cache


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A data set of one file in a cache of its own."""
    content = b"twelve bytes"
    file = DataFile("a.bin", len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(DATASETS, "tiny", DatasetInfo("Tiny", "one file", lambda contents: contents["a.bin"], (file,)))
    monkeypatch.setenv("FEDCEF_DATA", str(tmp_path))
    (tmp_path / "tiny").mkdir()
    path = tmp_path / "tiny" / "a.bin"
    path.write_bytes(content)
    return path


def test_loads_what_is_verified(tiny):
    assert load("tiny") == b"twelve bytes"


def test_missing_data_name_the_command(tiny):
    tiny.unlink()
    with pytest.raises(DataError) as caught:
        load("tiny")
    assert str(caught.value) == f"Tiny is not in {tiny.parent}; run: fedcef data get tiny"


@pytest.mark.parametrize(
    ("content", "complaint"), [(b"twelve byte", "11 bytes instead of 12"), (b"twelve bytez", "SHA-256")]
)
def test_damaged_data_are_refused(tiny, content, complaint):
    tiny.write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.bin is damaged: .*{complaint}.*; run: fedcef data get tiny"):
        load("tiny")


def test_unreadable_data_are_an_error_of_ours(tiny):
    tiny.unlink()
    tiny.mkdir()
    with pytest.raises(DataError, match=r"a\.bin cannot be read"):
        load("tiny")


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match="there are digits, mnist, fashion_mnist, cifar10"):
        load("mnsit")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the folder is platformdirs' choice")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "~/.cache/fedcef"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/fedcef"),
        ({"FEDCEF_DATA": "~/mine", "XDG_CACHE_HOME": "/x"}, "~/mine"),
    ],
)
def test_cache_folder(monkeypatch, variables, expected):
    for variable in ("FEDCEF_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert cache_folder() == Path(expected).expanduser()


# --- the real files, where they are


@pytest.mark.parametrize(("name", "tolerance"), [("mnist", 1e-3), ("fashion_mnist", 1e-3)])
def test_real_files(name, tolerance):
    if not all((cache_folder() / name / file.name).is_file() for file in DATASETS[name].files):
        pytest.skip(f"{name} is not in the cache; run: fedcef data get {name}")
    data = load(name)
    assert data.train_inputs.shape == (60_000, 1, 28, 28)
    assert data.test_inputs.shape == (10_000, 1, 28, 28)
    assert data.train_inputs.mean().item() == pytest.approx(0, abs=tolerance)
    assert data.train_inputs.std().item() == pytest.approx(1, abs=tolerance)
    assert data.train_targets.bincount().sum() == 60_000
    assert data.train_targets.unique().tolist() == list(range(10))
