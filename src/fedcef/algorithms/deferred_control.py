"""Control variates that a client brings up to date when it hears how its round ended.

What CompressedScaffnew, TAMUNA and FedComLoc share.  x_i is the point that client i reached, w_i its weights in this
round: θ/α in the entries that it sent, times a factor of the method's, and 0 elsewhere.  With β = α·η_g/θ, and L and θ
as in random_steps.py:

    client:  x_i = z;   L times:  x_i ← x_i - α (g_i(x_i) - h_i);   upload what the method sends of x_i
    server:  x̄ = the mean of what was sent, entry by entry;   z ← prox_{βh}(z + η_g (x̄ - z) - β h̄);   broadcast z
    client:  h_i ← h_i + w_i (z - x_i)

h̄ is the mean of all clients' h_i; the server adds it up as h̄ ← h̄ + (mean w_i)(z - x̄).  In FedComLoc's "global" it is
not quite that mean, since clients know C(z) in the place of z.  As published, with h = 0 and η_g = 1, h̄ = 0 and z = x̄.
The proximal step with h̄ is ours, after ProxSkip (scaffnew.py).  At a fixed point z = x_i
= x̄ and h_i = ∇f_i(z), so z = prox_{βh}(z - β∇f(z)): exact, if what is sent of x_i is x_i itself in the entries sent.

The last line needs the z at the end of a round in which the client took part.  So the client keeps x_i and w_i.  With
all clients in every round it does the line, by `settled`, at the beginning of the next round, where it still knows that
z.  With some of them it would not: Σ h_i = N h̄ would be lost, and with it the solution.  So for cohorts the simulator
calls `settled` when a round has ended, and counts the message that its participants are then sent.  A deployment does
not tell them, and asks for all clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import gradient_steps
from fedcef.algorithms.random_steps import RandomSteps
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class DeferredControl(RandomSteps, ABC):
    """A method whose clients correct their drift by where a round ended and where they stood."""

    partial_participation: ClassVar[bool] = False
    steps_locally: ClassVar[bool] = True

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0}

    def server_init(self, z0: Vector) -> State:
        return {"h": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"h_i": z0.new_zeros(z0.shape), "x_i": z0, "w_i": z0.new_zeros(z0.shape)}

    def settled(self, client: State, replica: State) -> State:
        """A participant's state once it knows how its round ended; doing it again changes nothing."""
        h_i, x_i, w_i = client["h_i"], client["x_i"], client["w_i"]
        return {"h_i": h_i + w_i * (replica["z"] - x_i), "x_i": x_i, "w_i": w_i.new_zeros(w_i.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        z, h_i = replica["z"], self.settled(client, replica)["h_i"]
        gradient = self.until_the_end(self.local_oracle(oracle), -h_i, key)
        up, x_i, w_i = self.sent(gradient_steps(self, z, lambda x, k: gradient(x, k) - h_i).x, key)
        return up, {"h_i": h_i, "x_i": x_i, "w_i": w_i}

    @abstractmethod
    def sent(self, x: Vector, key: Key) -> tuple[Message, Vector, Vector]:
        """What a client at x uploads, what that tells of x, and with what weights it enters the control variate."""

    @property
    def weight(self) -> float:
        """θ/α."""
        return 1 / (self.local_lr * self.mean_steps)

    def gathered(self, received: Received, dim: int) -> tuple[Vector, float]:
        """x̄, of this length, and the mean of the participants' weights, which is the same in all entries."""
        return received.mean["x"], self.weight

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        z = replica["z"]
        x_mean, weight = self.gathered(received, len(z))
        z = self.server_prox(z + self.server_lr * (x_mean - z) - self.step * server["h"])
        return {"z": Dense(z)}, {"h": server["h"] + received.share * weight * (z - x_mean)}
