import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from fedcef.core.errors import FedcefError, RunError
from fedcef.core.extras import install_extra
from fedcef.report import draw_figure, draw_figures, find_frontier, load_runs, write_page, write_report
from fedcef.report.data.frontier import write_csv
from fedcef.report.page.render import make_environment

HOSTILE = "<script>alert(1)</script>$\\frac{&\"' {{data}} <img src=x onerror=alert(1)>"


class Loads(HTMLParser):
    """Collects tags, and the attributes that would make a browser fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.data: list[str] = []
        self._in_data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        addresses = [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        self.fetched += [address for address in addresses if not address.startswith("#")]  # of the page itself
        self._in_data = ("id", "data") in attrs

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False

    def json(self) -> dict[str, Any]:
        """What the page's own script reads."""
        return json.loads("".join(self.data))


def parse(path: Path) -> Loads:
    loads = Loads()
    loads.feed(path.read_text(encoding="utf-8"))
    return loads


def test_writes_the_three_files(make_run, tmp_path):
    folders = [make_run(f"s{s}", seed=s, accuracy=0.8 + s / 20) for s in range(2)]
    folders += [make_run("z", label="Zhang", up=900_000), make_run("d", label="Bad", rounds=9, status="diverged")]
    folders += [make_run("u", label="Cut", rounds=7, status=None)]
    paths = write_report(folders, tmp_path / "new" / "out")
    assert [path.name for path in paths] == ["figure.png", "figure.pdf", "report.html"]
    png, pdf, html = (path.read_bytes() for path in paths)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(png) > 50_000
    assert pdf.startswith(b"%PDF-")
    assert len(pdf) > 10_000
    assert html.startswith(b"<!doctype html>")
    assert b"Bad (diverged)" in html
    assert b"Cut (unfinished)" in html
    assert b"fedcef run z/config.toml" in html


def test_the_page_fetches_nothing_and_its_data_are_the_curves(make_run, tmp_path):
    path = tmp_path / "report.html"
    write_page(load_runs([make_run("a"), make_run("b", label="b", up=900_000)]), path)
    loads = parse(path)
    assert loads.fetched == ["data:,"]
    assert "default-src 'none'" in path.read_text(encoding="utf-8")
    data = loads.json()
    assert [panel["key"] for panel in data["panels"]] == [
        "accuracy", "train_loss", "objective", "stationarity", "density",
    ]  # fmt: skip
    assert [axis["key"] for axis in data["axes"]] == ["wire_bytes", "paper_bytes", "round", "wall_s", "network_s"]
    assert data["axes"][0]["log"]
    (taken,) = data["methods"][0]["x"]  # once for all metrics
    curve = data["methods"][0]["curves"]["accuracy"]
    assert curve["y"][-1] == 90.0
    assert "low" not in curve  # a single run has no band
    assert taken["wire_bytes"][-1] == 600_000


