"""Several models in one message, several runs on one disk, and answers that are not to be believed."""

import os
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as strategies

from fedcef.core.errors import RunError
from fedcef.flower import Compressed, Counted, compressed
from fedcef.flower.two_lines.grid import CompressedGrid
from fedcef.flower.two_lines.messages import Answer
from fedcef.flower.two_lines.store import NodeStore
from fedcef.runs.kinds import refuse_deployed, refuse_simulated

from .two_lines import Grid, app, same, start_model

SPARSE = {"up": "topk(0.05, sign)", "down": "topk(0.1, sign)"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("fedcef.flower.two_lines.counting.SHORTEST_S", 0.0)
    monkeypatch.setattr("fedcef.flower.two_lines.counting.LONGEST_S", 0.0)


def doubling():
    """Returns every model twice as large."""
    client_app = ClientApp(mods=[compressed()])

    @client_app.train()
    def train(message, context):
        models = message.content.array_records.items()
        twice = {name: ArrayRecord({k: Array(2 * a.numpy()) for k, a in model.items()}) for name, model in models}
        return Message(RecordDict(twice), reply_to=message)

    return client_app


def models(count):
    return RecordDict({f"model-{n}": ArrayRecord({"w": Array(np.full(100, n + 1.0, "float32"))}) for n in range(count)})


def ask(grid, content, node=1000):
    return next(iter(grid.send_and_receive([Message(content, node, "train")], timeout=5.0)), None)


def folders(tmp_path):
    return sorted(path for path in tmp_path.glob("client-0/two-lines/*") if path.is_dir())


def test_a_node_that_lost_one_of_its_models_gets_all_of_them(tmp_path):
    grid = CompressedGrid(Grid(doubling(), state=tmp_path, clients=1), **SPARSE)
    ask(grid, models(2))
    for vector in folders(tmp_path)[0].glob("replica-*.bin"):
        vector.unlink()
    assert list(ask(grid, models(2)).content) == ["model-0", "model-1"]
    assert not grid.left_out


def test_a_node_keeps_the_memory_of_every_model_of_a_run(tmp_path):
    grid = CompressedGrid(Grid(doubling(), state=tmp_path, clients=1), **SPARSE)
    for folder in (tmp_path / "client-0" / "two-lines" / f"old-{n}" for n in range(6)):
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0))
    for _ in range(3):
        ask(grid, models(6))
    assert len(folders(tmp_path)) == 6 + 3
    messages = [m for _, m, _ in grid.counted.grid.passed]
    assert len(messages) == 3  # none had to be sent again
    assert all((folder.stat().st_mode & 0o077) == 0 for folder in folders(tmp_path) if (folder / "state").exists())


def test_a_reply_counts_whole_or_not_at_all(tmp_path):
    """The second of its answers is spoilt: the first must not count as sent, for its change is left out with it."""
    grid = CompressedGrid(Grid(doubling(), state=tmp_path, clients=1), **SPARSE)
    ask(grid, models(2))
    before = {run: dict(memories) for run, memories in grid.server.clients.items()}

    def spoil(message, reply):
        record = reply.content["model-1"]
        record["fedcef"].data = record["fedcef"].data[:-1]

    grid.counted.grid.spoil = spoil
    assert ask(grid, models(2)).has_error()
    assert grid.server.clients == before


@pytest.mark.parametrize("types", [[[]] * 3, ["complex64", "float32", "int64"], ["bool", "float32", "int64"], [1] * 3])
def test_types_that_an_answer_cannot_have(tmp_path, types):
    grid = CompressedGrid(Grid(app([compressed()]), state=tmp_path, clients=1), **SPARSE)

    def spoil(message, reply):
        array = reply.content["arrays"]["fedcef"]
        array.data = replace(Answer.decode(array.data, 10**6), text={"types": types}).encode()

    grid.counted.grid.spoil = spoil
    assert ask(grid, RecordDict({"arrays": start_model()})).has_error()
    assert "types" in grid.left_out[0]


def test_arrays_that_cannot_be_read_are_left_out(tmp_path):
    grid = CompressedGrid(Grid(app([compressed()]), state=tmp_path, clients=1), up="identity", down="topk(0.1, sign)")

    def spoil(message, reply):
        reply.content["arrays"]["weight"].data = b"nothing of NumPy's"

    grid.counted.grid.spoil = spoil
    assert ask(grid, RecordDict({"arrays": start_model()})).has_error()
    assert "cannot be read" in grid.left_out[0]


def test_part_of_the_model_is_another_model(tmp_path):
    grid = CompressedGrid(Grid(doubling(), state=tmp_path, clients=1), **SPARSE)
    whole = {"a": Array(np.ones(100, "float32")), "b": Array(np.ones(100, "float32"))}
    ask(grid, RecordDict({"arrays": ArrayRecord(whole)}))
    reply = ask(grid, RecordDict({"arrays": ArrayRecord({"a": whole["a"]})}))
    assert list(reply.content["arrays"]) == ["a"]


def test_messages_stay_as_their_sender_made_them_and_lost_ones_keep_no_model(tmp_path):
    inner = Grid(app([compressed()]), state=tmp_path, clients=1)
    inner.lose = lambda message, reply: True
    grid = CompressedGrid(inner, **SPARSE)
    model = start_model()
    for _ in range(3):
        message = Message(RecordDict({"arrays": model}), 1000, "train")
        grid.push_messages([message])
        assert same(message.content["arrays"], model)
    assert [bool(sent.content) for sent in grid._sent.values()] == [False, False, True]


def test_what_a_failed_message_wrote_is_removed(tmp_path):
    def failing(message, context, call_next):
        raise ValueError("the app fails")

    grid = CompressedGrid(Grid(app([compressed(), failing]), state=tmp_path, clients=1), **SPARSE)
    for _ in range(4):
        assert ask(grid, RecordDict({"arrays": start_model()})).has_error()
    (folder,) = folders(tmp_path)
    assert len(list(folder.glob("*.bin"))) == 1
    NodeStore(folder).load()
    assert not list(folder.glob("*.bin"))


def test_one_server_a_folder_and_sentences_that_name_it(tmp_path):
    path = tmp_path / "run"
    said = []

    class Looking(strategies.FedAvg):
        def aggregate_train(self, *args, **kwargs):
            with pytest.raises(RunError, match="is being worked on"):
                Compressed(strategies.FedAvg(), folder=path, resume=True).start(None, start_model())
            said.append("refused")
            return super().aggregate_train(*args, **kwargs)

    grid = Grid(app([compressed()]), state=tmp_path / "state")
    Compressed(Looking(fraction_evaluate=0.0), folder=path).start(grid, start_model(), 1)
    assert said
    for refused in (refuse_deployed, refuse_simulated, lambda path: Counted(strategies.FedAvg(), folder=path)):
        with pytest.raises(RunError, match="resume=True"):
            refused(path)
