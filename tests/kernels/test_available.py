"""Kernels are used where they can run, and where they cannot a sentence says once why."""

from __future__ import annotations

import warnings

import pytest
import torch

from fedcef import kernels


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch):
    """gpu(triton, capability): a machine with one GPU and another of capability 9.0."""

    def there(triton: tuple[int, ...], capability: tuple[int, int]) -> None:
        kernels._suits.cache_clear()
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
        monkeypatch.setattr(kernels, "_triton", lambda: triton)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (capability, (9, 0))[index])
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Old GPU")

    yield there
    kernels._suits.cache_clear()


@pytest.mark.parametrize(
    ("triton", "capability", "sentence"),
    [
        ((), (9, 0), r"they need Triton 3\.4 or newer, and it is not installed\.$"),
        ((3, 3), (9, 0), r"they need Triton 3\.4 or newer, and 3\.3 is installed\.$"),
        ((3, 6), (7, 5), r"they need compute capability 8\.0, and Old GPU has 7\.5\.$"),
    ],
)
def test_what_is_missing_is_told_once(gpu, triton, capability, sentence) -> None:
    gpu(triton, capability)
    with pytest.warns(UserWarning, match=sentence):
        assert not kernels.available()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not kernels.available()


def test_every_gpu_is_asked_for_itself(gpu) -> None:
    gpu((3, 4), (7, 0))
    assert kernels.available(torch.device("cuda:1"))
    with pytest.warns(UserWarning, match="Old GPU"):
        assert not kernels.available(torch.device("cuda"))


def test_without_a_gpu_there_is_nothing_to_tell(monkeypatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not kernels.available()


def test_the_interpreter_needs_the_version_too(monkeypatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(kernels, "_triton", lambda: (3, 3))
    assert not kernels.available()
