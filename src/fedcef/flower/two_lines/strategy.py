"""The server's line: `strategy = fedcef.flower.Compressed(FedAvg(...), up="topk(0.01, sign)")`.

The wrapped strategy runs as it is, with its own `start`, over a grid that compresses (grid.py): what it samples, sends,
aggregates and keeps is its own business.  Only strategies that would silently go wrong are refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from contextlib import nullcontext
from logging import INFO
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from fedcef.compressors import Compressor
from fedcef.core.amounts import format_bytes
from fedcef.core.errors import ConfigError, RunError
from fedcef.flower.two_lines.channel import Channel
from fedcef.flower.two_lines.coding import key_of
from fedcef.flower.two_lines.counting import CountedGrid, PassingGrid, Tally
from fedcef.flower.two_lines.folder import Folder
from fedcef.flower.two_lines.grid import CompressedGrid
from fedcef.flower.two_lines.notation import HALF, compressor, first_compressor, is_exact, text_of
from fedcef.flower.two_lines.saved import load, save

_BY_COORDINATE = (strategies.FedMedian, strategies.FedTrimmedAvg, strategies.Bulyan)
_CLIPPED_BY_CLIENTS = (
    strategies.DifferentialPrivacyClientSideFixedClipping,
    strategies.DifferentialPrivacyClientSideAdaptiveClipping,
)


class Counted(Strategy):
    """A strategy that counts what it sends and is sent: bytes by round, direction and part.

    They are among the metrics of its result, as bytes-up, bytes-down, bytes-up-arrays and so on.

    Args:
        strategy: any of Flower's, or one of your own.
        folder: where to keep the rounds as a run that `fedcef report` opens; it must not hold one.
    """

    def __init__(self, strategy: Strategy, *, folder: str | Path | None = None) -> None:
        self.strategy = strategy
        self.tally: Tally | None = None
        self._folder = None if folder is None else self._at(Path(folder))

    def __getattr__(self, name: str) -> Any:
        if name == "strategy":
            raise AttributeError(name)
        return getattr(self.strategy, name)

    def start(self, grid: Grid, *args: Any, **kwargs: Any) -> Result:
        """Run the wrapped strategy to its end, as its own `start` does."""
        given = inspect.signature(self.strategy.start).bind(grid, *args, **kwargs)
        over = self._over(grid)
        given.arguments["grid"] = over
        with nullcontext() if self._folder is None else self._folder.locked():
            if self._folder is not None:
                self._begin(over, self._folder, given.arguments)
            result = self.strategy.start(*given.args, **given.kwargs)
            self._told(over, result)
        return result

    def summary(self) -> None:
        """Log what the wrapped strategy logs."""
        self.strategy.summary()

    def configure_train(self, *args: Any, **kwargs: Any) -> Iterable[Message]:
        """Not for others: see `start`."""
        raise self._inside_another()

    def aggregate_train(self, *args: Any, **kwargs: Any) -> Any:
        """Not for others: see `start`."""
        raise self._inside_another()

    def configure_evaluate(self, *args: Any, **kwargs: Any) -> Iterable[Message]:
        """Not for others: see `start`."""
        raise self._inside_another()

    def aggregate_evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Not for others: see `start`."""
        raise self._inside_another()

    def _inside_another(self) -> ConfigError:
        name = type(self).__name__
        return ConfigError(f"{name} must be the outermost strategy; write {name}(Other(FedAvg())), not the reverse.")

    def _settings(self) -> dict[str, Any]:
        return {"algorithm": {"name": type(self.strategy).__name__}}

    def _at(self, path: Path) -> Folder:
        return Folder(path, self._settings())

    def _begin(self, grid: PassingGrid, folder: Folder, arguments: dict[str, Any]) -> None:
        folder.begin(arguments, self._tallies(grid))

    def _over(self, grid: Grid) -> PassingGrid:
        return CountedGrid(grid)

    def _tallies(self, grid: PassingGrid) -> dict[str, Tally]:
        assert isinstance(grid, CountedGrid)
        return {"bytes": grid.tally}

    def _told(self, grid: PassingGrid, result: Result) -> None:
        """Put the bytes among the result's metrics, and on the disk."""
        tallies = self._tallies(grid)
        for prefix, tally in tallies.items():
            tally.close()
            for number, sizes in tally.rounds.items():
                if number and sizes.messages:
                    metrics = result.train_metrics_clientapp.setdefault(number, MetricRecord())
                    metrics.update(sizes.as_metrics(prefix))
        self.tally = tallies["bytes"]
        up, down = self.tally.total("up"), self.tally.total("down")
        log(INFO, f"{format_bytes(up)} went up and {format_bytes(down)} down{self._compared(tallies)}.")
        if self._folder is not None:
            self._folder.finish(result)

    def _compared(self, tallies: dict[str, Tally]) -> str:
        return ""


