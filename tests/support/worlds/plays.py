"""Each role of an installation on a real broker, played once through all that it does there.

A play takes the topics.yaml of whoever plays it and returns when everything was done; what it needs from
the others is either there (an acker and a replay worker that run) or written by `Stagehand`, who may do
everything. The installations of a broker differ by their prefix.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np

from acker.config.limits import ReplayLimits
from acker.config.topics import Topics, parse
from acker.identity import offset_of, partition_of, source_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Headers, Outgoing, TopicPartition
from acker.provisioning.admin import KafkaAdmin
from acker.provisioning.provision import create
from acker.service.service import AckerService
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    Event,
    FailCause,
    Fails,
    Init,
    Lost,
    PositionRun,
    SourceRun,
    Take,
    TakeSource,
    Verdicts,
    pack_positions,
)
from acker.wire.verdict import Verdict
from replay.worker.report import ReplayEvent
from replay.worker.service import ReplayService
from spout.exactly_once.kafka_store import KafkaStore
from spout.group.sources import PlannerSpec, topic_names
from spout.inspect.operate import GroupSession, moves_of_rewind, run_to_end
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.planning.plan import BatchPlan
from spout.planning_process.planner import Planner
from spout.publishing.publish import BatchLane, Publisher, publication_of
from spout.streaming.consume import KeptConsumers, RangeReader, Share
from spout.tuples.failures import Cause
from tests.support.outcomes import outcome_from
from tests.support.waiting import eventually

TIMEOUT_MS = 30_000
PLAY_S = 40.0
"""A play that has not ended after this time has hung."""

# Whoever lacks the right to read a log is refused only where the log has something to read. So no acker
# shortens logs meanwhile, unless the play is about that.
TEXT = """
kafka: {kafka}
acker: {{partitions: 1, topic_prefix: "{prefix}", limits: {{retention_interval: 1d}}}}
inputs:
  lines:
    id: 1
    topic: "{prefix}lines"
    group: "{prefix}{group}"
    ackers: {ackers}
    partitions: {partitions}
    retry: {{attempts: 2, initial: 0ms, jitter: 0}}
    dead_letter: {{max_ratio: 1}}
"""


def text_for(settings: Mapping[str, str], prefix: str, **others: object) -> str:
    """Write the topics.yaml of an installation for somebody with these client settings.

    Args:
        settings: the client's.
        prefix: of everything that belongs to the installation.
        others: `partitions` of the source, `group` behind the prefix, `ackers`, each with a default.
    """
    values = {"partitions": 1, "group": "g", "ackers": 1, **others}
    return TEXT.format(kafka=json.dumps(dict(settings)), prefix=prefix, **values)


def topics_for(settings: Mapping[str, str], prefix: str, **others: object) -> Topics:
    """Read that file."""
    return parse(text_for(settings, prefix, **others), file="topics.yaml", environ={})


def now_ms() -> int:
    """Wall time."""
    return time.time_ns() // 1_000_000


def until(done: Callable[[], bool], step: Callable[[], object]) -> None:
    """Step until something is the case; fail when that takes too long."""
    eventually(done, PLAY_S, step=step)


@dataclass
class Stagehand:
    """Writes whatever a play needs, as somebody who may do everything."""

    topics: Topics

    def __post_init__(self) -> None:
        """Connect."""
        self.log = KafkaLog(self.topics.kafka)
        self.input = self.topics.input("lines")
        self.names = self.topics.ack_topics
        self.source = source_of(self.input.id, 0)
        self._codec = wire_codec()
        self._producer = self.log.producer()
        self._lost = 0

    def write(self, topic: str, *values: bytes | Event, headers: Headers = ()) -> None:
        """Append records to partition 0."""
        for value in values:
            data = value if isinstance(value, bytes) else self._codec.encode(value)
            self._producer.send(Outgoing(topic, 0, data, headers=headers))
        self._producer.flush(TIMEOUT_MS)

    def id_of(self, topic: str) -> str:
        """Return Kafka's id of a topic."""
        return self.log.topics([topic])[topic].id

    def open_roots(self) -> None:
        """Let a session emit ten roots that never expire, one of which fails and four of which are acked."""
        group, topic = self.input.group, self.input.topic
        named = (TakeSource(self.source, topic, self.id_of(topic), 0, 0),)
        emitted = (SourceRun(self.source, 0, 10),)
        cause = FailCause("split", "ValueError", "bad", pack_positions(np.array([0])))
        self.write(
            self.names.init,
            Take(group, "s", 1, 0, 1, named),
            Init(group, "s", 1, 0, 1, 0, 1, topic, self.id_of(topic), emitted),
        )
        self.write(self.names.fail, Fails("a/s", 0, group, "s", 1, self.source, 0, (cause,)))
        acked = (PositionRun(1, 5),)
        self.write(self.names.ack, Acks("a/s", 0, group, "s", 1, self.source, 0, acked, b"", b"", (), b"", 0))

    def lose_one_more(self) -> None:
        """Lose a record of the source for the first time, and a copy for the last."""
        at = self._lost
        self._lost += 1
        self.write(self.input.topic, b"line")
        self.write(self.input.replay_topic, b"line", headers=(("windhover.attempt", b"2"),))
        for topic, replay in ((self.input.topic, False), (self.input.replay_topic, True)):
            place = pack_positions(np.array([self._end(topic) - 1 if replay else at]))
            lost = Lost(
                Verdict.FAILED, self.input.group, topic, self.id_of(topic), "split", "ValueError", "bad",
                0, 1, 2, source_of(self.input.id, 0, replay=replay), place,
            )  # fmt: skip
            self.write(self.names.verdict, Verdicts((), (), (lost,)))

    def _end(self, topic: str) -> int:
        place = TopicPartition(topic, 0)
        return self.log.ends([place])[place]

    def close(self) -> None:
        """Disconnect."""
        self._producer.close()
        self.log.close()


