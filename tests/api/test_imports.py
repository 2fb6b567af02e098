"""What `import fedcef` loads, and that its names are where it says."""

import ast
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
    modules = loaded("from fedcef import *\nimport fedcef\nfedcef.run, fedcef.regularizers.L1")
    assert "torch" in modules
    assert not modules & set(OPTIONAL)


def test_every_name_is_there_and_nothing_else():
    for name in fedcef._HOME:
        assert getattr(fedcef, name).__name__ == name
    assert set(fedcef.__all__) == set(fedcef._HOME) - set(fedcef._HOMES["estimators"])
    assert {"run", "FederatedLasso", "regularizers"} <= set(dir(fedcef))
    with pytest.raises(AttributeError, match="module 'fedcef' has no attribute 'FedSGD'"):
        _ = fedcef.FedSGD
    for package in fedcef._PACKAGES:
        assert getattr(fedcef, package) is import_module(f"fedcef.{package}")


def test_type_checkers_are_told_the_same():
    tree = ast.parse(Path(fedcef.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {alias.name: node.module for node in block.body for alias in node.names}
    assert told == fedcef._HOME
    assert (Path(fedcef.__file__).parent / "py.typed").exists()
