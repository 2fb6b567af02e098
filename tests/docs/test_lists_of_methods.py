"""What pages say of methods in words is what the methods say of themselves."""

import re
from pathlib import Path

from fedcef.algorithms import ALGORITHMS
from fedcef.runs.experiments import load_settings
from fedcef.simulation.simulation import Simulation

DOCS = Path(__file__).parents[2] / "docs"


def plain(names):
    """Titles or keys as they can be compared: SparseLoCo is sparseloco, Fed-EF is fed_ef."""
    return {re.sub(r"\W|_", "", name).lower() for name in names}


def test_the_methods_that_accept_a_compressor_are_those_that_the_page_names():
    page = (DOCS / "algorithms.md").read_text("utf-8")
    said = re.search(r"accepts a compressor\. These do: (.*?), and all\s+under \"Compressed\"", page, re.DOTALL)
    family = re.search(r"^\* Compressed: (.*?)^\* ", (DOCS / "methods.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    named = {*said.group(1).split(", "), *re.findall(r"\[(.*?)\]", family.group(1))} - {"FetchSGD"}
    assert plain(named) == plain(name for name, kind in ALGORITHMS.items() if kind.compresses)


def test_the_method_for_clients_that_arrive_whenever_they_like_is_one_that_the_mode_takes():
    page = (DOCS / "guides" / "decisions.md").read_text("utf-8")
    ((name, setting),) = re.findall(r"^\| clients arrive .*? \| `(\w+)` with `(.*?)` \|", page, re.MULTILINE)
    changes = [f"algorithm.name={name}", "compressor.name=identity", setting.replace(" ", ""), "rounds=1"]
    settings = load_settings("demo", changes)
    problem = settings.build_problem()
    Simulation(problem, settings.build_algorithm(problem), settings)  # which refuses others
