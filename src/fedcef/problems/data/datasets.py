"""The data sets, read from files whose SHA-256 is known and given out as standardised tensors.

Files lie uncompressed in `<cache>/<name>/`; `fedcef.problems.data.sources` brings them there.  Loading hashes
every file again (well under a second), so that a run never starts on damaged data.  Files that only the user can
fetch have no known SHA-256; what reads them checks their format and how many samples they have.

To add a data set: a function that turns file contents into a `Dataset`, and one entry in `DATASETS`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from platformdirs import user_cache_path
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ConfigError, DataError
from fedcef.core.extras import install_extra
from fedcef.core.parts import suggest
from fedcef.problems.data.formats import Bytes, parse_cifar, parse_idx, parse_libsvm

Contents = Mapping[str, bytes]
"""File name -> its verified content."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A classification task."""

    train_inputs: Tensor  # float32: (n, channels, height, width), standardised, or (n, features)
    train_targets: Tensor  # (n,) int64
    test_inputs: Tensor
    test_targets: Tensor
    num_classes: int


@dataclass(frozen=True)
class DataFile:
    """One file as it must be, uncompressed."""

    name: str
    size: int
    sha256: str

    def complaint(self, content: bytes) -> str | None:
        """What is wrong with `content`, or None if it is this file."""
        if len(content) != self.size:
            return f"it has {len(content):,} bytes instead of {self.size:,}"
        if hashlib.sha256(content).hexdigest() != self.sha256:
            return "its SHA-256 is not the published one"
        return None

    def is_at(self, path: Path) -> bool:
        """Whether `path` is this file, whole and unchanged."""
        return path.is_file() and path.stat().st_size == self.size and self.complaint(path.read_bytes()) is None


@dataclass(frozen=True)
class DatasetInfo:
    """What `fedcef list` shows and what `load` needs."""

    title: str
    description: str
    build: Callable[[Contents], Dataset]
    files: tuple[DataFile, ...] = ()
    by_hand: tuple[str, ...] = ()
    """Names of files that no source has; the user fetches them from `page`."""
    page: str = ""

    def hand_advice(self, folder: Path) -> str:
        """What the user has to do for the files `by_hand`."""
        return f"fetch {' and '.join(self.by_hand)} by hand from {self.page} and put them, uncompressed, into {folder}"


def load(name: str) -> Dataset:
    """The data set `name`, from the cache folder."""
    info = find(name)
    folder = cache_folder() / name
    contents = {file.name: _read_verified(name, folder, file) for file in info.files}
    return info.build(contents | {file: _read_by_hand(info, folder, file) for file in info.by_hand})


def find(name: str) -> DatasetInfo:
    """The entry of `name` in the table."""
    if name not in DATASETS:
        raise ConfigError(f"There is no data set {name!r}; there are {', '.join(DATASETS)}.{suggest(name, DATASETS)}")
    return DATASETS[name]


def cache_folder() -> Path:
    """Where data sets are kept: $FEDCEF_DATA, or `fedcef` in the platform's folder for caches."""
    if chosen := os.environ.get("FEDCEF_DATA"):
        return Path(chosen).expanduser()
    return user_cache_path("fedcef", appauthor=False, opinion=False)


def _read_verified(name: str, folder: Path, file: DataFile) -> bytes:
    path = folder / file.name
    remedy = f"run: fedcef data get {name}"
    content = _read(path, missing=f"{DATASETS[name].title} is not in {folder}; {remedy}")
    if complaint := file.complaint(content):
        raise DataError(f"{path} is damaged: {complaint}; {remedy}")
    return content


def _read_by_hand(info: DatasetInfo, folder: Path, file: str) -> bytes:
    return _read(folder / file, missing=f"{info.title} is not complete: {file} is missing; {info.hand_advice(folder)}.")


