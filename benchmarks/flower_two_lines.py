"""What two lines do for an app that is not ours: Flower's quickstarts, compressed and not.

    python benchmarks/flower_two_lines.py study|simulated|faults|deployed|killed [--app pytorch] [--write]

    study       compressors and rules, on three seeds that nothing else uses, in one process
    simulated   the apps of examples/flower_quickstart_* on Flower's simulation engine (Ray), ten nodes, three seeds
    faults      the same in one process, with replies lost and doubled, and nodes started again under other ids
    deployed    real processes: a SuperLink and three SuperNodes
    killed      the same, with a SuperNode killed (-9) and started again

Every run is by the apps as they are; without compression they run with up = down = "identity", which is the app without
our lines, bit for bit (tests/flower/test_two_lines.py).  Bytes are those of all records that an app hands to Flower, up
and down, evaluation included; Flower's own envelope, 1 to 2 kB a message, is in neither count.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from measure import machine, write

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests" / "flower"
APPS = {name: HERE.parent / "examples" / f"flower_quickstart_{name}" for name in ("pytorch", "sklearn", "numpy")}
SEEDS = (1, 2, 3)
STUDIED = (101, 102, 103)
PLAIN = {"up": "identity", "down": "identity"}
OWN = {
    "sklearn": {"up": "topk(0.055, sign)", "down": "topk(0.11, sign)", "fraction-evaluate": 0.5},
    "pytorch": {"up": "topk(0.04, sign)", "down": "topk(0.08, sign)", "first": "eden(4)"},
}
"""Where the app's own settings lose more than a point on few nodes; docs/guides/flower_two_lines.md says how much."""
CHOICES = [
    ("identity", "identity", "half"),
    ("topk(0.01, sign)", "topk(0.02, sign)", "half"),
    ("topk(0.02, sign)", "topk(0.05, sign)", "half"),
    ("topk(0.04, sign)", "topk(0.08, sign)", "half"),
    ("topk(0.02, log3)", "topk(0.05, log3)", "half"),
    ("layerwise_topk(0.02, sign)", "layerwise_topk(0.05, sign)", "half"),
    ("scaled_sign", "scaled_sign", "half"),
]
FEW = [
    ("identity", "identity", "half"),
    ("topk(0.02, sign)", "topk(0.05, sign)", "half"),
    ("topk(0.02, sign)", "topk(0.05, sign)", "eden(4)"),
    ("topk(0.04, sign)", "topk(0.08, sign)", "eden(4)"),
    ("topk(0.04, sign)", "topk(0.08, sign)", "qsgd(127, max)"),
]
"""What is studied: on ten nodes, and on few."""
HELD = """import functools, fedcef.problems.data.datasets as d; d.load = functools.lru_cache(d.load); d.load("mnist")"""
"""A module that reads the data when it is imported: not for every message."""
LOCAL = '[superlink.local]\naddress = ":local:"\n'


def loaded(path: Path) -> ModuleType:
    """A module by its file: the tests know how to start and end a deployment."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def outcome(folder: Path) -> dict[str, Any]:
    """Accuracy and bytes of a run folder."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    last = lines[-1]
    return {
        "rounds": last["round"],
        "accuracy": last["accuracy"],
        "bytes": last["wire_up_bytes"] + last["wire_down_bytes"],
        "plain_bytes": last["paper_up_bytes"] + last["paper_down_bytes"],
        "up_bytes": last["wire_up_bytes"],
        "down_bytes": last["wire_down_bytes"],
        "seconds": last["wall_s"],
    }


