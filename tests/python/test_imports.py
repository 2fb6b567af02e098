"""What `import fedcef` loads, and that its names are where it says."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import fedcef

OPTIONAL = ("flwr", "matplotlib", "pandas", "plotly", "sklearn", "tensorboard", "mlflow", "wandb", "onnx")


def loaded(code):
    """The modules that a new interpreter has after the code."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("code", ["import fedcef", "import fedcef.cli.main"])
def test_importing_loads_nothing_heavy(code):
    assert not loaded(code) & {"torch", "numpy", "pydantic", *OPTIONAL}


def test_using_it_loads_torch_and_nothing_optional():
    modules = loaded("from fedcef import *\nimport fedcef\nrun, fedcef.run, fedcef.regularizers.L1")
    assert "torch" in modules
    assert not modules & set(OPTIONAL)


def test_every_name_is_there_and_nothing_else():
    packages = {name for name, home in fedcef._HOME.items() if home == "fedcef"}
    estimators = {"FederatedElasticNet", "FederatedLasso", "FederatedLogisticRegression", "FederatedRidge"}
    for name in set(fedcef._HOME) - packages:
        assert getattr(fedcef, name).__name__ == name
    for package in packages:
        assert getattr(fedcef, package) is import_module(f"fedcef.{package}")
    assert set(fedcef.__all__) == set(fedcef._HOME) - packages - estimators
    assert set(dir(fedcef)) == {"__version__", *fedcef._HOME}
    names = {"run", "Training", "FedCEF", "L1", "TopK", "Problem", "regularizers", "clients"} | estimators
    assert names <= set(dir(fedcef))
    with pytest.raises(AttributeError, match="module 'fedcef' has no attribute 'FedSGD'"):
        _ = fedcef.FedSGD


def test_type_checkers_see_the_names(tmp_path):
    """They read `__init__.pyi`, which has to be told that its imports are for others: `name as name`."""
    stub = Path(fedcef.__file__).with_suffix(".pyi").read_text("utf-8")
    for name, home in fedcef._HOME.items():
        assert f"from {home} import {name} as {name}\n" in stub
    assert (Path(fedcef.__file__).parent / "py.typed").exists()
