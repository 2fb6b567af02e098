"""The figure of a deal: what each client holds where they are few, how clients differ where they are many."""

from pathlib import Path
from typing import Any

import numpy as np

from fedcef.core.extras import needed
from fedcef.problems.holdings import Holdings
from fedcef.report.data.looks import COLORS
from fedcef.report.figures.figure import drawing, set_log_ticks

DRAWN_EACH = 50  # clients up to which each is drawn
POINTS = 1000  # of a curve over clients
(FIRST, _), (SECOND, _) = COLORS[:2]


def draw_holdings(holdings: Holdings, path: Path) -> None:
    """Draws what clients hold to a PNG, PDF or SVG file, by the suffix of `path`."""
    with drawing(path) as fig:
        if len(holdings.sizes) <= DRAWN_EACH:
            _draw_each(fig, holdings)
        else:
            _draw_many(fig, holdings)


def _draw_each(fig: Any, holdings: Holdings) -> None:
    """How many samples each client has; below, the classes that they are of, or the mean of their targets."""
    rows = len(holdings.classes) if holdings.counts is not None else 4 if holdings.mean_targets is not None else 0
    height = 0.24 * min(max(rows, 4), 40)
    fig.set_size_inches(7.2, 1.7 + (height if rows else 0.4))
    above, *below = np.atleast_1d(
        fig.subplots(2 if rows else 1, 1, sharex=True, height_ratios=(1.1, height)[: 1 + (rows > 0)])
    )
    clients = np.arange(len(holdings.sizes))
    _prepare(above, "" if rows else "Client", "Samples")
    above.bar(clients, holdings.sizes, width=0.72, color=FIRST)
    above.set_xlim(-0.7, len(clients) - 0.3)
    above.set_xticks(clients[:: -(-len(clients) // 25)])
    for ax in below:
        if holdings.counts is not None:
            _discs(ax, holdings)
        else:
            _prepare(ax, "Client", "Mean target")
            ax.plot(clients, holdings.mean_targets, color=FIRST, marker="o", ms=5, ls="none")


def _discs(ax: Any, holdings: Holdings) -> None:
    """Areas in proportion to a class's share of its client; the largest disc just fills its cell."""
    _prepare(ax, "Client", "Class (area: share of the client)")
    client, label = np.nonzero(holdings.shares)
    ax.set_ylim(-0.6, len(holdings.classes) - 0.4)
    ticks = np.arange(0, len(holdings.classes), -(-len(holdings.classes) // 20))
    ax.set_yticks(ticks, [str(holdings.classes[i]) for i in ticks])
    ax.figure.draw_without_rendering()  # discs are measured in points: how large is a cell on paper?
    box = ax.get_window_extent()
    cell = min(box.width / (len(holdings.sizes) + 0.4), box.height / (len(holdings.classes) + 0.2))
    largest = (0.94 * cell * 72 / ax.figure.dpi) ** 2
    areas = largest * holdings.shares[client, label] / holdings.shares.max()
    ax.scatter(client, label, s=areas, color=FIRST, linewidths=0)


def _draw_many(fig: Any, holdings: Holdings) -> None:
    """Sizes in falling order; of classes, how far clients are from all, and how few make up most of a client.

    Where targets are numbers, how clients' means are spread.
    """
    panels = [_falling]
    panels += [_distances, _concentration] if holdings.counts is not None else []
    panels += [_mean_targets] if holdings.mean_targets is not None else []
    fig.set_size_inches((3.5, 5.4, 7.2)[len(panels) - 1], 2.5)
    fig.get_layout_engine().set(w_pad=0.06, wspace=0.05)
    for ax, draw in zip(np.atleast_1d(fig.subplots(1, len(panels))), panels, strict=True):
        draw(ax, holdings)


def _falling(ax: Any, holdings: Holdings) -> None:
    _prepare(ax, "Clients, largest first (%)", "Samples of the client")
    ranks = np.unique(np.geomspace(1, len(holdings.sizes), POINTS).round()) - 1  # close together where sizes are large
    ranks = np.union1d(ranks, np.linspace(0, len(holdings.sizes) - 1, POINTS).round()).astype(np.int64)
    falling = np.sort(holdings.sizes)[::-1][ranks]
    at = 100 * (ranks + 0.5) / len(holdings.sizes)
    ax.plot(at, falling, color=FIRST, lw=1.5)
    ax.axhline(holdings.sizes.mean(), color="#777777", lw=0.9, ls=(0, (4, 2)))
    ax.annotate("mean", (99, holdings.sizes.mean()), (0, 2), textcoords="offset points", ha="right", color="#555555")
    low, high = max(1, int(falling.min())), max(1, int(falling.max()))
    ax.set_yscale("log")
    margin = 1.1 if high > 4 * low else 2  # where all are much alike, that is seen, and not their last digits
    ax.set_ylim(low / margin, high * margin)
    ax.set_xlim(0, 100)
    set_log_ticks(ax.yaxis, 1.3 * high / low)


def _distances(ax: Any, holdings: Holdings) -> None:
    _prepare(ax, "Distance of its labels from all", "Clients (%)")
    weights = np.full(len(holdings.sizes), 100 / len(holdings.sizes))
    highest = ax.hist(holdings.distances, bins=40, range=(0, 1), weights=weights, color=FIRST)[0].max()
    ax.set_ylim(0, 1.18 * highest)
    mean = holdings.distances.mean()
    ax.axvline(mean, color=SECOND, lw=1.2)
    side = -1 if mean > 0.6 else 1
    place = {"textcoords": "offset points", "ha": "left" if side > 0 else "right", "va": "top", "color": SECOND}
    ax.annotate(f"mean {mean:.2f}", (mean, 0.99), (3 * side, 0), xycoords=("data", "axes fraction"), **place)
    ax.set_xlim(0, 1)


def _mean_targets(ax: Any, holdings: Holdings) -> None:
    _prepare(ax, "Mean target of the client", "Clients (%)")
    weights = np.full(len(holdings.sizes), 100 / len(holdings.sizes))
    ax.hist(holdings.mean_targets, bins=40, weights=weights, color=FIRST)


def _concentration(ax: Any, holdings: Holdings) -> None:
    """A client's classes in falling order of its samples: quantiles over the clients of each one's share."""
    _prepare(ax, "Its classes, most frequent first", "Share of its samples (%)")
    shown = min(len(holdings.classes), 20)
    falling = 100 * np.sort(holdings.shares, axis=1)[:, ::-1][:, :shown]
    low, first, middle, third, high = np.quantile(falling, (0.05, 0.25, 0.5, 0.75, 0.95), axis=0)
    place = np.arange(1, shown + 1)
    band = {"color": FIRST, "linewidth": 0}
    ax.fill_between(place, low, high, alpha=0.16, label="90% of clients", **band)
    ax.fill_between(place, first, third, alpha=0.3, label="50%", **band)
    ax.plot(place, middle, color=FIRST, lw=1.5, marker="o", ms=3.2, label="median")
    everyone = 100 * np.sort(holdings.totals / max(1, holdings.totals.sum()))[::-1][:shown]
    ax.plot(place, everyone, color="#777777", lw=0.9, ls=(0, (4, 2)), label="all together")
    ax.set_xlim(0.6, shown + 0.4)
    ax.set_ylim(0, max(4.0, 1.06 * float(high.max())))
    ax.xaxis.set_major_locator(needed("matplotlib.ticker", "figures", "plot").MaxNLocator(nbins=10, integer=True))
    ax.legend(frameon=False, fontsize=7.4)


def _prepare(ax: Any, x: str, y: str) -> None:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.grid(True, color="#e6e6e6", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
