"""How kept values travel: as floats, as powers of two, or as levels that share a scale.

Each coder has a bound d² on its relative error, |coded - x|² <= d²|x|², over values that share a scale (n of them):

    floats       2^-48, 2^-22, 2^-16 for float32, float16, bfloat16: half a unit in the last place, squared; not for
                 numbers below the type's normal range (6e-5 for float16)
    powers       1/9: the nearest power of two is off by a third at most
    uniform      with L steps from 0 to max|x|, whose scale makes the largest exact, the others are off by no more than
                 themselves and no more than half a step: at worst all are half a step, (n-1)a/(1 + (n-1)a), a = 1/(4L²)
    log          J halvings from max|x| down and no zero.  Above the smallest level the ratio of level and number is in
                 [2/3, 4/3], so that the squared cosine between them is 8/9 or more (Kantorovich); n-1 zeros, sent as
                 smallest levels, lengthen the vector of levels by a factor 1 + (n-1)/4^J at most:
                 1 - (8/9)/(1 + (n-1)/4^J)
    sign         the mean magnitude: 1 - |x|₁²/(n|x|²) <= 1 - 1/n
    few levels   ternary and log2, which begin with ± the mean magnitude among their levels, are no worse than sign

Rounding is to nearest and not random: error feedback sends later what it loses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from torch import Tensor

from fedcef.compressors.blocks import block_length
from fedcef.compressors.levels import fitted
from fedcef.compressors.natural import nearest_powers
from fedcef.wire import Values, cast

ValueCoder = Literal[
    "native", "float32", "float16", "bfloat16", "powers", "uniform8", "uniform4", "uniform2", "log4", "log3", "log2",
    "ternary", "sign",
]  # fmt: skip
EXACT = ("native", "float32")
"""Those that change nothing beyond rounding to float32."""


class Coder(NamedTuple):
    """A way in which kept values travel, and the bound d² on what it loses."""

    code: Callable[[Tensor, int], Tensor | Values]  # values (..., k), how many share a scale
    error: Callable[[int], float]  # d² of as many values with one scale


def coded(values: Tensor, name: str, block: int) -> Tensor | Values:
    """The values, (..., k), as they travel; `block` of them share a scale, if they have one."""
    return CODERS[name].code(values, block)


def coding_error(name: str, count: int, block: int) -> float:
    """d² for `count` values."""
    return CODERS[name].error(block_length(count, block))


def cast_to(values: Tensor, name: str) -> Tensor:
    """The values in the named type; "native" leaves them as they are."""
    return values if name == "native" else cast(values, name)


def _floats(name: str, error: float) -> Coder:
    return Coder(lambda values, _: cast_to(values, name), lambda _: error)


def _levels(table: str, rounds: int, error: Callable[[int], float], means: float | None = None) -> Coder:
    return Coder(lambda values, block: fitted(values, table, block, rounds, means), error)


def _sign_error(count: int) -> float:
    return 1 - 1 / count


def _uniform_error(steps: int, count: int) -> float:
    a = (count - 1) / (2 * steps) ** 2
    return a / (1 + a)


def _log_error(halvings: int, count: int) -> float:
    return 1 - (8 / 9) / (1 + (count - 1) * 0.25**halvings)


CODERS: dict[str, Coder] = {
    "native": _floats("native", 0.0),
    "float32": _floats("float32", 2.0**-48),
    "float16": _floats("float16", 2.0**-22),
    "bfloat16": _floats("bfloat16", 2.0**-16),
    "powers": Coder(lambda values, _: nearest_powers(values), lambda _: 1 / 9),
    "uniform8": _levels("uniform8", 1, partial(_uniform_error, 127)),
    "uniform4": _levels("uniform4", 4, partial(_uniform_error, 7)),
    "uniform2": _levels("uniform2", 4, _sign_error, 1.0),
    "log4": _levels("log4bit", 2, partial(_log_error, 7)),
    "log3": _levels("log3bit", 4, partial(_log_error, 3)),
    "log2": _levels("log2bit", 2, _sign_error, 2.0),
    "ternary": _levels("ternary", 4, _sign_error, 1.0),
    "sign": _levels("sign", 1, _sign_error, 1.0),
}
