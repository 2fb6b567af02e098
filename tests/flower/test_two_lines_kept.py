"""What server and nodes keep: who may speak for whom, what is counted after a kill, and what is forgotten."""

import json
import os
import random
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as strategies

from fedcef.flower import Compressed, compressed
from fedcef.flower.two_lines import store
from fedcef.flower.two_lines.grid import CompressedGrid
from fedcef.flower.two_lines.messages import Answer

from .two_lines import NODES, Grid, app, start_model

SPARSE = {"up": "topk(0.05, sign)", "down": "topk(0.1, sign)"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("fedcef.flower.two_lines.counting.SHORTEST_S", 0.0)
    monkeypatch.setattr("fedcef.flower.two_lines.counting.LONGEST_S", 0.0)


def ask(grid, nodes, model=None):
    messages = [Message(RecordDict({"arrays": model or moved()}), node, "train") for node in nodes]
    return list(grid.send_and_receive(messages, timeout=60.0))


def moved():
    """A model that nobody has seen."""
    model = start_model()
    model["weight"] = Array(model["weight"].numpy() + np.float32(random.random()))
    return model


def returning(change, **options):
    """An app that returns what `change` makes of a model."""
    client_app = ClientApp(mods=[compressed(**options)])

    @client_app.train()
    def train(message, context):
        return Message(RecordDict({"arrays": change(message.content["arrays"])}), reply_to=message)

    return client_app


# who speaks for whom


def sent_to(inner, node):
    return [message for to, message, _ in inner.passed if to.node_id == node]


def test_a_stranger_learns_no_client_s_name_and_a_new_node_gets_the_model_at_once(tmp_path):
    """Unless it may well be an old one: then it is asked, and gets the model with the second message."""
    inner = Grid(app([compressed()]), state=tmp_path, clients=4)
    grid = CompressedGrid(inner, **SPARSE)
    ask(grid, [1000, 999])
    ask(grid, [1000, 998, 997])
    assert [len(sent_to(inner, node)) for node in (1000, 998, 997)] == [2, 1, 1]
    inner.join(4, node_id=51)
    replies = ask(grid, [999, 51])
    assert [reply.has_error() for reply in replies] == [False, False]
    question, order = (message.content["arrays"]["fedcef"].data for message in sent_to(inner, 51))
    assert len(question) < 100 < len(order)
    (clients,) = grid.server.clients.values()
    own = grid.server.known[next(iter(grid.server.clients)), 51].client
    assert len(clients) == 5
    for client in set(clients) - {own}:
        assert not [m for m in sent_to(inner, 51) if client in m.content["arrays"]["fedcef"].data]


def test_nobody_speaks_for_a_client_that_has_just_spoken(tmp_path):
    inner = Grid(app([compressed()]), state=tmp_path, clients=2)
    grid = CompressedGrid(inner, **SPARSE)
    ask(grid, [1000, 999])
    (run,) = grid.server.clients
    victim = grid.server.known[run, 1000].client

    def spoil(message, reply):
        if message.metadata.dst_node_id == 999:
            array = reply.content["arrays"]["fedcef"]
            answer = Answer.decode(array.data, 10**6)
            array.data = replace(answer, client=victim, memory=bytes(8)).encode()

    inner.spoil = spoil
    first, second = ask(grid, [1000, 999])
    assert not first.has_error()
    assert "share a state folder" in second.error.reason
    counted = grid.server.clients[run][victim]
    inner.spoil = lambda message, reply: None
    assert not any(reply.has_error() for reply in ask(grid, [1000, 999]))
    assert grid.server.clients[run][victim] != counted
    assert len(grid.server.clients[run]) == 2


def test_a_node_that_came_back_unnoticed_keeps_its_memory(tmp_path):
    """Its old id still looks connected and owes nothing, and many are new: it is taken for one, and says it is not."""
    inner = Grid(app([compressed()]), state=tmp_path, clients=6)
    grid = CompressedGrid(inner, **SPARSE)
    ask(grid, [1000, 999])
    (run,) = grid.server.clients
    client, memory = grid.server.known[run, 999].client, dict(grid.server.clients[run])
    inner.nodes[1].silent = True
    inner.join(1, node_id=77)
    messages = [Message(RecordDict({"arrays": moved()}), node, "train") for node in (1000, 999, 77)]
    ids = list(grid.push_messages(messages))
    replies = [reply for _ in range(3) for reply in grid.pull_messages(ids)]
    assert [reply.has_error() for reply in replies] == [False, False]
    assert grid.server.known[run, 77].client == client
    assert (run, 999) not in grid.server.known
    built_on = Answer.decode(inner.passed[-1][2]["arrays"]["fedcef"].data, 10**6).memory
    assert built_on == memory[client]


# what is counted


class Killed(Exception):
    """Somebody ended the server."""


def test_bytes_of_a_round_are_counted_when_the_server_is_killed_in_its_evaluation(tmp_path):
    grid = Grid(app([compressed()]), state=tmp_path / "state")
    up = []

    def killed(message, reply):
        kinds = [m.metadata.message_type for _, m, _ in grid.passed]
        if message.metadata.message_type == "evaluate" and kinds.count("train") == 2 * NODES:
            up.append(strategy_grids[0].tally.total("up"))
            raise Killed

    strategy_grids = []
    strategy = Compressed(strategies.FedAvg(), **SPARSE, folder=tmp_path / "run")
    over = strategy._over
    strategy._over = lambda grid: strategy_grids.append(over(grid)) or strategy_grids[0]
    grid.spoil = killed
    with pytest.raises(Killed):
        strategy.start(grid, start_model(), 4)
    grid.spoil = lambda message, reply: None
    resumed = Compressed(strategies.FedAvg(), **SPARSE, folder=tmp_path / "run", resume=True)
    resumed.start(grid, start_model(), 4)
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines[2]["wire_up_bytes"] == up[0]
    assert lines[4]["wire_up_bytes"] == up[0] + resumed.tally.total("up")
    assert lines[4]["wall_s"] >= lines[2]["wall_s"] > lines[1]["wall_s"]


def test_arrays_that_are_not_the_model_s_come_as_they_are_and_are_told_of_once(tmp_path, caplog):
    def turned(record):
        return ArrayRecord(dict(reversed(record.items())))

    grid = CompressedGrid(Grid(returning(turned), state=tmp_path, clients=2), **SPARSE)
    for _ in range(2):
        for reply in ask(grid, [1000, 999]):
            assert list(reply.content["arrays"]) == ["steps", "bias", "weight"]
    told = [record.message for record in caplog.records if "uncompressed" in record.message]
    assert len(told) == 1
    assert "other arrays in arrays" in told[0]


# what is kept, and for how long


def test_two_runs_work_for_one_client_at_the_same_time(tmp_path):
    """One message begins and ends while another run's is being worked on."""
    second = CompressedGrid(Grid(returning(lambda record: record), state=tmp_path, clients=1), **SPARSE)
    done = []

    def meanwhile(record):
        worker = threading.Thread(target=lambda: done.extend(ask(second, [1000])), daemon=True)
        worker.start()
        worker.join(10.0)
        assert done
        return record

    first = CompressedGrid(Grid(returning(meanwhile), state=tmp_path, clients=1), **SPARSE)
    (reply,) = ask(first, [1000])
    assert not reply.has_error()
    assert not list(tmp_path.glob("**/*.lock"))


def test_a_run_that_is_being_worked_on_is_not_forgotten(tmp_path):
    old = [tmp_path / f"run-{number}" for number in range(store.KEPT_RUNS + 2)]
    for folder in old:
        folder.mkdir()
        os.utime(folder, (0, 0))
    with store.locked(store.lock_of(old[0])):
        store.NodeStore(tmp_path / "now").forget_others({tmp_path / "now"})
    assert [folder for folder in old if folder.exists()] == [old[0], *old[-store.KEPT_RUNS + 1 :]]


def test_folders_of_nodes_that_flower_named_go_when_they_are_old(tmp_path):
    names = ("node-11", "node-12", "client-3", "node-of-mine")
    for name in names:
        (tmp_path / name / "two-lines" / "run").mkdir(parents=True)
    long_ago = time.time() - store.NODE_GONE_S - 60
    for name in ("node-11", "client-3", "node-of-mine"):
        for path in (tmp_path / name / "two-lines" / "run", tmp_path / name / "two-lines", tmp_path / name):
            os.utime(path, (long_ago, long_ago))
    inner = Grid(returning(lambda record: record, state_dir=tmp_path), state=tmp_path, clients=1)
    inner.nodes[0].node_config = {}
    ask(CompressedGrid(inner, **SPARSE), [1000])
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == sorted({*names, "node-1000"} - {"node-11"})


def test_a_server_forgets_what_nobody_will_ask_for(tmp_path):
    """Messages that were sent again, and models that have another shape now."""
    inner = Grid(returning(lambda record: record), state=tmp_path, clients=2)
    grid = CompressedGrid(inner, **SPARSE)
    ask(grid, [1000, 999])
    for vector in tmp_path.glob("client-0/two-lines/*/replica-*.bin"):
        vector.unlink()
    ask(grid, [1000, 999])
    assert len(sent_to(inner, 1000)) == 3
    assert not grid._now
    ask(grid, [1000, 999], start_model(dim=400))
    (channel,) = grid.server.channels.values()
    assert {run for run, _ in (*grid.server.known, *grid.server._newest)} == set(grid.server.clients) == {channel.run}