def told(name: str, seed: int, plain: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """One comparison, printed and for the record."""
    row = {
        "app": name,
        "seed": seed,
        "plain": plain,
        "compressed": ours,
        "times_fewer_bytes": plain["bytes"] / ours["bytes"],
        "points_lost": 100 * (plain["accuracy"] - ours["accuracy"]),
    }
    print(
        f"  {name:8} seed {seed}  {100 * plain['accuracy']:6.2f}% -> {100 * ours['accuracy']:6.2f}%  "
        f"{row['times_fewer_bytes']:6.1f} times fewer bytes  ({plain['seconds']:.0f} s, {ours['seconds']:.0f} s)",
        flush=True,
    )
    return row


def simulated(names: list[str]) -> list[dict[str, Any]]:
    """The apps by `flwr run`, on Ray."""
    tools, rows = loaded(TESTS / "deployment.py"), []
    for name in names:
        with (
            tempfile.TemporaryDirectory() as place,
            tools.Deployment(Path(place) / "lab", secure=False, app=APPS[name]) as lab,
        ):
            (lab.home / "config.toml").write_text(LOCAL)
            lab.environment["FEDCEF_STATE"] = f"{place}/states"
            for seed in SEEDS:
                found = {}
                for kind, changes in (("plain", PLAIN), ("compressed", {})):
                    folder = Path(place) / f"{kind}-{seed}"
                    flower_run(lab, "local", folder, seed=seed, **changes)
                    found[kind] = outcome(folder)
                rows.append(told(name, seed, found["plain"], found["compressed"]))
    return rows


def flower_run(lab: Any, connection: str, folder: Path, wait: bool = True, **config: Any) -> Any:
    """`flwr run` with a run folder; its log has that folder's name."""
    given = " ".join(f"{key}={json.dumps(value)}" for key, value in {"folder": str(folder), **config}.items())
    nodes = ["--federation-config", f"num-supernodes=10 init-args-num-cpus={os.cpu_count()}"]
    options = ["--stream", "--run-config", given, *(nodes if connection == "local" else [])]
    process = lab.start(folder.name, "flwr", "run", str(lab.app), connection, *options)
    if wait:
        ended(lab, process, folder)
    return process


def ended(lab: Any, process: Any, folder: Path) -> None:
    """Wait for the end of a run, which its summary tells."""
    while not (folder / "summary.json").exists():
        if process.poll() is not None and not (folder / "summary.json").exists():
            time.sleep(2.0)
            if not (folder / "summary.json").exists():
                raise SystemExit(f"The run ended without a result:\n{lab.log(folder.name)[-3000:]}")
        time.sleep(0.5)
    process.wait(120)


def deployed(names: list[str], rounds: int = 30, nodes: int = 3, kill: bool = False) -> list[dict[str, Any]]:
    """The apps over real processes, all seeds at once; without compression in this process, where it is the same."""
    tools, rows = loaded(TESTS / "deployment.py"), []
    tools.PATIENCE_S = 1200.0
    for name in names:
        with (
            tempfile.TemporaryDirectory() as place,
            tools.Deployment(Path(place) / "lab", secure=False, app=APPS[name]) as lab,
        ):
            (lab.folder / "held.py").write_text(HELD)
            lab.environment["PYTHONPATH"] = f"{lab.folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
            lab.superlink()
            supernodes = [lab.supernode(number, warm="held") for number in range(nodes)]
            lab.connected(*(f"node-{number}" for number in range(nodes)))
            options = as_deployed(name, rounds, nodes)
            more = options | {"timeout": 60 if kill else 600}
            folders = {seed: Path(place) / f"seed-{seed}" for seed in SEEDS}
            runs = {seed: flower_run(lab, "lab", at, wait=False, seed=seed, **more) for seed, at in folders.items()}
            plain = {seed: in_process(name, seed, options | PLAIN, Path(place), nodes=nodes) for seed in SEEDS}
            if kill:
                past(lab, runs[SEEDS[0]], folders[SEEDS[0]], rounds // 3)
                supernodes[1].kill()
                supernodes[1].wait()
                lab.supernode(1, name="node-1-again", warm="held")
            for seed, folder in folders.items():
                ended(lab, runs[seed], folder)
                left_out = lab.log(folder.name).count("is left out")
                rows.append(told(name, seed, plain[seed], outcome(folder)) | {"nodes": nodes, "left_out": left_out})
    return rows


def killed(names: list[str], rounds: int = 30, nodes: int = 3) -> list[dict[str, Any]]:
    """The same, with one SuperNode killed after a third of the rounds, and started again at once."""
    return deployed(names, rounds, nodes, kill=True)


def as_deployed(name: str, rounds: int, nodes: int) -> dict[str, Any]:
    """The settings of runs on few nodes."""
    return {"num-server-rounds": rounds, "num-partitions": nodes, "fraction-evaluate": 0.0} | OWN.get(name, {})


def past(lab: Any, process: Any, folder: Path, rounds: int) -> None:
    """Wait until so many rounds are over."""
    lines = folder / "rounds.jsonl"
    lab.wait_for("rounds", lambda: lines.exists() and lines.read_text().count("\n") > rounds, process, folder.name)


# in one process


def in_process(
    name: str, seed: int, options: dict[str, Any], place: Path, prepare: Any = None, nodes: int = 10
) -> dict[str, Any]:
    """An app over the tests' grid, where a message goes straight to its handler."""
    import tomllib

    grids = loaded(TESTS / "in_process.py")
    sys.path.insert(0, str(APPS[name]))
    client = importlib.import_module(f"quickstart_{name}.client_app").app
    server = importlib.import_module(f"quickstart_{name}.server_app").app
    config = tomllib.loads((APPS[name] / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    folder = place / f"{name}-{seed}-{random.SystemRandom().getrandbits(32):x}"
    config |= {"seed": seed, "folder": str(folder / "run"), **options}

    class Grid(grids.InProcessGrid):
        run = property(lambda self: None)

        def get_node_ids(self) -> list[int]:
            return [node.node_id for node in self.nodes if node.online]

    from flwr.app import Context, RecordDict

    grid = Grid(client, config, state=folder / "states", clients=nodes)
    grid.clock = time.monotonic
    if prepare is not None:
        prepare(grid, seed)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    server(grid, context)
    return outcome(folder / "run")


def misfortune(grid: Any, seed: int) -> None:
    """One reply in ten is lost, one in ten comes twice; after one message in fifty its node is restarted.

    What happens to a node's n-th message depends on the seed, the node and n alone: the same happens to every app.
    """
    from flwr.app import Error, Message

    push, pull = grid._push, grid.pull_messages
    asked: dict[int, int] = {}
    twice: set[str] = set()

    def pushing(message: Any) -> Any:
        node = next((node for node in grid.nodes if node.node_id == message.metadata.dst_node_id), None)
        identifier = push(message)
        if identifier and node is not None and message.metadata.message_type == "train":
            asked[node.client] = asked.get(node.client, 0) + 1
            chance = random.Random(f"{seed} {node.client} {asked[node.client]}")
            if chance.random() < 0.1:
                due, _ = grid._due.pop(identifier)
                grid._due[identifier] = (due, Message(Error(5, "The reply was lost."), reply_to=message))
            elif chance.random() < 0.1:
                twice.add(identifier)
            if chance.random() < 0.02:
                node.node_id = chance.getrandbits(40)
        return identifier

    def pulling(ids: Any) -> list[Any]:
        ids = list(ids)
        return [reply for one in ids for reply in pull([one]) for _ in range(1 + (one in twice))]

    grid._push, grid.pull_messages = pushing, pulling


def faults(names: list[str], rounds: int = 30, nodes: int = 3) -> list[dict[str, Any]]:
    """The apps with everything that can go wrong with a message, against the same without compression: undisturbed, and
    with the same misfortune."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            for seed in SEEDS:
                options = as_deployed(name, rounds, nodes)
                plain = in_process(name, seed, options | PLAIN, Path(place), nodes=nodes)
                unlucky = in_process(name, seed, options | PLAIN, Path(place), misfortune, nodes)
                ours = in_process(name, seed, options, Path(place), misfortune, nodes)
                print(f"  {name:8} seed {seed}  {100 * unlucky['accuracy']:6.2f}% plain, with the same misfortune")
                rows.append(told(name, seed, plain, ours) | {"plain_with_misfortune": unlucky})
    return rows


def study(names: list[str], rounds: int = 40, nodes: int = 10) -> list[dict[str, Any]]:
    """Compressors, on seeds of their own; on few nodes with misfortune."""
    few = nodes < 10
    of_run = as_deployed("", rounds, nodes) if few else {"num-server-rounds": rounds, "num-partitions": nodes}
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            for up, down, first in FEW if few else CHOICES:
                given = {"up": up, "down": down, "first": first, **of_run}
                trouble = misfortune if few and up != "identity" else None
                found = [in_process(name, seed, given, Path(place), trouble, nodes) for seed in STUDIED]
                each = [one["accuracy"] for one in found]
                fewer = statistics.mean(one["plain_bytes"] / one["bytes"] for one in found)
                told = ", ".join(f"{100 * accuracy:.2f}" for accuracy in each)
                print(f"  {name:8} {up:26} {down:26} {first:14} {told}%  {fewer:6.1f} times fewer bytes", flush=True)
                row = {"app": name, "nodes": nodes, "rounds": rounds, "up": up, "down": down, "first": first}
                rows.append({**row, "accuracy": statistics.mean(each), "accuracies": each, "times_fewer_bytes": fewer})
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["study", "simulated", "faults", "deployed", "killed"])
    parser.add_argument("--app", choices=list(APPS), action="append")
    parser.add_argument("--rounds", type=int, help="other than what is usual there")
    parser.add_argument("--nodes", type=int, help="likewise")
    parser.add_argument("--write", action="store_true", help="add to benchmarks/results/flower_two_lines.json")
    arguments = parser.parse_args()
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    calls: dict[str, Any] = {call.__name__: call for call in (study, simulated, faults, deployed, killed)}
    size = {name: given for name in ("rounds", "nodes") if (given := getattr(arguments, name)) is not None}
    rows = calls[arguments.what](arguments.app or list(APPS), **size)
    if arguments.write:
        path = HERE / "results" / "flower_two_lines.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        kept = [row for row in known.get(arguments.what, []) if row["app"] not in {row["app"] for row in rows}]
        known |= {"machine": machine(), arguments.what: [*kept, *rows]}
        write("flower_two_lines", known)


if __name__ == "__main__":
    main()
