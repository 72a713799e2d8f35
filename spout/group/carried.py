"""Commits of a group of which the ackers have nothing: what nobody can know then, and where to begin.

A group's commit is the prefix below which its records are done with: acked, dead letters, or lost and waiting
in `_ack_due` for their replay. The commit can be carried to another cluster, and it stays where a group
begins under another `acker.topic_prefix`. What waited does not follow. A query that begins at the commit
never emits it again.

Example: records 0 to 99 were read, and 40 failed and waits until 12:10. The commit is 100. In another cluster
a query that begins at 100 leaves 40 out. A record that waits was emitted no longer ago than an input may need
one, say 10 min. So one that begins 10 min before the commit emits it again, and many others that are done.

Source: docs/operate/failover.md; docs/design/protocol.md, section 5.1 ("Start of a group without history
here").
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from acker.config.settings import Input
from acker.errors import Damaged, OutOfRange
from acker.kafka.port import Bound, Log, TopicPartition
from acker.provisioning.topic_times import in_seconds_ms, longest_need_ms
from spout.group.sources import PlannerSpec, SourceSpec
from spout.group.starting import COMMITTED_BY

NAMED_MAX: Final = 3
"""So many partitions are named in the line; it counts the others."""

READ_MS_MAX: Final = 2_000
"""For so long the last records below the commits are looked at; it delays the start of a group once."""

PIECE_MS: Final = 100


@dataclass(frozen=True, slots=True)
class CarriedCommit:
    """What a group has committed of an input, while the ackers know nothing of the group there.

    `last_ms` is the latest time of the records directly below the commits, wall time; None: it is unknown.
    """

    input: Input
    offsets: Mapping[TopicPartition, int]
    is_ours: bool
    last_ms: int | None

    @property
    def begin(self) -> str:
        """Where to begin so that nothing is left out, as `windhover offsets reset --to` takes it."""
        need_ms = longest_need_ms(self.input)
        if need_ms is None or self.last_ms is None or self.last_ms < need_ms:
            return "earliest"
        begin = datetime.fromtimestamp((self.last_ms - in_seconds_ms(need_ms)) // 1000, UTC)
        return f"{begin:%Y-%m-%dT%H:%M:%SZ}"

    def fields(self) -> Mapping[str, object]:
        """Return the fields of the line that names it."""
        named = [f"{place.topic}/{place.partition}@{self.offsets[place]}" for place in sorted(self.offsets)]
        others = len(named) - NAMED_MAX
        behind = " (earlier, where the query lagged then: by its lag)" if self.begin != "earliest" else ""
        return {
            "group": self.input.group,
            "input": self.input.name,
            "committed": ", ".join(named[:NAMED_MAX]) + (f" and {others} more" if others > 0 else ""),
            "committed_by": "windhover" if self.is_ours else "another program",
            "not_known": "which records below the commit had failed and waited for their replay: they are not"
            " emitted again",
            "next_step": f"where some may have waited, stop the query, run `windhover offsets reset"
            f" {self.input.name} --to {self.begin} --execute`{behind}, and start it with a fresh checkpoint;"
            " see docs/operate/failover.md",
        }


def carried_commits(log: Log, spec: PlannerSpec, fresh: Collection[SourceSpec]) -> Iterator[CarriedCommit]:
    """Yield an entry for each input that begins at a commit; `fresh` are sources unknown to the ackers."""
    for source in spec.inputs:
        start = spec.start if spec.start is not None else source.start
        places = [one.place for one in fresh if one.input.id == source.id and not one.is_replay]
        if isinstance(start, int) or start in ("latest", "earliest") or not places:
            continue
        offsets = log.committed(spec.group, places)
        if any(offsets.values()):  # below offset 0 nothing can have failed
            marks = log.commit_metadata(spec.group, offsets)
            is_ours = COMMITTED_BY in marks.values()
            yield CarriedCommit(source, offsets, is_ours, _last_ms(log, offsets))


def _last_ms(log: Log, offsets: Mapping[TopicPartition, int]) -> int | None:
    """Return the latest time of the records directly below some offsets; None where nobody can say."""
    bounds = log.bounds(Bound.START, offsets).offsets
    ends = log.bounds(Bound.STABLE_END, offsets).offsets
    positions = {
        place: offset - 1
        for place, offset in offsets.items()
        if bounds.get(place, offset) < offset <= ends.get(place, -1)
    }
    latest: int | None = None
    with closing(log.reader(committed=True)) as reader:
        reader.assign(positions)
        unread = set(positions)
        for _ in range(READ_MS_MAX // PIECE_MS):
            if not unread:
                break
            try:
                records = reader.poll(PIECE_MS)
            except (OutOfRange, Damaged):  # planning finds out, and says what to do
                break
            for record in records:
                place = TopicPartition(record.topic, record.partition)
                if record.offset == positions[place] and record.timestamp_ms >= 0:
                    latest = max(latest or 0, record.timestamp_ms)
                unread.discard(place)
            unread -= {place for place in unread if reader.position(place) > positions[place]}
    return latest
