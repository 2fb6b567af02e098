"""A server's run from its settings to its summary: a new one, or one to go on with."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from fedcef.core.errors import DivergedError
from fedcef.deployment import Coordinator, without_data
from fedcef.deployment.changed_settings import accept_changes
from fedcef.deployment.measures import measures_of
from fedcef.flower.mail import Grid
from fedcef.flower.round_loop import RoundLoop, Stopped
from fedcef.flower.settings import Values, experiment, resumed, run_folder
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.kinds import refuse_simulated
from fedcef.runs.reader import Record
from fedcef.runs.settings import Settings


def run_server(grid: Grid, run_config: Values) -> Record | None:
    """Run to the end and return the summary; None if somebody stopped it."""
    settings, folder = experiment(run_config), resumed(run_config)
    with ExitStack() as held:
        if folder is None:
            server = _begun(settings, run_folder(run_config, settings.name))
            held.enter_context(server.state.folder.locked())
        else:
            refuse_simulated(folder)
            held.enter_context(RunFolder.open(folder).locked())  # recovery writes
            server = _recovered(settings, folder)
        return _run(grid, server, settings)


def _run(grid: Grid, server: Coordinator, settings: Settings) -> Record | None:
    path = server.state.folder.path
    _show(f"Run folder: {path}; {server.round} of {settings.rounds} rounds are over.")
    if settings.eval.optimum:
        _tell("The exact optimum (eval.optimum) is found by the simulator only; the records of this run have no gap.")
    with _signals():
        try:
            summary = RoundLoop(grid, server, watch=_progress(settings), tell=_tell).run()
        except Stopped:
            _tell(_interrupted(server.round, path))
            return None
        except DivergedError:
            server.state.finish("diverged")
            raise
    _show(f"Finished: {path}")
    return summary


def _begun(settings: Settings, path: Path) -> Coordinator:
    problem = settings.build_problem(())
    evaluate = measures_of(settings, problem)
    return Coordinator.new(settings, without_data(problem), path, evaluate=evaluate, tell=_tell)


def _recovered(settings: Settings, path: Path) -> Coordinator:
    problem = settings.build_problem(())
    if said := accept_changes(path, load_settings(str(RunFolder.open(path).config)), settings, without_data(problem)):
        _tell(said)
    evaluate = measures_of(settings, problem)
    return Coordinator.recover(
        path, without_data(problem), deployment=settings.deployment, evaluate=evaluate, tell=_tell
    )


def _interrupted(rounds: int, path: Path) -> str:
    return (
        f"Stopped after {rounds} rounds, which are safe.  Go on with the same command and --run-config "
        f"'resume=\"{path}\"'."
    )


def _show(line: str) -> None:
    print(line, flush=True)


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _progress(settings: Settings) -> Callable[[Record], None]:
    """A line for every evaluated round."""

    def watch(record: Record) -> None:
        if not settings.is_evaluated(record["round"]):
            return
        measures = [f"accuracy {100 * record['accuracy']:.1f}%"] if "accuracy" in record else []
        measures += [f"objective {record['objective']:.4g}"] if "objective" in record else []
        up, down = record["transport_up_bytes"], record["transport_down_bytes"]
        parts = [
            f"round {record['round']}/{settings.rounds}",
            *measures,
            f"{record['accepted']} clients",
            *([f"{record['refused']} refused"] if record["refused"] else []),
            f"{up / 1e6:.3f} MB up, {down / 1e6:.3f} MB down",
            f"{record['wall_s']:.1f} s",
        ]
        _show("  ".join(parts))

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
