"""The sources that one planning process reads: the partitions of its inputs and of their replay topics.

Source: docs/design/protocol.md, section 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from acker.config.settings import AckTopics, Input
from acker.errors import Disagreement, TopicError
from acker.identity import generation_of, input_id_of, is_replay, source_of
from acker.kafka.port import Log, TopicInfo, TopicPartition
from acker.wire.events import SourceRun, TakeSource
from replay.records.places import topic_of
from spout.planning.supply import HOLE_MIN


@dataclass(frozen=True, slots=True)
class PlannerSpec:
    """The task of a planning process; its inputs are all of one group.

    Attributes:
        start: overrides every input's `start`: ``earliest``, ``latest``, a wall time in ms, or
            None.
        fail_on_data_loss: overrides every input's `on_data_loss`, or None.
        tracked: False: best effort; nothing is sent to ackers, and offsets settle when they are
            emitted.
        take_over: whether a refused or older checkpoint goes on with a new session, and a fresh
            checkpoint takes the group even if its owner is alive.
        way: how a user sets `take_over`, for messages.
        tasks: the largest number of read tasks of a batch, 1 or more.
        rewind: first offset of each source that begins a new generation; for `windhover offsets
            reset`.
        checks_commits: whether a committed offset that somebody moved is refused.
        paced: whether a batch is limited to what takes a quarter of the timeout; False where
            records are not processed as one batch.
        wakes: whether the first batch of a process may be empty. Bolts may hold tuples in Spark's
            state and need their ticks, and after a restart Spark runs no batch until the source has
            had one.
        without_store: whether it takes a group that is written exactly once, though it opens no
            store.
        hole_min: so many empty positions in a row are passed beside a batch; see
            `spout.planning.supply`.
    """

    inputs: tuple[Input, ...]
    topics: AckTopics
    partitions: int
    start: str | int | None = None
    fail_on_data_loss: bool | None = None
    tracked: bool = True
    take_over: bool = False
    way: str = "spout.read_stream(..., take_over=True)"
    tasks: int = 2
    rewind: Mapping[int, int] = field(default_factory=dict)
    checks_commits: bool = True
    paced: bool = True
    wakes: bool = False
    without_store: bool = False
    hole_min: int = HOLE_MIN

    @property
    def group(self) -> str:
        """The group of all the inputs."""
        return self.inputs[0].group

    @property
    def timeout_ms(self) -> int:
        """The shortest timeout of the inputs, ms; 0: no input has one."""
        return min((input.timeout_ms for input in self.inputs if input.timeout_ms), default=0)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """One source: its number on the wire, its Kafka partition, Kafka's id of the topic, and its input."""

    source: int
    place: TopicPartition
    topic_id: str
    input: Input

    @property
    def is_replay(self) -> bool:
        """Whether it is a partition of a replay topic."""
        return is_replay(self.source)

    def taken_from(self, position: int) -> TakeSource:
        """Return its entry in a `Take` that begins it at a position."""
        return TakeSource(
            self.source, self.place.topic, self.topic_id, generation_of(position), from_=position
        )

    def __str__(self) -> str:
        return f"{self.place.topic}/{self.place.partition}"


def sources_of(log: Log, inputs: Sequence[Input], *, tracked: bool) -> dict[int, SourceSpec]:
    """Return the sources that the broker has, by number.

    Those of replay topics are among them only where inputs are tracked.

    Raises `TopicError`: a topic is missing, or a replay topic has fewer partitions than its topic.
    """
    sources, lack_text = find_sources(log, inputs, tracked=tracked)
    if lack_text:
        raise TopicError(lack_text)
    return sources


def find_sources(log: Log, inputs: Sequence[Input], *, tracked: bool) -> tuple[dict[int, SourceSpec], str]:
    """Return the sources, by number, and a text about a replay topic that lacks partitions.

    It lacks them if it has fewer than its topic. The text is empty where each replay topic has
    enough.

    Raises `TopicError`: a topic is missing.
    """
    names = [input.topic for input in inputs]
    if tracked:
        # without tracking nobody needs a right to the replay topic, so the broker gets no request for it
        names += [input.replay_topic for input in inputs]
    infos = log.topics(names)
    specs: list[SourceSpec] = []
    for input in inputs:
        specs += _specs_of(infos, input, replay=False)
    lack_text = ""
    if tracked:
        for input in inputs:
            specs += _specs_of(infos, input, replay=True)
            # after `_specs_of`, which refuses a topic that is missing; of several lacks the
            # last one is named
            lack_text = _lack_text(infos, input) or lack_text
    return {spec.source: spec for spec in specs}, lack_text


def _lack_text(infos: Mapping[str, TopicInfo], input: Input) -> str:
    """Return that a replay topic has fewer partitions than its topic; empty: it has enough."""
    replay_count = infos[input.replay_topic].partitions
    topic_count = infos[input.topic].partitions
    if replay_count >= topic_count:
        return ""
    return (
        f"replay topic {input.replay_topic} has {replay_count} partitions, fewer than the {topic_count} of"
        f" {input.topic}; run `windhover topics create`, which adds them"
    )


def topic_names(inputs: Iterable[Input], runs: Iterable[SourceRun]) -> dict[int, str]:
    """Return the topic of each source of runs.

    Raises `Disagreement`: one of them belongs to another input.
    """
    inputs_by_id = {input.id: input for input in inputs}
    sources = {run.source for run in runs}
    unread_ids = set(map(input_id_of, sources)) - inputs_by_id.keys()
    if unread_ids:
        raise Disagreement(
            f"the batch has records of input id {min(unread_ids)}, which this query does not read:"
            " let it read that input until the batch has ended, or start it with a fresh checkpoint"
        )
    topics: dict[int, str] = {}
    for source in sources:
        topics[source] = topic_of(inputs_by_id[input_id_of(source)], source)
    return topics


def _specs_of(infos: Mapping[str, TopicInfo], input: Input, *, replay: bool) -> list[SourceSpec]:
    """Return the sources of an input: the partitions of its topic, or of its replay topic.

    `infos` has by topic what the broker says of it. Raises `TopicError`: the topic is missing.
    """
    topic = input.replay_topic if replay else input.topic
    info = infos.get(topic)
    if info is None:
        raise TopicError(f"topic {topic} of input {input.name} does not exist; run `windhover topics create`")
    specs: list[SourceSpec] = []
    for partition in range(info.partitions):
        source = source_of(input.id, partition, replay=replay)
        specs.append(SourceSpec(source, TopicPartition(topic, partition), info.id, input))
    return specs
