"""What the tests of Scaffnew and its family share: a problem, and an engine that tells participants of the end."""

from fedcef.regularizers import L1

from .setting import Quadratics, participants, received

PROBLEM = Quadratics.random()
N, K = PROBLEM.num_clients, 5
LONG = {"local_lr": 1 / (K * PROBLEM.smoothness), "local_steps": K}
H = L1(0.1)


def play_told(algorithm, problem, size, told=True):
    """Rounds with cohorts, in which participants are told how their round ended; the server's state comes along."""
    n, z0 = problem.num_clients, problem.z0
    replica, server = algorithm.replica_init(z0), algorithm.server_init(z0)
    clients = {name: v.repeat(n, 1) for name, v in algorithm.client_init(z0).items()}
    t = 0
    while True:
        cohort, key = participants(n, size, t)
        mine = {name: table[cohort] for name, table in clients.items()}
        some = Quadratics(problem.a[cohort], problem.b[cohort])
        up, mine = algorithm.local(replica, mine, some.oracle, key)
        down, server = algorithm.server_step(server, replica, received(up, t, share=size / n))
        replica = algorithm.advance(replica, down)
        mine = algorithm.settled(mine, replica) if told else mine
        clients = {name: table.index_copy(0, cohort, mine[name]) for name, table in clients.items()}
        t += 1
        yield replica, clients, server
