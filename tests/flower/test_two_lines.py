"""Two lines around a Flower app: nothing changes where nothing is compressed, and nothing is corrupted where it is."""

import random
import re
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from flwr.app import Array, Message, RecordDict
from flwr.serverapp import strategy as strategies

from fedcef.compressors import COMPRESSORS, Eden, TopK
from fedcef.core.errors import ConfigError
from fedcef.flower import Compressed, Counted, compressed
from fedcef.flower.two_lines.channel import Channel
from fedcef.flower.two_lines.grid import CompressedGrid
from fedcef.flower.two_lines.layout import Layout
from fedcef.flower.two_lines.messages import Answer
from fedcef.flower.two_lines.notation import compressor, order_of, text_of
from fedcef.flower.two_lines.store import NodeStore

from .two_lines import Grid, app, same, start_model

ROOT = Path(__file__).parents[2]
grids: list[CompressedGrid] = []
"""The grids that strategies have made."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("fedcef.flower.two_lines.counting.SHORTEST_S", 0.0)
    monkeypatch.setattr("fedcef.flower.two_lines.counting.LONGEST_S", 0.0)
    grids.clear()
    begin = CompressedGrid.__init__

    def noted(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        grids.append(self)

    monkeypatch.setattr(CompressedGrid, "__init__", noted)


def run(strategy, grid, rounds=3, model=None, timeout=5.0):
    random.seed(0)
    return strategy.start(grid, model or start_model(), rounds, timeout)


def plain(strategy, tmp_path, rounds=3, model=None):
    return run(Counted(strategy), Grid(app(), state=tmp_path / "none"), rounds, model)


ALL = [
    "FedAvg",
    "FedAvgM",
    "FedAdam",
    "FedYogi",
    "FedAdagrad",
    "FedProx",
    "FedMedian",
    "FedTrimmedAvg",
    "Krum",
    "MultiKrum",
]
SPARSE = {"up": "topk(0.05, sign)", "down": "topk(0.1, sign)"}


def made(name):
    options = {"FedAvgM": {"server_momentum": 0.9, "server_learning_rate": 0.5}, "FedProx": {"proximal_mu": 0.1}}
    return getattr(strategies, name)(**options.get(name, {}))


@pytest.mark.parametrize(("name", "dtype"), [*((name, "float32") for name in ALL), ("FedAvg", "float64")])
def test_without_compression_it_is_the_same_run_bit_for_bit(tmp_path, name, dtype):
    before = plain(made(name), tmp_path, 2, start_model(dtype=dtype))
    grid = Grid(app([compressed()]), state=tmp_path / "state")
    after = run(Compressed(made(name), up="identity", down="identity"), grid, 2, start_model(dtype=dtype))
    assert same(before.arrays, after.arrays)
    assert before.evaluate_metrics_clientapp == after.evaluate_metrics_clientapp
    for number, metrics in before.train_metrics_clientapp.items():
        assert without_bytes(metrics) == without_bytes(after.train_metrics_clientapp[number])


def without_bytes(metrics):
    return {key: value for key, value in metrics.items() if "bytes" not in key}


def one(tmp_path, name, rounds=4, before=None, evaluate=True, timeout=0.0, **options):
    """A compressed run, its grid and its strategy; who must be asked twice takes part if there is time for it."""
    grid = Grid(app([compressed()]), state=tmp_path / name)
    if before:
        before(grid)
    inner = strategies.FedAvg(**({} if evaluate else {"fraction_evaluate": 0.0}))
    strategy = Compressed(inner, **{**SPARSE, **options})
    return run(strategy, grid, rounds, timeout=timeout), grid, strategy


def states(tmp_path, name):
    """What each node has on its disk: state and vectors, by client."""
    found = {}
    for path in sorted((tmp_path / name).glob("client-*/two-lines/*/state")):
        store = NodeStore(path.parent)
        state = store.load()
        layout = Layout.from_json(state.layout)
        vectors = [
            store.read(file, kind, layout.dim)
            for file, kind in (
                (state.replica, layout.number),
                (state.committed_file, np.dtype("<f4")),
                (state.pending_file, np.dtype("<f4")),
            )
        ]
        found[int(path.parts[-4].removeprefix("client-"))] = (state, *vectors)
    return found


def test_every_node_has_the_server_s_replica_bit_for_bit(tmp_path):
    result, _, _ = one(tmp_path, "a")
    (channel,) = grids[-1].server.channels.values()
    for state, replica, *_ in states(tmp_path, "a").values():
        assert state.version == channel.version == 4
        assert replica.tobytes() == channel.replica.tobytes()
    assert not np.array_equal(channel.replica, result.arrays["weight"].numpy().reshape(-1))


@pytest.mark.parametrize("first", ["topk(1.0, uniform8)", "eden(4)", "identity"])
def test_the_first_model_by_a_compressor_of_its_own(tmp_path, first):
    _, _, plain = one(tmp_path, "half", evaluate=False)
    _, _, own = one(tmp_path, "own", evaluate=False, first=first)
    (channel,) = grids[-1].server.channels.values()
    found = states(tmp_path, "own")
    assert len(found) == 4
    for _, replica, *_ in found.values():
        assert replica.tobytes() == channel.replica.tobytes()
    assert (own.tally.total("down") < plain.tally.total("down")) == (first != "identity")


def test_what_a_short_beginning_leaves_out_is_sent_later():
    model = start_model()
    channel = Channel(model, compressor("identity"), compressor("topk(0.2)"), compressor("scaled_sign"))
    distances = []
    for _ in range(8):
        model["weight"] = Array(model["weight"].numpy() + np.float32(1e-4))
        channel.advance(model)
        distances.append(float(np.abs(channel.replica - model["weight"].numpy().reshape(-1)).max()))
    assert distances[0] > 0.5
    assert distances[-1] < 1e-3


def test_a_first_compressor_that_is_none_is_refused_at_once():
    with pytest.raises(ConfigError, match="Did you mean eden"):
        Compressed(strategies.FedAvg(), first="edn(4)")


def test_what_is_sent_and_what_is_owed_add_up_to_what_the_app_has_changed(tmp_path, monkeypatch):
    """Client by client, over all rounds."""
    changed, sent = {}, {}

    def watch(message, context, call_next):
        before = message.content["arrays"]["weight"].numpy()
        reply = call_next(message, context)
        if "arrays" in reply.content:
            number = context.node_config["partition-id"]
            after = reply.content["arrays"]["weight"].numpy()
            changed[number] = changed.get(number, 0) + (after - before).reshape(-1).astype(np.float64)
        return reply

    grid = Grid(app([compressed(), watch]), state=tmp_path / "a")
    rebuilt = Channel.rebuilt

    def listening(self, answer, base, version):
        model = rebuilt(self, answer, base, version)
        change = model["weight"].numpy().astype(np.float64) - base["weight"]
        sent[answer.client] = sent.get(answer.client, 0) + change.reshape(-1)
        return model

    monkeypatch.setattr(Channel, "rebuilt", listening)
    run(Compressed(strategies.FedAvg(), **SPARSE), grid, 5)
    for number, (state, _, owed, _) in states(tmp_path, "a").items():
        assert np.abs(owed).max() > 0.1
        np.testing.assert_allclose(sent[state.client] + owed, changed[number], atol=2e-5)


# what goes wrong


def away(client, round_):
    """A node that is not there in one round of training."""

    def begin(grid):
        grid.get_node_ids = lambda: [n.node_id for n in grid.nodes if n.client != client or trained(grid) != round_ - 1]

    return begin


def trained(grid):
    """How many rounds of training a grid has seen."""
    return max(sum(m.metadata.message_type == "train" for m in node.seen) for node in grid.nodes)


def lost(client, round_):
    """The reply of a client in a round of training does not arrive."""

    def begin(grid):
        grid.lose = lambda message, reply: (
            message.metadata.message_type == "train" and number(grid, message) == client and trained(grid) == round_
        )

    return begin


def number(grid, message):
    """The client that a message is for."""
    return next(node.client for node in grid.nodes if node.node_id == message.metadata.dst_node_id)


@pytest.mark.parametrize("evaluate", [False, True])
def test_a_lost_reply_is_as_if_its_node_had_not_been_asked(tmp_path, evaluate):
    absent, _, _ = one(tmp_path, "absent", before=away(2, 2), evaluate=evaluate)
    missing, _, _ = one(tmp_path, "lost", before=lost(2, 2), evaluate=evaluate)
    whole, _, _ = one(tmp_path, "whole", evaluate=evaluate)
    assert same(absent.arrays, missing.arrays)
    assert not same(whole.arrays, missing.arrays)


def test_replies_that_come_twice_count_once(tmp_path):
    once, _, _ = one(tmp_path, "once")

    def double(grid):
        grid.double = True

    twice, _, _ = one(tmp_path, "twice", before=double)
    assert same(once.arrays, twice.arrays)


def test_an_order_that_comes_twice_is_answered_alike(tmp_path):
    _, grid, _ = one(tmp_path, "a", rounds=2, evaluate=False)
    node, message, content = grid.passed[-1]
    kept = states(tmp_path, "a")[node.client][0]
    again = grid._answer(node, message)
    assert same(again.content["arrays"], content["arrays"])
    assert again.content["metrics"] == content["metrics"]
    assert states(tmp_path, "a")[node.client][0] == kept


def test_a_node_that_is_killed_and_started_again_goes_on_as_if_nothing_had_happened(tmp_path):
    """It comes back under another id, right before its second round; its disk tells who it is."""
    whole, _, _ = one(tmp_path, "whole")

    def restart(grid):
        get = grid.get_node_ids

        def again():
            if trained(grid) == 2:
                grid.nodes[1].node_id = 77
            return get()

        grid.get_node_ids = again

    restarted, grid, _ = one(tmp_path, "restarted", before=restart, timeout=60.0)
    assert same(whole.arrays, restarted.arrays)
    assert grid.nodes[1].node_id == 77
    assert len(states(tmp_path, "restarted")) == len(grid.nodes)
    first, *later = [len(m.content["arrays"]["fedcef"].data) for n, m, _ in grid.passed if n.client == 1]
    assert first > 2 * max(later)  # nor does it get again what it has


def test_a_node_that_lost_its_disk_gets_the_whole_model_and_begins_afresh(tmp_path):
    """Before its third round; it has the same id, so that the server takes it to be up to date."""

    def lose_disk(grid):
        get = grid.get_node_ids

        def again():
            if trained(grid) == 2:
                rmtree(tmp_path / "a" / "client-1", ignore_errors=True)
            return get()

        grid.get_node_ids = again

    _, grid, _ = one(tmp_path, "a", before=lose_disk)
    (channel,) = grids[-1].server.channels.values()
    assert not grids[-1].left_out
    assert states(tmp_path, "a")[1][1].tobytes() == channel.replica.tobytes()
    assert len(next(iter(grids[-1].server.clients.values()))) == len(grid.nodes) + 1


def test_a_node_that_missed_rounds_gets_what_it_missed(tmp_path):
    """Not everything again."""

    def begin(grid):
        grid.get_node_ids = lambda: [n.node_id for n in grid.nodes if n.client != 3 or trained(grid) not in (2, 3)]

    _, grid, _ = one(tmp_path, "a", rounds=6, before=begin)
    (channel,) = grids[-1].server.channels.values()
    assert states(tmp_path, "a")[3][1].tobytes() == channel.replica.tobytes()
    sizes = [len(m.content["arrays"]["fedcef"].data) for n, m, _ in grid.passed if n.client == 3]
    assert sizes[0] > 600 > max(sizes[1:])


@pytest.mark.parametrize("damage", ["cut", "flipped", "stranger", "frames"])
def test_bytes_of_a_stranger_are_left_out_and_told(tmp_path, damage):
    def spoil(message, reply):
        if message.metadata.message_type != "train" or message.metadata.dst_node_id != 998:
            return
        array = reply.content["arrays"]["fedcef"]
        data = bytearray(array.data)
        if damage == "cut":
            data = data[:-9]
        elif damage == "flipped":
            data[40] ^= 1
        elif damage == "stranger":
            data = bytearray(b"\x00" * 100)
        else:
            answer = Answer.decode(bytes(data), 10**6)
            data = bytearray(replace(answer, frames=bytes(answer.frames) + bytes(answer.frames)).encode())
        array.data = bytes(data)

    def begin(grid):
        grid.spoil = spoil

    def absent(grid):
        grid.get_node_ids = lambda: [n.node_id for n in grid.nodes if n.node_id != 998]

    spoilt, _, _ = one(tmp_path, "spoilt", before=begin, evaluate=False, timeout=60.0)
    assert len(grids[-1].left_out) == 4
    assert all(line.startswith("The reply of node 998 is left out: ") for line in grids[-1].left_out)
    without, _, _ = one(tmp_path, "without", before=absent, evaluate=False)
    assert same(spoilt.arrays, without.arrays)


def test_a_late_reply_is_not_taken(tmp_path):
    """Messages by hand: the node was asked again in the meantime, and has given up what it sent first."""
    grid = CompressedGrid(Grid(app([compressed()]), state=tmp_path, clients=1), **SPARSE)

    def ask():
        content = RecordDict({"arrays": start_model()})
        return list(grid.push_messages([Message(content, 1000, "train")]))

    first, second = ask(), ask()
    (late,) = grid.pull_messages(first)
    (taken,) = grid.pull_messages(second)
    assert late.has_error()
    assert "late" in late.error.reason
    assert list(taken.content["arrays"]) == ["weight", "bias", "steps"]
    third = ask()
    (taken,) = grid.pull_messages(third)
    assert not taken.has_error()


def test_a_node_without_the_mod_is_told_of(tmp_path):
    grid = Grid(app(), state=tmp_path)
    strategy = Compressed(strategies.FedAvg(), **SPARSE)
    result = run(strategy, grid, 1)
    assert not result.arrays


# what is refused


def test_strategies_that_would_go_wrong_are_refused_in_a_sentence():
    median = strategies.FedMedian()
    with pytest.raises(ConfigError, match="FedMedian goes by what most clients say"):
        Compressed(median)
    assert Compressed(median, up="scaled_sign").strategy is median
    private = strategies.DifferentialPrivacyClientSideFixedClipping(strategies.FedAvg(), 1.0, 1.0, 2)
    with pytest.raises(ConfigError, match="clip on the server"):
        Compressed(private)
    with pytest.raises(ConfigError, match="length of their change"):
        Compressed(strategies.QFedAvg(client_learning_rate=0.1))
    with pytest.raises(ConfigError, match="outermost"):
        Compressed(strategies.FedAvg()).configure_train(1, start_model(), None, None)
    with pytest.raises(ConfigError, match="one of them is enough"):
        Compressed(Counted(strategies.FedAvg()))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("topk(2)", "up.ratio is 2"),
        ("topk(0.1, sing)", "up.values"),
        ("tokp(0.1)", "Did you mean topk"),
        ("topk(0.1, sign, 4, 5)", "topk has 3 options: ratio, values, block"),
        ("os:system", "it must be a compressor such as"),
        ("auto", "chooses in the simulator only"),
        (3, "it must be a compressor such as"),
    ],
)
def test_compressors_that_are_none_are_refused(text, sentence):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        compressor(text, "up")


def test_compressors_are_read_and_written():
    one = compressor("topk(0.01, sign)")
    assert (type(one), one.ratio, one.values, one.block) == (TopK, 0.01, "sign", 256)
    assert compressor(" qsgd ") is not None
    for text in ("topk(0.01, sign)", "identity", "randk(ratio=0.1, unbiased=true)", "scaled_sign(0)"):
        assert text_of(compressor(text_of(compressor(text)))) == text_of(compressor(text))


def test_options_come_in_the_order_of_the_catalogue():
    four = compressor("eden(4)")
    assert (type(four), four.bits, four.block) == (Eden, 4, 1024)
    rows = (ROOT / "docs" / "compressors.md").read_text("utf-8").splitlines()
    listed = {}
    for row in rows:
        if found := re.match(r"\| `(\w+)` \|[^|]*\|([^|]*)\|", row):
            listed.setdefault(found[1], re.findall(r"`(\w+)` \(", found[2]))
    for name in ("threshold", "terngrad", "qsgd", "eden", "drive", "natural", "three_lc", "topk", "powersgd"):
        assert listed[name] == order_of(COMPRESSORS[name])[: len(listed[name])]
        assert listed[name]
