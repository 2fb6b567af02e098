"""A file of JSON lines that is still being written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Lines:
    """Reads what was added since the last time; a last line that is half written waits for its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = 0  # its inode: a resumed run puts another file in its place
        self._at = 0

    def new(self) -> tuple[bool, list[dict[str, Any]]]:
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
        return again, [entry for line in whole.splitlines() if (entry := _object(line)) is not None]


def _object(line: bytes) -> dict[str, Any] | None:
    """A JSON object; None for a line that is none, such as one that a kill cut short and a resume went on after."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
