"""FedDR: randomised Douglas-Rachford splitting.

Tran-Dinh, Pham, Phan, Nguyen, "FedDR" (NeurIPS 2021, arXiv 2103.03452), in the form of its authors' code, with
relaxation ρ in (0, 2) and the length η of the proximal steps:

    client:  y_i ← y_i + ρ (z - x_i);   x_i ≈ argmin_x f_i(x) + |x - y_i|²/(2η);   x̂_i ← 2x_i - y_i
             upload the change of x̂_i
    server:  x̃ ← x̃ + (S/N) · mean of the changes;   z = prox_{ηh}(x̃);   broadcast z

The argmin is K steps of length α from the client's last x_i, as in that code (`start = "own"`), or from z, which is
mostly faster where the steps are few or short.  In the limit x_i = z minimises the local objective, so either way
inexact steps make no difference there, and the limit is exact; from y_i it would not be.

Everything starts at z0, so that x̃ = mean x̂_i holds from the start, which the method needs: otherwise it keeps the
difference for ever.  With all clients the first round is then the paper's initialisation.  The paper's Algorithm 1
has one more block in the server's step, which its authors' code leaves out, as here; that code weighs clients by
samples.  `server_lr` plays no part.  4p bytes up, 4p down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from fedcef.algorithms.algorithm import Message, Oracle, State, Vector
from fedcef.algorithms.local_steps import gradient_steps, penalized
from fedcef.algorithms.splitting import SplittingMethod
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedDR(SplittingMethod):
    """Federated Douglas-Rachford splitting."""

    relaxation: Annotated[float, Field(gt=0, lt=2)] = 1.0
    """ρ: how far y_i moves; 1 is FedADMM, the authors use 1.95."""

    def client_init(self, z0: Vector) -> State:
        return {"x_i": z0, "y_i": z0}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        z, x_i, y_i = replica["z"], client["x_i"], client["y_i"]
        x_hat = 2 * x_i - y_i
        y_i = y_i + self.relaxation * (z - x_i)
        held = penalized(oracle, y_i, torch.zeros_like(y_i), 1 / self.penalty_step)
        x_i = gradient_steps(self, self.first_point(z, x_i), held).x
        return {"change": Dense(2 * x_i - y_i - x_hat)}, {"x_i": x_i, "y_i": y_i}
