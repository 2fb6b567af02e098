"""Many runs by one command, as `compare`, `sweep` and `frontier` carry them out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from fedcef.cli.progress import progress
from fedcef.cli.terminal import say, show_frontier, show_paper, show_report, tell
from fedcef.core.errors import ConfigError, RunError
from fedcef.runs.run import next_folder
from fedcef.runs.settings import Reference
from fedcef.runs.sweep import Outcome, Planned, one_by_one, status, write_summary
from fedcef.runs.workers import side_by_side
from fedcef.simulation.workers import together

COLORS = {"finished": "", "diverged": "yellow", "failed": "red"}


@dataclass(frozen=True)
class Batch:
    """Runs in folders below `out`, and the command that resumes them."""

    runs: tuple[Planned, ...]
    out: Path
    command: str

    @classmethod
    def below(cls, out: Path | None, runs: Sequence[Planned]) -> Batch:
        """The runs below a folder, by default the next free one."""
        command = ["fedcef", *sys.argv[1:]]
        if out is None:
            names = {planned.config.name for planned in runs}
            out = next_folder(Path("runs"), names.pop() if len(names) == 1 else "sweep")
            command += ["--out", str(out)]  # else the same command would begin in the folder after it
        if out.exists() and not out.is_dir():
            raise RunError(f"{out} is a file, not a folder to write runs to; choose another --out.")
        placed = tuple(replace(planned, path=out / planned.path) for planned in runs)
        return cls(placed, out, shlex.join(command))

    def show(self) -> None:
        """What would be done."""
        standing = [(status(planned), planned) for planned in self.runs]
        for state, planned in standing:
            tell(f"{state:<12}{planned.path}  ({planned.name})")
        left = sum(state in ("new", "interrupted") for state, _ in standing)
        tell(f"{len(self.runs)} runs, {left} to do.")

    def carry_out(self, jobs: int = 1, paper: bool = False, frontier: Sequence[Reference] | None = None) -> None:
        """Run what is not done yet, write the report, and leave with the first error's code if there was one.

        The report can have the paper's figures, and a frontier beside some references.
        """
        with together() as processes:
            if processes is not None:
                raise ConfigError("torchrun splits one run over processes; start this command without it.")
        outcomes = self._outcomes(jobs)
        ended = [o.planned.path for o in outcomes if o.status != "failed"]
        for parent in dict.fromkeys(path.parent for path in ended):
            page = frontier is None or parent != self.out  # a frontier begins the page that it would have a second of
            show_report([path for path in ended if path.parent == parent], parent, page)
        if ended:
            write_summary(outcomes, self.out / "summary.csv")
            tell(f"Wrote {self.out / 'summary.csv'}")
        if ended and paper:
            show_paper(ended, self.out)
        if ended and frontier is not None:
            show_frontier(ended, self.out, frontier)
        failed = [outcome for outcome in outcomes if outcome.status == "failed"]
        for sentence in dict.fromkeys(outcome.sentence for outcome in failed):
            names = [outcome.planned.name for outcome in failed if outcome.sentence == sentence]
            say(f"Failed: {'; '.join(names)}: {sentence}", "red")
        if failed:
            sys.exit(failed[0].exit_code)

    def _outcomes(self, jobs: int) -> list[Outcome]:
        """How every run ended, in the order of the runs; other settings in a folder are refused before any work."""
        before = {planned.path: status(planned) for planned in self.runs}
        ended = {p.path: Outcome(p, before[p.path]) for p in self.runs if before[p.path] in ("finished", "diverged")}
        if ended:
            say(f"{len(ended)}/{len(self.runs)} done already")
        for outcome in ended.values():
            if outcome.status == "diverged":
                say(f"{outcome.planned.name} diverged in an earlier attempt; it is not run again", "yellow")
        left = [planned for planned in self.runs if planned.path not in ended]
        work = side_by_side(left, jobs, lambda note: say(note, "yellow")) if jobs > 1 else one_by_one(left, progress)
        try:
            with closing(work):
                for outcome in work:
                    ended[outcome.planned.path] = outcome
                    why = f": {outcome.sentence}" if outcome.sentence else ""
                    done = f"{len(ended)}/{len(self.runs)} done"
                    say(f"{done}: {outcome.planned.name} {outcome.status}{why}", COLORS[outcome.status])
        except KeyboardInterrupt:
            say(f"Interrupted, {len(ended)}/{len(self.runs)} done.  Resume with: {self.command}")
            sys.exit(130)
        return [ended[planned.path] for planned in self.runs]
