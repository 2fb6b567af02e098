"""Bytes by round, direction and part; the run folder; runs that go on; models in pieces; messages by hand."""

import json
import random

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as strategies

from fedcef.core.errors import RunError
from fedcef.flower import Compressed, CompressedGrid, Counted, compressed, counted
from fedcef.flower.two_lines import counting, layout, server
from fedcef.flower.two_lines.counting import content_bytes
from fedcef.report import load_runs, write_page
from fedcef.runs.reader import RunReader

from .two_lines import NODES, Grid, app, same, start_model

SPARSE = {"up": "topk(0.05, sign)", "down": "topk(0.1, sign)"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(counting, "SHORTEST_S", 0.0)
    monkeypatch.setattr(counting, "LONGEST_S", 0.0)


def run(strategy, grid, rounds=3, **options):
    random.seed(0)
    return strategy.start(grid, start_model(), rounds, **options)


def test_what_is_counted_is_what_passes(tmp_path):
    lines = []
    grid = Grid(app([counted(lines.append)]), state=tmp_path)
    strategy = Counted(strategies.FedAvg())
    result = run(strategy, grid)
    arrays = sum(len(name) + len(array.data) for name, array in start_model().items())
    for number in (1, 2, 3):
        metrics = result.train_metrics_clientapp[number]
        # the counter of steps, an integer, comes back from an average as a float of the same size
        assert metrics["bytes-down-arrays"] == 2 * NODES * arrays
        assert metrics["bytes-up-arrays"] == NODES * arrays
        assert metrics["bytes-down"] == 2 * NODES * (arrays + len("server-round") + 8)
        assert metrics["bytes-up"] == NODES * (arrays + len("num-examplesloss") + 16 + len("num-examplesnorm") + 16)
        assert "loss" in metrics
    assert strategy.tally.total("down") == sum(result.train_metrics_clientapp[n]["bytes-down"] for n in (1, 2, 3))
    assert len(lines) == 2 * 3 * NODES
    assert lines[0].startswith("train: ")


def test_sizes_of_records():
    content = RecordDict(
        {
            "a": ArrayRecord({"x": Array(dtype="uint8", shape=(3,), stype="s", data=b"abc")}),
            "m": MetricRecord({"one": 1, "two": [1.0, 2.0]}),
            "c": ConfigRecord({"flag": True, "text": "äb", "raw": b"1234", "none": []}),
        }
    )
    assert content_bytes(content) == {"arrays": 4, "metrics": 3 + 8 + 3 + 16, "configs": 5 + 4 + 3 + 3 + 4 + 4}


def test_a_run_folder_that_the_report_opens(tmp_path):
    def evaluate(number, arrays):
        return MetricRecord({"eval_acc": 0.1 * number})

    grid = Grid(app([compressed()]), state=tmp_path / "state")
    strategy = Compressed(strategies.FedAvg(), **SPARSE, folder=tmp_path / "run")
    result = run(strategy, grid, evaluate_fn=evaluate)
    records = RunReader(tmp_path / "run").records
    assert [record["round"] for record in records] == [0, 1, 2, 3]
    assert [record["accuracy"] for record in records] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert records[-1]["wire_up_bytes"] == strategy.tally.total("up")
    assert records[-1]["wire_down_bytes"] == strategy.tally.total("down")
    assert records[-1]["paper_up_bytes"] == sum(result.train_metrics_clientapp[n]["plain-bytes-up"] for n in (1, 2, 3))
    assert records[-1]["wire_up_bytes"] < records[-1]["paper_up_bytes"]
    write_page(load_runs([tmp_path / "run"]), tmp_path / "page.html")
    assert "FedAvg" in (tmp_path / "page.html").read_text("utf-8")
    with pytest.raises(RunError, match="already holds a run"):
        Compressed(strategies.FedAvg(), folder=tmp_path / "run")
    with pytest.raises(RunError, match="is over"):
        Compressed(strategies.FedAvg(), folder=tmp_path / "run", resume=True)


class Killed(Exception):
    """Somebody ended the server."""


@pytest.mark.parametrize("evaluate", [0.0, 1.0])
def test_a_server_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path, evaluate):
    """In the third round, after some nodes have worked: what they sent was not counted, and is not."""

    def fed_avg():
        return strategies.FedAvg(fraction_evaluate=evaluate)

    whole = run(
        Compressed(fed_avg(), **SPARSE, folder=tmp_path / "whole"), Grid(app([compressed()]), state=tmp_path / "b"), 5
    )
    grid = Grid(app([compressed()]), state=tmp_path / "state")

    def killed(message, reply):
        if len([1 for _, m, _ in grid.passed if m.metadata.message_type == "train"]) == 2 * NODES + 2:
            raise Killed

    grid.spoil = killed
    with pytest.raises(Killed):
        run(Compressed(fed_avg(), **SPARSE, folder=tmp_path / "run"), grid, 5)
    grid.spoil = lambda message, reply: None
    resumed = run(Compressed(fed_avg(), **SPARSE, folder=tmp_path / "run", resume=True), grid, 5)
    assert same(whole.arrays, resumed.arrays)
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2, 3, 4, 5]


