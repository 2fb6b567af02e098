"""A server's run from its settings to its summary: a new one, or one to go on with."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fedcef.cli.terminal import say, tell
from fedcef.core.errors import ConfigError, DivergedError
from fedcef.deployment import Coordinator, without_data
from fedcef.deployment.identity import settings_digest
from fedcef.deployment.measures import measures_of
from fedcef.flower.mail import Grid
from fedcef.flower.round_loop import Drive, Stopped
from fedcef.flower.settings import Values, experiment, resumed, run_folder
from fedcef.runs.folder import Record, RunFolder
from fedcef.runs.settings import Settings, load_settings


def serve(grid: Grid, run_config: Values) -> Record | None:
    """Run to the end and return the summary; None if somebody stopped it."""
    config, folder = experiment(run_config), resumed(run_config)
    server = _opened(config, folder) if folder is not None else _begun(config, run_folder(run_config, config.name))
    path = server.books.folder.path
    tell(f"Run folder: {path}; {server.round} of {config.rounds} rounds are over.")
    if config.eval.optimum:
        say("The exact optimum (eval.optimum) is found by the simulator only; the records of this run have no gap.")
    with _signals():
        try:
            summary = Drive(grid, server, watch=_progress(config), tell=say).to_the_end()
        except Stopped:
            say(_interrupted(server.round, path))
            return None
        except DivergedError:
            server.books.finish("diverged")
            raise
    tell(f"Finished: {path}")
    return summary


def _begun(config: Settings, path: Path) -> Coordinator:
    problem = config.build_problem(())
    evaluate = measures_of(config, problem)
    return Coordinator.new(config, without_data(problem), path, terms=config.deployment, evaluate=evaluate, watch=say)


def _opened(config: Settings, path: Path) -> Coordinator:
    begun_with = load_settings(str(RunFolder.open(path).config))
    if settings_digest(begun_with) != settings_digest(config):
        raise ConfigError(f"The run in {path} was begun with other settings; give the same experiment and set as then.")
    problem = config.build_problem(())
    evaluate = measures_of(config, problem)
    return Coordinator.recover(path, without_data(problem), terms=config.deployment, evaluate=evaluate, watch=say)


def _interrupted(rounds: int, path: Path) -> str:
    return (
        f"Stopped after {rounds} rounds, which are safe.  Go on with the same command and --run-config "
        f"'resume=\"{path}\"'."
    )


def _progress(config: Settings) -> Callable[[Record], None]:
    """A line for every evaluated round."""

    def watch(record: Record) -> None:
        if record["round"] % config.eval.every and record["round"] != config.rounds:
            return
        measures = [f"accuracy {100 * record['accuracy']:.1f}%"] if "accuracy" in record else []
        measures += [f"objective {record['objective']:.4g}"] if "objective" in record else []
        up, down = record["transport_up_bytes"], record["transport_down_bytes"]
        parts = [
            f"round {record['round']}/{config.rounds}",
            *measures,
            f"{record['accepted']} clients",
            *([f"{record['refused']} refused"] if record["refused"] else []),
            f"{up / 1e6:.3f} MB up, {down / 1e6:.3f} MB down",
            f"{record['wall_s']:.1f} s",
        ]
        tell("  ".join(parts))

    return watch


@contextmanager
def _signals() -> Iterator[None]:
    """The first signal that asks to stop raises Stopped, also out of a call that waits for Flower; whoever catches it
    leaves by Flower's own handler.  A kill at any moment loses nothing, so neither does this.

    In Flower's simulation the server is not the main thread, and signals are not its business.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            raise Stopped

    before = {kind: signal.signal(kind, stop) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
    if came:
        signal.raise_signal(came[0])
