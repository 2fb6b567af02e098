"""Compressors C for what is sent."""

from fedcef.compressors.compressor import Compressor, Identity
from fedcef.compressors.sparsifiers import LayerwiseTopK, RandK, TopK, largest

COMPRESSORS: dict[str, type[Compressor]] = {
    "identity": Identity,
    "topk": TopK,
    "randk": RandK,
    "layerwise_topk": LayerwiseTopK,
}

__all__ = ["COMPRESSORS", "Compressor", "Identity", "LayerwiseTopK", "RandK", "TopK", "largest"]
