"""The note in which a worker writes down a call that hangs, before it ends itself: a file.

Spark runs a task again whose worker has ended. The first run of a task has its bolts in the worker
itself, and a worker that ends itself reports nothing to the driver. The next run has the bolts in a
child process. Where the call hangs again, its record fails by name. Where it does not,
nothing would say of which record it was: so the next run reads the note,
and reports the call as one that passed when it was made again.

The file is in the folder for temporary files, where the next run
finds it on the same machine. Where it is on another one, or somebody removes
the file, the log of the worker alone has the hang. No verdict depends on a
note.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from acker.untrusted import is_whole_number

NOTE_BYTES_MAX: Final = 200_000
"""A longer file is no note of a worker: 4,096 roots of 20 digits have some 90 kB."""

ROOTS_MAX: Final = 4_096
"""The most roots of a call that are noted: the lowest ones."""

_INDEX_END: Final = 1 << 63
"""Above all indices of roots, which are int64."""


class TaskPlace(NamedTuple):
    """Which task of a query it is: the same whenever it is run, also after a restart of the query.

    Attributes:
        query: its name.
        batch: the id of the micro-batch.
        operator: what the task runs.
        partition: the number of the task in its stage.
    """

    query: str
    batch: int
    operator: str
    partition: int


class HangNote(NamedTuple):
    """A call that hung: its bolt, and its roots, ascending, by index in the plan."""

    bolt: str
    roots: tuple[int, ...]


class HangNotes:
    """The note of one task: a run of the task may write it, and the next run reads it."""

    def __init__(self, place: TaskPlace, folder: Path | None = None) -> None:
        """Find the path of the file, which depends on task and user alone.

        `folder`: where it is; None: the folder for temporary files.
        """
        if folder is None:
            folder = Path(tempfile.gettempdir())
        task_hash = hashlib.sha256(json.dumps(place).encode()).hexdigest()[:32]
        self.path = folder / f"windhover-hang-{os.geteuid()}-{task_hash}.json"

    def write(self, note: HangNote) -> None:
        """Write the note, readable for this user alone; if that cannot be done, there is none."""
        roots = sorted(note.roots)[:ROOTS_MAX]
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
            # never through a link, nor into a file, that somebody else has put
            # there
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(self.path, flags, 0o600), "w", encoding="utf-8") as file:
                json.dump([note.bolt, roots], file)

    def read(self) -> HangNote | None:
        """Return the note; None: there is none, or a file that no worker of this user wrote."""
        try:
            # never through a link that somebody else has put there
            with open(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                # one byte more than a note has, to see whether the file is longer
                content = file.read(NOTE_BYTES_MAX + 1)
        except OSError:
            return None
        if len(content) > NOTE_BYTES_MAX:
            return None
        return _note_of(content)

    def remove(self) -> None:
        """Remove the note, if there is one: a run of the task has done all, and has reported it."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def _note_of(content: bytes) -> HangNote | None:
    """Return the note that a file has; None: no worker wrote this content."""
    try:
        bolt, roots = json.loads(content)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(bolt, str) or not isinstance(roots, list):
        return None
    if not all(map(_is_root, roots)):
        return None
    return HangNote(bolt, tuple(roots))


def _is_root(root: object) -> bool:
    """Return whether a value of a file may be an index of a root: a whole number of 64 bits."""
    return is_whole_number(root, -_INDEX_END, _INDEX_END)
