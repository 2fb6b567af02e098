"""Deployed training of a part of a model: the simulator's bits, and clients with another base model are refused."""

import re

import pytest
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

from fedcef import Problem
from fedcef.core.errors import RunError
from fedcef.deployment import ClientStore, Coordinator, RunId, Worker, one_client, without_data
from fedcef.deployment.messages import Refusal, decode_reply
from fedcef.problems.own import Clients

from .loopback import Loopback
from .setting import equal, simulation, small_settings


def build_problem(num_clients: int, seed: int, clients: Clients, base: float = 0.0, buffers: str = "constant"):
    """A frozen first layer, with batch normalisation or a table of constants after it, and a head to train."""
    features, labels = map(torch.from_numpy, load_breast_cancer(return_X_y=True))
    x = ((features - features.mean(0)) / features.std(0)).float()
    parts = [(x[n:200:num_clients], labels[n:200:num_clients]) for n in range(num_clients)]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(30, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
        model.train()(x)
    model[0].requires_grad_(False).weight.add_(base)
    if buffers == "constant":
        model[1] = nn.Identity()
        model[1].register_buffer("table", torch.arange(3.0))
    wanted = range(num_clients) if clients is None else clients
    return Problem.build(
        model, nn.functional.cross_entropy, [parts[n] for n in wanted], test=(x[200:], labels[200:]), buffers=buffers
    )


def settings_of(**options):
    return small_settings("fedcef", rounds=4, data={"name": f"{__name__}:build_problem", **options})


@pytest.mark.parametrize("buffers", ["constant", "frozen", "local", "mean"])
def test_it_is_the_simulated_run(tmp_path, buffers):
    settings = settings_of(buffers=buffers)
    deployed, simulated = Loopback(settings, tmp_path), simulation(settings)
    assert deployed.server.state.protocol.dim == (18 if buffers == "constant" else 34)
    while not deployed.server.finished:
        deployed.play()
        simulated.step()
        assert equal(deployed.server.state.replica, simulated.replica)
    assert deployed.outcomes.keys() == {"accepted"}
    counted = simulated.ledger.totals()
    assert {name: deployed.records[-1][name] for name in counted} == counted
    deployed.server.finish()
    written = deployed.server.state.folder.read_model()
    expected = simulated.problem.state_dict(simulated.model(), statistics=simulated.statistics())
    assert equal(written, expected)
    assert equal({"base": written["0.weight"]}, {"base": simulated.problem.model[0].weight.detach()})


def test_averaged_statistics_outlive_restarts(tmp_path):
    """Three of five clients a round, a mean of models, and everyone is killed after every round."""
    settings = settings_of(buffers="mean").model_copy(update={"rounds": 7, "clients_per_round": 3, "averaging": 0.9})
    deployed, simulated = Loopback(settings, tmp_path), simulation(settings)
    while not deployed.server.finished:
        deployed.play()
        simulated.step()
        deployed.reopen_server()
        deployed.workers = [deployed.open_worker(client) for client in range(5)]
        state = deployed.server.state
        assert equal(state.replica, simulated.replica)
        assert equal(state.average, simulated.state.average)
        assert len(state.statistics()) == 17
    counted = simulated.ledger.totals()
    assert {name: deployed.records[-1][name] for name in counted} == counted
    deployed.server.finish()
    written = deployed.server.state.folder.read_model()
    assert written["1.num_batches_tracked"] > 1
    assert equal(written, simulated.problem.state_dict(simulated.model(), statistics=simulated.statistics()))


def test_averaged_statistics_are_the_server_s(tmp_path):
    """A client whose model begins with others is sent the server's, as it is sent other parameters."""
    settings = settings_of(buffers="mean")
    problem, other = settings.build_problem(), settings.build_problem()
    other.model[1].running_mean.add_(1)
    assert other.base_digest == problem.base_digest != b""
    server = Coordinator.new(settings, without_data(problem), tmp_path / "server")
    assert server.state.up_parts == {"delta": 34, "statistics": 17}
    for client in range(5):
        server.enroll(f"site-{client}", client)
    order = server.start_round(0.0)[1]
    worker = Worker(settings, one_client(other, 1), ClientStore(tmp_path / "other", 1))
    verdict = server.receive("site-1", worker.handle(order))
    assert not verdict.accepted
    reply = decode_reply(worker.handle(verdict.order), 10**6)
    same = Worker(settings, one_client(problem, 1), ClientStore(tmp_path / "same", 1)).handle(order)
    assert reply.frame == decode_reply(same, 10**6).frame
    assert server.receive("site-1", same).accepted


def test_a_client_with_another_base_model_is_refused(tmp_path):
    settings, told = settings_of(), []
    problem = settings.build_problem()
    other = build_problem(5, 0, None, base=1e-6)
    server = Coordinator.new(settings, without_data(problem), tmp_path / "server")
    for client in range(5):
        server.enroll(f"site-{client}", client)
    order = server.start_round(0.0)[1]
    store = ClientStore(tmp_path / "client", 1)
    reply = decode_reply(Worker(settings, one_client(other, 1), store, tell=told.append).handle(order), 10**6)
    assert isinstance(reply, Refusal)
    here, run = other.base_digest.hex(), problem.base_digest.hex()
    sentence = f"model here have the digest {here}, those of the run {run}; start with the same base model."
    assert reply.reason == told[0] == f"The frozen parameters and buffers of the {sentence}"
    verdict = server.receive("site-1", reply.encode())
    assert (verdict.accepted, verdict.reason, verdict.detail) == (False, "client refused", reply.reason)
    good = Worker(settings, one_client(problem, 1), store).handle(order)
    assert server.receive("site-1", good).accepted


def test_a_server_goes_on_with_its_own_base_model_only(tmp_path):
    settings = settings_of()
    Coordinator.new(settings, without_data(settings.build_problem()), tmp_path)
    Coordinator.recover(tmp_path, without_data(settings.build_problem()))
    with pytest.raises(RunError, match=re.escape("have the digest")):
        Coordinator.recover(tmp_path, without_data(build_problem(5, 0, None, base=1e-6)))


def test_runs_of_one_base_model_are_told_apart():
    settings = settings_of()
    a, b = RunId.new(settings, b"base"), RunId.new(settings, b"base")
    assert a != b
    assert bytes(a)[-4:] == bytes(b)[-4:] == b"base"
    assert (a.another_base(b"base"), a.another_base(b"")) == ("", "")
    assert "those of the run 62617365" in a.another_base(b"bass")
