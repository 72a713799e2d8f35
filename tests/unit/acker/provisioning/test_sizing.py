"""The model behind `windhover size`: its constants are those of the wire, and its sums make sense."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from acker.identity import source_of
from acker.kafka.port import Record, TopicPartition
from acker.provisioning import sizing
from acker.provisioning.sizing import Load, size_of
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Event, Init, PositionRun, SourceRun, Tick, Verdicts
from acker.wire.stacks import WAITING_STACK_BYTES_MAX, cut_stack
from replay.records.due import Progress, due_codec
from spout.cli.main import run
from spout.group.presence import Who
from spout.planning.journal import BEGINNING
from tests.support.worlds.planning import World, batch

GROUP = "word-count"
SESSION = "0123456789abcdef"
LANE = f"3f1c2a9e-6d0b-4c55-9f0e-8f0a3f5f7d11/{SESSION}"
SPACE = "6f1c2a9e-6d0b-4c55-9f0e-8f0a3f5f7d11/pid:[4026531836]"
TOPIC_ID = "q2wE4rT6yU8iO0pA1sD3fG"
SOURCE = source_of(1, 3)
AT = 12_000_000
WALL_MS = 1_800_000_000_000
CLOCK_MS = 3_600_000
WARM_BATCHES = 3
BATCHES = 10

SAMPLES: dict[str, tuple[Event, int]] = {
    "init": (
        Init(
            *(GROUP, SESSION, 2, CLOCK_MS, WALL_MS, 30_000, 4, "sentences", TOPIC_ID),
            (SourceRun(SOURCE, AT, AT + 500),),
        ),
        sizing.INIT_BYTES + sizing.RUN_BYTES,
    ),
    "tick": (Tick(GROUP, SESSION, 2, CLOCK_MS), sizing.TICK_BYTES),
    "acks": (
        Acks(
            *(LANE, 900, GROUP, SESSION, 2, SOURCE, AT >> 15, (PositionRun(AT, AT + 500),)),
            *(b"", b"", (), b"", CLOCK_MS),
        ),
        sizing.ACKS_BYTES,
    ),
    "verdicts": (
        Verdicts((SourceRun(SOURCE, AT, AT + 500),), (), ()),
        sizing.VERDICTS_BYTES + sizing.RUN_BYTES,
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bytes_of_a_record_are_those_that_the_model_counts(name: str) -> None:
    record, counted = SAMPLES[name]
    assert len(wire_codec().encode(record)) == pytest.approx(counted, rel=0.1)


def test_the_bytes_of_a_replay_workers_progress_are_those_that_the_model_counts() -> None:
    key_bytes = 12
    written = len(due_codec().encode(Progress(1_000_000, 0))) + key_bytes
    assert written == pytest.approx(sizing.PROGRESS_BYTES, rel=0.25)


def test_the_traffic_of_ack_topics_follows_batches_and_hardly_records() -> None:
    load = Load(1_000, lost=0.0)
    once, hundredfold = size_of(load), size_of(replace(load, records_per_s=100_000))
    assert hundredfold.ack_bytes_per_s < 2.5 * once.ack_bytes_per_s
    assert size_of(replace(load, batch_s=10.0)).ack_bytes_per_s < 0.6 * once.ack_bytes_per_s


def test_trees_that_are_acked_across_batches_cost_a_pair_for_each_tuple() -> None:
    load = Load(10_000, tuples=9, lost=0.0)
    more = size_of(replace(load, holds=True)).ack_bytes_per_s - size_of(load).ack_bytes_per_s
    assert more == pytest.approx(10_000 * 10 * sizing.PAIR_BYTES)


TRACE = "Traceback (most recent call last):\n" + "".join(
    f'  File "/srv/jobs/{module}.py", line {line}, in {function}\n    {code}\n'
    for module, line, function, code in [
        ("bolts/split", 31, "execute", "for word in self._words(tuple['value']):"),
        ("bolts/split", 47, "_words", "document = self._client.get(f'/documents/{number}').json()"),
        ("clients/documents", 112, "get", "return self._session.request('GET', self._base + path)"),
        ("clients/retrying", 58, "request", "response = self._transport.send(request, timeout=10)"),
        ("lib/python3.11/json/__init__", 346, "loads", "return _default_decoder.decode(s)"),
        ("lib/python3.11/json/decoder", 337, "decode", "obj, end = self.raw_decode(s, idx=_w(s, 0).end())"),
    ]
) + "json.decoder.JSONDecodeError: Expecting value: line 1 column 11 (char 10)\n"  # fmt: skip


def test_a_stack_takes_what_compression_leaves_of_it() -> None:
    """Of several in one write, which are alike, the first one counts."""
    stack = cut_stack(TRACE, WAITING_STACK_BYTES_MAX).encode()
    entries = [b"%020d" % number + bytes(number % 7 for number in range(20)) + stack for number in range(50)]
    alone = len(pa.compress(entries[0], codec="lz4", asbytes=True))
    together = len(pa.compress(b"".join(entries), codec="lz4", asbytes=True))
    assert alone == pytest.approx(sizing.STACK_PACKED_SHARE * len(stack), rel=0.35)
    bare = len(pa.compress(b"".join(entry[:40] for entry in entries), codec="lz4", asbytes=True))
    assert together - bare < alone + 50 * sizing.MORE_STACK_BYTES


def test_stacks_count_in_each_topic_that_has_them_cut_to_their_limits() -> None:
    """What fails by a text, or times out, has none. Of `_ack_due` each root that waits has one."""
    load = Load(10_000, lost=0.01, stack_bytes=0)
    bare = size_of(load).topic_bytes_per_s
    more = {
        stack_bytes: {
            name: size_of(replace(load, stack_bytes=stack_bytes)).topic_bytes_per_s[name] - bare[name]
            for name in bare
        }
        for stack_bytes in (1_000, 4_000, 40_000)
    }
    with_stacks = {name for name, bytes_s in more[1_000].items() if bytes_s}
    assert with_stacks == {"_ack_fail", "_ack_verdict", "_ack_due"}
    assert more[4_000]["_ack_fail"] == pytest.approx(4 * more[1_000]["_ack_fail"])
    assert more[40_000] == more[4_000]
    assert more[4_000]["_ack_due"] == more[1_000]["_ack_due"] > more[1_000]["_ack_fail"]
    assert sum(size_of(replace(load, lost=0.0)).topic_bytes_per_s.values()) == pytest.approx(
        sum(size_of(replace(load, lost=0.0, stack_bytes=1_000)).topic_bytes_per_s.values())
    )


def test_memory_is_planned_for_the_roots_that_are_open_when_nothing_is_acked() -> None:
    size = size_of(Load(1_000_000, timeout_s=60.0))
    assert size.pending_max == 60_000_000
    assert size.acker_bytes - sizing.PROCESS_BYTES == pytest.approx(8.5 * 60_000_000, rel=0.01)
    assert size.pending == 1_000_000
    assert size_of(Load(1_000_000, work_s=0.4)).pending == 400_000


def test_an_acker_partition_stays_for_each_process_that_may_be_needed_later() -> None:
    small, large = size_of(Load(1)), size_of(Load(20_000_000, tuples=20, holds=True))
    assert (small.acker_processes, small.replay_processes, small.acker_partitions) == (2, 2, 8)
    assert large.acker_processes > 2
    assert sizing.PARTITIONS_MAX >= large.acker_partitions >= 4 * large.acker_processes
    assert size_of(Load(1, partitions=3)).acker_partitions == 3


def test_more_of_anything_never_needs_less() -> None:
    load = Load(5_000)
    base = size_of(load)
    for more in (
        replace(load, records_per_s=50_000),
        replace(load, sources=64),
        replace(load, lost=0.5),
        replace(load, timeout_s=300.0),
        replace(load, record_bytes=100_000),
    ):
        size = size_of(more)
        assert size.ack_bytes_per_s >= base.ack_bytes_per_s
        assert size.acker_bytes >= base.acker_bytes
        assert size.replay_bytes >= base.replay_bytes
        assert size.acker_processes >= base.acker_processes
        assert size.acker_requests_per_s >= base.acker_requests_per_s
        assert size.replay_requests_per_s >= base.replay_requests_per_s
        assert size.query_requests_per_s >= base.query_requests_per_s


def test_the_command_prints_what_the_model_computes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["size", "--records", "20000", "--timeout", "1m", "--batch", "2s", "-o", "json"]) == 0
    found = {row["what"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    size = size_of(Load(20_000, timeout_s=60.0, batch_s=2.0))
    assert found["all ack topics"] == round(size.ack_bytes_per_s)
    assert found["open roots at most, where nothing is acked until the timeout"] == 1_200_000
    assert found["acker.partitions"] == size.acker_partitions
    assert found["requests of all ackers"] == round(size.acker_requests_per_s)


@pytest.mark.parametrize("text", ["30", "0s", "soon"])
def test_a_duration_that_is_none_is_refused_with_the_cure(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["size", "--records", "1", "--batch", text]) == 2
    assert f"--batch {text}: " in capsys.readouterr().err


def stored_bytes(world: World) -> Counter[str]:
    """Return what each ack topic takes: what records have in them, and around them the frames of Kafka.

    Of the acks that share a write, all but the first one are compressed.
    """
    found = Counter[str]()
    for name in world.topics.ack_topics.names():
        for number in range(world.topics.acker.partitions):
            partition = world.cluster.partition(TopicPartition(name, number))
            records, _ = partition.read(0, 1_000_000, committed=True)
            markers = partition.end - len(records)
            if name == world.topics.ack_topics.ack:  # a batch is published in one write
                writes = {decoded.seq: one for one in records if isinstance(decoded := decode(one), Acks)}
                found[name] += (len(records) - len(writes)) * sizing.MORE_ACKS_BYTES
                records = list(writes.values())
            found[name] += sum(map(bytes_of, records)) + len(records) * sizing.BATCH_BYTES
            found[name] += markers * sizing.MARKER_BYTES
    return found


def bytes_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def decode(record: Record) -> Event:
    return wire_codec().decode(record.value)


@pytest.mark.parametrize(
    ("partitions", "sources", "batch_ms", "rate"),
    [(2, 4, 1_000, 2_000), (4, 8, 3_000, 800), (4, 4, 1_000, 400), (8, 16, 2_000, 1_600)],
)
def test_the_model_counts_what_a_query_an_acker_and_a_replay_worker_write(
    partitions: int, sources: int, batch_ms: int, rate: int
) -> None:
    world = World(
        f"acker: {{partitions: {partitions}}}\n"
        f"inputs: {{sentences: {{id: 1, group: {GROUP}, partitions: {sources}, timeout: 30s}}}}\n"
    )
    world.query, world.session = LANE.partition("/")[0], SESSION[:-1]
    world.start_replays()
    planner = world.ready(who=Who("spark-driver-1", "local-1764061575123", 12_345, WALL_MS, SPACE))
    before, earlier = BEGINNING, Counter[str]()
    for number in range(WARM_BATCHES + BATCHES):
        if number == WARM_BATCHES:
            earlier = stored_bytes(world)
        for source in range(sources):
            world.produce(rate * batch_ms // 1_000 // sources, partition=source)
        after = batch(planner, before, world)
        world.run(batch_ms)  # so long its tasks take
        world.publish(before, after)
        before = after
    written = stored_bytes(world)
    written.subtract(earlier)
    size = size_of(Load(rate, batch_s=batch_ms / 1_000, sources=sources, partitions=partitions, lost=0.0))
    seconds = BATCHES * batch_ms / 1_000
    measured = {name: round(count / seconds) for name, count in written.items()}
    computed = {name: round(each) for name, each in size.topic_bytes_per_s.items()}
    assert sum(measured.values()) == pytest.approx(size.ack_bytes_per_s, rel=0.3), (measured, computed)
