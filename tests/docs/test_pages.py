"""The Python on the pages runs, and prints what they say."""

import json
import re
import runpy
import tomllib
from contextlib import redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from fedcef.runs.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHORTER = {"rounds=60": "rounds=10"}
"""What is changed so that the tests are quick: outputs of such pages are compared in form, not in numbers."""


def blocks(page):
    return BLOCK.findall((DOCS / page).read_text("utf-8"))


def outputs(page, changes=()):
    """Run a page's Python from top to bottom; pairs of what it prints and what the page says it prints, if it does."""
    names, pairs = {}, []
    found = blocks(page)
    for (language, text), (following, said) in zip(found, [*found[1:], ("", "")], strict=True):
        if language == "python":
            for old, new in changes:
                text = text.replace(old, new)
            printed = StringIO()
            with torch.random.fork_rng(devices=[]), redirect_stdout(printed):
                exec(text, names)
            pairs.append((printed.getvalue(), said if following == "text" else None))
    return pairs, names


def test_the_readme():
    ((printed, said),), names = outputs("../README.md", SHORTER.items())
    number = re.compile(r"[\d.]+")
    assert number.sub("#", printed) == number.sub("#", said)
    assert names["problem"].num_clients == 10


def test_the_readme_counts_what_is_there():
    from fedcef.algorithms import ALGORITHMS
    from fedcef.compressors import COMPRESSORS
    from fedcef.regularizers import REGULARIZERS

    for page in ("../README.md", "index.md"):
        text = (DOCS / page).read_text("utf-8")
        assert f"{len(ALGORITHMS)} methods" in text, page
    assert f"| compressors | {len(COMPRESSORS)}, " in (DOCS / "../README.md").read_text("utf-8")
    assert f"| proximal regularisers | {len(REGULARIZERS)} |" in (DOCS / "../README.md").read_text("utf-8")
    assert f"{len(REGULARIZERS)} regularisers" in text


def test_concepts():
    pairs, _ = outputs("concepts.md")
    assert len(pairs) == 2
    for printed, said in pairs:
        assert printed == said


def test_quickstart():
    ((printed, said),), names = outputs("quickstart.md", SHORTER.items())
    number = re.compile(r"[\d.]+")
    assert number.sub("#", printed).replace("MB", "kB") == number.sub("#", said).replace("MB", "kB")
    accuracy = names["history"]["accuracy"]
    assert accuracy[-1] > accuracy[0]


def test_choosing_a_compressor():
    pairs, _ = outputs("guides/compressor.md")
    assert [printed.splitlines()[0] for printed, _ in pairs] == ["0.99"]


def test_choosing_lambda():
    _, names = outputs("guides/lambda.md", {"rounds=100, eval_every=100": "rounds=40, eval_every=40"}.items())
    found = list(names["found"].values())
    assert found[0] == 0  # at λ_max nothing is left
    assert found == sorted(found)  # and the less λ, the more


def test_batch_normalisation():
    pairs, names = outputs("guides/batchnorm.md", {"rounds=10, batch_size": "rounds=2, batch_size"}.items())
    number = re.compile(r"[\d.]+")
    printed, said = pairs[0]
    assert number.sub("#", printed) == number.sub("#", said)
    assert len(pairs) == 3  # the second compares with plain training by itself
    sizes = {name: history.bytes for name, history in names["histories"].items()}
    assert sizes["local"] == sizes["frozen"] == sizes["group norm"] < sizes["mean"] < 1.05 * sizes["local"]
    assert names["at_home"].keys() == names["model"].state_dict().keys()


def test_estimators():
    pairs, _ = outputs("guides/estimators.md")
    assert len(pairs) == 5
    for printed, said in pairs:
        assert printed == said


def test_lying_clients():
    pairs, _ = outputs("robustness.md")
    assert [printed for printed, _ in pairs] == [said for _, said in pairs]
    (table,) = [tomllib.loads(text) for language, text in blocks("robustness.md") if language == "toml"]
    settings = Settings(**table)
    assert settings.aggregation.trim == settings.attack.share
    benchmark = runpy.run_path(str(DOCS.parent / "benchmarks" / "attacks.py"))
    measured = benchmark["tables"](json.loads(benchmark["RESULTS"].read_text("utf-8")))
    rows = [line for line in measured.splitlines() if line.startswith("|")]
    assert len(rows) == 14
    assert all(row in (DOCS / "robustness.md").read_text("utf-8") for row in rows)


def test_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs, names = outputs("data.md")
    assert [(printed, said) for printed, said in pairs if printed] == [(said, said) for _, said in pairs if said]
    assert names["history"]["train_loss"][-1] < names["history"]["train_loss"][0]
    for name, count in {
        "million": 10**6,
        "files": 30,
        "numbered": 30,
        "pairs": 3,
        "shared": 3,
        "population": 10**6,
    }.items():
        assert names[name].num_clients == count
    assert len(names["population"].samples(999_999)) == 50
    settings = [tomllib.loads(text) for language, text in blocks("data.md") if language == "toml"]
    (drawn,) = [table for table in settings if table.get("data", {}).get("partition") == "drawn"]
    assert len(Settings(**drawn).build_problem().client_samples(999_999)) == 50


@pytest.mark.parametrize(
    "page",
    [
        "quickstart.md",
        "guides/compressor.md",
        "guides/lambda.md",
        "guides/decisions.md",
        "concepts.md",
        "guides/batchnorm.md",
    ],
)
def test_named_settings_and_experiments_exist(page):
    """Commands on the page are read as the command line reads them, up to the point where training would begin."""
    from fedcef.runs.experiments import load_settings

    commands = [
        line for language, text in blocks(page) if language == "sh" for line in text.replace("\\\n", " ").splitlines()
    ]
    for command in commands:
        words = re.findall(r"'[^']*'|\"[^\"]*\"|\S+", command.partition("#")[0])
        if words[:2] != ["fedcef", "run"] or words[2].startswith("--"):
            continue
        changes = [after.strip("'") for before, after in pairwise(words) if before == "--set"]
        config = load_settings(words[2], changes)
        config.build_algorithm(config.build_problem())
