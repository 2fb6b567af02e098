"""FedADMM: the alternating direction method of multipliers with some of the clients.

Wang, Marella, Anderson, "FedADMM: A Federated Primal-Dual Algorithm Allowing Partial Participation" (arXiv
2203.15104); others have used the name for other methods.  With multipliers u_i and penalty 1/η:

    client:  x_i ≈ argmin_x f_i(x) + ⟨u_i, x - z⟩ + |x - z|²/(2η);   u_i ← u_i + (x_i - z)/η;   x̂_i ← x_i + η u_i
             upload the change of x̂_i
    server:  x̃ ← x̃ + (S/N) · mean of the changes;   z = prox_{ηh}(x̃);   broadcast z

Reconstructed: only the abstract was at hand, which says that the method is for composite problems and any sampling of
clients.  It equals FedDR with relaxation 1, where y_i is z - η u_i.  As there, the argmin is K steps of length α from
the last x_i or from z, all starts at z0 (and u_i at 0), and `server_lr` plays no part.  4p bytes up, 4p down.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcef.algorithms.algorithm import Message, Oracle, State, Vector
from fedcef.algorithms.local_steps import gradient_steps, penalized
from fedcef.algorithms.splitting import SplittingMethod
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedADMM(SplittingMethod):
    """Federated ADMM."""

    def client_init(self, z0: Vector) -> State:
        return {"x_i": z0, "u_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        z, x_i, u_i, eta = replica["z"], client["x_i"], client["u_i"], self.penalty_step
        x_hat = x_i + eta * u_i
        x_i = gradient_steps(self, self.first_point(z, x_i), penalized(oracle, z, u_i, 1 / eta)).x
        u_i = u_i + (x_i - z) / eta
        return {"change": Dense(x_i + eta * u_i - x_hat)}, {"x_i": x_i, "u_i": u_i}
