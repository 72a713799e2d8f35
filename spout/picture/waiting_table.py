"""The table `waiting`: the lost roots in `_ack_due`, by the fold that all its readers ask."""

from __future__ import annotations

from acker.identity import Root
from acker.kafka.port import Record
from replay.records.due import Due, Pause, Progress, due_codec
from replay.records.due_fold import DueFold, Flawed, whole_entry
from spout.picture.database import ROWS_BUFFERED, Picture, Row
from spout.picture.holes import Holes
from spout.picture.places import SourceNames, origin_row


class WaitingTable:
    """Fills the table from the records of `_ack_due`, each of which it gets once.

    It is what keeps the entries of its fold: the last one of each key is a row.
    """

    def __init__(self, picture: Picture, names: SourceNames, holes: Holes) -> None:
        """Begin without an entry; `holes` collects records that cannot be read."""
        self._picture = picture
        self._names = names
        self._holes = holes
        # it calls `put` and `end` of this table for each entry
        self._due_fold: DueFold[Due] = DueFold(whole_entry, self)
        self._codec = due_codec()
        # by partition and key: the row that replaces that of the table; None: that row is deleted
        self._changed_rows: dict[tuple[int, str], Row | None] = {}

    def put_record(self, record: Record) -> None:
        """Apply a record to the fold; one that cannot be read is a row of `unknown`."""
        meaning = self._due_fold.put(record)
        if isinstance(meaning, Flawed):
            self._holes.note_record("waiting", record, meaning.why)
        if len(self._changed_rows) >= ROWS_BUFFERED:
            self.flush()

    def put(self, record: Record, root: Root, entry: Due) -> None:
        """Keep the row of a root's newest entry, in place of an earlier one; `_due_fold` calls it."""
        entry_name = _name_of(record)
        root_columns = self._names.root_row(root.source, root.position)
        if root_columns is None:  # the picture is not about its input
            self._changed_rows[entry_name] = None
            return
        last_loss = entry.history[-1] if entry.history else None
        row: dict[str, str | int | bool | None] = {
            **root_columns,
            **origin_row(entry.origin),
            "attempt": entry.attempt,
            "due_at": entry.due_ms,
            "dead": entry.dead,
            "is_blocked": entry.last_was_blocked,
            "is_aside": self._codec.is_aside(record.value),
            "first_emitted_at": entry.first_emitted_ms,
            "acker": record.partition,
            "entry": entry_name[1],
        }
        if last_loss is not None:
            row |= {
                "verdict": last_loss.reason.value,
                "operator": last_loss.operator,
                "error": last_loss.error,
                "message": last_loss.message,
                "lost_at": last_loss.emitted_ms + last_loss.age_ms,
            }
        self._changed_rows[entry_name] = row

    def end(self, record: Record, root: Root) -> None:
        """Forget the entry of a root, which waits no more: called by the fold."""
        self._changed_rows[_name_of(record)] = None

    def flush(self) -> None:
        """Write the changes that were collected."""
        self._picture.connection.executemany(
            "DELETE FROM waiting WHERE acker = ? AND entry = ?", list(self._changed_rows)
        )
        self._picture.insert("waiting", [row for row in self._changed_rows.values() if row is not None])
        self._changed_rows = {}

    @property
    def progress(self) -> dict[int, Progress]:
        """Up to where verdicts are accepted, by partition, as far as workers have said it."""
        return self._due_fold.progress

    def pauses(self) -> dict[int, Pause]:
        """Return the inputs whose replays are paused, by their ids."""
        return self._due_fold.paused()


def _name_of(record: Record) -> tuple[int, str]:
    """Return which entry a record writes or ends: its partition, and its key in hex."""
    return record.partition, (record.key or b"").hex()
