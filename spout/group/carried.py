"""Finds carried commits, those of a group that the ackers do not know, and proposes where to begin instead.

Below a group's commit every record is done with: acked, a dead letter, or lost and waiting in
`_ack_due` for its replay. A commit can be carried to another cluster, and it stays where a group
begins under another `acker.topic_prefix`. The records that waited are not carried with it. A query
that begins at the commit never emits them again, and here nobody can know which they are.

Example: records 0 to 99 were read. Record 40 failed, and waits until 12:10 for its replay. The
commit is 100, so a query that begins there in another cluster leaves record 40 out. Record 99 is of
12:05, and this input needs a record for 10 minutes at most, with all its attempts. So every record
that waits was emitted after 11:55. A query that begins at 11:55 emits record 40 again, and with it
others that are done.

Source: docs/operate/failover.md; docs/design/protocol.md, section 5.1 ("Start of a group without
history here").
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from acker.config.settings import Input
from acker.errors import Damaged, OutOfRange
from acker.kafka.port import Bound, Log, TopicPartition
from acker.listing import first_of
from acker.provisioning.topic_times import longest_need_ms, rounded_up_ms
from acker.units import second_text
from spout.group.sources import PlannerSpec, SourceSpec
from spout.group.starting import prefix_in_mark

NAMED_MAX: Final = 3
"""So many partitions are named in the line; the others are counted."""

READ_MS_MAX: Final = 2_000
"""How long the last records below the commits are read at most; it delays the start of a group once."""

POLL_MS: Final = 100
"""How long one poll waits."""


@dataclass(frozen=True, slots=True)
class CarriedCommit:
    """What a group has committed of an input, while the ackers know nothing of the group there.

    Attributes:
        offsets: what is committed, by partition.
        is_ours: whether Windhover committed it, elsewhere or formerly, and not another program.
        last_read_ms: the latest time of the records directly below the commits, wall time; None: it
            is unknown.
    """

    input: Input
    offsets: Mapping[TopicPartition, int]
    is_ours: bool
    last_read_ms: int | None

    @property
    def begin_text(self) -> str:
        """Where to begin so that nothing is left out, as `windhover offsets reset --to` takes it.

        That is a time, or ``earliest`` where none is known that is early enough.
        """
        need_ms = longest_need_ms(self.input)  # how long a record may wait, with all its attempts
        # None: an input without a timeout, whose records may wait for ever
        if need_ms is None or self.last_read_ms is None:
            return "earliest"
        begin_ms = self.last_read_ms - rounded_up_ms(need_ms)
        return "earliest" if begin_ms < 0 else second_text(begin_ms)

    def fields(self) -> Mapping[str, object]:
        """Return the fields of the line that is logged for it."""
        commits = [f"{place.topic}/{place.partition}@{self.offsets[place]}" for place in sorted(self.offsets)]
        lag_hint = ""
        if self.begin_text != "earliest":
            lag_hint = " (earlier, where the query lagged then: by its lag)"
        return {
            "group": self.input.group,
            "input": self.input.name,
            "committed": first_of(commits, NAMED_MAX),
            "committed_by": "windhover" if self.is_ours else "another program",
            "not_known": "which records below the commit had failed and waited for their replay: they are not"
            " emitted again",
            "next_step": f"where some may have waited, stop the query, run `windhover offsets reset"
            f" {self.input.name} --to {self.begin_text} --execute`{lag_hint}, and start it with a fresh"
            " checkpoint; see docs/operate/failover.md",
        }


def carried_commits(log: Log, spec: PlannerSpec, fresh: Collection[SourceSpec]) -> Iterator[CarriedCommit]:
    """Yield an entry for each input that begins at a commit of which the ackers know nothing.

    Args:
        log: where the commits are.
        spec: the group, its inputs, and where the query is to begin.
        fresh: the sources of which the ackers have no history.
    """
    for input in spec.inputs:
        start = spec.start if spec.start is not None else input.start
        # a time in ms, or one end of the log: then the commit is not looked at
        begins_elsewhere = isinstance(start, int) or start in ("latest", "earliest")
        # a replay topic is this group's alone, and what is below its commit is settled
        places = [source.place for source in fresh if source.input.id == input.id and not source.is_replay]
        if begins_elsewhere or not places:
            continue
        offsets = log.committed(spec.group, places)
        if any(offsets.values()):  # below offset 0 nothing can have failed
            metadata = log.commit_metadata(spec.group, offsets)
            is_ours = any(prefix_in_mark(text) is not None for text in metadata.values())
            yield CarriedCommit(input, offsets, is_ours, _last_read_ms(log, offsets))


def _last_read_ms(log: Log, offsets: Mapping[TopicPartition, int]) -> int | None:
    """Return the latest time of the records directly below some offsets; None where nobody can say."""
    last_offsets = _offsets_below(log, offsets)
    latest_ms: int | None = None
    with closing(log.reader(committed=True)) as reader:
        reader.assign(last_offsets)
        unread = set(last_offsets)
        for _ in range(READ_MS_MAX // POLL_MS):
            if not unread:
                break
            try:
                records = reader.poll(POLL_MS)
            except (OutOfRange, Damaged):  # planning finds out, and says what to do
                break
            for record in records:
                place = TopicPartition(record.topic, record.partition)
                if record.offset == last_offsets[place] and record.timestamp_ms >= 0:
                    latest_ms = max(latest_ms or 0, record.timestamp_ms)
                unread.discard(place)
            # where a marker of a transaction or a hole lies below the commit, no record of that offset comes
            unread -= {place for place in unread if reader.position(place) > last_offsets[place]}
    return latest_ms


def _offsets_below(log: Log, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the offset directly below each offset, where the log has it: 41 for 42.

    A log that was deleted up to the commit, or that ends before it, has none; and where the broker
    does not say where a log begins or ends, it counts as having none.
    """
    starts = log.bounds(Bound.START, offsets).offsets
    ends = log.bounds(Bound.STABLE_END, offsets).offsets
    below: dict[TopicPartition, int] = {}
    for place, offset in offsets.items():
        is_in_log = starts.get(place, offset) < offset <= ends.get(place, -1)
        if is_in_log:
            below[place] = offset - 1
    return below
