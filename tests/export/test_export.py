"""fedcef export: every format gives the same outputs when it is loaded without fedcef."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import typer
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import fedcef
from fedcef.algorithms import FedAvg
from fedcef.cli import export as command
from fedcef.core.errors import ConfigError, RunError
from fedcef.core.extras import install_extra
from fedcef.export import export_model, load_trained
from fedcef.export.trained import INPUTS
from fedcef.problems.data.datasets import DATASETS, load
from fedcef.problems.problem import Problem
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run

DOCS = Path(__file__).parents[2] / "docs" / "export.md"


@pytest.fixture(autouse=True)
def _hurried(monkeypatch):
    """No test looks at latencies."""
    monkeypatch.setattr("fedcef.export.gain._SECONDS", 0.0)


@pytest.fixture(scope="module")
def sparse_run(tmp_path_factory):
    """A run on digits whose model has zero neurons."""
    changes = ["rounds=25", "eval.every=25", "num_clients=4", "local_steps=5", "server_lr=2", "compressor.ratio=0.5"]
    changes += ["regularizer.name=group_lasso", "regularizer.weight=1e-2"]
    folder = RunFolder.new(tmp_path_factory.mktemp("runs") / "digits")
    run(load_settings("demo", changes), folder)
    return folder.path


@pytest.fixture(scope="module")
def lasso_run(tmp_path_factory):
    changes = ["rounds=2", "num_clients=2", "data.dim=12", "data.samples=8", "data.support=4"]
    folder = RunFolder.new(tmp_path_factory.mktemp("runs") / "lasso")
    run(load_settings("lasso", changes), folder)
    return folder.path


def outputs(path, count=5):
    trained = load_trained(path)
    inputs = trained.inputs(count)
    return inputs, trained.model(inputs)


def test_a_group_sparse_run_really_shrinks(sparse_run):
    done = export_model(sparse_run, "safetensors")
    assert done.path == sparse_run / "export.safetensors"
    assert done.shrunk.parameters < done.whole.parameters
    assert done.shrunk.file_bytes == done.path.stat().st_size < done.whole.file_bytes
    assert done.difference <= 1e-5
    assert sum(tensor.numel() for tensor in load_file(done.path).values()) == done.shrunk.parameters


def test_safetensors_load_by_the_docs_snippet(sparse_run, tmp_path):
    path = export_model(sparse_run, "safetensors", tmp_path / "model.safetensors").path
    snippet = next(
        block for block in re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.S) if "safe_open" in block
    )
    scope = {}
    exec(snippet.replace("runs/sparse/export.safetensors", str(path)), scope)
    inputs, expected = outputs(sparse_run)
    torch.testing.assert_close(scope["model"](inputs), expected, rtol=1e-4, atol=1e-5)
    with safe_open(path, "pt") as file:
        about = file.metadata()
    assert about["data"] == "digits"
    assert json.loads(about["architecture"])["input_shape"] == [1, 8, 8]


def test_torch_loads_without_fedcef_and_takes_any_batch(sparse_run, tmp_path):
    path = export_model(sparse_run, "torch", tmp_path / "model.pt2").path
    inputs, expected = outputs(sparse_run)
    module = torch.export.load(path).module()
    torch.testing.assert_close(module(inputs), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(module(inputs[:1]), expected[:1], rtol=1e-4, atol=1e-5)


def test_onnx_runs_in_onnxruntime(sparse_run, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    path = export_model(sparse_run, "onnx", tmp_path / "model.onnx").path
    inputs, expected = outputs(sparse_run)
    session = runtime.InferenceSession(path)
    got = session.run(["output"], {"input": inputs.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(got), expected, rtol=1e-4, atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["data"] == "digits"


def test_onnx_without_its_packages_is_a_sentence(sparse_run, monkeypatch):
    monkeypatch.setattr("fedcef.export.formats.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=re.escape(install_extra("onnx"))):
        export_model(sparse_run, "onnx")


def test_unshrunk_tensors_are_the_runs_own(sparse_run, tmp_path):
    done = export_model(sparse_run, "safetensors", tmp_path / "whole.safetensors", shrinks=False)
    assert done.shrunk is None
    trained, written = load_file(sparse_run / "model.safetensors"), load_file(done.path)
    assert trained.keys() == written.keys()
    assert all(torch.equal(tensor, written[name]) for name, tensor in trained.items())


@pytest.mark.parametrize("format", ["safetensors", "torch"])
def test_what_cannot_be_walked_is_exported_whole(lasso_run, format):
    done = export_model(lasso_run, format)
    assert done.shrunk is None
    assert "cannot be shrunk because" in done.note
    inputs, expected = outputs(lasso_run)
    if format == "torch":
        torch.testing.assert_close(torch.export.load(done.path).module()(inputs), expected)
    else:
        torch.testing.assert_close(inputs @ load_file(done.path)["weight"], expected)


def test_mistakes_are_sentences(sparse_run, tmp_path):
    with pytest.raises(RunError, match="holds no run"):
        export_model(tmp_path, "safetensors")
    with pytest.raises(ConfigError, match="safetensors, torch, onnx"):
        export_model(sparse_run, "keras")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        export_model(sparse_run, "safetensors", tmp_path / "file" / "model.safetensors")
    (tmp_path / "config.toml").write_text((sparse_run / "config.toml").read_text("utf-8"))
    with pytest.raises(RunError, match="no model yet"):
        export_model(tmp_path, "safetensors")
    save_file({"weight": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(RunError, match="does not fit"):
        export_model(tmp_path, "safetensors")


def net():
    """For --model too: two layers that share their weights."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second)


