"""The sections that tell of clients, messages, layers and commands, and network time."""

import json
import shlex
import tomllib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedcef.core.errors import RunError
from fedcef.problems.holdings import Holdings
from fedcef.report import load_runs, write_page
from fedcef.report.data.groups import group_runs
from fedcef.report.data.link_time import ClientLink
from fedcef.report.page.clients import deal_of, render_clients
from fedcef.report.page.layers import layers_of, render_layers
from fedcef.report.page.reproduce import command_of
from fedcef.report.page.traffic import parts_of, render_traffic
from fedcef.runs.experiments import load_settings

HOSTILE = "<img src=x onerror=alert(1)>"
FACTS = {
    "clients": {"samples": [4, 4], "classes": [0, 1], "counts": [[4, 0], [2, 2]]},
    "messages": {
        "up": {"bytes": 100, "parts": [{"name": "delta", "form": "sparse", "values": 60, "indices": 20}]},
        "down": {"bytes": 400, "parts": [{"name": HOSTILE, "form": "dense", "values": 390, "indices": 0}]},
    },
}
SUMMARY = Holdings(np.arange(300)).facts()["summary"]


def test_the_distance_of_a_clients_classes_from_all():
    deal = deal_of(FACTS)
    assert deal is not None
    np.testing.assert_allclose(deal.holdings.distances, [0.25, 0.25])  # all: 6 of 8 and 2 of 8


def test_runs_with_the_same_deal_share_a_table(make_run):
    other = {"clients": {"samples": [1, 1], "classes": [0, HOSTILE], "counts": [[1, 0], [0, 1]]}}
    runs = [make_run(f"{n}{s}", label=n, seed=s, facts=(FACTS, other)[s]) for n in "ab" for s in (0, 1)]
    html = render_clients(group_runs(load_runs(runs)))
    assert html.count("<table") == 2
    assert "seed 0" in html
    assert "seed 1" in html
    assert "<img" not in html
    assert html.count("<details open>") == 1


def test_many_clients_and_classes_are_cut_and_said_so(make_run):
    facts = {"clients": {"samples": [30] * 60, "classes": list(range(30)), "counts": [[1] * 30] * 60}}
    html = render_clients(group_runs(load_runs([make_run("a", facts=facts)])))
    assert html.count("<tr>") == 51
    assert "10 more clients not shown" in html


def test_many_clients_are_told_of_by_quantiles(make_run):
    """From what a run writes today, and from an old folder with a row for each client; both say the same."""
    counts = np.stack([1 + np.arange(401), np.full(401, 10)], axis=1)
    holdings = Holdings(counts.sum(axis=1), (0, HOSTILE), counts)
    assert list(holdings.facts()) == ["summary"]
    old = {"samples": holdings.sizes.tolist(), "classes": [0, HOSTILE], "counts": counts.tolist()}
    runs = [make_run(n, facts={"clients": clients}) for n, clients in (("new", holdings.facts()), ("old", old))]
    new, old = (render_clients(group_runs(load_runs([run]))) for run in runs)
    assert new == old
    assert "401 clients with 84,611 samples of 2 classes" in new  # 401·402/2 + 4010
    assert "<td>11</td><td>31</td><td>111</td><td>211</td><td>311</td><td>391</td><td>411</td><td>211</td>" in new
    assert "<td>401</td><td>401</td>" in new  # everyone has some of both classes
    assert "<img" not in new
    assert len(new) < 4000


def test_facts_of_a_million_clients_are_as_long_as_those_of_a_thousand():
    short, long = (json.dumps(Holdings(np.arange(n), (0,), np.arange(n)[:, None]).facts()) for n in (1000, 1_000_000))
    assert len(long) < 1.2 * len(short)


def test_clients_of_whom_some_were_looked_at(make_run):
    facts = {"clients": Holdings(np.array([3, 5]), population=10**6).facts()}
    html = render_clients(group_runs(load_runs([make_run("a", facts=facts)])))
    assert "1,000,000 clients, of whom 2 drawn at random were looked at; those have 8 samples." in html
    assert "distance" not in html


def test_bytes_by_direction_and_part(make_run):
    run = make_run("a", up=1000, extra="num_clients = 5\n", facts=FACTS)
    (message, _) = parts_of(FACTS)
    assert message.other == 20
    html = render_traffic(group_runs(load_runs([run])), [0])
    assert "<td>20.0</td><td>40.0</td><td>60.0</td><td>600 B</td>" in html  # kB; 60 kB / 5 clients / 20 rounds
    assert "<code>delta</code>" in html
    assert "<td>60 B</td><td>20 B</td><td>20 B</td>" in html
    assert "<img" not in html


