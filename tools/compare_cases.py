"""What `compare_runs.py` runs: small, and together touching every method, option and shipped experiment.

A case has `args` for the command line, with `cut` for a run that is interrupted and resumed, or the name of a function
of `PYTHON`.  Its key names the folder that it writes to; the key's first word is its group in the table.

Trees may be of different ages.  `method` and `experiment` name what an older tree may lack: then there is nothing to
compare.  `then` are arguments by which a newer tree does what an older one did, and which the older one
would refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Case = dict[str, Any]

TINY = {"rounds": 3, "eval.every": 1, "snapshot_every": 2}
IMAGES = TINY | {"num_clients": 3, "local_steps": 2, "batch_size": 4, "data.min_size": 2, "device": "cpu"}
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "demo": TINY | {"local_steps": 3},
    "frontier_digits": TINY | {"local_steps": 2, "batch_size": 8, "num_clients": 5},
    "lasso": TINY | {"num_clients": 8, "local_steps": 3, "data.dim": 96, "data.samples": 16, "data.support": 48},
    "logistic": TINY | {"local_steps": 4},
    "matrix": TINY | {"num_clients": 8, "local_steps": 3, "data.size": 8, "data.rank": 4, "data.samples": 16},
    **dict.fromkeys(["mnist", "mnist_stability", "paper_mnist", "frontier_mnist", "sparse_mnist"], IMAGES),
    "paper_cifar10": IMAGES | {"num_clients": 2, "rounds": 2, "batch_size": 2},
    "frontier_cifar10": IMAGES | {"num_clients": 2, "rounds": 2, "batch_size": 2, "snapshot_every": 0, "eval.every": 2},
    "participation": TINY | {"num_clients": 6, "clients_per_round": 2, "local_steps": 2},
    "partial_mnist": IMAGES | {"clients_per_round": 2},
    "partial_cifar10": IMAGES | {"clients_per_round": 2, "rounds": 2, "batch_size": 2},
}

WHOLE = ["zhang", "fedavg", "fedda", "fedcanon", "fedmid", "fast_fedda", "c_fedda", "feddr", "fedadmm", "fedprox"]
WHOLE += ["scaffold", "feddyn", "fedpd", "feddc", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "fetchsgd", "fedbuff"]
WHOLE += ["scaffnew", "compressed_scaffnew", "tamuna"]
COMPRESSING = ["fedcef", "scallion", "scafcom", "ef14", "ef21", "ef21_sgdm", "ef21_prox", "ef21_bc", "econtrol"]
COMPRESSING += ["qsparse", "fedpaq", "fedcomgate", "fed_ef", "ef21_pp", "dasha_pp", "fedcomloc", "locodl"]

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cohort": {"clients_per_round": 3},
    "samples": {"weighting": "samples"},
    "cohort_samples": {"clients_per_round": 2, "weighting": "samples"},
    "schedules": {"local_schedule.name": "cosine", "server_schedule.name": "step", "server_schedule.every": 2},
    "whole_batches": {"batch_size": 0, "clip_norm": 0.5},
    "loop": {"oracle": "loop", "clip_norm": 2.0},
    "stacked": {"oracle": "stacked", "seed": 7},
    "float64": {"precision": "float64", "eval.train_samples": 100},
    "private": {"privacy.clip": 1.0, "privacy.noise": 0.1},
    "lasso": {"data.name": "lasso", "data.dim": 40, "data.samples": 12, "data.support": 10, "model": {}},
    "matrix": {"data.name": "matrix", "data.size": 6, "data.rank": 3, "data.samples": 12, "model": {}},
}
FEDCEF: dict[str, dict[str, Any]] = {
    "dense": {"algorithm.downlink": "dense"},
    "lossy": {"algorithm.downlink": "lossy"},
    "lossy_signs": {
        "algorithm.downlink": "lossy",
        "compressor.values": "sign",
        "down_compressor.ratio": 0.02,
        "down_compressor.values": "log3",
    },
    "lossy_cohort": {"algorithm.downlink": "lossy", "clients_per_round": 2, "algorithm.mixing": 0.4},
    "dense_cohort_schedules": {"algorithm.downlink": "dense", "clients_per_round": 2, "local_schedule.name": "cosine"},
    "budget": {"budget": "60kB", "rounds": 8},
    "budget_lossy": {"budget": "60kB", "rounds": 8, "algorithm.downlink": "lossy", "budget_tilt": 0.5},
    "budget_cohort": {"budget": "20kB", "rounds": 8, "clients_per_round": 2, "budget_tilt": -0.5},
    "budget_too_small": {"budget": "2kB", "rounds": 4},
    "private_cohort": {"privacy.clip": 0.3, "privacy.noise": 1.0, "clients_per_round": 2},
    "iid": {"data.partition": "iid"},
    "shards": {"data.partition": "shards", "data.classes_per_client": 2},
    "drift_weight": {"algorithm.drift_weight": 0.5},
    "bfloat16": {"precision": "bfloat16", "model.name": "mlp"},
    "diverging": {"local_lr": 1e38, "server_lr": 100.0, "regularizer.weight": 1e-30},
    "no_snapshots": {"snapshot_every": 0},
    "regularizer_on_weights": {"regularizer.on": ["*weight"]},
    "augmented": {"data.name": "mnist", "data.augment": "crop_flip", "model.name": "mnist_cnn", "rounds": 2},
}
COMPRESSORS = ["identity", "topk", "randk", "layerwise_topk", "blockwise_topk", "block_topk", "threshold", "stc"]
COMPRESSORS += ["scaled_sign", "one_bit", "three_lc", "terngrad", "qsgd", "natural", "drive", "eden", "powersgd"]
REGULARIZERS = ["zero", "l1", "elastic_net", "l2_norm", "linf", "group_lasso", "sparse_group_lasso", "nuclear", "tv"]
REGULARIZERS += ["fused_lasso", "slope", "box", "simplex", "l1_ball", "nuclear_ball", "l0", "mcp", "scad"]
VALUES = ["uniform4", "uniform8", "log3", "sign", "float16", "bfloat16"]

OLD_RULE = "averaged"
"""The one rule that FedCEF had for cohorts before it had a choice."""

BASE: dict[str, Any] = {
    "rounds": 4,
    "num_clients": 5,
    "local_steps": 2,
    "local_lr": 0.02,
    "batch_size": 8,
    "snapshot_every": 2,
    "eval.every": 2,
    "data.name": "digits",
    "model.name": "softmax",
    "regularizer.weight": 1e-3,
}


def cases() -> dict[str, Case]:
    """All cases by key."""
    return dict(_cases())


def _cases() -> Iterator[tuple[str, Case]]:
    for name, changes in EXPERIMENTS.items():
        yield f"experiments/{name}", {"args": ["compare", name, *_set(changes)], "experiment": name}
    for method in COMPRESSING + WHOLE:
        chosen: dict[str, Any] = {"algorithm.name": method}
        if method in COMPRESSING:
            chosen |= {"compressor.name": "topk", "compressor.ratio": 0.1}
        for option, changes in OPTIONS.items():
            yield f"methods/{method}/{option}", _run(chosen | changes)
    for option, changes in FEDCEF.items():
        yield f"fedcef/{option}", _run({"compressor.name": "topk", "compressor.ratio": 0.1} | changes)
    for name in COMPRESSORS:
        yield f"compressors/{name}", _run({"compressor.name": name, "algorithm.mixing": 0.5})
    for name in VALUES:
        yield f"compressors/values_{name}", _run({"compressor.name": "topk", "compressor.values": name})
    for name in REGULARIZERS:
        yield f"regularizers/{name}", _run({"regularizer.name": name}, without=["regularizer.weight"])
    long = {"rounds": 60, "snapshot_every": 7, "compressor.name": "topk", "eval.every": 3}
    for name, changes in (
        ("plain", {}),
        ("cohort_lossy", {"clients_per_round": 3, "algorithm.downlink": "lossy"}),
        ("budget", {"budget": "400kB"}),
        ("scaffold", {"algorithm.name": "scaffold", "compressor.name": "identity", "local_schedule.name": "cosine"}),
    ):
        yield f"resumed/{name}", _run(long | changes) | {"cut": 20}
    for name in PYTHON:
        yield f"python/{name}", {"python": name}


def _run(changes: dict[str, Any], without: list[str] | None = None) -> Case:
    """A run of `demo` with these changes, method and compressor freely chosen."""
    table = {key: value for key, value in (BASE | changes).items() if key not in (without or [])}
    table = {"compressor.name": "identity"} | table
    if table.pop("model", None) == {}:
        del table["model.name"]
        table["model"] = {}
    method = table.get("algorithm.name", "fedcef")
    then = _set({"algorithm.participation": OLD_RULE}) if method == "fedcef" and "clients_per_round" in table else []
    return {"args": ["run", "demo", *_set(table)], "method": method, "then": then}


def _set(changes: dict[str, Any]) -> list[str]:
    return [word for key, value in changes.items() for word in ("--set", f"{key}={_toml(value)}")]


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# runs from Python: name -> what to do with the package, and where; returns records and vectors


def _clients() -> tuple[Any, list[Any], Any]:
    import torch

    draw = torch.Generator().manual_seed(3)
    truth = torch.randn(12, 3, generator=draw)

    def samples(n: int) -> tuple[Any, Any]:
        x = torch.randn(n, 12, generator=draw)
        return x, (x @ truth).argmax(1)

    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    return model, [samples(n) for n in (30, 17, 24, 41)], samples(50)


def _python_run(fedcef: Any, out: Any = None, method: str = "FedCEF", ratio: float = 0.2, **options: Any) -> Any:
    from torch.nn.functional import cross_entropy

    model, clients, test = _clients()
    problem = fedcef.Problem.build(model, cross_entropy, clients=clients, test=test, regularizer=fedcef.L1(1e-3))
    kind = getattr(fedcef, method)
    own: dict[str, Any] = {"compressor": fedcef.TopK(ratio=ratio)} if method == "FedCEF" else {}
    if hasattr(kind, "participation"):
        own["participation"] = OLD_RULE
    algorithm = kind(local_lr=0.05, local_steps=3, **own)
    options = {"rounds": 7, "eval_every": 2, "batch_size": 5, **options}
    return fedcef.run(problem, algorithm, **options, **({"out": out} if out else {}))


def _lasso(fedcef: Any, out: Any) -> Any:
    import numpy as np

    draw = np.random.default_rng(1)
    x = draw.normal(size=(90, 10))
    y = x @ np.where(np.arange(10) < 3, 1.0, 0.0) + 0.1 * draw.normal(size=90)
    return fedcef.FederatedLasso(alpha=0.05, rounds=60, local_steps=5).fit(x, y, clients=np.arange(90) % 4)


def _logistic(fedcef: Any, out: Any) -> Any:
    import numpy as np

    draw = np.random.default_rng(2)
    x = draw.normal(size=(80, 6))
    estimator = fedcef.FederatedLogisticRegression(rounds=40, local_steps=5, compressor={"name": "topk", "ratio": 0.5})
    return estimator.fit(x, (x[:, 0] > 0).astype(int), clients=np.arange(80) % 3)


PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "in_memory": lambda fedcef, out: _python_run(fedcef),
    "in_memory_cohort": lambda fedcef, out: _python_run(fedcef, clients_per_round=2, clip_norm=0.3, seed=4),
    "in_memory_samples": lambda fedcef, out: _python_run(fedcef, weighting="samples", batch_size=0),
    "in_memory_loop": lambda fedcef, out: _python_run(fedcef, method="FedAvg", oracle="loop"),
    "in_memory_stacked": lambda fedcef, out: _python_run(fedcef, method="Zhang", oracle="stacked"),
    "in_memory_budget": lambda fedcef, out: _python_run(fedcef, budget="9kB"),
    "in_folder": lambda fedcef, out: _python_run(fedcef, out),
    "in_folder_cohort": lambda fedcef, out: _python_run(fedcef, out, clients_per_round=2, clip_norm=0.3, label="few"),
    "in_folder_budget": lambda fedcef, out: _python_run(fedcef, out, budget="9kB", snapshot_every=3),
    "in_folder_fedda": lambda fedcef, out: _python_run(fedcef, out, method="FedDA", snapshot_every=0),
    "federated_lasso": _lasso,
    "federated_logistic": _logistic,
}
