"""Draw docs/figures/overview.svg: accuracy against bytes on CIFAR-10, from two pages' own tables."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURE = ROOT / "docs" / "figures" / "overview.svg"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
WIDTH, HEIGHT, TOP, BOTTOM = 980, 430, 84, 352
BYTES, ACCURACY = (0.1, 1000.0), (78.5, 86.5)
OURS, PEERS, PAPER = "#0072b2", "#5d6874", "#c2410c"
ROW = re.compile(r"^\|(.+)\|$", re.MULTILINE)


@dataclass(frozen=True)
class Point:
    """A setting with its bytes, its accuracy and the deviation over seeds, and how it is drawn."""

    label: str
    gigabytes: float
    accuracy: float
    deviation: float
    color: str
    place: str = "above"


def row(page: str, *begins: str) -> list[str]:
    """The cells of the first table row of a page that begins with these cells."""
    rows = [[cell.strip(" *") for cell in found.split("|")] for found in ROW.findall(text_of(page))]
    return next(cells for cells in rows if cells[: len(begins)] == list(begins))


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text("utf-8")


def number(cell: str) -> float:
    found = re.search(r"\d+(?:\.\d+)?", cell)
    assert found, cell
    return float(found[0])


def point(label: str, page: str, begins: str, column: int, color: str, place: str = "above") -> Point:
    cells = row(page, begins)
    accuracy, _, deviation = next(cell for cell in cells if "±" in cell).partition("±")
    return Point(label, number(cells[column]), number(accuracy), number(deviation), color, place)


def all_clients() -> list[Point]:
    """Ten of ten clients, the paper's setting."""
    page = "results.md"
    return [
        point("0.7% of entries", page, "0.007", 2, OURS, "right"),
        point("1.5%", page, "0.015", 2, OURS, "right"),
        point("3%", page, "0.03", 2, OURS, "right"),
        point("lossless, 1%", page, "lossless increments, r = 0.01", 2, OURS, "right"),
        point("FedCEF, dense downlink, 1%", page, "FedCEF r = 0.01", 5, PEERS),
        Point("the paper: 80%", number(row(page, "FedCEF r = 0.01")[6]), 80.0, 0.0, PAPER, "left"),
        point("Zhang et al.", page, "Zhang et al.", 5, PEERS, "left"),
        point("FedCanon", page, "FedCanon (reconstructed; two vectors down)", 5, PEERS, "right"),
        point("FedDA", page, "FedDA", 5, PEERS, "right"),
    ]


def some_clients() -> list[Point]:
    """Ten of a hundred clients a round, catching up included."""
    page = "participation.md"
    return [
        point("2% up, 0.4% down", page, "2% / 0.4%", 6, OURS, "right"),
        point("3%, 0.7%", page, "3% / 0.7%", 6, OURS, "right"),
        point("5%, 1.5%", page, "5% / 1.5%", 6, OURS, "right"),
        point("SCAFFOLD", page, "SCAFFOLD, uncompressed", 6, PEERS),
        point("FedAvg", page, "FedAvg, uncompressed", 6, PEERS, "below"),
    ]


def panel(left: float, width: float, title: str, points: list[Point]) -> list[str]:
    """One diagram: a logarithmic axis of gigabytes, a linear one of accuracy."""

    def x(gigabytes: float) -> float:
        low, high = map(math.log, BYTES)
        return left + width * (math.log(gigabytes) - low) / (high - low)

    def y(accuracy: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (accuracy - ACCURACY[0]) / (ACCURACY[1] - ACCURACY[0])

    drawn = [f'<text x="{left}" y="{TOP - 16}" font-size="15" font-weight="650">{title}</text>']
    for accuracy in range(79, 87):
        drawn.append(line(left, y(accuracy), left + width, y(accuracy), "#e7eaee"))
        drawn.append(text(left - 8, y(accuracy) + 4, f"{accuracy}%", "end", "#5d6874", 12.5))
    for gigabytes in (0.1, 1, 10, 100, 1000):
        drawn.append(line(x(gigabytes), TOP, x(gigabytes), BOTTOM, "#e7eaee"))
        drawn.append(text(x(gigabytes), BOTTOM + 20, amount(gigabytes), "middle", "#5d6874", 12.5))
    ours = sorted((p for p in points if p.color == OURS and "lossless" not in p.label), key=lambda p: p.gigabytes)
    path = " L ".join(f"{x(p.gigabytes):.1f} {y(p.accuracy):.1f}" for p in ours)
    drawn.append(f'<path d="M {path}" fill="none" stroke="{OURS}" stroke-width="2"/>')
    for found in points:
        drawn += marker(found, x, y)
    return drawn


def amount(gigabytes: float) -> str:
    return f"{gigabytes:g} GB" if gigabytes < 1000 else f"{gigabytes / 1000:g} TB"


def marker(found: Point, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    """A point with its bar of one standard deviation and its label."""
    across, up = x(found.gigabytes), y(found.accuracy)
    drawn = []
    if found.deviation:
        high, low = y(found.accuracy + found.deviation), y(found.accuracy - found.deviation)
        drawn.append(line(across, high, across, low, found.color, 1.6))
        drawn.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="5" fill="{found.color}"/>')
    else:
        high, low = up - 6, up + 6
        corners = (
            f"{across:.1f},{up - 7:.1f} {across + 7:.1f},{up:.1f} {across:.1f},{up + 7:.1f} {across - 7:.1f},{up:.1f}"
        )
        drawn.append(f'<polygon points="{corners}" fill="{found.color}"/>')
    places = {
        "above": (across, high - 7, "middle"),
        "below": (across, low + 16, "middle"),
        "left": (across - 11, up + 4, "end"),
        "right": (across + 11, up + 4, "start"),
    }
    at, height, anchor = places[found.place]
    drawn.append(text(at, height, found.label, anchor, found.color, 13, 600))
    return drawn


def line(x1: float, y1: float, x2: float, y2: float, color: str, width: float = 1) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{color}" stroke-width="{width:g}"/>'


def text(x: float, y: float, words: str, anchor: str, color: str, size: float, weight: int = 400) -> str:
    style = f'text-anchor="{anchor}" font-size="{size:g}" font-weight="{weight}" fill="{color}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{words}</text>'


def drawing() -> str:
    width = (WIDTH - 60 - 30 - 70) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" font-family="{FONT}" fill="#1b1f24">',
        "<title>CIFAR-10: test accuracy against all bytes sent, for FedCEF and its peers</title>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="12" fill="#ffffff" stroke="#dfe3e8"/>',
        text(24, 34, "CIFAR-10, 400 rounds: test accuracy against all bytes sent", "start", "#1b1f24", 17, 650),
        *panel(62, width, "All ten clients in every round", all_clients()),
        *panel(62 + width + 68, width, "Ten of a hundred clients in a round", some_clients()),
        text(62, BOTTOM + 48, "●", "start", OURS, 14),
        text(80, BOTTOM + 48, "FedCEF with the settings of this package", "start", "#3d454e", 13),
        text(378, BOTTOM + 48, "●", "start", PEERS, 14),
        text(396, BOTTOM + 48, "peers, run here", "start", "#3d454e", 13),
        text(524, BOTTOM + 48, "◆", "start", PAPER, 14),
        text(542, BOTTOM + 48, "as published", "start", "#3d454e", 13),
        text(646, BOTTOM + 48, "mean ± standard deviation, three seeds", "start", "#3d454e", 13),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    FIGURE.write_text(drawing(), "utf-8")
