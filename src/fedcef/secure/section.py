"""The section `[secure]`: which methods can be aggregated securely, and what their messages then are."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm
from fedcef.algorithms.received import Received
from fedcef.compressors import Compressor, Identity, RandK
from fedcef.compressors.dct import DCTTopK
from fedcef.compressors.grid import Grid
from fedcef.compressors.on_grid import NeedsSingleMessages, OnGrid, Summed
from fedcef.compressors.sparsifiers import Sparsifier
from fedcef.compressors.threshold import Threshold
from fedcef.core.errors import ConfigError
from fedcef.core.ranges import NotNegative, Positive
from fedcef.core.round import rehearsal_key
from fedcef.core.training import Training
from fedcef.privacy import sends_only_what_it_compresses


def _power_of_two_or_none(block: int) -> int:
    if block == 1 or block & (block - 1) or block > 2**16:
        raise ValueError("0, or a power of two from 2 to 65536")
    return block


def _even(neighbours: int) -> int:
    if neighbours % 2 or neighbours == 2:
        raise ValueError("0 for all, or an even number from 4 on")
    return neighbours


class Secure(BaseModel):
    """The section `[secure]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    range: Positive
    """The largest magnitude of an entry that is sent, after the rotation; what is beyond is cut off."""
    bits: Annotated[int, Field(ge=2, le=16)] = 8
    """Bits for a client's numbers; on the wire they get as many more as the sum of all clients needs."""
    block: Annotated[NotNegative, AfterValidator(_power_of_two_or_none)] = 128
    """How many entries are rotated together, so that all are about alike; 0 = no rotation."""
    threshold: Annotated[float, Field(gt=0.5, le=1)] = 2 / 3
    """The share of each client's neighbourhood that must stay to the end of a round; if fewer do, it is tried again."""
    neighbours: Annotated[NotNegative, AfterValidator(_even)] = 0
    """How many others a client shares its keys with; 0 = all of the round."""

    def protect(self, name: str, algorithm: Algorithm, z0: Tensor, run: Training, num_clients: int) -> Algorithm:
        """The method with messages that add up; refused where the sum is not all that its server needs."""
        if not (algorithm.compresses and sends_only_what_it_compresses(algorithm, z0)):
            raise ConfigError(
                f"[secure] adds up what goes through a compressor, and {name} sends more than that; take fedpaq "
                "(FedAvg with compressed changes) or fedcef, or leave [secure] out."
            )
        clients = run.clients_per_round or num_clients
        if run.weighting == "samples":
            raise ConfigError(
                "With [secure] the server has a plain sum of the messages; take weighting = 'uniform', or leave "
                "[secure] out."
            )
        if not run.aggregation.is_mean(clients):
            raise ConfigError(
                "With [secure] the server has the sum of the messages alone, and only a mean can be made of that; take "
                "aggregation.name = 'mean', or leave [secure] out."
            )
        if run.budget:
            raise ConfigError("A budget is not planned with [secure]; leave budget or [secure] out.")
        if clients < 2:
            raise ConfigError(f"The sum of {clients} message hides nothing; [secure] needs two clients in a round.")
        made = replace(algorithm, compressor=self.grid(algorithm.compressor, clients))
        _require_a_server_of_sums(name, made, z0)
        return made

    def grid(self, compressor: Compressor, clients: int) -> Grid:
        """The grid on which the sums of so many clients fit, with the entries that this compressor would send."""
        if isinstance(compressor, RandK):
            if compressor.values != "native":
                raise ConfigError("With [secure] the grid says how values travel; leave compressor.values out.")
            ratio, unbiased = compressor.ratio, compressor.unbiased
        elif isinstance(compressor, Identity):
            ratio, unbiased = 1.0, False
        else:
            what = type(compressor).__name__
            of_data = isinstance(compressor, Sparsifier | Threshold | DCTTopK)
            why = "sends other positions for each client" if of_data else "has scales or factors of each client's own"
            raise ConfigError(
                f"[secure] adds up numbers of which all clients send the same ones, and {what} {why}; take compressor "
                "randk or identity, or leave [secure] out."
            )
        return Grid(range=self.range, bits=self.bits, block=self.block, ratio=ratio, unbiased=unbiased, clients=clients)


def _require_a_server_of_sums(name: str, algorithm: Algorithm, z0: Tensor) -> None:
    """Refuse methods whose server looks at single messages, found by a rehearsal without data."""
    rehearsal = replace(algorithm, local_steps=1)
    key = rehearsal_key(torch.zeros((), dtype=torch.int64, device=z0.device))
    with torch.no_grad():
        replica = rehearsal.replica_init(z0)
        up, _ = rehearsal.local(replica, rehearsal.client_init(z0), lambda x, k: torch.zeros_like(x), key)
        sums = {part: Summed(one, 2) for part, one in up.items() if isinstance(one, OnGrid)}
        means = {part: one.total() for part, one in sums.items()}
        try:
            rehearsal.server_step(rehearsal.server_init(z0), replica, Received(means, sums, 1.0, key.shared))
        except NeedsSingleMessages:
            raise ConfigError(
                f"With [secure] the server has the sum of the messages alone, and that of {name} needs the single "
                "ones; take fedpaq or fedcef, or leave [secure] out."
            ) from None
