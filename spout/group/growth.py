"""Sources that join a running session: name them to the ackers, then read them.

They are new partitions of a topic, from their start on, and sources that begin a new generation,
since their logs were cut.

The session sends another `Take` that names only these sources; the others go on meanwhile. New
partitions are not read as long as the replay topic has fewer partitions than its topic. What had no
leader when the session began comes in the same way, as soon as it is known where it begins.

Sources *join* from their `Take` until all acker partitions have answered it; one such `Take` is
under way at a time. A `clock_ms` is the session's clock, and `now_ms` wall time. A source's *free*
positions are those that were never initialised: its `SourceCursor` has them.

Source: docs/design/protocol.md, section 4 ("Take and Taken"); docs/design/conformance.md, S135.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from acker.identity import position_at
from acker.waits import LastTime
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
        """Begin with the sources of `context`; the broker is asked for new ones `SOURCES_EVERY_MS` later."""
        self._context = context
        self._name = name
        self._last_check = LastTime(now_ms)  # at the broker's topics
        self._last_send = LastTime()  # of the `Take`
        # by source: those that join, and the position at which each begins
        self._joining: dict[int, SourceSpec] = {}
        self._first_positions: dict[int, int] = {}
        self._answers: Answers | None = None  # to that `Take`; None: none is under way
        # which replay topic lacks partitions, as it was reported last; empty: none did
        self._reported_lack = ""

    def read(self, partition: int, taken: Taken) -> None:
        """Record an answer of an acker partition to the `Take` that is under way, if one is."""
        if self._answers is not None:
            self._answers.add_part(partition, taken)

    def begin_again(self, first_positions: Mapping[int, int], clock_ms: int, now_ms: int) -> list[NewSource]:
        """Begin a new generation of sources, unless others are joining; return those that have joined.

        `first_positions` has by source where its new generation begins.

        Empty: none has, and `step` returns them later. Only where nothing is tracked they join at
        once.
        """
        if self._joining or not first_positions:
            return []
        self._joining = {source: self._context.sources[source] for source in first_positions}
        self._first_positions = dict(first_positions)
        return self._start_joining(clock_ms, now_ms)

    def step(self, clock_ms: int, now_ms: int) -> list[NewSource]:
        """Ask the broker for new partitions, let them join, and return the sources that have joined now.

        Empty: none has.

        Raises `Disagreement`: a topic was re-created, or the ackers refuse a new partition;
        `TopicError`: a topic is gone.
        """
        if self._last_check.begin_if_due(now_ms, SOURCES_EVERY_MS):
            # also while acker partitions are silent: a topic may be created again
            new_specs = self._find_new()
            if new_specs and not self._joining:
                return self._let_new_join(new_specs, clock_ms, now_ms)
        return self._end_joining_if_answered(clock_ms, now_ms) if self._joining else []

    def _find_new(self) -> dict[int, SourceSpec]:
        """Return by source the new ones; none as long as a replay topic has fewer partitions than its topic.

        Report that lack, once; raise `Disagreement` where a topic was created again.
        """
        context = self._context
        tracked = context.announcer is not None
        spec_by_source, lack_text = find_sources(context.log, context.spec.inputs, tracked=tracked)
        for source, former_spec in context.sources.items():
            spec = spec_by_source.get(source)
            if spec is not None and spec.topic_id != former_spec.topic_id:
                raise re_created(spec, former_id=former_spec.topic_id, tracked=tracked)
        if lack_text and lack_text != self._reported_lack:
            context.report("new_partitions_wait", {"error": lack_text})
        self._reported_lack = lack_text
        if lack_text:
            return {}
        return {source: spec for source, spec in spec_by_source.items() if source not in context.sources}

    def _let_new_join(
        self, new_specs: Mapping[int, SourceSpec], clock_ms: int, now_ms: int
    ) -> list[NewSource]:
        """Begin with new sources of which it is known where they begin; return those that have joined."""
        context = self._context
        begun = Begun(context.sources.keys(), context.left_out)
        # a source that has no leader yet has no first offset: it is found again, and joins later
        first_offsets = starting_offsets(context, new_specs.values(), begun)
        if not first_offsets:
            return []
        self._first_positions = {source: position_at(0, offset) for source, offset in first_offsets.items()}
        self._joining = {source: spec for source, spec in new_specs.items() if source in first_offsets}
        return self._start_joining(clock_ms, now_ms)

    def _start_joining(self, clock_ms: int, now_ms: int) -> list[NewSource]:
        """Send the `Take` of the joining sources; return those that have joined at once.

        These are none, since the ackers have to answer. Where nothing is tracked no acker is asked,
        and all of them have joined.
        """
        if self._context.announcer is None:
            joined: list[NewSource] = []
            for source, spec in self._joining.items():
                position = self._first_positions[source]
                joined.append(NewSource(spec, SourceCursor(from_=position, next=position)))
            self._joining = {}
            return joined
        self._last_send.at_ms = now_ms
        planner_spec = self._context.spec
        self._answers = Answers(planner_spec.group, self._name.id, planner_spec.partitions, self._joining)
        self._send_take(self._context.announcer, clock_ms)
        return []

    def _end_joining_if_answered(self, clock_ms: int, now_ms: int) -> list[NewSource]:
        """Return the joining sources, with their free positions, once all acker partitions answered.

        They are not joining any more then. Until then repeat the `Take` to the partitions that have
        not answered, and return none.

        Raises `Disagreement`: an acker refuses a source, or has it of an earlier topic.
        """
        if self._answers is None or self._context.announcer is None:
            return []
        if self._answers.missing:
            if self._last_send.begin_if_due(now_ms, REPEAT_MS):
                self._send_take(self._context.announcer, clock_ms)
            return []
        if self._answers.refusals:
            raise refused_by_acker(self._answers, self._name, self._context.spec.group)
        partitions = self._context.spec.partitions
        histories = self._answers.sources()  # by source, what the ackers have of it
        joined: list[NewSource] = []
        for source, spec in self._joining.items():
            history = histories[source]
            check_topic(spec, history)  # an earlier topic of that name may have had this partition
            cursor = cursor_of(source, history.from_, history.watermarks, partitions)
            joined.append(NewSource(spec, cursor))
        self._joining = {}
        self._answers = None
        return joined

    def _send_take(self, announcer: Announcer, clock_ms: int) -> None:
        """Send the `Take` of the joining sources to acker partitions that have not answered it."""
        missing = [] if self._answers is None else self._answers.missing
        takes = [spec.taken_from(self._first_positions[source]) for source, spec in self._joining.items()]
        announcer.send_take(self._name, clock_ms, takes, missing)
