"""What a read task makes of a damaged batch: all else is handed out, and its own roots fail or are absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Message

from acker.errors import NOT_UNPACKED, TOO_LARGE, Damaged
from acker.identity import copies_source, position_at
from acker.kafka.port import DamagedRun
from acker.wire.causes import DAMAGED, HELD
from acker.wire.events import SourceRun
from spout.planning.order import LineUp
from spout.planning.plan import BatchPlan, ReadTask
from spout.publishing.blob import decode, encode
from spout.publishing.fold import TaskReport
from spout.publishing.publish import BatchLane, not_acked, publication_of
from spout.publishing.settle import settle
from spout.streaming import read_task
from spout.streaming.consume import Share
from spout.streaming.options import SourceOptions
from tests.support.outcomes import absent_of
from tests.support.reports import failures_in, reported
from tests.support.worlds.topology_world import SOURCE, TOPICS

RECORDS = 12
WHY = "its checksum is wrong; in a test"
MARKER = 3
"""An offset that has no record, as behind a transaction."""


class Log:
    """Stands for `TaskReader`: offsets 4 to 7 cannot be read; a record's key is one of two."""

    why = WHY

    def __init__(self, _kafka: object, _shares: object) -> None:
        self.lost = 0
        self.damaged: list[DamagedRun] = []

    def close(self) -> None:
        """Do nothing."""

    def chunks(self, share: Share) -> Iterator[list[Message]]:
        """Return what lies before the damage, note it, and return the rest two records at a time."""
        readable = [offset for offset in range(share.start, share.end) if offset != MARKER]
        yield [self._record(offset) for offset in readable if offset < 4]
        self.damaged.append(DamagedRun("lines", 0, 4, 8, self.why))
        behind = [offset for offset in readable if offset >= 8]
        for first in range(0, len(behind), 2):
            yield [self._record(offset) for offset in behind[first : first + 2]]

    def _record(self, offset: int) -> Message:
        key, value = b"k%d" % (offset % 2), b"%d" % offset
        return Message(topic="lines", partition=0, offset=offset, key=key, value=value)


def read(
    monkeypatch: pytest.MonkeyPatch,
    *,
    order: Mapping[int, LineUp] | None = None,
    source: int = SOURCE,
    tracked: bool = True,
    fails: bool = True,
) -> tuple[list[int], TaskReport | None]:
    """Let a task read a share; return the offsets that it handed out, and its report."""
    reports: list[TaskReport | None] = []
    monkeypatch.setattr(read_task, "TaskReader", Log)
    monkeypatch.setattr(read_task, "add_report", lambda _ledger, _stream, report: reports.append(report))
    run = SourceRun(source, position_at(0, 0), position_at(0, RECORDS))
    plan = BatchPlan("g", "s", 1, 2, 7, 30_000, True, (run,))
    task = ReadTask(plan, (run,), {source: "lines"}, order or {})
    options = SourceOptions(
        TOPICS,
        ("lines",),
        "q",
        ledger=object(),
        tracked=tracked,
        fail_on_data_loss=fails,  # type: ignore[arg-type]
    )
    handed_out = [
        int(value) for batch in read_task.read(task, options) for value in batch.column("value").to_pylist()
    ]
    [report] = reports
    return handed_out, report


def roots_of(report: TaskReport, error: str) -> list[int]:
    return [root for cause, roots in failures_in(report) if cause.error == error for root in roots.tolist()]


@pytest.mark.parametrize("source", [SOURCE, copies_source(SOURCE)], ids=["source", "replay_topic"])
def test_records_around_a_damaged_batch_are_handed_out_and_its_own_fail(
    monkeypatch: pytest.MonkeyPatch, source: int
) -> None:
    """O354: none of its offsets is acked or absent; the cause has place and checksum, and no operator."""
    handed_out, found = read(monkeypatch, source=source)
    assert found is not None
    report = decode(encode(found))
    assert handed_out == [0, 1, 2, 8, 9, 10, 11]
    assert roots_of(report, DAMAGED) == [4, 5, 6, 7]
    [(cause, _)] = failures_in(report)
    assert (cause.operator, cause.message) == ("", f"offsets 4 to 7 of lines/0 cannot be read: {WHY}")
    assert [(run.start, run.end) for run in absent_of(report.missing)] == [(3, 4)], "the marker alone"
    outcome = settle([reported(1, 0, 0, report)], (), lambda _stage: 1)
    assert outcome.stops_for_damage
    assert [run[1:4] for run in outcome.missing.damaged] == [(0, 4, 8)]
    published = publication_of(outcome, BatchLane("q/s", 0))
    [acks], [fails] = published.acks, published.fails
    assert [(run.start, run.end) for run in acks.runs] == [(0, 3), (8, 12)]
    assert [(run.start, run.end) for run in acks.absent] == [(3, 4)]
    assert [cause.error for cause in fails.causes] == [DAMAGED]


@pytest.mark.parametrize(
    ("why", "error"), [(f"{TOO_LARGE}200,000,000 bytes", "OVERSIZED"), (NOT_UNPACKED, "NOT_UNPACKED")]
)
def test_what_cannot_be_read_for_another_reason_fails_by_its_name(
    monkeypatch: pytest.MonkeyPatch, why: str, error: str
) -> None:
    """O1918: and the query ends behind it as behind a damaged batch."""
    monkeypatch.setattr(Log, "why", why)
    _, report = read(monkeypatch)
    assert report is not None
    assert (roots_of(report, error), roots_of(report, DAMAGED)) == ([4, 5, 6, 7], [])
    assert settle([reported(1, 0, 0, decode(encode(report)))], (), lambda _stage: 1).stops_for_damage


def test_with_on_data_loss_skip_they_are_absent_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """O355: the query goes on; what was passed over is in the outcome, for the log and the counts."""
    handed_out, report = read(monkeypatch, fails=False)
    assert report is not None
    assert (handed_out, failures_in(report)) == ([0, 1, 2, 8, 9, 10, 11], ())
    absent_runs = [(run.start, run.end) for run in absent_of(report.missing)]
    assert absent_runs == [(3, 8)], "the marker before it as well"
    outcome = settle([reported(1, 0, 0, decode(encode(report)))], (), lambda _stage: 1)
    assert not outcome.stops_for_damage
    assert [run[2:4] for run in outcome.missing.damaged] == [(4, 8)]


def test_nothing_passes_a_damaged_batch_of_an_ordered_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """O356: nobody knows the keys of its records, so each later one may come behind one of them."""
    for by in ("key", "partition"):
        handed_out, report = read(monkeypatch, order={SOURCE: LineUp(by)})
        assert report is not None
        assert handed_out == [0, 1, 2]
        assert (roots_of(report, DAMAGED), roots_of(report, HELD)) == ([4, 5, 6, 7], [8, 9, 10, 11])
        outcome = settle([reported(1, 0, 0, report)], (), lambda _stage: 1)
        assert not_acked(outcome) is None, "the next batch waits for all verdicts"
        handed_out, report = read(monkeypatch, order={SOURCE: LineUp(by)}, fails=False)
        assert handed_out == [0, 1, 2, 8, 9, 10, 11], "with skip they are absent, and nothing waits for them"


def test_an_untracked_query_ends_at_a_damaged_batch_or_skips_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """O357: nothing of it could be failed, so that nobody would learn what is missing."""
    with pytest.raises(Damaged, match=r"lines/0@4: a batch there is damaged.*checksum.*on_data_loss: skip"):
        read(monkeypatch, tracked=False)
    assert read(monkeypatch, tracked=False, fails=False) == ([0, 1, 2, 8, 9, 10, 11], None)