def _read(path: Path, missing: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(missing) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


# --- file formats ---------------------------------------------------------------------------------------


def to_targets(labels: Bytes, file: str, num_classes: int) -> Tensor:
    """Labels as int64, after a check of their range."""
    if labels.size and labels.max() >= num_classes:
        raise DataError(f"{file} has a label {labels.max()}; labels go from 0 to {num_classes - 1}.")
    return torch.from_numpy(labels.astype(np.int64))


def standardise(pixels: Bytes, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(n, channels, height, width) bytes -> (pixel/255 - mean)/std per channel, float32."""
    inputs = torch.from_numpy(pixels.astype(np.float32))
    shift = torch.tensor(mean).view(-1, 1, 1)
    scale = torch.tensor(std).view(-1, 1, 1)
    return inputs.div_(255).sub_(shift).div_(scale)  # in place: CIFAR-10 alone is 614 MB


# --- the data sets --------------------------------------------------------------------------------------


def build_mnist_like(contents: Contents, mean: float, std: float) -> Dataset:
    """MNIST and what copies its format."""

    def part(prefix: str) -> tuple[Tensor, Tensor]:
        images_file, labels_file = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
        images = parse_idx(contents[images_file], images_file, (28, 28))
        labels = parse_idx(contents[labels_file], labels_file, ())
        if len(images) != len(labels):
            raise DataError(f"{images_file} has {len(images):,} images, but {labels_file} has {len(labels):,} labels.")
        return standardise(images[:, None], [mean], [std]), to_targets(labels, labels_file, 10)

    return Dataset(*part("train"), *part("t10k"), num_classes=10)


def build_cifar10(contents: Contents) -> Dataset:
    """CIFAR-10, standardised per channel with the training set's mean and deviation."""

    def part(files: Sequence[str]) -> tuple[Tensor, Tensor]:
        batches = [parse_cifar(contents[file], file) for file in files]
        targets = [to_targets(labels, file, 10) for (_, labels), file in zip(batches, files, strict=True)]
        images = np.concatenate([images for images, _ in batches])
        return standardise(images, (0.49140, 0.48216, 0.44653), (0.24703, 0.24349, 0.26159)), torch.cat(targets)

    return Dataset(*part([f"data_batch_{i}.bin" for i in range(1, 6)]), *part(["test_batch.bin"]), num_classes=10)


def build_digits(_: Contents) -> Dataset:
    """scikit-learn's 8x8 digits, split 80/20 in a fixed pseudo-random order."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(f"digits come with scikit-learn, which is missing; run: {install_extra('data')}") from None
    pixels, labels = load_digits(return_X_y=True)
    inputs = torch.from_numpy(pixels).to(torch.float32).div_(16).view(-1, 1, 8, 8)
    targets = torch.from_numpy(labels).to(torch.int64)
    train, test = fixed_split(len(targets))
    # One mean for all pixels: some border pixels are always blank, with no deviation to divide by.
    mean, std = inputs[train].mean(), inputs[train].std()
    inputs = (inputs - mean) / std
    return Dataset(inputs[train], targets[train], inputs[test], targets[test], num_classes=10)


def build_breast_cancer(_: Contents) -> Dataset:
    """scikit-learn's breast cancer table, split 80/20 as digits are, every feature standardised."""
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        raise DataError(
            f"breast_cancer comes with scikit-learn, which is missing; run: {install_extra('data')}"
        ) from None
    features, labels = load_breast_cancer(return_X_y=True)
    inputs, targets = torch.from_numpy(features), torch.from_numpy(labels).to(torch.int64)
    train, test = fixed_split(len(targets))
    inputs = ((inputs - inputs[train].mean(0)) / inputs[train].std(0)).to(torch.float32)
    return Dataset(inputs[train], targets[train], inputs[test], targets[test], num_classes=2)


def build_libsvm(contents: Contents, features: int, counts: Mapping[str, int]) -> Dataset:
    """Two LIBSVM files, training and test, each with a known number of samples; the features stay as they are."""

    def part(file: str) -> tuple[Tensor, Tensor]:
        inputs, labels = parse_libsvm(contents[file], file, features)
        if len(labels) != counts[file]:
            raise DataError(f"{file} has {len(labels):,} samples instead of {counts[file]:,}; fetch it again.")
        return torch.from_numpy(inputs), torch.from_numpy(labels)

    train, test = counts
    return Dataset(*part(train), *part(test), num_classes=2)


def fixed_split(count: int) -> tuple[Tensor, Tensor]:
    """Rows for training and for the test, 80/20; the same for every run: the test set never changes."""
    order = rng.permutation(rng.fixed_key(), count)
    return order[: count * 4 // 5], order[count * 4 // 5 :]


def _libsvm(name: str, description: str, features: int, train: int, test: int) -> DatasetInfo:
    counts = {name: train, f"{name}.t": test}
    return DatasetInfo(
        name,
        description,
        partial(build_libsvm, features=features, counts=counts),
        by_hand=tuple(counts),
        page="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
    )


def _mnist_files(*sha256: str) -> tuple[DataFile, ...]:
    names_and_sizes = [
        ("train-images-idx3-ubyte", 47_040_016),
        ("train-labels-idx1-ubyte", 60_008),
        ("t10k-images-idx3-ubyte", 7_840_016),
        ("t10k-labels-idx1-ubyte", 10_008),
    ]
    return tuple(DataFile(name, size, sha) for (name, size), sha in zip(names_and_sizes, sha256, strict=True))


DATASETS: dict[str, DatasetInfo] = {
    "digits": DatasetInfo("digits", "1,797 handwritten digits, 8x8, inside scikit-learn", build_digits),
    "mnist": DatasetInfo(
        "MNIST",
        "70,000 handwritten digits, 28x28",
        partial(build_mnist_like, mean=0.1307, std=0.3081),
        _mnist_files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    "fashion_mnist": DatasetInfo(
        "Fashion-MNIST",
        "70,000 pieces of clothing, 28x28",
        partial(build_mnist_like, mean=0.2860, std=0.3530),
        _mnist_files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    "cifar10": DatasetInfo(
        "CIFAR-10",
        "60,000 colour photographs in ten classes, 32x32",
        build_cifar10,
        tuple(
            DataFile(name, 30_730_000, sha256)
            for name, sha256 in {
                "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            }.items()
        ),
    ),
    "breast_cancer": DatasetInfo(
        "breast_cancer",
        "569 breast tumours in two classes, 30 features, inside scikit-learn",
        build_breast_cancer,
    ),
    "a9a": _libsvm("a9a", "48,842 people of a census in two classes of income, 123 features", 123, 32_561, 16_281),
    "w8a": _libsvm("w8a", "64,700 web pages in two classes, 300 features", 300, 49_749, 14_951),
}