def test_data_sets_have_panels_of_their_own(make_run, tmp_path):
    """A gap on one of them does not hide the accuracy on another, and nothing is best across them."""
    folders = [make_run("a"), make_run("b", label="b", accuracy=0.8), make_run("c", dataset="lasso", accuracy=None)]
    lines = [json.loads(line) for line in (folders[2] / "rounds.jsonl").read_text().splitlines()]
    lines = [{**line, "gap": 0.1} if "objective" in line else line for line in lines]
    (folders[2] / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_page(load_runs(folders), tmp_path / "page.html")
    data = parse(tmp_path / "page.html").json()
    keys = [panel["key"] for panel in data["panels"]]
    assert "gap_lasso" in keys
    assert "accuracy_mnist" in keys
    assert [target["name"] for target in data["targets"]] == ["Gap to the optimum, F(z) - F*", "Test accuracy"]
    assert [method["name"] for method in data["methods"]] == ["FedCEF", "b"]
    assert data["methods"][0]["curves"].keys() >= {"gap_lasso", "accuracy_mnist"}


def test_what_differs_is_written_as_in_settings_files(make_run, tmp_path):
    groups = 'groups = [{ match = "*.bias", decay = false }, { match = "head.*", lr = 0.5 }]\n'
    compare = '[[compare]]\nlabel = "x"\nset = { seed = 3 }\n'
    folders = [make_run("a"), make_run("b", label="b", extra=groups)]
    with (folders[0] / "config.toml").open("a") as file:
        file.write(compare)
    write_page(load_runs(folders), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "[{ match = *.bias, decay = false }, { match = head.*, lr = 0.5 }]" in text
    assert "{&#39;" not in text
    assert '<th scope="row">compare</th>' not in text


def test_options_that_a_part_of_another_name_lacks_are_no_difference(make_run, tmp_path):
    topk, whole = '[compressor]\nname = "topk"\nblock = 256\n', '[compressor]\nname = "identity"\n'
    folders = [
        make_run("a", more=topk + "ratio = 0.1\n"),
        make_run("b", label="b", more=topk + "ratio = 0.2\n"),
        make_run("c", label="c", more=whole + "[privacy]\nnoise = 8.0\n"),
    ]
    write_page(load_runs(folders), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    table, _, options = text.partition('<table class="settings')[2].partition("</table>")
    plain = table.replace("<wbr>", "")
    assert all(f"{key}</th>" in plain for key in ("compressor.name", "compressor.ratio", "privacy.noise"))
    assert "compressor.block</th>" not in plain
    assert "only, equal where they occur: 1 setting</summary><pre>compressor.block = 256</pre>" in options


def test_a_printed_page_keeps_columns_and_colours(make_run, tmp_path):
    write_page(load_runs([make_run("a")]), tmp_path / "page.html")
    printed = (tmp_path / "page.html").read_text(encoding="utf-8").partition("@media print")[2].partition("</style>")[0]
    assert "print-color-adjust: exact" in printed
    assert ".scroll { overflow: visible; background: none; }" in printed


def test_text_from_files_stays_text(make_run, tmp_path):
    folder = make_run("a<b>&", label=HOSTILE)
    with (folder / "config.toml").open("a") as file:
        file.write(f"note = {json.dumps(HOSTILE)}\n")
    summary = json.loads((folder / "summary.json").read_text())
    summary |= {"dataset": "<b id=evil>", "versions": {"<i>": "<u>"}}
    (folder / "summary.json").write_text(json.dumps(summary))
    path = tmp_path / "report.html"
    records = load_runs([folder, make_run("b", label="plain")])
    write_page(records, path)
    text = path.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "<b id=evil>" not in text
    assert parse(path).tags.count("script") == 3  # data, plotly.js, page.js
    assert parse(path).tags.count("img") == 0
    assert not re.search(r"\{\{\w+\}\}", text.replace("{{data}}", ""))  # every place was filled
    draw_figure(records, tmp_path / "figure.svg")  # `$\frac{` is not read as a formula
    assert "&lt;script&gt;alert" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


def test_json_cannot_end_its_script_element():
    template = make_environment("fedcef.report.page").from_string("{{ data | tojson }}")
    text = template.render(data={"label": HOSTILE})
    assert "<" not in text
    assert json.loads(text) == {"label": HOSTILE}


def test_problems_without_accuracy(make_run, tmp_path):
    records = load_runs([make_run("a", accuracy=None)])
    write_page(records, tmp_path / "report.html")
    assert "Objective" in (tmp_path / "report.html").read_text(encoding="utf-8")
    draw_figure(records, tmp_path / "figure.svg")
    svg = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "Objective" in svg
    assert "accuracy" not in svg


def test_a_run_of_only_its_start_point_and_a_run_that_never_had_a_loss_can_be_drawn(make_run, tmp_path):
    folder = make_run("a", rounds=1)
    bare = make_run("b", label="_bare", rounds=1)
    (bare / "rounds.jsonl").write_text('{"round": 0}\n')
    (bare / "summary.json").unlink()
    for name, folders in (("one", [folder]), ("bare", [bare]), ("both", [folder, bare])):
        records = load_runs(folders)
        draw_figure(records, tmp_path / f"{name}.png")
        write_page(records, tmp_path / f"{name}.html")


def test_the_same_runs_give_the_same_figure(make_run, tmp_path):
    records = load_runs([make_run("a")])
    for suffix in ("pdf", "svg"):
        draw_figure(records, tmp_path / f"1.{suffix}")
        draw_figure(records, tmp_path / f"2.{suffix}")
        assert (tmp_path / f"1.{suffix}").read_bytes() == (tmp_path / f"2.{suffix}").read_bytes()


def test_what_cannot_be_written_is_one_sentence(make_run, tmp_path):
    folder = make_run("a")
    with pytest.raises(FedcefError, match=r"a \.png, \.pdf or \.svg file"):
        draw_figure(load_runs([folder]), tmp_path / "figure.bmp")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        write_report([folder], tmp_path / "file")
    with pytest.raises(RunError, match="nothing to report"):
        draw_figure([], tmp_path / "figure.png")
    records = load_runs([folder])
    for name, write in (("a.svg", draw_figure), ("a.html", write_page), ("a.csv", _write_csv)):
        (tmp_path / name).mkdir()  # in the way of a file it refuses as a folder without rights does
        with pytest.raises(RunError, match=f"cannot be written to .*{name}: Is a directory"):
            write(records, tmp_path / name)


def _write_csv(records, path):
    write_csv(find_frontier(records), path)


def test_a_missing_package_says_how_to_get_it_and_the_page_needs_none(make_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "plotly", None)
    records = load_runs([make_run("a")])
    write_page(records, tmp_path / "report.html")
    with pytest.raises(FedcefError, match=re.escape(f"matplotlib is needed; install it with: {install_extra('plot')}")):
        draw_figure(records, tmp_path / "figure.png")


def test_the_plotting_library_is_the_one_that_its_note_names():
    folder = resources.files("fedcef.report.page") / "vendor"
    digest = hashlib.sha256((folder / "plotly-basic.min.js").read_bytes()).hexdigest()
    assert f"{digest}  plotly-basic.min.js" in (folder / "README.md").read_text("utf-8")


def test_a_figure_for_every_panel_in_three_formats(make_run, tmp_path):
    records = load_runs([make_run("a", extra="num_clients = 4\n"), make_run("b", label="b", extra="num_clients = 4\n")])
    paths = draw_figures(records, tmp_path / "network_s", "network_s")
    assert [path.name for path in paths[:3]] == [f"accuracy_network_s.{suffix}" for suffix in ("png", "pdf", "svg")]
    assert len(paths) == 15
    svg = (tmp_path / "network_s" / "accuracy_network_s.svg").read_text(encoding="utf-8")
    assert "Simulated network time (s)" in svg
    with pytest.raises(RunError, match="Network time needs the number of clients"):
        draw_figures(load_runs([make_run("c")]), tmp_path, "network_s")
