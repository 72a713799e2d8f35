"""What a worker writes down of a call that hangs before it ends itself, for the next attempt of its task.

The first attempt of a task runs its bolts in the worker itself, and a worker
that ends itself reports nothing to the driver. The next attempt runs isolated.
Where the call hangs again, its record fails by name. Where it does not,
nothing would say of which record it was: so the next attempt reads the note,
and reports the call as one that passed when it was made again.

The note is a file in the folder for temporary files, which the next attempt
finds on the same machine. Where it runs on another one, or somebody removes
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

NOTE_BYTES_MAX: Final = 200_000
"""A longer file is none of ours: 4,096 roots of 20 digits have some 90 kB."""

ROOTS_MAX: Final = 4_096
"""So many roots of a call are noted, the lowest ones."""

_INDEX_END: Final = 1 << 63


class TaskPlace(NamedTuple):
    """Where a task stands in a query: the same for all its attempts, also after a restart of the query."""

    query: str
    batch: int
    operator: str
    partition: int


class HangNote(NamedTuple):
    """A call that hung: its bolt, and the roots that it worked on, ascending, as the task names them."""

    bolt: str
    roots: tuple[int, ...]


class HangNotes:
    """The note of one task; an attempt may write it, and the next one reads it."""

    def __init__(self, place: TaskPlace, folder: Path | None = None) -> None:
        """Prepare; `folder` None: the one for temporary files."""
        name = hashlib.sha256(json.dumps(place).encode()).hexdigest()[:32]
        self.path = (folder or Path(tempfile.gettempdir())) / f"windhover-hang-{os.geteuid()}-{name}.json"

    def write(self, note: HangNote) -> None:
        """Write the note, for this user alone; where that cannot be done there is none."""
        roots = sorted(note.roots)[:ROOTS_MAX]
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
            # never through a link, nor into a file, that somebody else has put
            # there
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(self.path, flags, 0o600), "w", encoding="utf-8") as file:
                json.dump([note.bolt, roots], file)

    def read(self) -> HangNote | None:
        """Return the note; None: there is none, or one that no worker of this user wrote."""
        try:
            # never through a link that somebody else has put there
            with open(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                # one byte more than a note of ours has shows that the file is
                # longer
                written = file.read(NOTE_BYTES_MAX + 1)
        except OSError:
            return None
        if len(written) > NOTE_BYTES_MAX:
            return None
        return _note_of(written)

    def remove(self) -> None:
        """Remove the note, if there is one: an attempt has done all, and has reported it."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def _note_of(written: bytes) -> HangNote | None:
    """Return the note that a file has; None: no worker of ours wrote these bytes."""
    try:
        bolt, roots = json.loads(written)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(bolt, str) or not isinstance(roots, list):
        return None
    if not all(map(_is_root, roots)):
        return None
    return HangNote(bolt, tuple(roots))


def _is_root(root: object) -> bool:
    """Return whether a value of a file may be an index of a root: a whole number of 64 bits."""
    return isinstance(root, int) and not isinstance(root, bool) and -_INDEX_END <= root < _INDEX_END
