"""A run from Python: its history, its views, and its folder."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from torch import nn

from fedcef import L1, FedAvg, FedCEF, History, Identity, OnParameters, Problem, TopK, Zhang, run
from fedcef.cli import main as cli
from fedcef.core.errors import ConfigError, ProblemError, RunError
from fedcef.core.extras import install_extra
from fedcef.core.schedules import Cosine
from fedcef.runs.experiments import load_settings

from .setting import method, small_problem

PROBLEM = small_problem()


@pytest.fixture(scope="module")
def history():
    return run(PROBLEM, method(), rounds=12, eval_every=5, batch_size=8, seed=3)


def without_time(records):
    return [{name: value for name, value in record.items() if name != "wall_s"} for record in records]


def test_the_same_call_gives_the_same_records(history):
    twin = run(PROBLEM, method(), rounds=12, eval_every=5, batch_size=8, seed=3)
    assert without_time(twin.records) == without_time(history.records)
    assert [record["round"] for record in history] == [0, 5, 10, 12]
    assert len(history) == 4
    other = run(PROBLEM, method(), rounds=12, eval_every=5, batch_size=8, seed=4)
    assert other.last["objective"] != history.last["objective"]


def test_a_history_as_a_table(history):
    table = history.frame()
    assert isinstance(table, pandas.DataFrame)
    assert table.index.tolist() == [0, 5, 10, 12]
    assert table["objective"].tolist() == history["objective"]
    with pytest.raises(KeyError, match="'gap' was not recorded; there are round,"):
        history["gap"]


def test_a_history_as_a_model(history):
    model = history.model
    assert isinstance(model, nn.Sequential)
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in history.parameters.items())
    assert not torch.equal(model[0].weight, PROBLEM.model[0].weight)  # the problem's own is as it was
    outputs = model(PROBLEM.test.inputs).argmax(-1)
    assert float((outputs == PROBLEM.test.targets).double().mean()) == history.last["accuracy"]


def test_a_history_as_a_figure(history, tmp_path):
    figure = history.plot()
    words = ["Test accuracy", "Objective", "Stationarity", "Share of parameters not zero"]
    assert [ax.get_ylabel() for ax in figure.axes] == words
    assert figure.axes[2].get_yscale() == "log"
    line = figure.axes[0].lines[0]
    assert line.get_xdata().tolist() == [0, 5, 10, 12]
    assert line.get_ydata().tolist() == history["accuracy"]
    sent = history.plot("objective", against="bytes").axes[0].lines[0].get_xdata()
    assert sent[-1] == pytest.approx(history.bytes / 1e6)
    assert figure._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="'gap' was not recorded"):
        history.plot("gap")


def test_a_history_as_text(history):
    last = history.last
    assert repr(history).startswith(f"History(round 12: accuracy {last['accuracy']:.4g}, objective")
    page = history._repr_html_()
    assert page.count("<tr>") == 5
    assert "wire_up_bytes" in page
    long = History(history.records * 10, history.parameters)
    assert long._repr_html_().count("<tr>") == 1 + 10 + 1
    assert "…" in long._repr_html_()
    assert repr(History([], {})) == "History(nothing recorded)"
    with pytest.raises(ProblemError, match=r"load_state_dict\(history.parameters\)"):
        _ = long.model


def test_watching(history):
    seen = []
    run(PROBLEM, method(), rounds=12, eval_every=5, batch_size=8, seed=3, watch=seen.append)
    assert without_time(seen) == without_time(history.records)


def test_a_run_in_a_folder_is_the_run_in_memory(history, tmp_path, monkeypatch, capsys):
    kept = run(PROBLEM, method(), rounds=12, eval_every=5, batch_size=8, seed=3, out=tmp_path / "run", label="mine")
    assert without_time(kept) == without_time(history)
    assert all(torch.equal(kept.parameters[name], value) for name, value in history.parameters.items())
    assert kept.folder == tmp_path / "run"
    assert "control_gap" in kept.measures
    again = History.load(tmp_path / "run")
    assert again.records == kept.records

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedcef", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        return leaving.value.code or 0, " ".join(capsys.readouterr().err.split())

    assert command("plot", tmp_path / "run", "--out", tmp_path / "plot") == (0, "")
    assert (tmp_path / "plot" / "report.html").exists()
    assert command("report", tmp_path / "run", "-o", tmp_path / "page.html") == (0, "")
    code, sentence = command("run", "--resume", tmp_path / "run")
    assert code == 2
    assert "was defined in Python; resume it there" in sentence


class Stop(Exception):
    pass


@pytest.mark.parametrize("budget", [None, "20kB"])
def test_a_run_that_was_cut_off_goes_on_bit_for_bit(tmp_path, budget):
    options = {"rounds": 9, "eval_every": 2, "batch_size": 8, "snapshot_every": 4, "budget": budget}
    whole = run(PROBLEM, method(), **options, out=tmp_path / "whole")

    def stop(record):
        if record["round"] == 6:
            raise Stop

    with pytest.raises(Stop):
        run(PROBLEM, method(), **options, out=tmp_path / "cut", watch=stop)
    assert len(History.load(tmp_path / "cut")) == 4
    with pytest.raises(RunError, match="already holds a run; continue it with resume=True, or choose another `out`"):
        run(PROBLEM, method(), **options, out=tmp_path / "cut")
    rest = run(PROBLEM, method(), **options, out=tmp_path / "cut", resume=True)
    assert all(torch.equal(rest.parameters[name], value) for name, value in whole.parameters.items())
    assert rest.bytes == whole.bytes
    finished = json.loads((tmp_path / "cut" / "summary.json").read_text())
    assert run(PROBLEM, method(), **options, out=tmp_path / "cut", resume=True).records == rest.records
    assert json.loads((tmp_path / "cut" / "summary.json").read_text()) == finished


def test_other_settings_or_data_are_not_gone_on_with(tmp_path):
    run(PROBLEM, method(), rounds=2, out=tmp_path)
    for problem, algorithm, rounds in (
        (PROBLEM, method(0.4), 2),
        (PROBLEM, method(0.4), 3),
        (PROBLEM, Zhang(local_lr=0.1, local_steps=3), 2),
        (small_problem(seed=1), method(), 2),
        (replace(PROBLEM, regularizer=L1(1e-2)), method(), 2),
    ):
        with pytest.raises(ConfigError, match=r"other settings or data \(.* was .* and is .*\); choose another `out`"):
            run(problem, algorithm, rounds=rounds, out=tmp_path, resume=True)
    with pytest.raises(ConfigError, match=r"\(label was  and is other\)"):
        run(PROBLEM, method(), rounds=2, out=tmp_path, resume=True, label="other")


def test_a_run_is_given_more_rounds(tmp_path):
    options = {"eval_every": 2, "batch_size": 8}
    whole = run(PROBLEM, method(), rounds=7, **options, out=tmp_path / "whole")
    run(PROBLEM, method(), rounds=3, **options, out=tmp_path / "more")
    more = run(PROBLEM, method(), rounds=7, **options, out=tmp_path / "more", resume=True)
    assert without_time(more) == without_time(whole)
    assert all(torch.equal(more.parameters[name], value) for name, value in whole.parameters.items())
    assert more.notes == ("The run was made longer: it had 3 rounds, and has 7.",)
    with pytest.raises(RunError, match="it can be made longer, but not 3 rounds"):
        run(PROBLEM, method(), rounds=3, **options, out=tmp_path / "more", resume=True)
    run(PROBLEM, method(), rounds=1, local_schedule="cosine", out=tmp_path / "cosine")
    with pytest.raises(RunError, match=r"local_schedule .* goes by the number of rounds"):
        run(PROBLEM, method(), rounds=2, local_schedule="cosine", out=tmp_path / "cosine", resume=True)


def test_some_clients_are_evaluated():
    one, all_ = (run(PROBLEM, method(), rounds=1, eval_clients=n)["train_loss"][0] for n in (1, 0))
    assert one != all_
    assert run(PROBLEM, method(), rounds=1, eval_clients=3)["train_loss"][0] == all_
    with pytest.raises(ConfigError, match=r"eval\.clients is 4; it must be at most the number of clients, 3, or"):
        run(PROBLEM, method(), rounds=1, eval_clients=4)


def test_a_folder_may_be_moved_and_be_kept_otherwise(tmp_path):
    before = run(PROBLEM, method(), rounds=2, out=tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    after = run(PROBLEM, method(), rounds=2, out=tmp_path / "there", resume=True, snapshot_every=1)
    assert after.records == before.records


def test_a_folder_of_an_earlier_version_lacks_todays_defaults(tmp_path):
    before = run(PROBLEM, method(), rounds=2, out=tmp_path)
    config = tmp_path / "config.toml"
    config.write_text(config.read_text().replace("cuda_graphs = true\n", ""))
    assert "cuda_graphs" not in config.read_text()
    assert run(PROBLEM, method(), rounds=2, out=tmp_path, resume=True).records == before.records


def test_settings_are_written_by_their_names(tmp_path):
    chosen = PROBLEM.layout.mask(["0.weight"]).nonzero().squeeze(-1)
    problem = replace(PROBLEM, regularizer=OnParameters(L1(2e-3), chosen))
    algorithm = FedCEF(
        local_lr=0.1, compressor=TopK(ratio=0.5), downlink="lossy", down_compressor=TopK(ratio=0.25), mixing=0.5
    )
    run(problem, algorithm, rounds=1, local_schedule=Cosine(final=0.1), clip_norm=2.0, out=tmp_path, resume=True)
    written = load_settings(str(tmp_path / "config.toml"))
    chosen = {"name": "fedcef", "mixing": 0.5, "downlink": "lossy"}
    assert written.algorithm == {
        **chosen, "drift_weight": 1.0, "participation": "shared", "own_part": 0.5, "index_code": "plain",
        "control": "gradient", "metric": "plain", "metric_memory": 0.99, "metric_floor": 1e-8, "model_bits": 2,
    }  # fmt: skip
    assert written.down_compressor["ratio"] == 0.25
    assert written.regularizer == {"name": "l1", "weight": 2e-3, "on": ["0.weight"]}
    assert written.local_schedule == Cosine(final=0.1)
    assert written.data["loss"] == "cross_entropy"
    assert written.clip_norm == 2.0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: run(PROBLEM, FedCEF), "is no Algorithm"),
        (lambda: run(method(), PROBLEM), "A run takes a problem and an algorithm, for example"),
        (lambda: run(PROBLEM, FedCEF(local_lr=-1.0)), "local_lr is -1.0; it must be greater than 0"),
        (lambda: run(PROBLEM, FedCEF(local_lr=np.float32(-1))), "it must be greater than 0"),
        (lambda: run(PROBLEM, FedCEF(local_lr=None)), "local_lr is None; it must be a valid number"),
        (lambda: run(PROBLEM, FedCEF(compressor="topk")), "compressor is 'topk'; it must be a Compressor."),
        (lambda: run(PROBLEM, FedCEF(compressor=TopK)), "it must be a Compressor."),
        (lambda: run(PROBLEM, FedCEF(downlink=None)), "downlink is None; it must be 'increment'"),
        (lambda: L1(np.float32(-1)), "it must be greater than or equal to 0"),
        (lambda: run(PROBLEM, FedCEF(compressor=TopK(ratio=2.0))), "ratio is 2.0; it must be less than or equal to 1"),
        (lambda: run(PROBLEM, Zhang(compressor=TopK(ratio=0.1))), "has no place for a compressor"),
        (lambda: run(PROBLEM, FedCEF(regularizer=L1(1.0))), "belongs to the problem"),
        (lambda: run(PROBLEM, method(), clients_per_round=9), "must be between 1 and num_clients = 3"),
        (lambda: run(PROBLEM, method(), budget="lots"), "budget is 'lots'; it must be a number of bytes"),
        (lambda: run(PROBLEM, method(), resume=True), "give the folder as `out`"),
        (lambda: run(PROBLEM, method(), rounds=-1), "rounds is -1; it must be greater than or equal to 1"),
    ],
)
def test_mistakes_get_a_sentence(make, says):
    with pytest.raises(ConfigError, match=says):
        make()


def test_numbers_of_other_kinds_are_numbers():
    plain = run(PROBLEM, FedCEF(local_lr=0.25, local_steps=2), rounds=2, budget=None)
    other = run(PROBLEM, FedCEF(local_lr=np.float32(0.25), local_steps=2.0), rounds=np.int64(2), budget=np.int64(0))
    assert other["objective"] == plain["objective"]


def test_precision_is_heeded_in_memory_and_in_a_folder(tmp_path):
    double = PROBLEM.to("cpu", torch.float64)
    expected = run(double, method(), rounds=2).parameters
    for history in (
        run(PROBLEM, method(), rounds=2, precision="float64"),
        run(PROBLEM, method(), rounds=2, precision="float64", out=tmp_path),
    ):
        assert all(torch.equal(history.parameters[name], value) for name, value in expected.items())
        assert history.model[0].weight.dtype == torch.float32  # the user's own module, for the user's own inputs


@pytest.mark.parametrize("buffers", ["local", "mean", "frozen"])
def test_statistics_are_as_precise_as_parameters_in_memory_and_in_a_folder(buffers, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    clients = [PROBLEM.client_samples(n) for n in range(2)]
    problem = Problem.build(model, nn.functional.cross_entropy, clients, buffers=buffers)
    memory = run(problem, FedAvg(local_lr=0.1), rounds=2, precision="float64").parameters
    folder = run(problem, FedAvg(local_lr=0.1), rounds=2, precision="float64", out=tmp_path / "run").parameters
    assert memory["1.running_var"].dtype == torch.float64
    assert all(torch.equal(memory[name], value) for name, value in folder.items())


def test_a_run_goes_on_only_with_the_base_model_that_it_began_with(tmp_path, monkeypatch):
    def adapted(scale):
        torch.manual_seed(0)
        body = nn.Linear(6, 5).requires_grad_(False)
        body.weight.mul_(scale)
        clients = [PROBLEM.client_samples(n) for n in range(2)]
        return Problem.build(nn.Sequential(body, nn.Linear(5, 2)), nn.functional.cross_entropy, clients)

    run(adapted(1), FedAvg(local_lr=0.1), rounds=2, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"holds a run with other settings or data \(data.base_model was"):
        run(adapted(2), FedAvg(local_lr=0.1), rounds=4, out=tmp_path / "run", resume=True)
    assert run(adapted(1), FedAvg(local_lr=0.1), rounds=4, out=tmp_path / "run", resume=True).last["round"] == 4
    with monkeypatch.context() as before:
        before.setattr(Problem, "base_digest", b"")
        run(adapted(1), FedAvg(local_lr=0.1), rounds=2, out=tmp_path / "earlier")
    assert "base_model" not in (tmp_path / "earlier" / "config.toml").read_text()
    assert run(adapted(1), FedAvg(local_lr=0.1), rounds=4, out=tmp_path / "earlier", resume=True).last["round"] == 4


def test_a_measure_that_is_not_in_every_record():
    history = run(PROBLEM, method(), rounds=2, eval_every=1, budget="1MB")
    ratios = history["up_ratio"]
    assert len(ratios) == len(history) == 3
    assert np.isnan(ratios[0])
    assert ratios[1] > 0


def test_what_is_damaged_in_a_folder_is_among_the_notes(tmp_path):
    run(PROBLEM, method(), rounds=2, eval_every=1, out=tmp_path)
    path = tmp_path / "rounds.jsonl"
    first, _, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"\xff\n" + last)
    history = History.load(tmp_path)
    assert history["round"] == [0, 2]
    assert "line 2 of rounds.jsonl is damaged" in history.notes[-1]


def test_a_compressor_of_ones_own_need_not_be_a_dataclass():
    class Mine(Identity):
        pass

    assert len(run(PROBLEM, FedCEF(local_lr=0.1, compressor=Mine()), rounds=1)) == 2


def test_views_say_what_they_miss(history, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    said = f"For a table pandas is needed; install it with: {install_extra('notebook')}"
    with pytest.raises(ConfigError, match=re.escape(said)):
        history.frame()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=re.escape(install_extra("plot"))):
        history.plot()


def test_a_folder_that_has_no_run_yet(tmp_path):
    with pytest.raises(RunError, match="holds no run"):
        History.load(tmp_path)


def test_tied_weights_come_out_under_each_of_their_names(tmp_path):
    """`load_state_dict(history.parameters)` once failed with missing keys."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside, self.outside = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
            self.outside.weight = self.inside.weight

        def forward(self, x):
            return self.outside(self.inside(x))

    torch.manual_seed(0)
    tokens = torch.randint(0, 5, (3, 12))
    problem = Problem.build(Tied(), nn.functional.cross_entropy, [(t, t.roll(1)) for t in tokens])
    for history in (
        run(problem, FedAvg(), rounds=2),
        run(problem, FedAvg(), rounds=2, out=tmp_path / "run"),
        History.load(tmp_path / "run", Tied()),
    ):
        assert set(history.parameters) == {"inside.weight", "outside.weight"}
        assert history.model.inside.weight is history.model.outside.weight or torch.equal(
            history.model.inside.weight, history.model.outside.weight
        )
        Tied().load_state_dict(history.parameters)
