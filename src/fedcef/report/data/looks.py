"""The look of every curve, by what it shows and not by its place in a list: the same in all figures and on all pages.

The colour is that of the method.  Its variants differ in shade, by how much they send, and in dash, by how the server
answers; where that leaves two alike on one page, in the marker.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from fedcef.report.data.groups import Group, Method
from fedcef.report.data.records import as_number

# Okabe and Ito's colours (safe for colour-blind readers), with lighter twins for dark backgrounds.
COLORS = (
    ("#0072b2", "#4ba6dd"),
    ("#d55e00", "#f0813a"),
    ("#009e73", "#2fc79a"),
    ("#b8548c", "#dd8fbb"),
    ("#d08c00", "#edb73c"),
    ("#3a3a3a", "#d6d6d6"),
    ("#2f9fdc", "#8fd0f5"),
    ("#7a5c3e", "#c2a27f"),
)
SHADES = ((0.0, 0.0), (-0.3, 0.35), (-0.55, 0.65), (0.35, -0.3))  # towards black or white, on light and on dark
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (5, 1.5, 1, 1.5), (1.5, 1.2), (8, 2))  # in line widths
MARKERS = (
    ("o", "circle"),
    ("s", "square"),
    ("^", "triangle-up"),
    ("D", "diamond"),
    ("v", "triangle-down"),
    ("P", "cross"),
    ("p", "pentagon"),
)
KNOWN = {  # method -> (colour, marker); those that often stand side by side have colours of their own
    "fedcef": (0, 0), "zhang": (1, 1), "fedda": (2, 2), "fedcanon": (3, 3), "fedavg": (5, 4), "scaffold": (4, 5),
    "fedmid": (7, 6), "fedprox": (6, 1), "feddr": (6, 0), "fedpd": (1, 4), "fedadmm": (7, 0), "fast_fedda": (2, 4),
    "c_fedda": (2, 6), "ef21_prox": (4, 0), "ef21": (4, 2), "ef21_sgdm": (4, 1), "ef21_pp": (4, 3), "ef21_bc": (4, 4),
    "ef14": (7, 1), "fed_ef": (7, 2), "econtrol": (3, 1), "scafcom": (3, 0), "scallion": (3, 2), "fedpaq": (5, 0),
    "qsparse": (5, 2), "fedcomgate": (1, 6), "fedcomloc": (1, 3), "scaffnew": (6, 2), "tamuna": (6, 3),
    "compressed_scaffnew": (6, 4), "locodl": (6, 5), "dasha_pp": (7, 4), "diloco": (2, 0), "sparseloco": (2, 1),
    "demo": (3, 5), "fetchsgd": (7, 5), "feddyn": (1, 0), "feddc": (1, 2), "fedadam": (5, 3), "fedyogi": (5, 5),
    "fedadagrad": (5, 6), "fedavgm": (5, 1), "fedbuff": (6, 6), "data_parallel": (7, 3),
}  # fmt: skip
FREE = [spot for spot in product(range(len(COLORS)), range(len(MARKERS))) if spot not in KNOWN.values()]  # for others
DOWNLINKS = {"increment": 0, "dense": 1, "snapshot": 2, "lossy": 3}  # how the server answers -> dash


@dataclass(frozen=True)
class Look:
    """How a curve is drawn."""

    color: str
    dark: str  # the colour on dark backgrounds
    dash: tuple[float, ...]
    marker: str  # matplotlib's name
    symbol: str  # plotly's name


@dataclass(frozen=True)
class _Identity:
    """What a curve shows: the method, its label, and of its settings those that the look tells of."""

    method: str
    label: str
    ratio: float
    downlink: str

    @property
    def wanted(self) -> tuple[int, int, int, int]:
        """Colour, shade, dash and marker, if nothing else looks like that."""
        color, marker = KNOWN.get(self.method) or FREE[_hashed(self.method, len(FREE))[0]]
        shade = sum(self.ratio < least for least in (0.05, 0.02, 0.005))
        return color, shade, DOWNLINKS.get(self.downlink, 0), marker

    @property
    def rank(self) -> tuple[str, bool, bool, int, str]:
        """Who comes first where two would look alike: those named after their method, and then by few words."""
        named = self.label.lower().startswith(self.method)
        return self.method, not named, "[" in self.label, len(self.label), self.label


def choose_looks(items: Sequence[Method]) -> list[Look]:
    """A look for every method; no two are alike among 140 variants of one method."""
    identities = [_identity(item) for item in items]
    taken: dict[tuple[int, int, int, int], _Identity] = {}
    found: dict[_Identity, Look] = {}
    for one in sorted(set(identities), key=lambda identity: identity.rank):  # whatever order they came in
        spot = next((spot for spot in _spots(one) if spot not in taken), one.wanted)
        taken[spot] = one
        found[one] = _look(*spot)
    return [found[one] for one in identities]


def legend_looks(groups: Sequence[Group]) -> list[Look]:
    """The looks by the positions in the legend that groups share."""
    by_place = {place: item for group in groups for item, place in zip(group.items, group.places, strict=True)}
    return choose_looks([by_place[place] for place in sorted(by_place)])


def distinct(names: Sequence[str], size: int) -> dict[str, int]:
    """A number below `size` for every name, by the name alone unless two would share one."""
    found: dict[str, int] = {}
    for name in sorted(set(names)):
        (first,) = _hashed(name, size)
        spots = [(first + i) % size for i in range(size)]
        found[name] = next((spot for spot in spots if spot not in found.values()), first)
    return found


def name_look(name: str) -> Look:
    """The look of anything else that has a name, such as a regulariser or a way to send: always the same."""
    color, marker = _hashed(name, len(COLORS), len(MARKERS))
    return _look(color, 0, 0, marker)


def _identity(item: Method) -> _Identity:
    compressor = item.records[0].section("compressor")
    sent = as_number(compressor.get("ratio")) if compressor.get("name") != "identity" else math.nan
    return _Identity(item.algorithm, item.label, sent, item.downlink)


def _spots(one: _Identity) -> list[tuple[int, int, int, int]]:
    """Where a curve could go, best first: its own place, other markers from one that its label decides on, the rest."""
    color, shade, dash, marker = one.wanted
    (first,) = _hashed(one.label, len(MARKERS))
    markers = [marker, *((first + i) % len(MARKERS) for i in range(len(MARKERS)))]
    dashes = [dash, *range(len(DASHES))]
    shades = [shade, *range(len(SHADES))]
    return [(color, s, d, m) for s, d, m in product(shades, dashes, markers)]


def _hashed(name: str, *sizes: int) -> tuple[int, ...]:
    """Numbers below the sizes that follow from a name, on every machine the same."""
    value, numbers = zlib.crc32(name.encode()), []
    for size in sizes:
        value, number = divmod(value, size)
        numbers.append(number)
    return tuple(numbers)


def _look(color: int, shade: int, dash: int, marker: int) -> Look:
    light, dark = (_shaded(one, by) for one, by in zip(COLORS[color], SHADES[shade], strict=True))
    return Look(light, dark, DASHES[dash], *MARKERS[marker])


def _shaded(color: str, by: float) -> str:
    channels = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    end = 255 if by > 0 else 0
    return "#" + "".join(f"{round(c + abs(by) * (end - c)):02x}" for c in channels)