def test_a_run_goes_on_with_the_compressors_that_it_began_with(tmp_path):
    run(Compressed(strategies.FedAvg(), folder=tmp_path / "run"), Grid(app([compressed()]), state=tmp_path), 1)
    (tmp_path / "run" / "summary.json").unlink()
    again = Compressed(strategies.FedAvg(), **SPARSE, folder=tmp_path / "run", resume=True)
    with pytest.raises(RunError, match="cannot go on with"):
        again.start(None, start_model(), 2)


def test_a_model_in_pieces_is_rebuilt_alike_on_both_sides(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "PIECE", 128)
    grid = CompressedGrid(Grid(app([compressed()]), state=tmp_path), **SPARSE)
    run(strategies.FedAvg(), grid, 4)
    (channel,) = grid.server.channels.values()
    assert len(channel.layout.pieces) == 3
    found = [path.read_bytes() for path in tmp_path.glob("client-*/two-lines/*/replica-*.bin")]
    assert found == [channel.replica.tobytes()] * NODES


def test_frames_that_lie_apart_are_the_same_model_and_one_array_for_all(tmp_path, monkeypatch):
    def play(name):
        inner = Grid(app([compressed()]), state=tmp_path / name)
        return run(strategies.FedAvg(), CompressedGrid(inner, **SPARSE), 3), inner

    together, _ = play("together")
    monkeypatch.setattr(server, "LONG", 0)
    apart, grid = play("apart")
    assert same(together.arrays, apart.arrays)
    first = [message.content["arrays"]["fedcef.frames"] for _, message, _ in grid.passed[:NODES]]
    assert all(array.data is first[0].data for array in first)


def test_pieces_keep_their_share(monkeypatch):
    monkeypatch.setattr(layout, "PIECE", 100)
    arrays = {"a": np.arange(170.0), "b": np.arange(5), "c": np.arange(80, dtype=np.float16)}
    here = layout.Layout.of(arrays)
    assert (here.coded, here.kept, here.dim, here.pieces) == (
        ("a", "c"),
        ("b",),
        250,
        ((0, 100), (100, 200), (200, 250)),
    )
    put = here.empty()
    for first, last in here.pieces:
        here.put(put, first, here.piece(arrays, first, last))
    assert all(np.array_equal(put[name], arrays[name]) and put[name].dtype == arrays[name].dtype for name in here.coded)
    assert np.array_equal(here.read_kept(here.kept_bytes(arrays))["b"], arrays["b"])


def test_messages_by_hand_are_as_without(tmp_path):
    """Models of their own for each node, other records and queries pass; so do results, up to compression."""
    grid = CompressedGrid(Grid(app([compressed()]), state=tmp_path, clients=2), up="identity", down="identity")
    plain = Grid(app(), state=tmp_path, clients=2)

    def ask(to):
        messages = []
        for node in (1000, 999):
            model = start_model()
            model["weight"] = Array(model["weight"].numpy() + node)
            content = RecordDict({"arrays": model, "config": ConfigRecord({"lr": 0.1})})
            messages.append(Message(content, node, "train", group_id="7"))
        ids = list(to.push_messages(messages))
        return [reply for one in ids for reply in to.pull_messages([one])]

    for ours, theirs in zip(ask(grid), ask(plain), strict=True):
        assert same(ours.content["arrays"], theirs.content["arrays"])
        assert ours.content["metrics"] == theirs.content["metrics"]
        assert ours.metadata.group_id == "7"


@pytest.mark.parametrize(("up", "down"), [("identity", "topk(0.1, sign)"), ("topk(0.1, sign)", "identity")])
def test_one_direction_alone(tmp_path, up, down):
    """A constant change arrives as what it is, whatever nodes hold."""
    grid = CompressedGrid(Grid(app([compressed()], steps=0), state=tmp_path), up, down)
    before = start_model()
    after = run(strategies.FedAvg(), grid, 3).arrays
    np.testing.assert_allclose(after["weight"].numpy(), before["weight"].numpy(), atol=1e-6)
