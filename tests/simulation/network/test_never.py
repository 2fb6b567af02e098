"""Networks on which nothing would ever happen say so."""

import pytest

from fedcef.algorithms import FedAvg
from fedcef.core.errors import RunError
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.simulation.network import asynchronous, timed_rounds
from fedcef.simulation.simulation import Simulation

PROBLEM = lasso(L1(0.05), num_clients=6, samples=20, dim=10, support=3)


def simulation(**network):
    method = FedAvg(local_lr=0.005, local_steps=3, regularizer=PROBLEM.regularizer)
    return Simulation(PROBLEM, method, batch_size=5, network=network)


def test_a_deadline_that_nobody_keeps_in_the_asynchronous_mode(monkeypatch):
    monkeypatch.setattr(asynchronous, "_MOST_GIVEN_UP", 50)
    run = simulation(mode="async", buffer=3, deadline=0.01)
    with pytest.raises(RunError, match=r"50 times in a row .* raise network\.deadline \(now 0\.01 s\)"):
        run.step()


def test_more_answers_than_there_ever_are(monkeypatch, tmp_path):
    monkeypatch.setattr(timed_rounds, "_MOST_ATTEMPTS", 50)
    trace = tmp_path / "trace.csv"
    lines = [f"{i},10,10,20,1,{100 * i},{100 * i + 100}" for i in range(6)]
    trace.write_text("client,up,down,latency,speed,from,to\n" + "\n".join(lines) + "\n")
    run = simulation(trace=str(trace), unavailable="silent", at_least=4, deadline=10)
    with pytest.raises(RunError, match=r"fewer than network\.at_least = 4 clients answered"):
        run.step()
