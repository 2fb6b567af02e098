"""The guide's program runs, and prints what the guide says."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch

GUIDE = (Path(__file__).parents[2] / "docs" / "python.md").read_text("utf-8")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-\d+)?")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def numbers(text):
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The names that the guide's program leaves behind, its folder, and what it printed."""
    folder, printed, names = tmp_path_factory.mktemp("guide"), StringIO(), {}
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]), redirect_stdout(printed):
        patch.chdir(folder)
        for block in blocks("python"):
            exec(block, names)
    return names, folder, printed.getvalue()


def test_the_guide_quotes_what_its_program_prints(program):
    quoted, printed = "".join(blocks("text")), program[2]
    assert NUMBER.sub("#", quoted) == NUMBER.sub("#", printed)
    for said, is_ in zip(numbers(quoted), numbers(printed), strict=True):
        assert is_ == pytest.approx(said, rel=0.2) or max(said, is_) < 1e-4


def test_the_guide_s_names_are_what_it_says(program):
    names, folder, _ = program
    assert (folder / "runs" / "hospitals" / "summary.json").exists()
    assert names["same"].records == names["kept"].records
    assert names["kept"].last["objective"] == names["history"].last["objective"]
    assert names["table"].index[-1] == 60
    assert len(names["figure"].axes) == 4
    assert names["weights"].keys() == names["model"].state_dict().keys()
    np.testing.assert_allclose(names["named"].coef_, names["classifier"].coef_, atol=1e-10)