@pytest.mark.parametrize(
    "facts",
    [
        {"clients": 1, "messages": []},
        {"clients": {"classes": [1], "counts": [[1, 2]]}, "messages": {"up": 1, "down": {"parts": 3}}},
        {"clients": {"classes": [1], "counts": [[-1]]}, "messages": {"up": {"bytes": 1, "parts": [{"values": 9}]}}},
        {"clients": {"classes": [1], "counts": [1]}, "messages": {"up": {"bytes": None, "parts": [{}]}, "down": {}}},
        {"clients": {"classes": [], "counts": []}, "messages": {"up": {"parts": []}}},
        {"clients": {"summary": 1}},
        {"clients": {"summary": {"number": 300}}},
        {"clients": {"summary": {**SUMMARY, "quantiles": {"samples": [1.0]}}}},
        {"clients": {"summary": {**SUMMARY, "means": {}}}},
        {"clients": {"summary": {**SUMMARY, "gini": float("nan")}}},
        {"clients": {"summary": {**SUMMARY, "totals": [1]}}},
    ],
)
def test_facts_of_another_shape_are_as_if_there_were_none(make_run, tmp_path, facts):
    assert deal_of(facts) is None
    assert parts_of(facts) == ()
    write_page(load_runs([make_run("a", facts=facts)]), tmp_path / "report.html")


def test_density_per_layer_is_counted_in_the_model(make_run):
    runs = [make_run(f"s{s}", seed=s) for s in range(2)]
    for s, run in enumerate(runs):
        weight = torch.tensor([[1.0, 0.0], [0.0, float(s)]])
        save_file({"10.weight": weight, "2.bias": torch.zeros(3)}, run / "model.safetensors")
    layers = layers_of(runs[0])
    assert {name: (layer.nonzero, layer.size) for name, layer in layers.items()} == {
        "2.bias": (0, 3),
        "10.weight": (1, 4),
    }
    html = render_layers(group_runs(load_runs(runs)), [0])
    assert html.index("2.bias") < html.index("10.weight")
    assert '37.5<span class="spread">± 17.7' in html
    (runs[0] / "model.safetensors").write_bytes(b"no model")
    with pytest.raises(RunError, match=r"model\.safetensors is damaged"):
        layers_of(runs[0])
    html = render_layers(group_runs(load_runs(runs)), [0])
    assert "s0/model.safetensors is damaged" in html
    assert "50.0" in html  # the other seed's


@pytest.mark.parametrize("label", ["FedCEF r=0.01", "true", 'it\'s "odd"', " 7"])
def test_the_command_gives_the_very_settings(tmp_path, label):
    changes = ["compressor.ratio=0.01", "seed=3", "algorithm.downlink=lossy", f"label={json.dumps(label)}"]
    settings = load_settings("demo", changes).to_toml()
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text(settings)
    (run / "rounds.jsonl").write_text('{"round": 0}\n')
    (record,) = load_runs([run])
    words = shlex.split(command_of(record))
    assert words[:3] == ["fedcef", "run", "demo"]
    assert words[3::2] == ["--set"] * (len(words[3:]) // 2)
    assert len(words) == 3 + 2 * len(changes)
    again = tomllib.loads(load_settings("demo", words[4::2]).to_toml())
    assert again == tomllib.loads(settings)


def test_settings_that_no_experiment_gives_are_repeated_by_their_file(make_run):
    for name, extra in (("own run", ""), ("b", "num_clients = 3\n")):
        (record,) = load_runs([make_run(name, extra=extra)])
        assert command_of(record) == f"fedcef run {shlex.quote(name + '/config.toml')}"


def test_network_time_is_latency_and_bytes_over_links_and_computing(make_run):
    (item,) = group_runs(
        load_runs([make_run("a", up=1_000_000, extra="num_clients = 4\n")]), ClientLink(2.0, 8.0, 100.0, compute=True)
    )
    seconds = item.curve("accuracy").x["network_s"]
    # a round: 0.1 s, 0.25 MB up at 2 Mbit/s, 0.5 MB down at 8 Mbit/s, 0.5 s of computing for four
    np.testing.assert_allclose(seconds, np.arange(0, 21, 2) * (0.1 + 1.0 + 0.5 + 0.5 / 4))
    without = ClientLink(2.0, 8.0, 100.0).seconds(item.curve("accuracy").x, 4)
    np.testing.assert_allclose(without, np.arange(0, 21, 2) * 1.6)


def test_network_time_needs_to_know_how_many_clients_there_are(make_run):
    (item,) = group_runs(load_runs([make_run("a")]))
    assert "network_s" not in item.curve("accuracy").x
    (some,) = load_runs([make_run("b", extra="num_clients = 10\nclients_per_round = 3\n")])
    assert some.participants == 3
