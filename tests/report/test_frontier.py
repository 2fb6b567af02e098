import csv
import json
import math
import random

import pytest
from test_report import HOSTILE, parse

from fedcef.core.errors import RunError
from fedcef.report import find_frontier, load_runs, make_frontier_table, write_frontier
from fedcef.report.figures.figure import drawing
from fedcef.report.figures.frontier import draw_frontier, look_of
from fedcef.report.figures.labels import Box, Label, place_labels


@pytest.fixture
def records(make_run):
    folders = [make_run(f"s{s}", label="cheap", seed=s, accuracy=0.8 + s / 20, up=1_000) for s in range(3)]
    folders += [make_run("b", label="worse", accuracy=0.7, up=2_000), make_run("c", label="best", up=90_000)]
    folders += [make_run("t", label="as good, dearer", up=100_000), make_run("d", label="bad", status="diverged")]
    return load_runs(folders)


def test_the_front_is_what_nothing_beats_in_both(records):
    found = find_frontier(records, [("paper", 5e6, 0.9), ("only bytes", 1e6, None)])
    assert [p.label for p in found.points] == ["cheap", "worse", "bad", "best", "as good, dearer"]
    assert [p.label for p in found.front] == ["cheap", "best"]
    cheap, worse = found.points[:2]
    assert (cheap.accuracy, cheap.spread, cheap.seeds) == (pytest.approx(0.85), pytest.approx(0.05), 3)
    assert (cheap.up, cheap.down, cheap.total) == (20_000, 40_000, 60_000)
    assert worse.spread == 0
    assert "bad" not in [p.label for p in found.drawn]
    assert [p.label for p in found.references] == ["only bytes", "paper"]
    assert math.isnan(found.references[0].accuracy)


def test_families_share_colours_by_uplink_and_markers_by_downlink(make_run):
    settings = [("topk", "native", "increment"), ("topk", "native", "lossy"), ("topk", "log3", "lossy"), ("", "", "")]
    for i, (name, values, downlink) in enumerate(settings):
        folder = make_run(f"r{i}", label=f"r{i}", up=1000 * (i + 1))
        text = f'label = "r{i}"\n[algorithm]\nname = "zhang"\n'
        if name:
            text = f'label = "r{i}"\n[algorithm]\nname = "fedcef"\ndownlink = "{downlink}"\n'
            text += f'[compressor]\nname = "{name}"\nvalues = "{values}"\n'
        (folder / "config.toml").write_text(text)
    found = find_frontier(load_runs(sorted(folder.parent.glob("r*"))))
    looks = [look_of(found, point) for point in found.points]
    assert [p.uplink for p in found.points] == [
        "Top-k, floats",
        "Top-k, floats",
        "Top-k, 3 bits, logarithmic",
        "uncompressed",
    ]
    assert [p.downlink for p in found.points] == ["increment, lossless", "lossy", "lossy", "as in Zhang et al."]
    assert looks[0][0] == looks[1][0] != looks[2][0]
    assert looks[1][1] == looks[2][1] != looks[0][1]


def test_snapshots_are_a_family_whether_asked_for_or_chosen(make_run):
    kinds = [("topk", "snapshot", ""), ("auto", "increment", "snapshot"), ("auto", "increment", "lossy")]
    folders = []
    for i, (name, downlink, chosen) in enumerate(kinds):
        more = f'[compressor]\nname = "{name}"\n'
        folders.append(make_run(f"{i}", label=f"{i}", up=1000 * (i + 1), more=more, downlink=downlink))
        if chosen:
            summary = json.loads((folders[-1] / "summary.json").read_text())
            (folders[-1] / "summary.json").write_text(json.dumps(summary | {"downlink": chosen}))
    found = find_frontier(load_runs(folders))
    assert [p.downlink for p in found.points] == ["snapshot", "snapshot", "lossy"]


def test_points_that_the_seeds_cannot_tell_from_a_cheaper_one_are_ties(make_run):
    means = {"cheap": 0.80, "a little better": 0.81, "clearly better": 0.86, "and a little more": 0.87}
    folders = [
        make_run(f"{i}-{s}", label=label, seed=s, accuracy=mean + (s - 1) / 50, up=1_000 * (i + 1))
        for i, (label, mean) in enumerate(means.items())
        for s in range(3)
    ]
    found = find_frontier(load_runs(folders))
    assert [p.label for p in found.front] == list(means)
    assert [p.tie for p in found.front] == [False, True, False, True]  # one standard deviation is 0.02
    alone = find_frontier(load_runs(folders[1::3]))
    assert not any(p.tie for p in alone.points)  # of one seed the spread is not known


