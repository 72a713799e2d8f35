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

from acker.identity import position_at
from acker.wire.events import Taken
from spout.group.announce import REPEAT_MS, Announcer, PlannerContext
from spout.group.sources import SourceSpec, find_sources
from spout.group.starting import Begun, check_topic, re_created, refused_by_acker, starting_offsets
from spout.planning.intake import SourceCursor, cursor_of
from spout.planning.session import Answers, SessionName

SOURCES_EVERY_MS = 2_000
"""How often this process requests the partitions and Kafka's ids of the topics from the broker."""


class Growth:
    """Finds new partitions and adds them to a running session."""

    def __init__(self, context: PlannerContext, name: SessionName, now_ms: int) -> None:
        self._context = context
        self._name = name
        self._looked_ms = now_ms
        self._sent_ms = now_ms
        self._found: dict[int, SourceSpec] = {}
        self._firsts: dict[int, int] = {}
        self._answers: Answers | None = None
        self._lack = ""

    def read(self, partition: int, taken: Taken) -> None:
        if self._answers is not None:
            self._answers.read(partition, taken)

    def begin_again(self, firsts: Mapping[int, int], now: int, now_ms: int) -> list[NewSource]:
        """Let sources begin a new generation at these positions, unless others are under way; as `step`."""
        if self._found or not firsts:
            return []
        self._found = {source: self._context.sources[source] for source in firsts}
        self._firsts = dict(firsts)
        return self._ask(now, now_ms)

    def step(self, now: int, now_ms: int) -> list[NewSource]:
        """Look for new partitions, send a `Take`, or return the sources that all acker partitions have now.

        Raises `Disagreement`: a topic was re-created, or the ackers refuse a new partition; `TopicError`: a
        topic is gone.
        """
        if not 0 <= now_ms - self._looked_ms < SOURCES_EVERY_MS:
            self._looked_ms = now_ms
            found = self._find()  # also while acker partitions are silent: a topic may be created again
            if found and not self._found:
                self._firsts = {s: position_at(0, offset) for s, offset in self._starts(found).items()}
                self._found = {source: spec for source, spec in found.items() if source in self._firsts}
                return self._ask(now, now_ms) if self._found else []
        return self._taken(now, now_ms) if self._found else []

    def _find(self) -> dict[int, SourceSpec]:
        """Return the new sources, once their replay topics have partitions for copies."""
        context = self._context
        tracked = context.announcer is not None
        found, lack = find_sources(context.log, context.spec.inputs, tracked=tracked)
        for source, former in context.sources.items():
            if source in found and found[source].topic_id != former.topic_id:
                raise re_created(found[source], former.topic_id, tracked=tracked)
        if lack and lack != self._lack:
            context.report("new_partitions_wait", {"error": lack})
        self._lack = lack
        return {} if lack else {s: spec for s, spec in found.items() if s not in context.sources}

    def _starts(self, found: Mapping[int, SourceSpec]) -> dict[int, int]:
        """Return the first offset of each new source; of one that has no leader yet it is missing."""
        context = self._context
        begun = Begun(context.sources.keys(), context.left_out)
        return starting_offsets(context.log, context.spec, found.values(), begun, context.troubles)

    def _ask(self, now: int, now_ms: int) -> list[NewSource]:
        if self._context.announcer is None:
            found, self._found = self._found, {}
            return [(spec, SourceCursor(self._firsts[s], self._firsts[s])) for s, spec in found.items()]
        self._sent_ms = now_ms
        spec = self._context.spec
        self._answers = Answers(spec.group, self._name.id, spec.partitions, self._found)
        self._send(self._context.announcer, now)
        return []

    def _taken(self, now: int, now_ms: int) -> list[NewSource]:
        if self._answers is None or self._context.announcer is None:
            return []
        if self._answers.missing:
            if not 0 <= now_ms - self._sent_ms < REPEAT_MS:
                self._sent_ms = now_ms
                self._send(self._context.announcer, now)
            return []
        if self._answers.refusals:
            raise refused_by_acker(self._answers, self._name, self._context.spec.group)
        partitions, histories = self._context.spec.partitions, self._answers.sources()
        added: list[NewSource] = []
        for source, spec in self._found.items():
            history = histories[source]
            check_topic(spec, history)  # an earlier topic of that name may have had this partition
            added.append((spec, cursor_of(source, history.from_, history.watermarks, partitions)))
        self._found, self._answers = {}, None
        return added

    def _send(self, announcer: Announcer, now: int) -> None:
        missing = [] if self._answers is None else self._answers.missing
        named = [spec.taken_from(self._firsts[source]) for source, spec in self._found.items()]
        announcer.take(self._name, now, named, missing)


NewSource = tuple[SourceSpec, SourceCursor]
"""A source, and its free positions."""
