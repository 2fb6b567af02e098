"""Compressors C for what is sent."""

from fedcef.compressors.auto import Auto
from fedcef.compressors.block_sparsifiers import BlockTopK, BlockwiseTopK
from fedcef.compressors.compressor import Compressor, Identity
from fedcef.compressors.dct import Cosines, DCTTopK, from_cosines
from fedcef.compressors.low_rank import PowerSGD
from fedcef.compressors.natural import Natural
from fedcef.compressors.qsgd import QSGD
from fedcef.compressors.rotations import Drive, Eden
from fedcef.compressors.signs import OneBit, ScaledSign
from fedcef.compressors.sparsifiers import STC, LayerwiseTopK, RandK, TopK, largest
from fedcef.compressors.terngrad import TernGrad
from fedcef.compressors.three_lc import ThreeLC
from fedcef.compressors.threshold import Threshold

COMPRESSORS: dict[str, type[Compressor]] = {
    "identity": Identity,
    "topk": TopK,
    "randk": RandK,
    "layerwise_topk": LayerwiseTopK,
    "blockwise_topk": BlockwiseTopK,
    "block_topk": BlockTopK,
    "dct_topk": DCTTopK,
    "threshold": Threshold,
    "stc": STC,
    "scaled_sign": ScaledSign,
    "one_bit": OneBit,
    "three_lc": ThreeLC,
    "terngrad": TernGrad,
    "qsgd": QSGD,
    "natural": Natural,
    "drive": Drive,
    "eden": Eden,
    "powersgd": PowerSGD,
    "auto": Auto,
}

__all__ = [
    "COMPRESSORS",
    "QSGD",
    "STC",
    "Auto",
    "BlockTopK",
    "BlockwiseTopK",
    "Compressor",
    "Cosines",
    "DCTTopK",
    "Drive",
    "Eden",
    "Identity",
    "LayerwiseTopK",
    "Natural",
    "OneBit",
    "PowerSGD",
    "RandK",
    "ScaledSign",
    "TernGrad",
    "ThreeLC",
    "Threshold",
    "TopK",
    "from_cosines",
    "largest",
]
