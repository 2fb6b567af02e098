"""The tracker on the page is one."""

import re
from pathlib import Path

from .setting import play

PAGE = Path(__file__).parents[2] / "docs" / "tracking.md"


def test_another_tracker(tmp_path, capsys):
    names = {}
    exec(re.findall(r"^```python\n(class .*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[0], names)
    assert play(tmp_path / "run", {"printer": names["Printer"]()}) == []
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"begin {tmp_path / 'run'}"
    assert printed[1].startswith("0 ")
    assert printed[-1] == "finished"
