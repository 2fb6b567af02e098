"""A small problem, and the reference that a deployed run must equal: accepted cohorts, through the contract."""

from dataclasses import dataclass, field

import torch

from fedcef.algorithms.aggregating import own_state
from fedcef.algorithms.algorithm import State
from fedcef.deployment.protocol import Protocol
from fedcef.oracles.oracle import make_oracle
from fedcef.runs.settings import Settings
from fedcef.simulation.simulation import Simulation
from fedcef.wire import Dense

LASSO = {"name": "lasso", "dim": 40, "samples": 12, "support": 10}
METHODS = {
    "fedcef": {"algorithm": {"name": "fedcef", "mixing": 0.5}},
    "fedcef dense": {"algorithm": {"name": "fedcef", "downlink": "dense"}},
    "fedcef lossy": {
        "algorithm": {"name": "fedcef", "downlink": "lossy"},
        "down_compressor": {"name": "topk", "ratio": 0.2},
    },
    "fedcef snapshot": {
        "algorithm": {"name": "fedcef", "downlink": "snapshot"},
        "down_compressor": {"name": "topk", "ratio": 0.2},
    },
    "fedcef randk": {"compressor": {"name": "randk", "ratio": 0.2}},
    "fedcef qsgd": {"compressor": {"name": "qsgd"}},
    "zhang": {"algorithm": {"name": "zhang"}, "compressor": {"name": "identity"}},
    "scaffold": {"algorithm": {"name": "scaffold"}, "compressor": {"name": "identity"}},
    "fedda": {"algorithm": {"name": "fedda"}, "compressor": {"name": "identity"}},
    "feddr": {"algorithm": {"name": "feddr"}, "compressor": {"name": "identity"}},
}


def small_settings(method: str = "fedcef", **changes) -> Settings:
    """Settings of a short run; the oracle goes client by client, so that its bits do not depend on their number."""
    base = {
        "rounds": 9,
        "num_clients": 5,
        "local_steps": 3,
        "batch_size": 6,
        "local_lr": 0.01,
        "oracle": "loop",
        "snapshot_every": 3,
        "data": LASSO,
        "regularizer": {"name": "l1", "weight": 0.05},
        "compressor": {"name": "topk", "ratio": 0.1},
    }
    return Settings(**{**base, **METHODS[method], **changes})


def simulation(settings: Settings) -> Simulation:
    problem = settings.build_problem()
    return Simulation(problem, settings.build_algorithm(problem), settings)


@dataclass
class Replayed:
    replica: State
    server: State
    clients: State
    replicas: list[State] = field(default_factory=list)


def replayed(settings: Settings, history: list[dict[int, bool]]) -> Replayed:
    """The run with these cohorts, all clients stacked as in the simulator; True marks a client that begins afresh.

    What such a client had sent is known here from the messages themselves, added up.
    """
    problem = settings.build_problem()
    protocol = Protocol(settings, problem)
    gradients = make_oracle(problem, settings)
    n, z0 = settings.num_clients, problem.z0
    replica = protocol.algorithm.replica_init(z0)
    server = {**protocol.algorithm.server_init(z0), **protocol.aggregator.start(z0)}
    init = protocol.algorithm.client_init(z0)
    clients = {name: vector.repeat(n, 1) for name, vector in init.items()}
    sent: dict[int, dict[str, torch.Tensor]] = {}
    replicas = [replica]
    for t, members in enumerate(history):
        cohort = torch.tensor(sorted(members))
        round_ = protocol.rounds.at(t, cohort)
        algorithm = round_.scheduled(protocol.algorithm)
        for client, afresh in members.items():
            for name in clients if afresh else ():
                clients[name] = clients[name].index_copy(0, torch.tensor([client]), init[name][None])
        with torch.no_grad():
            mine = {name: table[cohort] for name, table in clients.items()}
            oracle = gradients.for_round(round_, algorithm.local_steps)
            up, proposed = algorithm.local(replica, mine, oracle, round_.compression)
            parts = {name: payload.rows() for name, payload in up.items()}
            for name in protocol.adds_up or ():
                for row, client in enumerate(cohort.tolist()):
                    new, old = parts[name][row].dense(), sent.get(client, {}).get(name)
                    if members[client] and old is not None:
                        parts[name][row] = Dense(new - old)
                    total = new if old is None or members[client] else old + new
                    sent.setdefault(client, {})[name] = total
            weights = problem.sizes.to(z0.dtype)[cohort] if settings.weighting == "samples" else None
            received, kept = protocol.aggregator.received(parts, round_, server, weights)
            down, server = algorithm.server_step(own_state(server), replica, received)
            server = {**server, **kept}
            replica = algorithm.advance(replica, down)
        clients = {name: clients[name].index_copy(0, cohort, proposed[name]) for name in proposed}
        replicas.append(replica)
    return Replayed(replica, server, clients, replicas)


def equal(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
