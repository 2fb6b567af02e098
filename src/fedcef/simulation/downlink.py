"""Whether a run that chooses by itself sends a log or messages that stand alone: `compressor = "auto"`.

A client that comes back needs every message of a log since it was there last, N/S of them in the mean, and one that is
new needs all; of messages that stand alone it needs the last one, of one or a few bits for each parameter.  So these
are cheaper from some absence on, and then by far; below it the log is cheaper, and exact in the limit.
"""

from __future__ import annotations

from dataclasses import fields, replace

from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import TopK
from fedcef.core.errors import ConfigError
from fedcef.core.round import Rounds
from fedcef.simulation.planning import may_end_early

ABSENCE = 30
"""The mean number of rounds between two of a client's above which messages stand alone: at 1.5% of signs a message of a
log takes 0.08 bits for each parameter, and one that stands alone 1.4 or 2.4 with what is below."""
CONTROL = TopK(ratio=0.05, values="sign")
"""How c is sent then."""
CONTROL_BITS = 0.4
"""About how many bits for each parameter that takes."""
BITS = (4, 2)
"""Bits for each parameter of the model, of which the most are taken that a budget has room for."""
ROOM = 0.5
"""The part of a budget that they may take; with less room it is one bit."""
WITHOUT_A_BUDGET = 2
_OPEN = ("increment", "dense")  # lossy and snapshot are asked for by name, and stay


def with_downlink(algorithm: Algorithm, rounds: Rounds, dim: int) -> Algorithm:
    """The method with the downlink that suits its share of clients, if it has several and none was asked for."""
    names, budget = {f.name for f in fields(algorithm)}, rounds.training.budget
    asked = getattr(algorithm, "downlink", None) not in _OPEN
    if asked or not {"model_bits", "down_compressor"} <= names or rounds.share * ABSENCE >= 1:
        return algorithm
    nbytes = rounds.training.rounds * rounds.asked_size * dim / 8  # of one bit for each parameter, for all
    if 0 < budget < (1 + CONTROL_BITS) * nbytes and not may_end_early(rounds, algorithm):
        return algorithm  # a round of a log can cost less
    payable = [bits for bits in BITS if (bits + CONTROL_BITS) * nbytes <= ROOM * budget]
    bits = max(payable, default=1) if budget else WITHOUT_A_BUDGET
    options = {"downlink": "snapshot", "model_bits": bits, "down_compressor": CONTROL, "index_code": "context"}
    try:
        return replace(algorithm, **options)  # type: ignore[arg-type]
    except ConfigError:  # other options of the method need every message
        return algorithm


def told(algorithm: Algorithm) -> str:
    """What is said of messages that stand alone."""
    bits = getattr(algorithm, "model_bits", 0)
    return f", snapshots of {bits} bit{'s' * (bits != 1)} down" if algorithm.stands_alone and bits else ""
