"""Two lines in an app that real processes run, and the examples.  `make test-flower` runs the former."""

import importlib
import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from flwr.app import Context, RecordDict

from fedcef.flower.two_lines import counting

from .deployment import PATIENCE_S, Deployment
from .two_lines import Grid

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/flower_quickstart_*"))
RUN_S = 900.0
"""More than a run takes on a busy machine."""

PROJECT = """
[project]
name = "tiny"
version = "1.0.0"
license = "Apache-2.0"
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.flwr.app]
publisher = "fedcef"
[tool.flwr.app.components]
serverapp = "tiny.server:app"
clientapp = "tiny.client:app"
[tool.flwr.app.config]
folder = ""
rounds = 4
timeout = 20
"""
CLIENT = """
import numpy as np
from fedcef.flower import compressed
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp(mods=[compressed()])

@app.train()
def train(msg, context):
    weight, = msg.content["arrays"].to_numpy_ndarrays()
    target = np.random.default_rng(context.node_config["partition-id"]).normal(size=weight.shape)
    weight = weight + (0.5 * (target - weight)).astype(np.float32)
    content = {"arrays": ArrayRecord([weight]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=msg)
"""
SERVER = """
import numpy as np
from fedcef.flower import Compressed
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()

@app.main()
def main(grid, context):
    config = context.run_config
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
    strategy = Compressed(strategy, up="topk(0.1, sign)", down="topk(0.2, sign)", folder=config["folder"])
    first = ArrayRecord([np.zeros((40, 25), np.float32)])
    result = strategy.start(grid, first, config["rounds"], config["timeout"])
    np.save(config["folder"] + "/model.npy", result.arrays.to_numpy_ndarrays()[0])
"""


@pytest.fixture
def tiny(tmp_path):
    """An app of three files."""
    folder = tmp_path / "tiny"
    (folder / "tiny").mkdir(parents=True)
    for name, text in {"pyproject.toml": PROJECT, "tiny/client.py": CLIENT, "tiny/server.py": SERVER}.items():
        (folder / name).write_text(text)
    (folder / "tiny" / "__init__.py").write_text("")
    return folder


@pytest.mark.flower
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found and ended by /proc, which is Linux's")
def test_deployed_with_a_node_killed_and_started_again(tmp_path, tiny):
    """It comes back under another id and goes on from its disk; the server has what all nodes have."""
    with Deployment(tmp_path / "lab", secure=False, app=tiny) as lab:
        lab.superlink()
        nodes = [lab.supernode(0, warm="numpy"), lab.supernode(1)]  # one of them with a process that waits
        lab.connected("node-0", "node-1")
        config = f'folder="{tmp_path / "run"}"'
        running = lab.start("run", "flwr", "run", str(lab.app), "lab", "--stream", "--run-config", config)
        lines = tmp_path / "run" / "rounds.jsonl"
        lab.wait_for("a round", lambda: lines.exists() and len(lines.read_text().splitlines()) > 1, running, "run")
        nodes[1].kill()
        nodes[1].wait(PATIENCE_S)
        lab.supernode(1, name="node-1-again")
        running.wait(RUN_S)
        assert (tmp_path / "run" / "model.npy").exists(), lab.log("run")[-3000:]
        replicas = {path.parts[-4]: path.read_bytes() for path in lab.states.glob("client-*/two-lines/*/replica-*.bin")}
    assert sorted(replicas) == ["client-0", "client-1"]
    assert replicas["client-0"] == replicas["client-1"]
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [record["round"] for record in records] == list(range(5))
    assert records[-1]["wire_up_bytes"] < records[-1]["paper_up_bytes"] / 10
    assert "is left out" not in lab.log("run")
    target = np.mean([np.random.default_rng(number).normal(size=(40, 25)) for number in range(2)], axis=0)
    model = np.load(tmp_path / "run" / "model.npy")
    assert np.linalg.norm(model - target) < 0.9 * np.linalg.norm(target)


@pytest.mark.flower
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found and ended by /proc, which is Linux's")
def test_on_the_simulation_engine(tmp_path, tiny):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'flwr[simulation]'")
    with Deployment(tmp_path / "lab", secure=False, app=tiny) as lab:
        (lab.home / "config.toml").write_text('[superlink.local]\naddress = ":local:"\n')
        lab.environment["FEDCEF_STATE"] = str(lab.states)
        options = ["--run-config", f'folder="{tmp_path / "run"}"']
        options += ["--federation-config", "num-supernodes=4 init-args-num-cpus=2"]
        lab.start("run", "flwr", "run", str(lab.app), "local", "--stream", *options).wait(RUN_S)
        assert (tmp_path / "run" / "model.npy").exists(), lab.log("run")[-3000:]
        replicas = [path.read_bytes() for path in lab.states.glob("client-*/two-lines/*/replica-*.bin")]
    assert len(replicas) == 4
    assert len(set(replicas)) == 1


# the examples


def test_there_are_three():
    assert [path.name.rpartition("_")[2] for path in EXAMPLES] == ["numpy", "pytorch", "sklearn"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_learns_and_sends_little(path, tmp_path, monkeypatch):
    """On images that are made up, since MNIST is not everywhere."""
    name = path.name.removeprefix("flower_")
    if name.endswith("sklearn"):
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    monkeypatch.syspath_prepend(str(path))
    monkeypatch.setattr(counting, "SHORTEST_S", 0.0)
    task = importlib.import_module(f"{name}.task")
    monkeypatch.setattr(task, "mnist", made_up(torch_too=name.endswith("pytorch")))
    client, server = (importlib.import_module(f"{name}.{part}") for part in ("client_app", "server_app"))
    monkeypatch.setattr(server, "mnist", task.mnist)
    config = tomllib.loads((path / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config |= {"num-server-rounds": 6, "num-partitions": 3, "samples-per-node": 100, "folder": str(tmp_path / "run")}
    config |= {"state-dir": str(tmp_path / "states")}
    grid = Grid(client.app, state=tmp_path / "states", clients=3, run_config=config)
    server.app(grid, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config))
    records = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert records[-1]["test_loss"] < records[0]["test_loss"]
    assert records[-1]["wire_up_bytes"] < records[-1]["paper_up_bytes"] / 30


def made_up(torch_too):
    """Ten classes of noisy images."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, 784)).astype(np.float32)

    def draw(count):
        labels = rng.integers(0, 10, count)
        return centres[labels] + 0.5 * rng.normal(size=(count, 784)).astype(np.float32), labels

    data = (*draw(400), *draw(200))
    if torch_too:
        import torch

        data = tuple(torch.from_numpy(part) for part in data)
    return lambda: data


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_depends_on_no_package_that_is_not_registered(path):
    """Whoever registers our name would run code on every node."""
    names = tomllib.loads((path / "pyproject.toml").read_text())["project"]["dependencies"]
    assert not [name for name in names if re.match(r"fedcef", name)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_knows_of_us_in_two_lines(path):
    """And in those that import them."""
    package = next(folder for folder in path.iterdir() if (folder / "__init__.py").exists())
    ours = {
        name: [line for line in (package / name).read_text().splitlines() if re.search(r"[Cc]ompressed\(", line)]
        for name in ("client_app.py", "server_app.py", "task.py")
    }
    assert {name: len(lines) for name, lines in ours.items()} == {"client_app.py": 1, "server_app.py": 1, "task.py": 0}