class Compressed(Counted):
    """A strategy whose messages are compressed both ways, with error feedback; clients need the mod `compressed()`.

    Args:
        strategy: any of Flower's, or one of your own; wrappers go inside.
        up: the compressor of what nodes have changed; "identity" sends models as they are.
        down: the compressor of what the model has changed; "identity" likewise.
        first: the compressor of the first model, which every node gets once: "half" for half precision, or one such as
            "eden(4)", whose error later messages correct.
        folder: where to keep the rounds as a run that `fedcef report` opens, and what the server needs to go on.
        resume: go on with the run in that folder, which was cut off: from its model, with the rounds that are left,
            counted from 1, and with what nodes remember.  A strategy's own momentum begins afresh.
    """

    def __init__(
        self,
        strategy: Strategy,
        up: str | Compressor = "topk(0.01, sign)",
        down: str | Compressor = "topk(0.02, sign)",
        *,
        first: str | Compressor = HALF,
        folder: str | Path | None = None,
        resume: bool = False,
    ) -> None:
        self.up, self.down, self.first = compressor(up, "up"), compressor(down, "down"), first_compressor(first)
        self._resume = resume
        refuse(strategy, self.up)
        if resume and folder is None:
            raise ConfigError("resume goes on with the run in a folder; give that folder, too.")
        super().__init__(strategy, folder=folder)

    def _at(self, path: Path) -> Folder:
        return Folder(path, self._settings(), resume=self._resume)

    def _begin(self, grid: PassingGrid, folder: Folder, arguments: dict[str, Any]) -> None:
        assert isinstance(grid, CompressedGrid)
        over, record = load(grid.server, folder.state) if self._resume else (0, {})
        if over:
            channel = self._started_with(grid.server.channels)
            arguments["initial_arrays"] = ArrayRecord(channel.model)
            arguments["num_rounds"] = max(0, arguments.get("num_rounds", 3) - over)
            log(INFO, f"{over} rounds of this run are over; {arguments['num_rounds']} are left.")
        grid.before_sending = lambda: save(
            grid.server, folder.state, over + grid.tally.round, folder.disk, folder.so_far()
        )
        folder.begin(arguments, self._tallies(grid), over, record)

    def _started_with(self, channels: dict[str, Channel]) -> Channel:
        """The model that the strategy's `start` takes, among those that were sent."""
        name = getattr(self.strategy, "arrayrecord_key", "arrays")
        if len(channels) != 1 and name not in channels:
            raise RunError(f"The run sent the models {', '.join(channels)}, and none is {name}; begin a new run.")
        return channels[name] if name in channels else next(iter(channels.values()))

    def _settings(self) -> dict[str, Any]:
        names = {"up": {"compressor": text_of(self.up)}, "down": {"compressor": text_of(self.down)}}
        begun = {} if self.first is None else {"first": {"compressor": text_of(self.first)}}
        return {**super()._settings(), **names, **begun}

    def _over(self, grid: Grid) -> PassingGrid:
        return CompressedGrid(grid, self.up, self.down, HALF if self.first is None else self.first)

    def _tallies(self, grid: PassingGrid) -> dict[str, Tally]:
        assert isinstance(grid, CompressedGrid)
        return {"bytes": grid.tally, "plain-bytes": grid.plain}

    def _compared(self, tallies: dict[str, Tally]) -> str:
        sent, plain = (sum(tallies[name].total(way) for way in ("up", "down")) for name in ("bytes", "plain-bytes"))
        return f", {plain / max(sent, 1):.0f} times less than the {format_bytes(plain)} without compression"


def refuse(strategy: Strategy, up: Compressor) -> None:
    """Refuse what would silently go wrong, in a sentence."""
    if is_exact(up):
        return
    inner: Any = strategy
    while isinstance(inner, Strategy):
        name = type(inner).__name__
        if isinstance(inner, Counted):
            raise ConfigError(f"{name} is inside another; one of them is enough, the outer one.")
        if isinstance(inner, _CLIPPED_BY_CLIENTS):
            raise ConfigError(
                f"{name} counts on models that clients have clipped, and error feedback sends more than that at times; "
                'clip on the server, or take up="identity".'
            )
        if isinstance(inner, strategies.QFedAvg):
            raise ConfigError(
                f"{name} weighs clients by the length of their change, which a compressed one does not have; take "
                'up="identity".'
            )
        if isinstance(inner, _BY_COORDINATE) and _leaves_most_out(up):
            raise ConfigError(
                f"{name} goes by what most clients say of a coordinate, and with {text_of(up)} most say nothing; take "
                'one that sends every coordinate, such as up="scaled_sign".'
            )
        inner = getattr(inner, "strategy", None)


def _leaves_most_out(up: Compressor) -> bool:
    probe = torch.linspace(-1.0, 1.0, 4096)
    decoded = up.compress(probe, key_of(b"", 0, 0)).dense()
    return int((decoded != 0).sum()) < len(probe) // 2
