"""Runs in folders: settings, records, resume, report."""

import csv
import json
import tomllib

import pytest

from fedcef.cli.progress import _sent
from fedcef.core.errors import ConfigError, RunError
from fedcef.python.history import History
from fedcef.python.run import run as run_python
from fedcef.report import draw_figures, load_runs
from fedcef.report.data.groups import axes_of, group_runs
from fedcef.report.data.table import collect_results
from fedcef.report.figures import panels
from fedcef.report.page.document import write_page
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run
from fedcef.runs.settings import Settings
from fedcef.runs.sweep import Planned, attempt, write_summary

from .setting import PROBLEM, fedavg

COMMON = {
    "rounds": 6,
    "num_clients": 6,
    "clients_per_round": 3,
    "local_steps": 2,
    "snapshot_every": 2,
    "data": {"name": "lasso", "samples": 20, "dim": 10, "support": 3},
    "regularizer": {"name": "l1", "weight": 0.01},
    "algorithm": {"name": "fedavg"},
}
NETWORK = {"preset": "3g", "over_selection": 1.5, "deadline": 2.0}


def settings(**options):
    return Settings(**{**COMMON, **options})


def lines(folder):
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_without_a_network_settings_and_records_are_what_they_were(tmp_path):
    assert "network" not in settings().to_toml()
    run(settings(), RunFolder.new(tmp_path / "run"))
    assert not {"sim_s", "arrivals", "staleness"} & {key for line in lines(tmp_path / "run") for key in line}


def test_settings_name_the_whole_network_and_can_be_read_again():
    text = settings(network=NETWORK).to_toml()
    again = Settings(**tomllib.loads(text))
    assert again.network == settings(network=NETWORK).network
    assert tomllib.loads(text)["network"]["spread"] == 0.5


@pytest.mark.parametrize("network", [NETWORK, {"mode": "async", "buffer": 2, "step_spread": 1.0}])
def test_a_run_that_was_cut_off_keeps_its_clock(tmp_path, network):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(settings(network=network), RunFolder.new(whole))
    times = [line["sim_s"] for line in lines(whole)]
    assert times[0] == 0.0
    assert times == sorted(times)
    assert times[-1] > 0

    def stop(record):
        if record.get("round") == 5:
            raise RuntimeError("cut off")

    with pytest.raises(RuntimeError):
        run(settings(network=network), RunFolder.new(cut), watch=stop)
    run(settings(network=network), RunFolder.open(cut), resume=True)
    without = [{key: value for key, value in line.items() if key != "wall_s"} for line in lines(cut)]
    assert without == [{key: value for key, value in line.items() if key != "wall_s"} for line in lines(whole)]


def test_a_network_may_be_named_by_its_preset():
    assert settings(network="3g").network.preset == "3g"
    with pytest.raises(ConfigError, match=r"network\.preset is 'tin cans'"):
        settings(network="tin cans")


def test_a_run_from_python_has_a_clock():
    history = run_python(PROBLEM, fedavg(), rounds=2, eval_every=1, network={"preset": "wifi"})
    assert [record["arrivals"] for record in history.records] == [0, 6, 6]


def test_a_report_draws_against_the_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(panels, "FORMATS", ("svg",))
    monkeypatch.setattr(panels, "shown_metrics", lambda items: ("objective",))
    run(settings(network=NETWORK, label="timed"), RunFolder.new(tmp_path / "timed"))
    run(settings(label="plain"), RunFolder.new(tmp_path / "plain"))
    timed, both = load_runs([tmp_path / "timed"]), load_runs([tmp_path / "timed", tmp_path / "plain"])
    (item,) = group_runs(timed)
    assert item.curve("objective").x["sim_s"].tolist() == [line["sim_s"] for line in lines(tmp_path / "timed")]
    assert axes_of([item])[-1] == "sim_s"
    assert "sim_s" not in axes_of(group_runs(load_runs([tmp_path / "plain"])))
    paths = draw_figures(timed, tmp_path / "figures", "sim_s")
    assert (tmp_path / "figures" / "objective_sim_s.svg") in paths
    with pytest.raises(RunError, match="have no simulated time"):
        draw_figures(both, tmp_path / "figures", "sim_s")
    write_page(both, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    data = json.loads(page.split('id="data"')[1].split(">", 1)[1].split("</script>")[0])
    assert data["axes"][-1]["key"] == "sim_s"
    curves = [method["x"][method["curves"]["objective"]["x"]] for method in data["methods"]]
    assert len(curves[0]["sim_s"]) == 7
    assert "sim_s" not in curves[1]
    assert "simulated time" in page
    assert 'id="network"' in page  # links for the estimate of the run without a network
    write_page(timed, tmp_path / "alone.html", against="sim_s")
    page = (tmp_path / "alone.html").read_text(encoding="utf-8")
    data = json.loads(page.split('id="data"')[1].split(">", 1)[1].split("</script>")[0])
    assert [axis["key"] for axis in data["axes"]] == ["sim_s", "wire_bytes", "paper_bytes", "round", "wall_s"]
    assert 'id="network"' not in page
    with pytest.raises(RunError, match="None of these runs has simulated time"):
        write_page(load_runs([tmp_path / "plain"]), tmp_path / "page.html", against="sim_s")


def test_tables_and_summaries_have_the_time(tmp_path):
    planned = [
        Planned(settings(network=NETWORK, label="timed"), tmp_path / "timed"),
        Planned(settings(label="plain"), tmp_path / "plain"),
    ]
    outcomes = [attempt(one, lambda record: None) for one in planned]
    seconds = json.loads((tmp_path / "timed" / "summary.json").read_text("utf-8"))["sim_s"]
    assert seconds == lines(tmp_path / "timed")[-1]["sim_s"] > 0
    assert "sim_s" not in json.loads((tmp_path / "plain" / "summary.json").read_text("utf-8"))
    both = collect_results(group_runs(load_runs([one.path for one in planned])))
    assert both.headers[-1] == ("sim time", "s")
    assert float(both.rows[0].cells[-1].text) == pytest.approx(seconds, rel=0.01)
    assert both.rows[1].cells[-1].text == "–"
    plain = collect_results(group_runs(load_runs([tmp_path / "plain"])))
    assert plain.headers[-1] == ("wall", "s")
    write_summary(outcomes, tmp_path / "summary.csv")
    with (tmp_path / "summary.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["sim_s"] for row in rows] == [str(seconds), ""]
    write_summary(outcomes[1:], tmp_path / "summary.csv")
    assert "sim_s" not in (tmp_path / "summary.csv").read_text("utf-8")
    assert f"{seconds:.4g} s of simulated time" in repr(History.load(tmp_path / "timed"))


def test_progress_tells_the_time():
    assert _sent({"wire_up_bytes": 1000, "wire_down_bytes": 500, "sim_s": 0.42}) == "1.50 kB, 0.4 s on its network"
    assert _sent({"wire_up_bytes": 1000, "wire_down_bytes": 500, "sim_s": 83.2}) == "1.50 kB, 83 s on its network"
    assert _sent({"wire_up_bytes": 1000, "wire_down_bytes": 500}) == "1.50 kB"