def test_files_and_their_content(records, tmp_path):
    found = find_frontier(records, [(HOSTILE, 5e6, 0.9), ("only bytes", 1e6, None)])
    paths = write_frontier(found, records, tmp_path / "new")
    assert [path.name for path in paths] == ["frontier.png", "frontier.pdf", "frontier.csv", "report.html"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_bytes().startswith(b"%PDF-")
    rows = list(csv.DictReader(paths[2].read_text().splitlines()))
    assert [(row["label"], row["on_front"]) for row in rows[:2]] == [("cheap", "1"), ("worse", "0")]
    assert float(rows[0]["accuracy_std"]) == pytest.approx(0.05)
    assert float(rows[0]["wire_bytes"]) == 60_000
    assert [row["kind"] for row in rows] == ["run"] * 5 + ["reference"] * 2
    page = parse(paths[3])
    assert page.fetched == ["data:,"]
    assert page.tags.count("script") == 3
    lead = page.json()["lead"]
    assert [point["name"] for point in lead["points"] if point["front"]] == ["cheap", "best"]
    assert [point["y"] for point in lead["references"]] == [None, 90.0]
    assert "<img src=x" not in paths[3].read_text("utf-8")


def test_the_same_runs_give_the_same_figure(records, tmp_path):
    for name in ("a.png", "b.png"):
        draw_frontier(find_frontier(records), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_legend_of_many_families_stays_within_the_figure(make_run, tmp_path, monkeypatch):
    values, downlinks = ("native", "uniform4", "sign", "log3"), ("increment", "lossy", "dense")
    for i, kind in enumerate((value, downlink) for value in values for downlink in downlinks):
        settings = {"downlink": kind[1], "more": f'[compressor]\nname = "topk"\nvalues = "{kind[0]}"\n'}
        for s in range(3):
            known = {"label": f"r{i}", "seed": s, "accuracy": 0.8 + i / 200 + s / 50, **settings}
            make_run(f"r{i}-{s}", up=1000 * (i + 1), **known)
    make_run("r-zhang", label="zhang", algorithm="zhang", up=50_000, accuracy=0.95)
    seen = []
    monkeypatch.setattr("fedcef.report.figures.frontier._labels", lambda ax, *_: seen.append(ax.figure))
    draw_frontier(find_frontier(load_runs(sorted(tmp_path.glob("r*")))), tmp_path / "front.png")
    (legend,) = seen[0].legends
    assert len(legend.get_texts()) == 10
    place = legend.get_window_extent()
    assert place.x0 >= 0
    assert place.x1 <= seen[0].bbox.width


def test_one_point_is_enough_and_none_is_an_error(make_run, tmp_path):
    draw_frontier(find_frontier(load_runs([make_run("a")])), tmp_path / "one.png")
    with pytest.raises(RunError, match="There is no finished run with an accuracy"):
        find_frontier(load_runs([make_run("b", accuracy=None)]))


def test_the_table_marks_the_front(records, capsys):
    from rich.console import Console

    Console(width=100).print(make_frontier_table(find_frontier(records, [("paper", 5e6, None)])))
    lines = capsys.readouterr().out.splitlines()
    marked = {line.strip()[0]: line for line in lines if "best" in line or "paper" in line}
    assert "best" in marked["●"]
    assert "paper" in marked["☆"]
    assert any("bad" in line and "diverged" in line for line in lines)


def test_labels_do_not_overlap(tmp_path):
    draw = random.Random(0)
    for crowd in range(2):
        with drawing(tmp_path / "labels.svg") as fig:
            fig.set_size_inches(7.2, 4.7)
            ax = fig.subplots()
            fig.draw_without_rendering()
            fig.set_layout_engine("none")
            places = [((i + draw.random()) / 11, (i / 11) ** 0.3 + 0.02 * draw.random()) for i in range(10)]
            labels = [Label(f"r=0.01 / {i}, 4 bits", x, y, "black") for i, (x, y) in enumerate(places)]
            points = [ax.transData.transform(place) for place in places]
            obstacles = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in points]
            boxes = place_labels(ax, labels, obstacles)
        assert sum(a.overlap(b) for i, a in enumerate(boxes) for b in boxes[:i]) == 0, crowd
        assert sum(a.overlap(b) for a in boxes for b in obstacles) == 0, crowd
