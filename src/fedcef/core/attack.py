"""The options of a simulated attack: the section `attack`.  What it does is in `simulation/attacks.py`."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.ranges import Fraction, NotNegative, Positive
from fedcef.core.rng import Purpose

USUAL = {"sign_flip": 1.0, "scaling": 100.0, "label_flip": 1.0, "a_little": 1.5, "inner_product": 10.0}
"""How strong each attack is unless told otherwise."""


class Attack(BaseModel):
    """Some clients lie, to see what a method and a rule make of it; in the simulator alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["sign_flip", "scaling", "label_flip", "a_little", "inner_product"]
    """What they do: send the negative of their vectors; send far too long ones; train on wrong labels; or collude, and
    all send the same vector, just inside the spread of the honest ones, or against their mean."""
    share: Fraction = 0.2
    """The share of all clients that lie, chosen by the seed."""
    clients: tuple[NotNegative, ...] = ()
    """Their numbers, in place of `share`."""
    strength: Positive | None = None
    """A factor on what they send; for `a_little` the number of standard deviations.  None = 1 for `sign_flip`, 100 for
    `scaling`, 1.5 for `a_little`, 10 for `inner_product`; `label_flip` has none."""

    @property
    def force(self) -> float:
        """The strength, or the usual one of its kind."""
        return USUAL[self.name] if self.strength is None else self.strength

    def members(self, num_clients: int, seed: int) -> Tensor:
        """Which clients lie, (N,) bool."""
        if any(client >= num_clients for client in self.clients):
            raise ConfigError(
                f"attack.clients has {max(self.clients)}; clients are numbered from 0 to {num_clients - 1}."
            )
        count = round(self.share * num_clients)
        drawn = rng.subset(rng.data_key(seed, Purpose.ATTACK), num_clients, count) if count else torch.zeros(0)
        who = torch.tensor(self.clients) if self.clients else drawn
        return torch.zeros(num_clients, dtype=torch.bool).index_fill(0, who.long(), True)
