"""Compares the clocks of an installation's machines with the broker's, by the signs of life in its topics.

Whoever writes a sign of life says what its clock says (`acker.writer_clocks`), and the broker dates
the record: both stand in one record, so nothing has to be waited for. This machine writes nothing,
so it waits until somebody else does: the time of a record that comes meanwhile is the broker's of
now (`watch_clocks`).

Where a topic has ``CreateTime``, the times of records are their writers'. Then a writer is compared
with this machine: of a record that comes meanwhile both ways, of an older one only whether it is of
the future.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from acker.clock_watch import CLOCKS_APART_MS, MEASUREMENTS_MIN, SKEW_MS_MAX, Poll, skew_ms
from acker.clocks import clocks_differ, other_clock_text
from acker.kafka.port import Bound, Log, Record, TimestampType, TopicPartition
from acker.kafka.read_to_end import POLL_MS, pass_damage, poll_past_damage
from acker.writer_clocks import WriterTime

WATCH_MS: Final = 2_500
"""How long new records are watched for: a session without pending roots gives a sign of life every 2 s."""

YOUNG_MS: Final = 600_000
"""What was written longer ago says nothing of a clock now: somebody may have set it right."""

BROKERS: Final = "the broker's"
OURS: Final = "this machine's"


class WatchedClocks(NamedTuple):
    """What records said of clocks that came while somebody watched.

    Attributes:
        here_ahead_ms: by how much this machine's clock is ahead of the broker's at least; negative:
            behind;
            None: unknown, since no record came with the broker's time.
        driver_ahead_ms: by how much the clocks of drivers are ahead of this machine's, where their
            topic has ``CreateTime``; None: unknown.
    """

    here_ahead_ms: int | None = None
    driver_ahead_ms: int | None = None

    @property
    def correction_ms(self) -> int:
        """What this machine's clock is wrong by, to be taken off its time; 0: it is right, or unknown."""
        if self.here_ahead_ms is None or abs(self.here_ahead_ms) <= SKEW_MS_MAX:
            return 0
        return self.here_ahead_ms

    def texts(self, now_ms: int) -> dict[str, str]:
        """Return by owner a text about each clock that is wrong.

        `now_ms` is this machine's time.
        """
        texts: dict[str, str] = {}
        if self.correction_ms:
            texts[OURS] = clocks_differ(self.correction_ms, now_ms)
        if self.driver_ahead_ms is not None and abs(self.driver_ahead_ms) > CLOCKS_APART_MS:
            texts["a driver"] = other_clock_text("the driver of a query", self.driver_ahead_ms, OURS)
        return texts


def watch_clocks(log: Log, places: Sequence[TopicPartition], wall_ms: Callable[[], int]) -> WatchedClocks:
    """Watch partitions with signs of life for at most `WATCH_MS`, and compare clocks by what comes.

    It ends with the first record by which the clocks agree, so on a healthy installation within a
    second or two, or with enough of them by which they differ. `WindhoverError`: the broker does
    not answer.
    """
    begun_ms = wall_ms()
    ends = log.bounds(Bound.END, places).offsets
    # Every record that comes now was appended after the broker was asked for its ends, so after
    # `begun_ms`, however long the client takes to show it. -1: this first poll has no record.
    begin = Poll(begun_ms, wall_ms(), -1)
    # By what the time of a record is: the broker's compares this clock with the broker's, a
    # writer's with the writer's.
    polls_by_kind = {TimestampType.APPENDED: [begin], TimestampType.CREATED: [begin]}
    with closing(log.reader(committed=False)) as reader:
        reader.assign(ends)
        for _ in range(WATCH_MS // POLL_MS):
            records = poll_past_damage(reader, POLL_MS, 1_000, pass_damage)
            answered_ms = wall_ms()
            for time_kind, polls in polls_by_kind.items():
                newest_ms = _newest_ms(records, time_kind)
                if newest_ms is not None:
                    polls.append(Poll(begun_ms, answered_ms, newest_ms))
            if _is_decided(polls_by_kind.values()):
                break
    broker_ahead_ms = skew_ms(polls_by_kind[TimestampType.APPENDED])
    driver_ahead_ms = skew_ms(polls_by_kind[TimestampType.CREATED])
    # a broker that is 5 s ahead of this machine means that this machine is -5 s ahead of it
    here_ahead_ms = None if broker_ahead_ms is None else -broker_ahead_ms
    return WatchedClocks(here_ahead_ms, driver_ahead_ms)


def _is_decided(polls_of_kinds: Collection[Sequence[Poll]]) -> bool:
    """Return whether some clock is right by the polls of one kind, or there are enough to call it wrong.

    Each kind has the polls of its own sort of times: the broker's, or those of writers.
    """
    for polls in polls_of_kinds:
        clocks_apart_ms = skew_ms(polls)  # None: the polls do not show it yet
        if clocks_apart_ms is not None and abs(clocks_apart_ms) <= SKEW_MS_MAX:
            return True
    # the first poll, without a record, counts as none of the measurements
    return any(len(polls) > MEASUREMENTS_MIN for polls in polls_of_kinds)


def _newest_ms(records: Iterable[Record], kind: TimestampType) -> int | None:
    """Return the latest time of the records whose time is of a kind; None: there is none of it."""
    return max((record.timestamp_ms for record in records if record.timestamp_type == kind), default=None)


def wrong_clocks(writers: Iterable[tuple[str, Sequence[WriterTime]]], now_ms: int) -> Mapping[str, str]:
    """Return a text about each process whose clock is wrong, by its name.

    A clock is compared with the broker's where records have both times, else with this machine's.

    Args:
        writers: each process, as a sentence names it, and when its newest signs of life were
            written.
        now_ms: this machine's time.
    """
    text_by_writer: dict[str, str] = {}
    for writer, times in writers:
        # no append time: the topic keeps what the writer's clock said, and the broker dates nothing
        young = [time for time in times if time.appended_ms is None or now_ms - time.appended_ms <= YOUNG_MS]
        aheads_ms = [time.ahead_ms for time in young if time.ahead_ms is not None]
        # the smallest one counts: a record that took a minute to its broker seems to come from a
        # clock that is a minute behind
        ahead_ms = min(aheads_ms, key=abs, default=0)
        if abs(ahead_ms) > CLOCKS_APART_MS:
            text_by_writer[writer] = other_clock_text(writer, ahead_ms, BROKERS)
            continue
        # without the broker's time only a clock that is ahead of this machine's shows: an old
        # record may have been written long ago by a clock that is right
        undated = [time for time in young if time.appended_ms is None]
        leads_ms = [time.written_ms - now_ms for time in undated if time.written_ms is not None]
        longest_lead_ms = max(leads_ms, default=0)
        if longest_lead_ms > CLOCKS_APART_MS:
            text_by_writer[writer] = other_clock_text(writer, longest_lead_ms, OURS)
    return text_by_writer
