"""Sources that join a running session: name them to the ackers, then read them.

They are new partitions of a topic, from their start on, and sources that begin a new generation, since their
logs were cut.

The session sends another `Take` that names only these sources; the others go on meanwhile. New partitions
are not read as long as the replay topic has fewer partitions than its topic. What had no leader when the
session began comes in the same way, as soon as it is known where it begins.

Source: docs/design/protocol.md, section 4 ("Take and Taken"); docs/design/conformance.md, S135.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from acker.identity import position_at
from acker.wire.events import Taken
from spout.group.announce import REPEAT_MS, Announcer, PlannerContext
from spout.group.sources import SourceSpec, find_sources
from spout.group.starting import Begun, check_topic, re_created, refused_by_acker, starting_offsets
from spout.planning.intake import SourceCursor, cursor_of
from spout.planning.session import Answers, SessionName

SOURCES_EVERY_MS = 2_000
"""How often this process requests the partitions and Kafka's ids of the topics from the broker."""


class NewSource(NamedTuple):
    """A source that has joined, and its free positions."""

    spec: SourceSpec
    cursor: SourceCursor


class Growth:
    """Finds new partitions and adds them to a running session, the session `name`."""

    def __init__(self, context: PlannerContext, name: SessionName, now_ms: int) -> None:
        """Begin with the sources of `context`; new ones are looked for from the next time on."""
        self._context = context
        self._name = name
        self._looked_ms = now_ms  # when the broker was asked for the topics last, wall time
        self._sent_ms = now_ms  # when the `Take` was sent last, wall time
        # the sources that join, from their `Take` until all acker partitions have answered it; and
        # by source the position at which each begins
        self._joining: dict[int, SourceSpec] = {}
        self._first_positions: dict[int, int] = {}
        self._answers: Answers | None = None  # to that `Take`; None: none is under way
        self._reported_lack = ""  # of partitions of replay topics, as it was reported last

    def read(self, partition: int, taken: Taken) -> None:
        """Read an answer of an acker partition to the `Take` that is under way, if one is."""
        if self._answers is not None:
            self._answers.add_part(partition, taken)

    def begin_again(self, first_positions: Mapping[int, int], now: int, now_ms: int) -> list[NewSource]:
        """Begin a new generation of sources at these positions, unless others are under way.

        Return sources as `step` does.
        """
        if self._joining or not first_positions:
            return []
        self._joining = {source: self._context.sources[source] for source in first_positions}
        self._first_positions = dict(first_positions)
        return self._take(now, now_ms)

    def step(self, now: int, now_ms: int) -> list[NewSource]:
        """Look for new partitions, send a `Take`, or return the sources that all acker partitions have now.

        Empty: nothing has joined yet.

        Raises `Disagreement`: a topic was re-created, or the ackers refuse a new partition; `TopicError`: a
        topic is gone.
        """
        if not 0 <= now_ms - self._looked_ms < SOURCES_EVERY_MS:
            self._looked_ms = now_ms
            # also while acker partitions are silent: a topic may be created again
            new_specs = self._find_new()
            if new_specs and not self._joining:
                return self._begin_new(new_specs, now, now_ms)
        return self._joined_sources(now, now_ms) if self._joining else []

    def _find_new(self) -> dict[int, SourceSpec]:
        """Return the new sources, once their replay topics have partitions for copies.

        Report what these lack, once; raise `Disagreement` where a topic was created again.
        """
        context = self._context
        tracked = context.announcer is not None
        present, lack = find_sources(context.log, context.spec.inputs, tracked=tracked)
        for source, followed in context.sources.items():
            if source in present and present[source].topic_id != followed.topic_id:
                raise re_created(present[source], followed.topic_id, tracked=tracked)
        if lack and lack != self._reported_lack:
            context.report("new_partitions_wait", {"error": lack})
        self._reported_lack = lack
        if lack:
            return {}
        return {source: spec for source, spec in present.items() if source not in context.sources}

    def _begin_new(self, new_specs: Mapping[int, SourceSpec], now: int, now_ms: int) -> list[NewSource]:
        """Add new sources of which it is known where they begin; return sources as `step` does."""
        context = self._context
        begun = Begun(context.sources.keys(), context.left_out)
        # of a source that has no leader yet the first offset is missing: it comes at a later look
        first_offsets = starting_offsets(
            context.log, context.spec, new_specs.values(), begun, context.troubles
        )
        self._first_positions = {source: position_at(0, offset) for source, offset in first_offsets.items()}
        self._joining = {}
        for source, spec in new_specs.items():
            if source in first_offsets:  # of the others nobody knows where they begin
                self._joining[source] = spec
        return self._take(now, now_ms) if self._joining else []

    def _take(self, now: int, now_ms: int) -> list[NewSource]:
        """Send a `Take` of the joining sources; return them at once where no acker is asked."""
        if self._context.announcer is None:
            joined: list[NewSource] = []
            for source, spec in self._joining.items():
                position = self._first_positions[source]
                joined.append(NewSource(spec, SourceCursor(from_=position, next=position)))
            self._joining = {}
            return joined
        self._sent_ms = now_ms
        task = self._context.spec
        self._answers = Answers(task.group, self._name.id, task.partitions, self._joining)
        self._send(self._context.announcer, now)
        return []

    def _joined_sources(self, now: int, now_ms: int) -> list[NewSource]:
        """Return the joining sources, with their free positions, once all acker partitions answered.

        Until then repeat the `Take` to those that have not, and return nothing.

        Raises `Disagreement`: an acker refuses a source, or has it of an earlier topic.
        """
        if self._answers is None or self._context.announcer is None:
            return []
        if self._answers.missing:
            if not 0 <= now_ms - self._sent_ms < REPEAT_MS:
                self._sent_ms = now_ms
                self._send(self._context.announcer, now)
            return []
        if self._answers.refusals:
            raise refused_by_acker(self._answers, self._name, self._context.spec.group)
        partitions = self._context.spec.partitions
        histories = self._answers.sources()
        joined: list[NewSource] = []
        for source, spec in self._joining.items():
            history = histories[source]
            check_topic(spec, history)  # an earlier topic of that name may have had this partition
            cursor = cursor_of(source, history.from_, history.watermarks, partitions)
            joined.append(NewSource(spec, cursor))
        self._joining = {}
        self._answers = None
        return joined

    def _send(self, announcer: Announcer, now: int) -> None:
        """Send the `Take` of the joining sources to acker partitions that have not answered it."""
        missing = [] if self._answers is None else self._answers.missing
        takes = [spec.taken_from(self._first_positions[source]) for source, spec in self._joining.items()]
        announcer.send_take(self._name, now, takes, missing)
