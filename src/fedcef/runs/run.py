"""A run in a folder, from its settings to its summary."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from fedcef.core.errors import DivergedError, RunError
from fedcef.core.parts import is_path
from fedcef.problems.problem import Problem
from fedcef.runs.along import by_part, is_first, run_along, share, without_clients
from fedcef.runs.extending import counts_rounds, extend, is_longer
from fedcef.runs.facts import client_facts, message_facts
from fedcef.runs.folder import RunFolder, changes
from fedcef.runs.kinds import refuse_deployed
from fedcef.runs.loop import Loop, Watcher
from fedcef.runs.measures import Measuring
from fedcef.runs.reader import Record, RunReader
from fedcef.runs.settings import Settings
from fedcef.runs.sinks import FolderSink
from fedcef.runs.summary import summary_of
from fedcef.simulation.optimum import solve
from fedcef.simulation.simulation import Simulation


def run(settings: Settings, folder: RunFolder, *, resume: bool = False, watch: Watcher = lambda record: None) -> Record:
    """Run to the end and return the summary; a run that diverges raises after its summary is written.

    One that is finished already is left as it is, unless the settings give it more rounds.
    """
    if not is_first():
        return run_along(settings)
    if resume:
        refuse_deployed(folder.path)
    longer = resume and is_longer(folder, settings.rounds)
    if share(resume and folder.is_finished and not longer):
        watch({"note": f"The run in {folder.path} is finished; nothing was changed."})
        return folder.read_summary()
    problem = settings.build_problem()
    algorithm = settings.build_algorithm(problem)
    simulation = Simulation(problem, algorithm, settings, folder=folder.path)
    optimum = _optimum(settings, simulation.problem) if settings.eval.optimum else None
    measuring = Measuring(simulation.problem, simulation.algorithm.step, settings, optimum)
    with folder.locked():
        if resume:
            said = [extend(folder, settings, algorithm)] if longer else []
            snapshot = folder.read_snapshot(may_be_longer=not counts_rounds(settings, algorithm))
            if longer and snapshot is None:
                said.append("There is no snapshot to go on from: all rounds are computed again.")
            share(without_clients(snapshot))
            if snapshot is not None:
                _restore(simulation, *snapshot, folder)
            loop = Loop(simulation, measuring, FolderSink(folder, folder.logged_frames()), watch)
            return _go_on(settings, folder, loop, said)
        folder.create(settings.to_toml())
        share(None)
        return _to_the_end(settings, Loop(simulation, measuring, FolderSink(folder), watch), folder, [])


def next_folder(parent: Path, name: str) -> Path:
    """A folder for a run that was given none: runs/NAME-1, runs/NAME-2, …"""
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"


def _go_on(settings: Settings, folder: RunFolder, loop: Loop, said: list[str]) -> Record:
    """Cut off what was recorded after the snapshot from which the simulation goes on, and go on."""
    here = loop.simulation.round
    for sentence in (*said, *folder.cut(here)):
        loop.tell(here, sentence)
    records = folder.records()
    return _to_the_end(settings, loop, folder, records if settings.stop else records[-1:])


def _to_the_end(settings: Settings, loop: Loop, folder: RunFolder, earlier: list[Record]) -> Record:
    simulation = loop.simulation
    facts = {"clients": client_facts(simulation.problem), **_data_facts(settings, folder, simulation.problem)}
    if not folder.facts.exists():
        folder.save_facts(facts)
    share(earlier)
    try:
        loop.to_the_end(earlier)
    except DivergedError:
        folder.save_summary(summary_of(settings, loop, "diverged"))
        raise
    trained = simulation.problem.state_dict(simulation.model().cpu(), statistics=simulation.statistics())
    folder.save_model(trained, simulation.round)
    if loop.down is not None:
        folder.save_facts({**facts, "messages": message_facts(simulation, loop.down)})
    summary = summary_of(settings, loop, "finished")
    folder.save_summary(summary)
    return summary


def _data_facts(settings: Settings, folder: RunFolder, problem: Problem) -> Record:
    """What data and frozen parameters were found to be; others than those that a run began with are refused."""
    found = settings.found_data()
    if is_path(settings.data["name"]) and (frozen := problem.base_digest):
        found = {**found, "frozen": frozen.hex()}
    begun = {**found, **RunReader(folder.path).facts.get("data", {})}
    if begun != found:
        raise RunError(
            f"The data of the run in {folder.path} have changed since it began: {changes(begun, found)}; restore "
            "them, or begin another run."
        )
    return {"data": found} if found else {}


def _restore(simulation: Simulation, round_: int, tensors: dict[str, Tensor], folder: RunFolder) -> None:
    try:
        simulation.restore(round_, by_part(tensors))
    except (ValueError, KeyError) as error:
        raise RunError(
            f"The snapshot in {folder.path} does not fit its config.toml: {error}; go on with the version of fedcef "
            "that began the run, restore the folder from a copy, or begin another run."
        ) from None


_optima: dict[str, float] = {}


def _optimum(settings: Settings, problem: Problem) -> float:
    """F*, solved once for all the runs of a comparison that share the problem."""
    defining = {"seed", "num_clients", "weighting", "precision", "data", "model", "regularizer"}
    key = f"{settings.model_dump_json(include=defining)} {settings.eval.clients}"
    if key not in _optima:
        _, _optima[key] = solve(problem, weighting=settings.weighting, clients=settings.eval.clients)
    return _optima[key]
