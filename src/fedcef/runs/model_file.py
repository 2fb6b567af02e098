"""model.safetensors: a plain safetensors file that any reader opens, with a checksum that ours verifies.

Its metadata has one entry, `fedcef`: the round, and the CRC-32 of the round and of every tensor's name, type, shape and
values.  One entry, because safetensors writes several in no fixed order, and equal models are equal files.  Files of
before there was a checksum, whose metadata is empty or has the round alone, are read without it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedcef.core.errors import RunError


def encode_model(tensors: Mapping[str, Tensor], round_: int) -> bytes:
    """The file of a model after some round."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    about = {"round": round_, "crc32": _checksum(plain, round_)}
    return save(plain, {"fedcef": json.dumps(about)})


def read_model(path: Path) -> dict[str, Tensor]:
    """The tensors of a model by name; a file that is not what was written is refused."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(metadata["fedcef"]) if metadata.keys() - {"round"} else {}
        whole = not about or about["crc32"] == _checksum(tensors, about["round"])
        reason = "its checksum does not fit its content"
    except OSError as error:
        raise RunError(f"The model {path} cannot be read: {error.strerror or error}.") from None
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        whole, reason = False, str(error)
    if not whole:
        raise RunError(
            f"The model {path} is damaged ({reason}); restore it from a copy, or remove it and summary.json and go on "
            "with the run, which writes both again."
        )
    return tensors


def _checksum(tensors: Mapping[str, Tensor], round_: int) -> str:
    names = sorted(tensors)
    kinds = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in names]
    crc = zlib.crc32(json.dumps([round_, kinds]).encode())
    for name in names:
        crc = zlib.crc32(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"
