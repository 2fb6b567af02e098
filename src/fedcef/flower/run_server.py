"""A server's run from its settings to its summary: a new one, or one to go on with."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from flwr.supercore.run import RunNotRunningException
from httpx import TransportError

from fedcef.core.errors import DivergedError, FedcefError, RunError
from fedcef.deployment import Coordinator, without_data
from fedcef.deployment.changed_settings import accept_changes
from fedcef.deployment.measures import measures_of, unmeasured
from fedcef.deployment.server_state import Evaluate
from fedcef.deployment.simulated_only import refuse_simulated_sections
from fedcef.flower.mail import Grid
from fedcef.flower.round_loop import RoundLoop, Stopped
from fedcef.flower.settings import Values, experiment, resumed, run_folder
from fedcef.flower.telling import End, end, show, show_round, tell
from fedcef.problems.problem import Problem
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.kinds import refuse_simulated
from fedcef.runs.reader import Record
from fedcef.runs.settings import Settings

LOST_S = 30.0
"""How long a server waits for a SuperLink that does not answer.  One that was killed has given up the run anyway."""


def run_server(grid: Grid, run_config: Values) -> Record | None:
    """Run to the end and return the summary; None if somebody stopped it."""
    how: End = "refused"
    folder: Path | None = None
    try:
        settings, folder = experiment(run_config), resumed(run_config)
        with ExitStack() as held:
            if folder is None:
                server = _begun(settings, run_folder(run_config, settings.name))
                folder = server.state.folder.path
                held.enter_context(server.state.folder.locked())
            else:
                refuse_simulated(folder)
                held.enter_context(RunFolder.open(folder).locked())  # recovery writes
                server = _recovered(settings, folder)
            how = "failed"
            with _remembering(server):
                return _run(grid, server, settings)
    except Exception as error:  # also one that is nobody's sentence: whoever is called at the end must hear of it
        end(how, folder, _in_words(error))
        raise


def _run(grid: Grid, server: Coordinator, settings: Settings) -> Record | None:
    path = server.state.folder.path
    show(f"Run folder: {path}; {server.round} of {settings.rounds} rounds are over.")
    if settings.eval.optimum:
        tell("The exact optimum (eval.optimum) is found by the simulator only; the records of this run have no gap.")
    with _signals():
        try:
            with _losing_the_superlink(grid, server):
                summary = RoundLoop(grid, server, watch=lambda record: show_round(record, settings), tell=tell).run()
        except Stopped:
            said = f"Stopped after {server.round} rounds, which are safe.  {_resume(path)}"
            tell(said)
            server.state.remember(said)
            end("stopped", path, said)
            return None
        except DivergedError:
            server.state.finish("diverged")
            raise
        except RunError as error:
            said = str(error)
            raise RunError(said if "resume" in said else f"{said}  Mend that.  {_resume(path)}") from None
    show(f"Finished: {path}")
    end("finished", path, "")
    return summary


@contextmanager
def _losing_the_superlink(grid: Grid, server: Coordinator) -> Iterator[None]:
    """Say so when the SuperLink is gone, or has given up the run; Flower would try for ever, or call it stopped."""
    invoker = getattr(grid, "_retry_invoker", None)  # of Flower's grid over HTTP
    if invoker is not None:
        invoker.max_time = LOST_S
    safe = f"{server.state.folder.path} is safe.  Start the SuperLink again if it is not there.  "
    try:
        yield
    except _Orphaned:
        why = "The SuperLink of this run has ended: it was stopped or killed, or has crashed"
        raise RunError(f"{why}; {safe}{_resume(server.state.folder.path)}") from None
    except TransportError as error:
        why = f"The SuperLink has not answered for more than {LOST_S:.0f} s ({str(error) or type(error).__name__})"
        raise RunError(f"{why}; {safe}{_resume(server.state.folder.path)}") from None
    except RunNotRunningException:
        why = "For the SuperLink this run is over: it was stopped, or the SuperLink was started again"
        raise RunError(f"{why}; {safe}{_resume(server.state.folder.path)}") from None


@contextmanager
def _remembering(server: Coordinator) -> Iterator[None]:
    """Keep in the run folder why its server ended: what it prints is lost with the SuperLink."""
    try:
        yield
    except Exception as error:
        server.state.remember(_in_words(error))
        raise


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, FedcefError) else f"{type(error).__name__}: {error}"


def _begun(settings: Settings, path: Path) -> Coordinator:
    refuse_simulated_sections(settings)  # before anything is loaded
    problem = settings.build_problem(())
    evaluate = _measures(settings, problem)
    return Coordinator.new(settings, without_data(problem), path, evaluate=evaluate, tell=tell)


def _recovered(settings: Settings, path: Path) -> Coordinator:
    problem = settings.build_problem(())
    if said := accept_changes(path, load_settings(str(RunFolder.open(path).config)), settings, without_data(problem)):
        tell(said)
    evaluate = _measures(settings, problem)
    return Coordinator.recover(
        path, without_data(problem), deployment=settings.deployment, evaluate=evaluate, tell=tell
    )


def _measures(settings: Settings, problem: Problem) -> Evaluate:
    """What the server records, having said what it cannot."""
    if said := unmeasured(settings, problem):
        tell(said)
    return measures_of(settings, problem)


def _resume(path: Path) -> str:
    return f"Go on with the same command and --run-config 'resume=\"{path}\"'."


class _Orphaned(Exception):
    """The process that started this one is gone."""


@contextmanager
def _signals() -> Iterator[None]:
    """The first signal that asks to stop raises Stopped, also out of a call that waits for Flower; whoever catches it
    leaves by Flower's own handler.  A kill at any moment loses nothing, so neither does this.

    Flower sends its processes SIGINT, too, when the one that started them is gone, as it is when a SuperLink was
    killed; nobody has asked for that.

    In Flower's simulation the server is not the main thread, and signals are not its business.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    parent = os.getppid()

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            raise _Orphaned if number == signal.SIGINT and os.getppid() != parent else Stopped

    before = {kind: signal.signal(kind, stop) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
    if came:
        signal.raise_signal(came[0])
