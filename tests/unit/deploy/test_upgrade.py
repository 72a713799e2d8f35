"""Upgrade and roll-back: today's code goes on from what former commits left; they can read what it writes."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from fastavro.schema import fingerprint

from acker.errors import Disagreement, UnknownVersion
from acker.kafka.port import TopicPartition
from acker.service.state import state_codec
from acker.wire.codec import HEADER_BYTES, MAGIC, Codec, wire_codec
from replay.records.due import Aside, Due, Pause, Progress, due_codec
from replay.records.letters import Letter, parse_letter
from spout.planning.journal import journal_of
from tests.support.former import COMMITS, former_installation
from tests.support.golden import STORED, WIRE
from tests.support.worlds.planning import World, batch

SOURCE = 65_536
"""Partition 0 of the input."""
PRODUCED = 25
LAST_BATCH = range(20, 25)
WAITS = 12
DIED = 2
RUN_MS = 10_000

PROGRESS = Progress(7, 2)
"""What a replay worker writes in an installation where nothing waits, and no input is paused."""

PAUSE = Pause(1, 1_700_000_000_000, "too many died")
"""What it writes of a paused input, since commit 89734f5 at the latest."""

WITH_EPOCH = {
    "due": Due(
        SOURCE,
        9,
        1_700_000_000_000,
        "",
        "word-count",
        "sentences",
        "id",
        "sentences/0@9",
        1,
        0,
        0,
        (),
        0,
        0,
        3,
    ),
    "aside": Aside(
        SOURCE, 9, 0, "", "word-count", "sentences", "id", "", 1, 0, 0, (), 0, 0, 3, "the topic is missing"
    ),
}
"""What it writes of roots that wait: with the leader epoch, which no former version has."""


@pytest.fixture(params=COMMITS)
def commit(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_installation_goes_on_where_a_former_version_was_killed(commit: str) -> None:
    """Its open batch is published again and acked, and what waited is replayed, acked and committed."""
    former = former_installation(commit)
    world = World(former.text, former.cluster, published=len(former.offsets) - 2)
    world.start_replays()
    before, last = (journal_of(offset) for offset in former.offsets[-2:])
    planner = world.ready(last)
    world.publish(before, last)
    world.run(RUN_MS)
    replayed = batch(planner, last, world)
    assert {source for source, _, _ in replayed.ranges} - {SOURCE, SOURCE + 1}, "the waiting root has a copy"
    world.publish(last, replayed)
    world.run(RUN_MS)
    settled = {p for one in world.verdicts() for run in one.acked for p in range(run.start, run.end)}
    assert settled >= set(LAST_BATCH)
    assert world.committed() == PRODUCED
    assert world.lost("ABANDONED") == 0, "the checkpoint names the session that emitted the batch"
    assert world.lost("TIMED_OUT") == 0


def test_every_record_that_a_former_version_wrote_is_read(commit: str) -> None:
    former = former_installation(commit)
    world = World(former.text, former.cluster)
    names = world.topics.ack_topics
    codecs: dict[str, Codec[object]] = {
        **dict.fromkeys((names.init, names.ack, names.fail, names.verdict), wire_codec()),
        names.state: state_codec(),
        names.due: due_codec(),
    }  # type: ignore[dict-item]
    kinds: set[str] = set()
    for name, codec in codecs.items():
        places = {TopicPartition(name, number): 0 for number in range(2)}
        reader = world.log.reader(committed=True)
        reader.assign(places)
        for record in reader.poll(0, 10_000):
            if record.value is not None:
                kinds.add(type(codec.decode(record.value)).__name__)
    assert kinds >= {
        "Take",
        "Taken",
        "Init",
        "Tick",
        "Acks",
        "Fails",
        "Verdicts",
        "StatePart",
        "Due",
        "Progress",
    }


@pytest.mark.parametrize("commit", COMMITS[1:])
def test_dead_letters_of_a_former_version_are_read_with_their_history(commit: str) -> None:
    former = former_installation(commit)
    world = World(former.text, former.cluster)
    topic = world.topics.inputs["sentences"].dead_letter.topic
    reader = world.log.reader(committed=True)
    reader.assign({TopicPartition(topic, number): 0 for number in range(2)})
    (letter,) = [parse_letter(record) for record in reader.poll(0, 100)]
    assert isinstance(letter, Letter)
    assert letter.lineage.origin == f"sentences/0@{DIED}"
    assert [loss.error for loss in letter.history] == ["ValueError", "ValueError"]


def test_an_offset_of_a_newer_version_stops_the_query_by_name() -> None:
    offset = {**former_installation(COMMITS[-1]).offsets[-1], "v": 2}
    with pytest.raises(
        Disagreement, match=r"offsets of version 2, this Windhover reads version 1; go on with"
    ):
        journal_of(offset)


def test_a_record_of_a_newer_version_stops_its_reader_by_name() -> None:
    newer = MAGIC + bytes(8) + b"body"
    for codec in (wire_codec(), state_codec(), due_codec()):
        with pytest.raises(UnknownVersion, match="unknown schema fingerprint 00 00"):
            codec.decode(newer)


def former_reads(commit: str, data: bytes) -> object:
    """Decode a record of today with the schemas of a former commit, as its codec would; KeyError: unknown."""
    schemas = {
        MAGIC + bytes.fromhex(fingerprint(text, "CRC-64-AVRO")): json.loads(text)
        for text in former_installation(commit).schemas
    }
    schema = fastavro.parse_schema(schemas[data[:HEADER_BYTES]], named_schemas={})
    body = io.BytesIO(data[HEADER_BYTES:])
    found = fastavro.schemaless_reader(body, schema, None)
    assert not body.read(), "all of it was read"
    return found


@pytest.mark.parametrize("name", [*WIRE, *STORED])
def test_former_acker_and_spout_read_what_today_writes(commit: str, name: str) -> None:
    codec, record = (wire_codec(), WIRE[name]) if name in WIRE else (state_codec(), STORED[name])
    assert former_reads(commit, codec.encode(record))  # type: ignore[arg-type]


def test_former_replay_workers_read_what_today_writes() -> None:
    for commit in COMMITS[1:]:
        assert former_reads(commit, due_codec().encode(PROGRESS))


def test_a_former_replay_worker_knows_pauses_only_since_they_exist() -> None:
    data = due_codec().encode(PAUSE)
    assert former_reads("89734f5", data)
    for commit in COMMITS[:2]:
        with pytest.raises(KeyError):
            former_reads(commit, data)


@pytest.mark.parametrize("name", WITH_EPOCH)
def test_a_former_replay_worker_stops_at_a_root_that_waits(name: str) -> None:
    """So all of them are replaced together, and a way back begins when nothing waits."""
    data = due_codec().encode(WITH_EPOCH[name])
    for commit in COMMITS:
        with pytest.raises(KeyError):
            former_reads(commit, data)
