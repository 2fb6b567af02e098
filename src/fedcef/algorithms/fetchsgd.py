"""FetchSGD: gradients as count sketches, with momentum and error feedback on the server.

Rothchild et al. 2020 (arXiv 2007.07682).  S sketches (count_sketch.py), U estimates entries from a sketch, and u and e
are sketches, too:

    client:  g = mean of K gradients at z;   upload S(g)
    server:  u ← ρ u + mean S(g);   e ← e + β u;   d = Top-k(U(e));   e ← e - S(d);   broadcast the k entries of d
    all:     z ← prox_{βh}(z - d)

Clients keep nothing, so that it does not matter how seldom one takes part; what compression cuts off waits on the
server.  `removal` says how d leaves e: "subtract" is the paper's algorithm, as above.  With "zero", the default, the
cells of S(d) that are not 0 are set to 0, in u as well: so does the authors' code (kiddyboots216/CommEfficient), which
says that models diverge otherwise.  With as many columns as entries the sketch is exact, and the two differ in u alone.

Ours: K minibatches at the same point and one step of length β, as in ef14.py; options as shares of p; columns that get
equally many entries; the prox (see smooth.py), which with "subtract" is of length β/(1-ρ), as momentum repeats every
gradient.  With an exact sketch the limit for h = 0 is exact, whatever k, as the memory is of the mean gradient.  Where
entries meet it need not be: what is large in e must stand out from what falls into the same columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.count_sketch import CountSketch
from fedcef.algorithms.local_steps import mean_gradient
from fedcef.algorithms.smooth import SmoothMethod
from fedcef.compressors import TopK
from fedcef.core.ranges import Count, Fraction, Positive
from fedcef.core.rng import Key
from fedcef.optimizers import Memory
from fedcef.wire import Dense, Nonzeros


@dataclass(frozen=True, kw_only=True, eq=False)
class FetchSGD(SmoothMethod):
    """Sketched gradients, with momentum and error feedback on the server; sparse steps down."""

    rows: Count = 5
    """How many sums an entry goes into."""
    width: Positive = 0.05
    """The columns of the sketch, as a share of p; from 1 on it is exact."""
    kept: Fraction = 0.01
    """k, as a share of p: how many entries of the model move in a round."""
    momentum: Memory = 0.0
    """ρ: how much of the last step is repeated.  0 is the default of the authors' code; 0.9, which their paper takes,
    asks for a shorter step."""
    removal: Literal["zero", "subtract"] = "zero"
    """How the step leaves the memory: its cells are set to 0, in the momentum as well, or its sketch is subtracted."""

    @property
    def step(self) -> float:
        return super().step / (1 - self.momentum) if self.removal == "subtract" else super().step

    def sketch(self, dim: int) -> CountSketch:
        """The sketch of vectors of this length."""
        return CountSketch(self.rows, max(1, int(self.width * dim)), dim)

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0}

    def server_init(self, z0: Vector) -> State:
        empty = self.sketch(len(z0)).of(z0.new_zeros(z0.shape))
        return {"u": empty, "e": empty.clone()}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        g = mean_gradient(replica["z"], self.local_oracle(oracle), self.local_steps)
        return {"sketch": Dense(self.sketch(g.shape[-1]).of(g))}, {}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        sketch = self.sketch(len(replica["z"]))
        u = self.momentum * server["u"] + received.mean["sketch"]
        e = server["e"] + super().step * u
        d = TopK(ratio=self.kept).keep(sketch.estimate(e)).dense()
        cells = sketch.of(d)
        if self.removal == "subtract":
            e = e - cells
        else:
            u, e = u.masked_fill(cells != 0, 0.0), e.masked_fill(cells != 0, 0.0)
        return {"step": Nonzeros(d)}, {"u": u, "e": e}

    def advance(self, replica: State, down: Message) -> State:
        return {"z": self.server_prox(replica["z"] - down["step"].dense())}
