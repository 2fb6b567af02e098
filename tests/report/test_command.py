"""fedcef report on the command line."""

import pytest
from typer.testing import CliRunner

from fedcef.cli.main import app
from fedcef.core.errors import ConfigError


def call(*words):
    done = CliRunner().invoke(app, ["report", *map(str, words)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_writes_the_page_and_the_figures(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("fedcef.report.figures.panels.FORMATS", ("pdf",))
    for name in "ab":
        make_run(name, label=name, extra="num_clients = 3\n")
    out = tmp_path / "page.html"
    link = ("--uplink", 2, "--against", "network")
    printed = call(tmp_path, "-o", out, "--figures", tmp_path / "figures", *link)
    assert f"Wrote {out}" in printed
    assert '"up_mbit":2.0' in out.read_text("utf-8")
    assert 'id="up_mbit" value="2"' in out.read_text("utf-8")
    assert '"compute":false' in out.read_text("utf-8")
    call(tmp_path, "-o", out, "--computing")
    assert '"compute":true' in out.read_text("utf-8")
    assert (tmp_path / "figures" / "density_network_s.pdf").is_file()


def test_the_page_lies_where_plot_would_put_it(make_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, other = make_run("a"), make_run("b", label="b")
    call(one)
    assert (one / "report.html").is_file()
    call(one, other)
    assert (tmp_path / "report" / "report.html").is_file()
    assert not (tmp_path / "report.html").exists()


def test_the_axis_asked_for_is_the_page_s(make_run, tmp_path):
    call(make_run("a"), "-o", tmp_path / "page.html", "--against", "rounds")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert '<input type="radio" name="axis" value="round" checked' in page


@pytest.mark.parametrize("there", [True, False])
def test_shows_the_page_in_a_browser_if_there_is_one(make_run, tmp_path, monkeypatch, there):
    shown = []
    monkeypatch.setattr("webbrowser.open", lambda address: shown.append(address) or there)
    out = tmp_path / "page.html"
    printed = call(make_run("a"), "-o", out, "--open")
    assert shown == [out.as_uri()]
    assert (f"open {out} where there is one" in printed) != there


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--against", "money"), "must be one of wire, paper, rounds, wall, network"),
        (("--uplink", 0), "numbers above 0 Mbit/s"),
        (("--latency", "nan"), "at least 0 ms"),
        (("--downlink", "inf"), "numbers above 0 Mbit/s"),
    ],
)
def test_wrong_options_are_one_sentence(make_run, tmp_path, words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        call(make_run("a"), "-o", tmp_path / "page.html", *words)


def test_a_folder_without_runs_is_named(make_run, tmp_path):
    with pytest.raises(ConfigError, match="nothing holds no runs"):
        call(make_run("a"), tmp_path / "nothing")
