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
from spout.planning.supply import HOLE_MIN


@dataclass(frozen=True, slots=True)
class PlannerSpec:
    """The task of a planning process; its inputs are all of one group.

    Attributes:
        start: overrides every input's `start`: ``earliest``, ``latest``, a wall time in ms, or None.
        fail_on_data_loss: overrides every input's `on_data_loss`, or None.
        tracked: False: best effort; nothing is sent to ackers, and offsets settle when they are emitted.
        take_over: whether a refused or older checkpoint goes on with a new session, and a fresh checkpoint
            takes the group even if its owner is alive.
        way: how a user sets `take_over`, for messages.
        tasks: the largest number of read tasks of a batch, 1 or more.
        rewind: first offset of each source that begins a new generation; for `windhover offsets reset`.
        checks_commits: whether a committed offset that somebody moved is refused.
        paced: whether a batch is limited to what takes a quarter of the timeout; False where records are not
            processed as one batch.
        wakes: whether the first batch of a process may be empty. Bolts may hold tuples in Spark's state and
            need their ticks, and after a restart Spark runs no batch until the source has had one.
        hole_min: so many empty positions in a row are passed beside a batch; see `spout.planning.supply`.
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
    hole_min: int = HOLE_MIN

    @property
    def group(self) -> str:
        return self.inputs[0].group

    @property
    def timeout_ms(self) -> int:
        """The shortest timeout of the inputs, ms; 0: no input has one."""
        return min((found.timeout_ms for found in self.inputs if found.timeout_ms), default=0)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """One source: its number on the wire, its Kafka partition, Kafka's id of the topic, and its input."""

    source: int
    place: TopicPartition
    topic_id: str
    input: Input

    @property
    def is_replay(self) -> bool:
        return is_replay(self.source)

    def taken_from(self, first: int) -> TakeSource:
        """Return its entry in a `Take` that begins it at a position."""
        return TakeSource(self.source, self.place.topic, self.topic_id, generation_of(first), first)

    def __str__(self) -> str:
        return f"{self.place.topic}/{self.place.partition}"


def sources_of(log: Log, inputs: Sequence[Input], *, tracked: bool) -> dict[int, SourceSpec]:
    """Get the sources from the broker, those of replay topics only where inputs are tracked.

    Raises `TopicError`: a topic is missing, or a replay topic has fewer partitions than its topic.
    """
    found, lack = find_sources(log, inputs, tracked=tracked)
    if lack:
        raise TopicError(lack)
    return found


def find_sources(log: Log, inputs: Sequence[Input], *, tracked: bool) -> tuple[dict[int, SourceSpec], str]:
    """Get the sources, and say where a replay topic has fewer partitions than its topic."""
    # without tracking nobody needs a right to the replay topic, so the broker gets no request for it
    replays = [found.replay_topic for found in inputs if tracked]
    infos = log.topics([*(found.topic for found in inputs), *replays])
    found = [spec for one in inputs for spec in _sources(infos, one, replay=False)]
    lack = ""
    if tracked:
        found += [spec for one in inputs for spec in _sources(infos, one, replay=True)]
        for one in inputs:
            if infos[one.replay_topic].partitions < infos[one.topic].partitions:
                lack = (
                    f"replay topic {one.replay_topic} has {infos[one.replay_topic].partitions} partitions,"
                    f" fewer than the {infos[one.topic].partitions} of {one.topic}; run `windhover topics"
                    " create`, which adds them"
                )
    return {spec.source: spec for spec in found}, lack


def topic_names(inputs: Iterable[Input], runs: Iterable[SourceRun]) -> dict[int, str]:
    """Return the topic of each source; `Disagreement`: one belongs to another input."""
    names = {found.id: (found.topic, found.replay_topic) for found in inputs}
    sources = {run.source for run in runs}
    if others := set(map(input_id_of, sources)) - names.keys():
        raise Disagreement(
            f"the batch has records of input id {min(others)}, which this query does not read:"
            " let it read that input until the batch has ended, or start it with a fresh checkpoint"
        )
    return {source: names[input_id_of(source)][is_replay(source)] for source in sources}


def _sources(infos: Mapping[str, TopicInfo], one: Input, *, replay: bool) -> list[SourceSpec]:
    topic = one.replay_topic if replay else one.topic
    info = infos.get(topic)
    if info is None:
        raise TopicError(f"topic {topic} of input {one.name} does not exist; run `windhover topics create`")
    places = [TopicPartition(topic, partition) for partition in range(info.partitions)]
    return [SourceSpec(source_of(one.id, at.partition, replay=replay), at, info.id, one) for at in places]
