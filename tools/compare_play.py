"""One source tree's part of `compare_runs.py`: run cases one after the other, in a process that sees only that tree.

python tools/compare_play.py TODO.json FOLDER
"""

from __future__ import annotations

import _thread
import csv
import hashlib
import io
import json
import signal
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Any

from compare_cases import PYTHON, Case
from safetensors.torch import load_file

SAMPLES = {"mnist": (240, 100), "cifar10": (40, 20)}  # of training and test, from the front
UNLIKE = {"wall_s", "versions"}  # differ between any two runs
NOT_THERE = "not there"
"""How a case ends in a tree that is older than its method or its experiment."""

Result = dict[str, Any]


def play(todo: dict[str, Case], out: Path) -> None:
    """Run the cases one after the other, each in a folder of its own; what a case says is written beside its runs."""
    import fedcef

    print("fedcef from", Path(fedcef.__file__).parent)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background switches off
    _take_few_samples()
    app = _command_line()
    for key, case in todo.items():
        began, folder = time.perf_counter(), out / key
        folder.mkdir(parents=True)
        if not _is_there(case):
            told: Result = {"ended": NOT_THERE, "given": None}
        elif "python" in case:
            told = _outcome(_from_python, case, folder / "run")
        elif "cut" in case:
            told = _cut_and_resumed(app, case, folder / "run")
        else:
            told = _outcome(app, [*_args(case), "--out", str(folder / "run")], standalone_mode=False)
        told["files"] = _files(folder / "run")
        (folder / "result.json").write_text(json.dumps(told), "utf-8")
        print(f"{time.perf_counter() - began:7.2f} s  {key}: {told['ended']}", flush=True)


def _command_line() -> Callable[..., object]:
    for name in ("fedcef.cli.main", "fedcef.cli"):
        try:
            found: Callable[..., object] = import_module(name).app
        except ModuleNotFoundError:
            continue
        return found
    raise SystemExit("There is no command line in this tree.")


def _take_few_samples() -> None:
    """Let `datasets.load` give only the first samples of the large data sets, wherever it has been imported to."""
    import_module("fedcef.problems.catalog")
    datasets = next(m for name, m in sys.modules.items() if name.startswith("fedcef.") and name.endswith(".datasets"))
    whole = datasets.load

    @cache
    def load(name: str, *args: Any, **kwargs: Any) -> Any:
        data = whole(name, *args, **kwargs)
        if name not in SAMPLES:
            return data
        train, test = SAMPLES[name]
        few = {"train_inputs": train, "train_targets": train, "test_inputs": test, "test_targets": test}
        return replace(data, **{field: getattr(data, field)[:n].clone() for field, n in few.items()})

    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("fedcef") and getattr(module, "load", None) is whole:
            module.load = load  # type: ignore[attr-defined]


def _outcome(work: Callable[..., object], *args: object, **kwargs: object) -> Result:
    """How it ended, and what it gave if JSON can tell it.  An error's sentence may be reworded, its kind must stay."""
    try:
        given = work(*args, **kwargs)
    except SystemExit as left:
        return {"ended": f"exit code {left.code}", "given": None}
    except KeyboardInterrupt:
        return {"ended": "interrupted", "given": None}
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return {"ended": type(error).__name__, "given": None}
    return {"ended": "done", "given": given if isinstance(given, dict) else None}


def _is_there(case: Case) -> bool:
    """Whether this tree has what the case is about."""
    experiment = (
        Path(str(import_module("fedcef").__file__)).parent / "experiments" / f"{case.get('experiment', 'demo')}.toml"
    )
    return experiment.is_file() and case.get("method", "fedcef") in import_module("fedcef.algorithms").ALGORITHMS


def _args(case: Case) -> list[str]:
    """A case's arguments, with those for newer trees if this is one."""
    newer = hasattr(import_module("fedcef").FedCEF, "participation")
    return [*case["args"], *(case.get("then", []) if newer else [])]


def _from_python(case: Case, path: Path) -> Result:
    """The records and vectors of a history or an estimator."""
    import fedcef

    thing = PYTHON[case["python"]](fedcef, path)
    if hasattr(thing, "coef_"):
        return {"coef": _plain(thing.coef_), "intercept": _plain(thing.intercept_), "rounds": int(thing.n_iter_)}
    records = [{k: v for k, v in record.items() if k not in UNLIKE} for record in thing.records]
    return {"records": records, "parameters": {name: _hash(tensor) for name, tensor in thing.parameters.items()}}


def _plain(numbers: Any) -> Any:
    return numbers.tolist() if hasattr(numbers, "tolist") else numbers


def _cut_and_resumed(app: Callable[..., object], case: Case, path: Path) -> Result:
    """Interrupt the run once it has written some rounds, then go on with it."""
    over, rounds = Event(), path / "rounds.jsonl"

    def interrupt() -> None:
        while not over.wait(0.002):
            if rounds.is_file() and rounds.read_bytes().count(b"\n") >= case["cut"]:
                _thread.interrupt_main()
                return

    watcher = Thread(target=interrupt)
    watcher.start()
    first = _outcome(app, [*_args(case), "--out", str(path)], standalone_mode=False)
    over.set()
    watcher.join()
    if first["ended"] not in ("interrupted", "exit code 130"):
        return first | {"ended": f"{first['ended']} before it was interrupted"}
    print("interrupted after", rounds.read_bytes().count(b"\n"), "rounds")
    return _outcome(app, ["run", "--resume", str(path)], standalone_mode=False)


def _files(folder: Path) -> Result:
    """Of every file that a case left, what must not change."""
    known = [path for path in sorted(folder.rglob("*")) if path.name in READERS]
    return {str(path.relative_to(folder).with_suffix("")): READERS[path.name](path) for path in known}


def _json(path: Path) -> Any:
    return _without(json.loads(path.read_text("utf-8")))


def _lines(path: Path) -> list[Any]:
    return [_without(json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def _without(record: Any) -> Any:
    return {k: v for k, v in record.items() if k not in UNLIKE} if isinstance(record, dict) else record


def _table(path: Path) -> list[Any]:
    rows = csv.DictReader(io.StringIO(path.read_text("utf-8")))
    return [{name: value for name, value in row.items() if name not in UNLIKE} for row in rows]


def _tensors(path: Path) -> dict[str, str]:
    """Every tensor's type, shape and hash."""
    return {name: _hash(tensor) for name, tensor in sorted(load_file(path).items())}


def _checkpoint(path: Path) -> dict[str, str]:
    tensors = import_module("fedcef.wire.checkpoint").read_checkpoint(path)[1]
    return {name: _hash(tensor) for name, tensor in sorted(tensors.items())}


def _hash(tensor: Any) -> str:
    values = tensor.detach().cpu().contiguous()
    digest = hashlib.sha256(values.numpy().tobytes()).hexdigest()[:24]
    return f"{values.dtype} {list(values.shape)} {digest}"


READERS: dict[str, Callable[[Path], Any]] = {
    "rounds.jsonl": _lines,
    "notes.jsonl": _lines,
    "summary.json": _json,
    "facts.json": _json,
    "config.toml": lambda path: tomllib.loads(path.read_text("utf-8")),
    "model.safetensors": _tensors,
    "snapshot.safetensors": _tensors,  # as version 0.1.0 wrote it
    "snapshot.bin": _checkpoint,
    "summary.csv": _table,  # of a comparison; not in the folder of a run
}


if __name__ == "__main__":
    play(json.loads(Path(sys.argv[1]).read_text("utf-8")), Path(sys.argv[2]))
