"""A file of JSON lines that is still being written."""

from __future__ import annotations

import os
from pathlib import Path

from fedcef.runs.reader import Record, json_lines


class Lines:
    """Reads what was added since the last time; a last line that is half written waits for its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = 0  # its inode: a resumed run puts another file in its place
        self._at = 0

    def new(self) -> tuple[bool, list[Record]]:
        """Whether the file begins anew, and the objects that were added to it."""
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                again = self._at > 0 and (found.st_ino != self._file or found.st_size < self._at)
                self._file, self._at = found.st_ino, 0 if again else self._at
                file.seek(self._at)
                content = file.read()
        except OSError:  # not there yet
            return False, []
        whole = content[: content.rfind(b"\n") + 1]
        self._at += len(whole)
        # a damaged line is one that a kill cut short and a resume went on after
        return again, [line.entry for line in json_lines(whole) if line.entry is not None]
