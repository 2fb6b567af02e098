"""Labels beside points that hide neither the points nor each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

DISTANCES = (7, 14, 24, 36, 50, 66)  # points
ANGLES = (155, 205, 90, 270, 125, 235, 55, 305, 180, 0, 25, 335)  # degrees; to the upper left first: a front rises
CROSSING = 3000  # what lines that cross cost, in covered pixels
PASSES = 3  # in each, every label is placed anew among the others
FAR = 13  # a label at this distance gets a line to its point


@dataclass(frozen=True)
class Box:
    """A rectangle, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: "Box") -> float:
        """The area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return width * height if width > 0 and height > 0 else 0.0

    def outside(self, other: "Box") -> float:
        """The area that lies beyond the other."""
        return (self.right - self.left) * (self.top - self.bottom) - self.overlap(other)


@dataclass(frozen=True)
class Label:
    """What stands beside a point."""

    text: str
    x: float
    y: float
    color: str


def place_labels(ax: Any, labels: Sequence[Label], obstacles: Sequence[Box], soft: Sequence[Box] = ()) -> list[Box]:
    """Write labels where they cover least of the obstacles, and of the soft ones if need be; boxes are in pixels."""
    scale = float(ax.figure.dpi) / 72
    window = ax.get_window_extent()
    frame = Box(window.x0, window.y0, window.x1, window.y1)
    texts = [_text(ax, label) for label in labels]
    extents = [text.get_window_extent() for text in texts]
    sizes = [(extent.width + 2 * scale, extent.height + scale) for extent in extents]
    points = [ax.transData.transform((label.x, label.y)) for label in labels]
    placed: dict[int, Box] = {}
    choices = [(distance, angle) for distance in DISTANCES for angle in ANGLES]

    def cost(i: int, choice: tuple[int, int]) -> float:
        spot = _box(points[i], choice, sizes[i], scale)
        others = {j: other for j, other in placed.items() if j != i}
        line = _leader(points[i], spot, scale) if choice[0] > FAR else []
        covered = sum(box.overlap(other) for box in (spot, *line) for other in (*obstacles, *others.values()))
        crossed = sum(
            _cross((points[i], _end(points[i], spot)), (points[j], _end(points[j], other)))
            for j, other in others.items()
        )
        in_the_way = sum(spot.overlap(other) for other in soft)
        return 10 * (covered + spot.outside(frame)) + CROSSING * crossed + 3 * in_the_way + choice[0] * scale

    for _ in range(PASSES):
        for i in range(len(labels)):
            placed[i] = _box(points[i], min(choices, key=partial(cost, i)), sizes[i], scale)
    for i, (text, label) in enumerate(zip(texts, labels, strict=True)):
        at, spot = points[i], placed[i]
        text.set_position(((spot.left - at[0] + scale) / scale, (spot.bottom - at[1] + 0.5 * scale) / scale))
        if math.dist(at, _end(at, spot)) > FAR * scale:
            _draw_leader(ax, at, spot, label.color)
    return list(placed.values())


def _text(ax: Any, label: Label) -> Any:
    text = ax.annotate("", (label.x, label.y), xytext=(0, 0), textcoords="offset points", fontsize=7)
    text.set(color=label.color, zorder=6, in_layout=False, ha="left", va="bottom")
    text.set_parse_math(False)  # a label is text: `$` means nothing in it
    text.set_text(label.text)
    return text


def _box(at: Any, choice: tuple[int, int], size: tuple[float, float], scale: float) -> Box:
    """The place of a label at a distance and an angle: the nearest point of its box is about that far away."""
    distance, angle = choice[0] * scale, math.radians(choice[1])
    dx, dy = math.cos(angle), math.sin(angle)
    x = at[0] + dx * distance - (size[0] if dx < -0.3 else size[0] / 2 if dx <= 0.3 else 0)
    y = at[1] + dy * distance - (size[1] if dy < -0.9 else 0 if dy > 0.9 else size[1] / 2)
    return Box(x, y, x + size[0], y + size[1])


def _end(at: Any, spot: Box) -> tuple[float, float]:
    return min(max(at[0], spot.left), spot.right), min(max(at[1], spot.bottom), spot.top)


def _leader(at: Any, spot: Box, scale: float) -> list[Box]:
    """The line from a point to its label, as small boxes; not where the point itself is."""
    (x0, y0), (x1, y1) = at, _end(at, spot)
    start = 5 * scale / (math.dist((x0, y0), (x1, y1)) or 1.0)
    places = [(x0 + t * (x1 - x0), y0 + t * (y1 - y0)) for i in range(20) if (t := start + i / 20) < 1]
    return [Box(x - scale, y - scale, x + scale, y + scale) for x, y in places]


def _cross(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Whether two lines between points meet."""

    def side(line: tuple[Any, Any], at: Any) -> float:
        (x0, y0), (x1, y1) = line
        return float((x1 - x0) * (at[1] - y0) - (y1 - y0) * (at[0] - x0))

    return (side(one, other[0]) > 0) != (side(one, other[1]) > 0) and (side(other, one[0]) > 0) != (
        side(other, one[1]) > 0
    )


def _draw_leader(ax: Any, at: Any, spot: Box, color: str) -> None:
    (x0, y0), (x1, y1) = (ax.transData.inverted().transform(place) for place in (at, _end(at, spot)))
    ax.plot([x0, x1], [y0, y1], color=color, lw=0.5, alpha=0.6, zorder=2, in_layout=False)
