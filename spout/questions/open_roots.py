"""The open roots of inputs, oldest first: ``windhover roots``.

Source: docs/design/protocol.md, section 5.3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.kafka.port import Log
from replay.records.headers import location, root_name
from spout.inspect.letter_rows import stored_moment
from spout.inspect.readings import OLD_MS
from spout.inspect.tables import Column, count, span
from spout.picture.database import Picture, time_column
from spout.picture.loader import PictureLoader, PicturePart
from spout.questions.asking import AnswerRow, BoundValues, ask_picture, number_of_row

ROOTS: Final = (
    Column("root", "root"),
    Column("group", "group"),
    Column("open for", "age_ms", span),
    Column("emitted", "emitted"),
    Column("times out in", "left_ms", span),
    Column("session", "session"),
    Column("acker", "acker", count),
    Column("as of", "as_of_ms", span),
)

NEVER: Final = "never"
"""The text for a root that never times out."""


@dataclass(frozen=True, slots=True)
class OpenRoots:
    """Open roots.

    Attributes:
        rows: those to show, the oldest first, with the columns of `ROOTS`.
        total: how many roots of that age are open.
        unknown: acker partitions without a State.
        old_ms: by acker partition the age of a State that is so old that more roots may be open.
    """

    rows: Sequence[Mapping[str, Any]]
    total: int
    unknown: Sequence[int]
    old_ms: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class RootPicture:
    """A picture of the open roots of some inputs, which reads on whenever it is asked."""

    _picture: Picture
    _loader: PictureLoader
    _inputs: Sequence[Input]

    def open_roots(self, *, older_than_ms: int, limit: int, now_ms: int) -> OpenRoots:
        """Read the States of all acker partitions; return the oldest open roots.

        At most `limit` roots are rows. Only roots that have been open for `older_than_ms` or longer
        count; `now_ms` is wall time.

        Raises what keeps it from a State, such as `TopicError` and `Disagreement`: a part of the
        roots would be taken for all.
        """
        self._loader.read_or_raise(now_ms)
        unknown, old_ms = self._unknown_ackers(now_ms)
        emitted_until = time_column(now_ms - older_than_ms)
        run_rows: BoundValues = {
            "topics": json.dumps(_topics_of(self._inputs)),
            "emitted_until": emitted_until,
            "rows_max": limit,
        }
        runs = ask_picture(self._picture, "open_roots", run_rows)
        rows: list[Mapping[str, Any]] = []
        for run in runs:
            row_of_run = _row_of_run(run, now_ms, is_old=run["acker"] in old_ms)
            first_offset = number_of_row(run, "offset")
            end_offset = number_of_row(run, "end_offset")
            # of the last run only as many as there is room for
            shown_end = min(end_offset, first_offset + limit - len(rows))
            names = [_root_name(run, offset) for offset in range(first_offset, shown_end)]
            rows += [{"root": name, **row_of_run} for name in names]
        count_values: BoundValues = {"emitted_until": emitted_until}
        (total,) = ask_picture(self._picture, "open_root_count", count_values)
        return OpenRoots(rows, number_of_row(total, "roots"), unknown, old_ms)

    def _unknown_ackers(self, now_ms: int) -> tuple[list[int], dict[int, int]]:
        """Return the acker partitions without a State, and the ages of old States by partition.

        Ages are in ms. An old State lacks roots that were emitted since.
        """
        bound: BoundValues = {"old_until": time_column(now_ms - OLD_MS)}
        without_state: list[int] = []
        old_ms: dict[int, int] = {}
        for row in ask_picture(self._picture, "unknown_ackers", bound):
            acker = number_of_row(row, "acker")
            if row["state_ms"] is None:
                without_state.append(acker)
            else:
                old_ms[acker] = now_ms - number_of_row(row, "state_ms")
        return without_state, old_ms


@contextmanager
def root_picture(log: Log, topics: Topics, inputs: Sequence[Input]) -> Iterator[RootPicture]:
    """Make a picture of the open roots of some inputs, as long as the context lasts."""
    with closing(Picture(has_payloads=False)) as picture:
        loader = PictureLoader(
            log,
            topics,
            picture,
            input_names=[input.name for input in inputs],
            parts={PicturePart.OPEN_ROOTS},
        )
        with closing(loader):
            yield RootPicture(picture, loader, inputs)


def _topics_of(inputs: Sequence[Input]) -> list[str]:
    """Return texts ``input topic``, as the query has topics: replay topics are the last ones."""
    by_id = sorted(inputs, key=lambda input: input.id)
    own_topics = [f"{input.name} {input.topic}" for input in by_id]
    return own_topics + [f"{input.name} {input.replay_topic}" for input in by_id]


def _row_of_run(run: AnswerRow, now_ms: int, *, is_old: bool) -> dict[str, Any]:
    """Return the columns that all roots of a run have in common; `now_ms` is wall time.

    `is_old`: the State that has them is old, so that no acker seems to work.
    """
    state_ms = number_of_row(run, "state_ms")
    left_ms: int | str | None
    if run["times_out_ms"] is None:
        left_ms = NEVER
    elif is_old:
        left_ms = None  # without an acker nothing times out, so it is unknown
    else:
        left_ms = number_of_row(run, "times_out_ms") - state_ms
    return {
        "input": run["input"],
        "group": run["consumer_group"],
        "age_ms": max(0, now_ms - number_of_row(run, "emitted_ms")),
        "emitted": stored_moment(run["emitted_at"]),
        "in_state": bool(run["is_held"]),
        "left_ms": left_ms,
        "session": f"{run['epoch']}/{run['session']}",
        "acker": run["acker"],
        "as_of_ms": max(0, now_ms - state_ms),
    }


def _root_name(run: AnswerRow, offset: int) -> str:
    """Return the name for people of the root at an offset of a run."""
    place = location(str(run["topic"]), number_of_row(run, "partition"), offset)
    return root_name(place, number_of_row(run, "generation"))
