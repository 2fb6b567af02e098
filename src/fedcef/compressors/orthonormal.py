"""Orthonormal columns by tensor operations that a CUDA graph can record."""

from __future__ import annotations

import torch
from torch import Tensor

from fedcef.compressors.blocks import divided

_TWICE = range(2)  # "twice is enough" (Kahan): what rounding left over of the earlier columns is taken off again


def orthonormal(columns: Tensor) -> Tensor:
    """(..., n, r) -> (..., n, r) with the same span, by Gram-Schmidt; a column that depends on earlier ones is 0."""
    basis = torch.zeros_like(columns)
    for j in range(columns.shape[-1]):
        column = columns[..., j : j + 1]
        length = column.norm(dim=-2, keepdim=True)
        rest = divided(column, length)
        for _ in _TWICE:
            rest = rest - basis @ (basis.mT @ rest)
        left = rest.norm(dim=-2, keepdim=True)
        new = left > 100 * torch.finfo(columns.dtype).eps
        unit = torch.where(new | left.isnan(), rest / torch.where(new, left, 1), 0)
        basis = torch.cat([basis[..., :j], unit, basis[..., j + 1 :]], dim=-1)
    return basis
