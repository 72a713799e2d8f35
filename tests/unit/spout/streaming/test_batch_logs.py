"""What Spark's offset log says of a batch: its offsets, its watermark, its start, and its clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from acker.errors import TrackingError
from acker.wire.events import SourceRun
from spout.planning.journal import BEGINNING, Journal, SourceMark
from spout.publishing.publish import BatchLane
from spout.streaming import batch_log
from spout.streaming.batch_log import Logged, batch_offset, logged, moment_of, refuse_repeats

SOURCE = 1 << 16


def offset(end: int, at_ms: int = 0, session: str = "s") -> Journal:
    """Return the offset behind a batch of ten records; the session's clock is a tenth of wall time."""
    marks = {SOURCE: SourceMark(0, end)}
    return Journal(session, 1, at_ms // 10, 2, marks, (SourceRun(SOURCE, end - 10, end),), at_ms=at_ms)


FIRST, SECOND = offset(10, 50_000), offset(20, 60_000)
UNTRACKED = offset(10, session="")


@dataclass
class Option:
    """One of Scala's options."""

    value: Any

    def isEmpty(self) -> bool:  # noqa: N802 - Scala's name
        return self.value is None

    def isDefined(self) -> bool:  # noqa: N802 - Scala's name
        return self.value is not None

    def get(self) -> Any:
        assert self.value is not None
        return self.value


@dataclass
class Entry:
    """An entry of the offset log: offsets of sources, None for one without; a watermark and a start."""

    reported: tuple[object, ...]
    watermark_ms: int | None = 0
    began_ms: int = 0

    def offsets(self) -> Any:
        offsets = [
            Option(None if text is None else SimpleNamespace(json=lambda text=text: text))
            for text in self.reported
        ]
        return SimpleNamespace(size=lambda: len(offsets), apply=lambda number: offsets[number])

    def metadata(self) -> Option:
        """Return it by the name that it has before Spark 4.2."""
        return self.metadataOpt()

    def metadataOpt(self) -> Option:  # noqa: N802 - Spark's name
        if self.watermark_ms is None:
            return Option(None)
        return Option(
            SimpleNamespace(
                batchWatermarkMs=lambda: self.watermark_ms, batchTimestampMs=lambda: self.began_ms
            )
        )


def text_of(journal: Journal) -> str:
    return json.dumps(journal.to_json())


class Query:
    """A query with an offset log, as py4j shows it."""

    def __init__(self, entries: Mapping[int, Entry], mode: str = "Append") -> None:
        self._entries = entries
        self._mode = mode
        self.asked: list[int] = []

    def offsetLog(self) -> Query:  # noqa: N802 - Spark's name
        return self

    def get(self, batch: int) -> Option | None:
        self.asked.append(batch)
        return Option(self._entries.get(batch))

    def outputMode(self) -> str:  # noqa: N802 - Spark's name
        return self._mode


@pytest.fixture(autouse=True)
def java_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let queries be their own Java side."""
    monkeypatch.setattr(batch_log, "java_query", lambda query: query)


def application_of(*queries: tuple[str, Query], started: Mapping[str, Query] | None = None) -> Any:
    """Return an application with a stream in each of two sessions; queries run in the second one."""
    running = dict(queries)
    sessions = [
        SimpleNamespace(streams=SimpleNamespace(get=lambda _query: None)),
        SimpleNamespace(streams=SimpleNamespace(get=running.get)),
    ]
    streams = [SimpleNamespace(session=session) for session in (sessions[0], sessions[0], sessions[1])]
    return SimpleNamespace(started=dict(started or {}), all_streams=lambda: tuple(streams))


def test_a_batch_has_the_offsets_before_and_behind_it_and_the_watermark_before_it() -> None:
    query = Query(
        {
            6: Entry((None, text_of(FIRST)), 5_000, 1),
            7: Entry((text_of(UNTRACKED), text_of(SECOND), text_of(FIRST)), 6_000, 61_000),
        }
    )
    expected = Logged(FIRST, SECOND, 5_000, 61_000)
    assert logged(application_of(("q", query)), BatchLane("q", 7)) == expected
    assert logged(application_of(started={"q": query}), BatchLane("q", 7)) == expected
    assert logged(application_of(("p", query)), BatchLane("q", 7)) is None, "it runs nowhere"


def test_a_query_that_was_started_here_is_asked_before_those_of_the_sessions() -> None:
    here, there = Query({0: Entry((text_of(FIRST),))}), Query({0: Entry((text_of(SECOND),))})
    entry = logged(application_of(("q", there), started={"q": here}), BatchLane("q", 0))
    assert entry is not None
    assert entry.end == FIRST
    assert there.asked == []


def test_the_first_batch_begins_where_nothing_was_emitted() -> None:
    query = Query({0: Entry((text_of(FIRST),), 9_000, 51_000)})
    assert logged(application_of(("q", query)), BatchLane("q", 0)) == Logged(BEGINNING, FIRST, 0, 51_000)
    assert query.asked == [0], "there is no batch before it"


@pytest.mark.parametrize("entry", [None, Entry(()), Entry((None,)), Entry((text_of(UNTRACKED), "7"))])
def test_a_batch_without_an_offset_of_a_tracked_stream_is_unknown(entry: Entry | None) -> None:
    query = Query({7: entry} if entry is not None else {})
    assert logged(application_of(("q", query)), BatchLane("q", 7)) is None


def test_an_entry_without_metadata_has_no_watermark() -> None:
    query = Query({6: Entry((text_of(FIRST),), None), 7: Entry((text_of(SECOND),), None)})
    assert logged(application_of(("q", query)), BatchLane("q", 7)) == Logged(FIRST, SECOND, 0, 0)


@pytest.mark.parametrize(
    "reported",
    [None, 7, "7", "[]", '{"topic": {"0": 5}}', '{"session": "s"}', '{"ranges": []}', {"session": 1}],
)
def test_an_offset_of_another_source_is_none_of_ours(reported: object) -> None:
    assert batch_offset(reported) is None


def test_an_offset_of_ours_is_read_as_text_and_as_a_value() -> None:
    assert batch_offset(text_of(FIRST)) == batch_offset(FIRST.to_json()) == FIRST


# the clock --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "began_ms", "now"),
    [
        pytest.param(FIRST, SECOND, 99_000, 6_000, id="it emitted records: the clock of its Init"),
        pytest.param(SECOND, SECOND, 60_700, 6_700, id="it emitted nothing: the clock has gone on since"),
        pytest.param(SECOND, SECOND, 59_000, 6_000, id="the wall clock was set back"),
        pytest.param(
            replace(SECOND, at_ms=0), replace(SECOND, at_ms=0), 60_700, 6_000, id="nobody knows since when"
        ),
    ],
)
def test_the_clock_of_a_batch_is_never_too_early_for_a_timeout_that_is_reset(
    start: Journal, end: Journal, began_ms: int, now: int
) -> None:
    batch = Logged(start, end, 0, began_ms)
    assert batch.now == now
    assert batch.emitted_nothing is (start == end)
    stream: Any = SimpleNamespace(group="g", partitions=4)
    moment = moment_of(stream, Logged(start, end, 5_000, began_ms))
    assert (moment.plan.now, moment.plan.group, moment.plan.partitions) == (now, "g", 4)
    assert moment.plan.ranges == (() if start == end else end.ranges)
    assert moment.late_ms == 5_000


# output modes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["Update", "Complete"])
def test_an_aggregate_that_is_written_again_and_again_acks_nothing(mode: str) -> None:
    application = application_of(("q", Query({}, mode)))
    with pytest.raises(TrackingError, match=f"output mode {mode.lower()} writes a row of an aggregate again"):
        refuse_repeats(application, BatchLane("q", 7))


def test_what_is_written_once_is_not_refused_nor_is_a_query_that_has_ended() -> None:
    append = Query({})
    for query in ("q", "p"):
        assert refuse_repeats(application_of(("q", append)), BatchLane(query, 7)) is None  # type: ignore[func-returns-value]
