"""Deployed runs on the screen, on the operators' page and for Prometheus."""

import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from rich.console import Console

sys.path.append(str(Path(__file__).parents[1]))  # where deployment/ is

from deployment.loopback import Loopback
from deployment.setting import small_settings
from fedcef.deployment import DeploymentSettings
from fedcef.watch import Site, Watched, draw_screen
from fedcef.watch.attended import attended
from fedcef.watch.metrics import as_prometheus


@pytest.fixture
def folder(tmp_path):
    """A run of four rounds in which client 4 never answers, and somebody sends what nobody takes."""
    settings = small_settings("fedcef", label='a "label"')
    loop = Loopback(settings, tmp_path, deployment=DeploymentSettings(deadline_s=10, min_clients=3))
    for _ in range(4):
        orders = loop.server.start_round(loop.now)
        loop.server.receive("nobody", b"")
        for client, order in orders.items():
            if client != 4:
                loop.server.receive(loop.name(client), loop.workers[client].handle(order))
        loop.now += 12.0
        loop.server.close_round(loop.now)
    return loop.server.state.folder


def test_who_is_there_and_who_is_late(folder):
    (run,) = Watched(folder.path).runs
    clients = attended(run)
    assert [one.state for one in clients] == ["there"] * 4 + ["missed 3"]  # asked in rounds 0, 1, 2
    assert [one.last_round for one in clients] == [3, 3, 3, 3, None]
    assert [one.took_part for one in clients] == [4, 4, 4, 4, 0]
    assert clients[2].name == "site-2"


def test_the_screen_names_who_is_missing(folder):
    console = Console(width=140, record=True)
    console.print(draw_screen(Watched(folder.path).runs))
    assert "4 (missed 3)" in console.export_text()


def test_prometheus_reads_it(folder):
    text = as_prometheus(Watched(folder.path).runs)
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    label = f'run="{folder.path}",label="a \\"label\\""'
    assert values[f"fedcef_round{{{label}}}"] == "4"
    assert values[f'fedcef_refused_total{{{label},reason="unknown client"}}'] == "4"
    assert values[f'fedcef_client_missed{{{label},client="4"}}'] == "3"
    assert values[f'fedcef_client_last_round{{{label},client="0"}}'] == "3"
    assert values[f"fedcef_server_up{{{label}}}"] == "0"
    assert values[f'fedcef_phase_seconds{{{label},phase="round"}}'] == "12"
    names = [line.split("{")[0] for line in text.splitlines() if not line.startswith("#")]
    assert names == sorted(names, key=names.index)  # those of one name stand together
    with folder.locked():
        assert f"fedcef_server_up{{{label}}} 1" in as_prometheus(Watched(folder.path).runs)


def test_a_simulated_run_has_no_clients_to_show(tmp_path):
    from fedcef.runs.folder import RunFolder
    from fedcef.runs.run import run

    run(small_settings("fedcef", rounds=2), RunFolder(tmp_path / "run"))
    text = as_prometheus(Watched(tmp_path / "run").runs)
    assert "fedcef_round{" in text
    assert "fedcef_client" not in text


def test_the_page_for_operators(folder):
    with Site(folder.path).served() as address:
        page = urlopen(address + "deployment", timeout=60).read().decode()
        metrics = urlopen(address + "metrics", timeout=60)
        assert metrics.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert b"fedcef_round{" in metrics.read()
    assert "stopped: no server works on it" in page
    assert "missed 3" in page
    assert "unknown client 4." in page
    assert "a &#34;label&#34;" in page
