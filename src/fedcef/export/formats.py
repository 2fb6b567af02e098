"""What a model is written as: a safetensors file, a torch.export program, or ONNX."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

import fedcef
from fedcef.core.chain import NotAChainError, Step
from fedcef.core.errors import ConfigError
from fedcef.core.extras import install_extra
from fedcef.export.chain import read_chain


@dataclass(frozen=True)
class Format:
    """A kind of file."""

    suffix: str
    encode: Callable[[nn.Module, Tensor, Mapping[str, str]], bytes]
    """encode(model, example inputs, what to say of it): the content of a file."""


def as_safetensors(model: nn.Module, example: Tensor, about: Mapping[str, str]) -> bytes:
    """The tensors by name; the metadata has the layers as JSON under `architecture`."""
    metadata = {"format": "pt", "fedcef": fedcef.__version__, **about}
    metadata["architecture"] = json.dumps(architecture(model, example))
    return save({name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}, metadata)


def as_torch(model: nn.Module, example: Tensor, about: Mapping[str, str]) -> bytes:
    """A torch.export program: weights and computation, for any batch size, without a class of anybody's."""
    program = torch.export.export(model, (example,), dynamic_shapes=_any_batch())
    content = BytesIO()
    torch.export.save(program, content, extra_files={"about": json.dumps({"fedcef": fedcef.__version__, **about})})
    return content.getvalue()


def as_onnx(model: nn.Module, example: Tensor, about: Mapping[str, str]) -> bytes:
    """ONNX with inputs `input` and outputs `output`, for any batch size, all in one file."""
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise ConfigError(
                f"Writing ONNX needs the package {package}, which is missing; run: {install_extra('onnx')}"
            )
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own deprecations
            program = torch.onnx.export(
                model,
                (example,),
                input_names=["input"],
                output_names=["output"],
                dynamic_shapes=_any_batch(),
                dynamo=True,
                verbose=False,
            )
    finally:
        quiet.setLevel(level)
    assert program is not None
    program.model.metadata_props.update({"fedcef": fedcef.__version__, **about})
    content: bytes = program.model_proto.SerializeToString()
    return content


def architecture(model: nn.Module, example: Tensor) -> dict[str, Any]:
    """The layers in order, each with its class in torch.nn, its name in the state and its arguments.

    `layers` is None for a model that is not a chain of layers.
    """
    try:
        layers = [_described(step) for step in read_chain(model, example)]
    except NotAChainError:
        layers = None
    return {"model": type(model).__name__, "input_shape": list(example.shape[1:]), "layers": layers}


def _described(step: Step) -> dict[str, Any]:
    kind = type(step.module).__name__
    options = {name: getattr(step.module, name) for name in _OPTIONS.get(kind, ())}
    if step.weighted:
        options["bias"] = step.module.bias is not None
    return {"kind": kind, "name": step.name, "options": options}


_OPTIONS: dict[str, tuple[str, ...]] = {
    "Conv2d": ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "padding_mode"),
    "Linear": ("in_features", "out_features"),
    "MaxPool2d": ("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "AvgPool2d": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"),
    "AdaptiveAvgPool2d": ("output_size",),
    "LeakyReLU": ("negative_slope",),
    "ELU": ("alpha",),
    "GELU": ("approximate",),
    "Softplus": ("beta", "threshold"),
    "Dropout": ("p",),
}
"""The arguments that rebuild a layer of torch.nn."""

FORMATS: dict[str, Format] = {
    "safetensors": Format(".safetensors", as_safetensors),
    "torch": Format(".pt2", as_torch),
    "onnx": Format(".onnx", as_onnx),
}


def _any_batch() -> tuple[dict[int, Any]]:
    return ({0: torch.export.Dim("batch")},)