def play_acker(topics: Topics, stagehand: Stagehand) -> None:
    """Restore, answer a question, quarantine garbage, and delete what nothing needs."""
    names = stagehand.names
    stagehand.write(names.init, b"garbage", Take(stagehand.input.group, "q?", 0, now_ms(), 1, ()))
    # each ack topic has to be read: what is not needed before the play ends may never be refused
    stagehand.write(names.ack, b"garbage")
    stagehand.write(names.fail, b"garbage")
    limits = topics.acker.limits.model_copy(update={"retention_interval_ms": 200})
    verdict, quarantine = TopicPartition(names.verdict, 0), TopicPartition(names.quarantine, 0)
    quarantined = stagehand.log.ends([quarantine])[quarantine]
    stagehand.log.commit(topics.acker.replay_group, {verdict: stagehand.log.ends([verdict])[verdict]})
    before = _starts(stagehand)
    with closing(KafkaLog(topics.kafka)) as log, ExitStack() as undo:
        acker = AckerService(
            log, topics.ack_topics, 1, group=topics.acker.group, replay_group=topics.acker.replay_group,
            verdict_retention_ms=0, limits=limits,
        )  # fmt: skip
        undo.callback(acker.close)
        until(
            lambda: (
                _starts(stagehand) != before
                and stagehand.log.ends([quarantine])[quarantine] >= quarantined + 3
            ),
            lambda: acker.step(now_ms()),
        )


def _starts(stagehand: Stagehand) -> Mapping[TopicPartition, int]:
    return stagehand.log.starts([TopicPartition(stagehand.names.init, 0)])


class PutAside(Exception):
    """A replay worker reported that an input cannot go on; the message is the reason."""


def play_replay(topics: Topics, stagehand: Stagehand) -> None:
    """Write a copy and a dead letter.

    Raises:
        PutAside: the worker goes on without the input.
    """
    stagehand.lose_one_more()

    def hear(event: ReplayEvent) -> None:
        if event.name == "put_aside":
            raise PutAside(event.fields["why"])

    limits = ReplayLimits(position_interval_ms=0)
    with closing(KafkaLog(topics.kafka)) as log, ExitStack() as undo:
        service = ReplayService(log, topics, jitter=lambda: 0.0, limits=limits, report=hear)
        undo.callback(service.close)
        until(
            lambda: service.status().replayed > 0 and service.status().dead_lettered > 0,
            lambda: service.step(now_ms()),
        )


