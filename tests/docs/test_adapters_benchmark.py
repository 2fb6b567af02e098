"""The benchmark of adapters: what it compares, and what it keeps."""

import json
import sys

import pytest
from test_pages import DOCS

BENCHMARKS = DOCS.parent / "benchmarks"


@pytest.fixture
def lora(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import lora

    yield lora
    for name in ("lora", "measure"):
        sys.modules.pop(name, None)


def test_fedavg_is_stopped_at_the_level_that_both_reach(lora):
    usual = [lora.Point(t, 100 * t, 300 * t, loss) for t, loss in enumerate((5.0, 3.0, 2.0, 1.0))]
    lower = [lora.Point(t, t, t, loss) for t, loss in enumerate((5.0, 4.0, 1.0, 0.5))]
    higher = [lora.Point(t, t, t, loss) for t, loss in enumerate((5.0, 4.0, 2.5, 2.6))]
    found = lora.compared({"FedAvg": usual, "lower": lower, "higher": higher})
    assert found["FedAvg"]["gain"] == 1
    assert (found["lower"]["level"], found["lower"]["gain"]) == (1.0, 1200 / 4)
    assert (found["higher"]["level"], found["higher"]["loss"], found["higher"]["gain"]) == (2.5, 2.6, 800 / 4)


def test_what_has_ended_is_not_repeated(lora, tmp_path, monkeypatch, capsys):
    options = ["--small", "--cache", str(tmp_path / "cache"), "--out", str(tmp_path)]
    records = []
    for chosen in (["--only", "FedAvg"], [], []):
        monkeypatch.setattr(sys, "argv", ["lora.py", *options, *chosen])
        lora.main()
        records.append(json.loads((tmp_path / "lora.json").read_text("utf-8")))
        assert lora.table(records[-1]) in capsys.readouterr().out
        if records[-1] == records[0]:
            assert list(records[0]["seeds"]["0"]["paths"]) == ["FedAvg"]
        else:
            monkeypatch.setattr(lora, "trained", None)
    assert records[0] != records[1] == records[2]
    assert records[0]["seeds"]["0"]["paths"]["FedAvg"] == records[1]["seeds"]["0"]["paths"]["FedAvg"]
    assert len(list((tmp_path / "cache").glob("gpt-*.pt"))) == 1
