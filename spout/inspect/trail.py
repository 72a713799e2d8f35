"""Follows one record through the topics: reads the evidence from which `spout.inspect.lookup` tells the
story.

It reads topics only, and calls no process: the record's own topic, its replay and dead-letter topics, the
ackers' State, verdicts and inits, and ``_ack_due``. Of each partition at most the last `RECORDS_MAX` records
are read (see `spout.runtime.tails`); where there are more, the story shows it.

Source: docs/design/protocol.md, sections 2, 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final, NamedTuple

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import OutOfRange, TopicError, UsageError
from acker.identity import Root, position_at, source_of
from acker.kafka.port import Log, Record, TopicPartition
from acker.service.view import AckerView, ViewReader
from replay.handling.letter_box import LetterBox
from replay.records.due import Loss, parse_history
from replay.records.headers import HISTORY, Lineage, location, parse_lineage, parse_location
from replay.records.letters import Filter, Letter
from replay.worker.fetch import Absence, Fetcher, RecordPlace
from spout.inspect.lookup import NOT_EMITTED, SETTLED, Emission, Evidence
from spout.inspect.open_roots import name_of
from spout.inspect.settlements import Settled, Settlements, Waiting
from spout.runtime.tails import RECORDS_MAX, Tails

_TRIES: Final = 3
"""How often the reading begins again, when an acker shortens its logs at the same time."""


class Here(NamedTuple):
    """A record of an input."""

    input: Input
    partition: int
    offset: int

    def __str__(self) -> str:
        """Format as ``topic/partition@offset``."""
        return location(self.input.topic, self.partition, self.offset)


class Trail:
    """Reads the stories of records of one installation."""

    def __init__(self, log: Log, topics: Topics, *, records_max: int = RECORDS_MAX) -> None:
        """Prepare; nothing is read yet.

        Args:
            log: the cluster.
            topics: the installation.
            records_max: how many records of one partition are read at most, for one search.
        """
        self._log = log
        self._topics = topics
        self._limits = topics.replay.limits
        self._records_max = records_max

    def follow(self, here: Here) -> Evidence:
        """Read everything about one record.

        1. The record, its copies and its dead letters.
        2. The ackers' state of each emission: open, not emitted, settled.
        3. Verdicts, and the emissions that wait for a replay.

        Raises:
            OutOfRange: the logs are shortened faster than they are read.
            TopicError: a topic is missing.
            UsageError: the topic has no such partition.
            Unreachable: the broker does not answer.
        """
        self._require(here)
        for _ in range(_TRIES - 1):
            try:
                return self._follow(here)
            except OutOfRange:
                continue
        return self._follow(here)

    def _follow(self, here: Here) -> Evidence:
        tails = self._tails()
        one = here.input
        record, end = self._record(one.topic, here.partition, here.offset)
        copies = self._copies(here, tails)
        letters = self._letters(here, tails)
        settlements = Settlements(tails, self._topics.ack_topics, self._topics.acker.partitions)
        emissions = _Emissions(self._observer(), settlements, tails).of(here, copies)
        verdicts = settlements.verdicts(each.root for each in emissions)
        waiting = settlements.waiting(each.root for each in emissions)
        emissions = [
            replace(each, verdict=verdicts[each.root].verdict) if each.root in verdicts else each
            for each in emissions
        ]
        emissions = [each for each in emissions if not (each.former and each.state in (NOT_EMITTED, SETTLED))]
        last = emissions[-1].root if emissions else None
        place = TopicPartition(one.topic, here.partition)
        return Evidence(
            place=str(here), input=one.name, group=one.group, record=record, written=here.offset < end,
            emissions=emissions, letters=letters, dues=waiting.dues,
            taken_over=_taken_over(verdicts.get(last), waiting, settlements.acker_of(last)) if last else None,
            committed=self._log.committed(one.group, [place]).get(place),
            history=_joined([
                *(parse_history(_history(copy)) for copy in copies),
                *(letter.history for letter in letters), *(due.history for due in waiting.dues.values()),
            ]),
            notes=tails.notes,
        )  # fmt: skip

    def origin(self, text: str) -> list[Here]:
        """Find the record of a place: of the record itself, of one of its copies, or of its dead letter.

        Raises:
            UsageError: it is no place, or of no input; or there is no such copy or dead letter.
        """
        parsed = parse_location(text)
        inputs = [one for one in self._topics.inputs.values() if one.tracked]
        if parsed is None:
            raise UsageError(f"{text!r} is no place of a record; give one such as sentences/3@1042")
        name, partition, offset = parsed
        own = [one for one in inputs if name == one.name] or [one for one in inputs if name == one.topic]
        if own:
            return [Here(one, partition, offset) for one in own]
        for one in inputs:
            if name in (one.replay_topic, one.dead_letter.topic):
                record, _ = self._record(name, partition, offset)
                begun = parse_lineage(record.headers, *parsed).origin if isinstance(record, Record) else ""
                topic, number, at = parse_location(begun) or ("", -1, -1)
                if topic == one.topic:
                    return [Here(one, number, at)]
                raise UsageError(f"there is no copy or dead letter of {one.name} at {text}")
        known = ", ".join(one.name for one in inputs) or "none"
        raise UsageError(f"no tracked input of topics.yaml is called {name!r}; it has {known}")

    def with_key(self, one: Input, key: bytes, since_ms: int, limit: int) -> tuple[list[Here], list[str]]:
        """Find records by their key, from a wall time on.

        Returns:
            The first of them, at most `limit`, and notes on what was not read.
        """
        info = self._log.topics([one.topic]).get(one.topic)
        if info is None:
            raise TopicError(f"topic {one.topic} of input {one.name} does not exist")
        places = [TopicPartition(one.topic, number) for number in range(info.partitions)]
        tails = self._tails()
        lacking = "records of that key there are unknown"
        found = [
            Here(one, record.partition, record.offset)
            for place, first in self._log.offsets_at(places, since_ms).items()
            for record in tails.since(*place, first, lacking)
            if record.key == key
        ]
        if len(found) > limit:
            tails.notes.append(f"{len(found) - limit:,} more records have that key")
        return found[:limit], tails.notes

    def _tails(self) -> Tails:
        return Tails(self._log, self._limits.operation_timeout_ms, self._records_max)

    def _observer(self) -> ViewReader:
        acker = self._topics.acker
        return ViewReader(self._log, acker.topics, acker.partitions, acker.all_limits)

    def _require(self, here: Here) -> None:
        one = here.input
        ours = self._topics.ack_topics
        names = [one.topic, one.replay_topic, one.dead_letter.topic]
        names += [ours.init, ours.ack, ours.verdict, ours.state, ours.due]
        infos = self._log.topics(names)
        missing = sorted(set(names) - set(infos))
        if missing:
            raise TopicError(f"topics {', '.join(missing)} are missing; run `windhover topics create`")
        if here.partition >= infos[one.topic].partitions:
            raise UsageError(f"topic {one.topic} has partitions 0 to {infos[one.topic].partitions - 1} only")

    def _record(self, topic: str, partition: int, offset: int) -> tuple[Record | Absence, int]:
        place = TopicPartition(topic, partition)
        end = self._log.stable_ends([place])[place]
        wanted = RecordPlace(topic, partition, offset)
        with closing(Fetcher(self._log, self._limits)) as fetcher:
            return fetcher.fetch([wanted])[wanted], end

    def _copies(self, here: Here, tails: Tails) -> list[Record]:
        return [
            record
            for record in tails.last(here.input.replay_topic, here.partition, "older copies are unknown")
            if parse_lineage(record.headers, *record[:3]).origin == str(here)
        ]

    def _letters(self, here: Here, tails: Tails) -> list[Letter]:
        topic = here.input.dead_letter.topic
        number = here.partition % self._log.topics([topic])[topic].partitions
        box = LetterBox(Filter(places=frozenset((str(here),)), handled=True))
        for record in tails.last(topic, number, "older dead letters are unknown"):
            box.put(record)
        return box.letters


class _Emissions:
    """The ackers' state of a record's emissions."""

    def __init__(self, observer: ViewReader, settlements: Settlements, tails: Tails) -> None:
        self._observer = observer
        self._settlements = settlements
        self._tails = tails
        self._views: dict[int, AckerView | None] = {}

    def of(self, here: Here, copies: Sequence[Record]) -> list[Emission]:
        """Return the record's emissions, one for each generation that may have it, then its copies'."""
        one = here.input
        source, replay = (source_of(one.id, here.partition, replay=copy) for copy in (False, True))
        view = self._view(Root(source, position_at(0, here.offset)))
        known = view.sources().get(source) if view else None
        present = known.generation if known else 0
        found: list[Emission] = []
        for generation in range(present + 1):
            root = Root(source, position_at(generation, here.offset))
            # The present generation may begin behind the record; for former ones there are only verdicts.
            if generation < present or known is None or root.position >= known.from_:
                one_of = self._emission(one, root, Lineage(str(here)), str(here))
                found.append(replace(one_of, former=generation < present))
        for copy in copies:
            root = Root(replay, position_at(0, copy.offset))
            lineage = parse_lineage(copy.headers, *copy[:3])
            found.append(self._emission(one, root, lineage, location(*copy[:3])))
        return found

    def _emission(self, one: Input, root: Root, lineage: Lineage, place: str) -> Emission:
        view = self._view(root)
        emission = Emission(
            root, name_of(one, root.source, root.position), place, lineage, place != lineage.origin
        )
        if view is None:
            return emission
        watermark = view.watermark(root.source)
        open_in = view.find(root.source, root.position)
        return replace(
            emission, watermark=watermark, open=open_in,
            announced=root.position >= watermark and self._settlements.announced(root, view.next_init),
            batches=self._settlements.contributions(root, open_in) if open_in else None,
        )  # fmt: skip

    def _view(self, root: Root) -> AckerView | None:
        number = self._settlements.acker_of(root)
        if number not in self._views:
            self._views[number] = self._observer.view(number)
            if self._views[number] is None:
                self._tails.notes.append(f"acker partition {number} has no State: what it knows is unknown")
        return self._views[number]


def _taken_over(settled: Settled | None, waiting: Waiting, acker: int) -> bool | None:
    if settled is None:
        return None
    progress = waiting.progress.get(acker)
    return progress is not None and progress.next > settled.offset


def _history(copy: Record) -> bytes | None:
    return next((value for name, value in reversed(copy.headers) if name == HISTORY), None)


def _joined(histories: Iterable[tuple[Loss, ...]]) -> tuple[Loss, ...]:
    """Join histories: each repeats the one before it, and a full one drops its middle."""
    losses = {(loss.root, loss.attempt): loss for history in histories for loss in history}
    return tuple(sorted(losses.values(), key=lambda loss: loss.emitted_ms))