def play_spout(topics: Topics, stagehand: Stagehand) -> None:
    """Take the group, read, fail one record, ack the others, and see the replay through to the end.

    Then open a store for the group, as a query does that writes exactly once.
    """
    stagehand.write(stagehand.input.topic, b"one", b"two")
    inputs = tuple(topics.inputs.values())
    publisher = Publisher(lambda: KafkaLog(topics.kafka), topics.ack_topics)
    with closing(KafkaLog(topics.kafka)) as log, closing(publisher):
        new_id = uuid.uuid4().hex[:16]
        planner = Planner(log, PlannerSpec(inputs, topics.ack_topics, 1), new_id=new_id)
        planner.open(BEGINNING, now_ms())
        planner.stop_at_ends()
        journals = [BEGINNING]

        def step() -> None:
            planner.step(planner.poll(20), now_ms())
            if planner.is_ready:
                end = planner.plan(journals[-1], None, now_ms())
                if end != journals[-1]:
                    _work(topics, journals[-1], end, publisher, batch=len(journals))
                    journals.append(end)

        until(lambda: len(journals) > 1 and planner.is_drained(), step)
        planner.close()
    with closing(KafkaStore(topics, stagehand.input.topic)) as store:
        store.open(stagehand.input.group, 1)


def _work(topics: Topics, start: Journal, end: Journal, publisher: Publisher, batch: int) -> None:
    """Read a batch and publish it: in the first one its first record fails."""
    ranges = batch_ranges(start, end)
    _read(topics, ranges)
    group = next(iter(topics.inputs.values())).group
    plan = BatchPlan(group, end.session, end.epoch, 1, end.now, 30_000, True, ranges)
    failed = ((Cause("split", "ValueError", "bad"), np.array([0])),) if batch == 1 else ()
    lane = BatchLane(f"{end.session}/{end.session}", batch)
    publisher.publish(publication_of(outcome_from(plan, failed), lane), 1)


def _read(topics: Topics, ranges: Sequence[SourceRun]) -> None:
    """Read ranges as executors do."""
    names = topic_names(topics.inputs.values(), ranges)
    for each in ranges:
        first = int(offset_of(each.start))
        share = Share(names[each.source], partition_of(each.source), first, first + each.end - each.start)
        if not list(RangeReader(topics.kafka, share, KeptConsumers(0)).chunks()):
            raise AssertionError("nothing was read")


def play_untracked(topics: Topics, stagehand: Stagehand) -> None:
    """Read without tracking, and commit."""
    stagehand.write(stagehand.input.topic, b"one")
    place = TopicPartition(stagehand.input.topic, 0)
    end = stagehand.log.stable_ends([place])[place]
    inputs = tuple(topics.inputs.values())
    with closing(KafkaLog(topics.kafka)) as log:
        planner = Planner(log, PlannerSpec(inputs, topics.ack_topics, 1, tracked=False), new_id="any")
        planner.stop_at_ends()
        planner.open(BEGINNING, now_ms())
        ranges = batch_ranges(BEGINNING, planner.plan(BEGINNING, None, now_ms()))
        _read(topics, ranges)
        planner.commit()
        planner.close()
    if stagehand.log.committed(inputs[0].group, [place]) != {place: end}:
        raise AssertionError("not everything was read and committed")


def play_provision(topics: Topics, _stagehand: Stagehand) -> None:
    """Make what is missing, and let the replay topic grow."""
    create(topics, KafkaAdmin(topics.kafka))


def play_reset(topics: Topics, stagehand: Stagehand) -> None:
    """Rewind the input to its beginning, and commit for tools; ackers have to run."""
    found = topics.input("lines")
    stagehand.log.commit(found.group, {TopicPartition(found.replay_topic, 0): 0}, "windhover")
    # Who resets reads the signs of life of the last ten seconds. Without one nothing is read, where the acker
    # answers soon, and the right to read is not needed. A question is one, and changes nothing.
    stagehand.write(stagehand.names.init, Take(found.group, "q?", 0, now_ms(), 1, ()))
    with closing(KafkaLog(topics.kafka)) as log:
        plan = moves_of_rewind(log, found, "earliest")
        run_to_end(GroupSession(log, topics, found.group, new_id=uuid.uuid4().hex[:16], rewind=plan), now_ms)