@pytest.fixture(scope="module")
def python_run(tmp_path_factory):
    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("runs") / "python"
    clients = [(torch.randn(6, 4), torch.randint(0, 4, (6,))) for _ in range(2)]
    problem = Problem.build(net(), nn.functional.cross_entropy, clients)
    return out, fedcef.run(problem, FedAvg(local_lr=0.1, local_steps=2), rounds=2, out=out)


@pytest.mark.parametrize("given", [net, lambda: f"{__name__}:net"])
def test_a_run_from_python_is_exported_with_its_module(python_run, tmp_path, given):
    path, history = python_run
    done = export_model(path, "torch", tmp_path / "model.pt2", model=given())
    inputs = load_trained(path, net()).inputs(3)
    assert inputs.shape == (3, 4)  # as the first layer takes them
    expected = nn.functional.linear(inputs, history.parameters["0.weight"], history.parameters["0.bias"]).relu()
    expected = nn.functional.linear(expected, history.parameters["0.weight"], history.parameters["2.bias"])
    torch.testing.assert_close(torch.export.load(done.path).module()(inputs), expected)


def test_a_run_from_python_without_its_module_is_a_sentence(python_run):
    path, _ = python_run
    with pytest.raises(ConfigError, match=r"was made in Python.* --model package\.module:function"):
        export_model(path)
    with pytest.raises(ConfigError, match=r"returned list; it must return a torch\.nn\.Module"):
        export_model(path, model="builtins:list")
    with pytest.raises(RunError, match=r"model\.safetensors does not fit the model: weight differs or is missing"):
        export_model(path, model=nn.Linear(4, 4))
    with pytest.raises(ConfigError, match=r"does not take inputs of shape \(5,\)"):
        export_model(path, model=net(), input_shape=(5,))
    with pytest.raises(ConfigError, match=r"give it, e\.g\. --input-shape 1,28,28"):
        export_model(path, model=nn.Sequential(nn.Conv2d(1, 1, 3)))
    with pytest.raises(ConfigError, match="for a model that is given too"):
        export_model(path, input_shape=(4,))


def test_a_damaged_model_is_named(python_run, tmp_path):
    path = Path(shutil.copytree(python_run[0], tmp_path / "run"))
    content = bytearray((path / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (path / "model.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"run/model\.safetensors is damaged"):
        export_model(path, model=net())


def test_shapes_of_inputs_are_known_for_every_data_set():
    assert INPUTS.keys() == DATASETS.keys()
    for name in ("digits", "breast_cancer"):
        data = load(name)
        assert (tuple(data.train_inputs.shape[1:]), data.num_classes) == INPUTS[name]


def test_the_command_prints_a_table(sparse_run, tmp_path, capsys):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("version")(lambda: None)  # with a second command, the first keeps its name
    command.register(app)
    app(["export", str(sparse_run), "-o", str(tmp_path / "a.safetensors")], standalone_mode=False)
    shown = capsys.readouterr().out
    for text in ("parameters", "latency of a batch of 64", "Largest difference", "Wrote"):
        assert text in shown
    accuracy = json.loads((sparse_run / "summary.json").read_text())["accuracy"]
    assert re.search(rf"test accuracy, % +{100 * accuracy:.2f} +{100 * accuracy:.2f}", shown)


def test_the_command_takes_a_module_and_a_shape(python_run, tmp_path, capsys):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("version")(lambda: None)
    command.register(app)
    words = ["export", str(python_run[0]), "-o", str(tmp_path / "a.safetensors"), "--model", f"{__name__}:net"]
    app([*words, "--input-shape", "4"], standalone_mode=False)
    assert "Wrote" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="must be whole numbers separated by commas"):
        app([*words, "--input-shape", "4x4"], standalone_mode=False)


def test_frozen_parameters_and_buffers_come_from_the_file(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    model.train()(torch.randn(20, 4))
    model[0].requires_grad_(False)
    data = [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(2)]
    problem = Problem.build(model, nn.functional.cross_entropy, data, buffers="frozen")
    history = fedcef.run(problem, FedAvg(local_lr=0.1), rounds=2, out=tmp_path / "run")
    fresh = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))  # of other numbers
    trained = load_trained(tmp_path / "run", fresh)
    inputs = trained.inputs(5)
    assert torch.equal(trained.model(inputs), history.model.eval()(inputs))
    assert trained.model[1].num_batches_tracked == 1
    assert "cannot be shrunk" in export_model(tmp_path / "run", model=fresh).note
    assert load_file(tmp_path / "run" / "export.safetensors").keys() == model.state_dict().keys()
