"""Ten million pending roots: opened, contributed to, restored, completed, timed out; at full size."""

from __future__ import annotations

import numpy as np
import pytest

from acker.config.limits import AckerLimits
from acker.identity import U64, WIRE_BLOCK_BITS, root_edges_of_run, source_of
from acker.ledger.roots import SPARSE_SHARE
from acker.wire.codec import RECORD_BYTES_MAX
from acker.wire.events import Acks, PositionRun, SourceRun, Verdicts, pack_positions, pack_values, positions
from acker.wire.verdict import Verdict
from spout.planning.window import Window
from tests.support.cpu_time import within
from tests.support.worlds.acker_world import SOURCE, TIMEOUT_MS, TOPICS, World, Writer

ROOTS = 10_000_000
BLOCK = 1 << WIRE_BLOCK_BITS
OPEN_ROOT_BYTES = 10
"""What docs/design/protocol.md allows for an open root, section 5.3."""


@pytest.fixture
def world() -> World:
    """An acker with one partition."""
    return World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0))


@pytest.fixture
def writer(world: World) -> Writer:
    """A session with ten million open roots."""
    writer = world.session()
    writer.take()
    writer.init((0, ROOTS))
    world.settle()
    assert world.status().open_roots == ROOTS
    return writer


def contribute(world: World, writer: Writer, seq: int, *, completing: bool) -> None:
    """Contribute to every root, a block a record; random values, or those that complete them."""
    for first in range(0, ROOTS, BLOCK):
        end = min(first + BLOCK, ROOTS)
        values: U64 = np.random.default_rng(first).integers(1, 1 << 62, end - first, np.uint64)
        if completing:
            values ^= root_edges_of_run(SOURCE, first, end)
        at = np.arange(first, end)
        head = (
            writer.lane,
            seq,
            writer.group,
            writer.session,
            writer.epoch,
            SOURCE,
            first >> WIRE_BLOCK_BITS,
        )
        world.write(TOPICS.ack, Acks(*head, (), pack_positions(at), pack_values(values), (), b"", 0))


def roots_bytes(world: World) -> int:
    """Return what the acker keeps for its open roots."""
    return sum(cohort.roots.bytes for cohort in world.acker._owned_ackers[0].core.ledger.cohorts())


def test_ten_million_half_done_roots_survive_a_kill_and_complete(world: World, writer: Writer) -> None:
    """S35, S169 at full size: 160 MB of contributions, more than a restart reads again.

    So the oldest are carried in State with their values, the others are folded again.
    """
    with within(cpu_seconds=30):
        contribute(world, writer, 1, completing=False)
        world.settle()
        assert roots_bytes(world) < ROOTS * OPEN_ROOT_BYTES
        assert 0 < world.status().counts.carried < ROOTS // BLOCK
        world.crash()
        world.settle()
        assert (world.status().open_roots, world.status().counts.acked) == (ROOTS, 0)
        contribute(world, writer, 2, completing=True)
        world.settle()
    assert (world.status().open_roots, world.status().counts.acked) == (0, ROOTS)
    assert roots_bytes(world) == 0
    acked = [run for event in world.answers() if isinstance(event, Verdicts) for run in event.acked]
    assert sum(run.end - run.start for run in acked) == ROOTS
    sizes = [
        len(record.value or b"") for topic in (TOPICS.state, TOPICS.verdict) for record in world.read(topic)
    ]
    assert max(sizes) < RECORD_BYTES_MAX


def test_ten_million_untouched_roots_cost_nothing_and_are_acked_by_runs(world: World, writer: Writer) -> None:
    """No array before the first contribution that is not the root edge."""
    assert roots_bytes(world) == 0
    with within(cpu_seconds=10):
        for first in range(0, ROOTS, BLOCK):
            writer.acks(runs=[(first, min(first + BLOCK, ROOTS))], seq=1)
        world.settle()
    assert (world.status().open_roots, world.status().counts.acked) == (0, ROOTS)


def test_ten_million_roots_time_out_in_one_step_and_no_record_is_too_large(
    world: World, writer: Writer
) -> None:
    """S39: 80 MB of positions, in records that the broker takes, each root once."""
    with within(cpu_seconds=15):
        writer.tick(TIMEOUT_MS)
        world.settle()
    lost = [each for event in world.answers() if isinstance(event, Verdicts) for each in event.lost]
    named = np.concatenate([positions(each.positions) for each in lost])
    assert np.array_equal(named, np.arange(ROOTS))
    assert {each.reason for each in lost} == {"TIMED_OUT"}
    assert max(len(record.value or b"") for record in world.read(TOPICS.verdict)) < RECORD_BYTES_MAX


def test_few_open_roots_of_ten_million_cost_what_they_are(world: World, writer: Writer) -> None:
    """S40: one in a thousand stays open; the others leave nothing behind, after a restart either."""
    every = np.arange(0, ROOTS, 1_000)
    for first in range(0, ROOTS, BLOCK):
        end = min(first + BLOCK, ROOTS)
        here = every[(every >= first) & (every < end)].tolist()
        edges = [first, *(e for at in here for e in (at, at + 1)), end]
        runs = [PositionRun(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
        writer.acks(runs=runs, values=[(at, 5) for at in here], seq=1)
    world.settle()
    assert world.status().open_roots == len(every)
    assert roots_bytes(world) < len(every) * SPARSE_SHARE
    world.crash()
    world.settle()
    assert world.status().open_roots == len(every)
    assert roots_bytes(world) < len(every) * SPARSE_SHARE


def test_a_window_of_ten_million_pending_roots_costs_its_holes() -> None:
    """S57, S101: the spout's side, 1,000 partitions; all but one root of each are settled out of order."""
    window = Window()
    sources = [source_of(1, p) for p in range(1_000)]
    with within(cpu_seconds=10):
        for batch in range(10):
            window.emit([SourceRun(s, batch * 1_000, (batch + 1) * 1_000) for s in sources], batch)
        assert (window.pending, window.run_count) == (ROOTS, 1_000)
        for source in sources:
            for batch in reversed(range(10)):
                window.settle(
                    source, [PositionRun(max(1, batch * 1_000), (batch + 1) * 1_000)], Verdict.ACKED
                )
    assert (window.pending, window.run_count) == (1_000, 1_000)
    assert {window.committable(source) for source in sources} == {0}
    assert window.oldest_emitted_ms() == 0
