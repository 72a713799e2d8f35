"""A restore alone: what it takes over from State, what it reads again, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from acker.config.limits import AckerLimits
from acker.errors import DataLoss, Disagreement, Fenced, OutOfRange
from acker.kafka.port import Headers, Outgoing, TopicPartition
from acker.ledger.cohort import Pin
from acker.service.core import RECORD_BYTES, PartitionCore
from acker.service.restore import Restore
from acker.service.state import (
    NO_BIN,
    Carried,
    CarriedRange,
    State,
    StoredEmission,
    StoredRange,
    StoredSession,
    StoredSource,
    bin_part,
    pack_ranges,
    part_key,
    parts_of,
    state_codec,
)
from acker.service.state_notes import StateNotes
from acker.wire.clusters import cluster_header
from acker.wire.events import Acks, PositionRun, SourceRun, Verdicts
from acker.wire.lateness import LateCounts
from acker.wire.leader_epochs import EpochStep, LeaderEpochs
from tests.support.memory.clients import NoFaults
from tests.support.memory.cluster import MemoryCluster, MemoryLog
from tests.support.worlds.acker_world import CODEC, GROUP, SOURCE, TOPICS, World, edge

STORED = state_codec()
STATE = State(
    0, 1, 0, 0, 0, 0, 0,
    (StoredSource(SOURCE, GROUP, "t", "id", 0, 0, 20),), (StoredSession(GROUP, 1, "s1", True, True, 0, 0),),
    (), (), (), (StoredEmission(0, "t", "id", 0, 0, 30_000),),
    pack_ranges([StoredRange(0, SOURCE, 0, 10, 0, 0), StoredRange(0, SOURCE, NO_BIN, 10, 10, 0)]),
)  # fmt: skip
BIN = Carried((CarriedRange(SOURCE, 0, b"\1\0\0\0", bytes(8), b"", b""),))
ACKS = Acks("q/s1", 1, GROUP, "s1", 1, SOURCE, 0, (PositionRun(12, 14),), b"", b"", (), b"", 0)
ACKED = Verdicts((SourceRun(SOURCE, 10, 12),), (), ())


class Installation:
    """The ack topics of one acker partition, written by hand."""

    def __init__(self) -> None:
        """Create them, empty."""
        self.cluster = MemoryCluster()
        for name in TOPICS.names():
            self.cluster.create_topic(name, 1)
        self.log = self.cluster.log()
        self.operations: list[str] = []

    def write(self, topic: str, *values: bytes, headers: Headers = (), key: bytes | None = None) -> None:
        producer = self.log.producer()
        for value in values:
            producer.send(Outgoing(topic, 0, value, key, headers))
        producer.flush(1_000)

    def state(self, state: State = STATE, headers: Headers = ()) -> None:
        carried = bin_part(STORED, 0, 0, BIN)
        self.write(TOPICS.state, STORED.encode(carried), key=part_key(0, carried.part))
        for part in parts_of(STORED, state):
            self.write(TOPICS.state, STORED.encode(part), key=part_key(0, part.part), headers=headers)

    def restored(self, log: MemoryLog | None = None) -> PartitionCore:
        restore = Restore(log or self.log, TOPICS, 1, AckerLimits(), CODEC, STORED, self.operations.append)
        return restore.restore(0)

    def shorten(self, topic: str, offset: int) -> None:
        self.log.delete_before({TopicPartition(topic, 0): offset})


@pytest.fixture
def installed() -> Installation:
    return Installation()


def test_a_restore_takes_over_what_is_noted_beside_state(installed: Installation) -> None:
    installed.cluster.cluster_id = "here"
    notes = StateNotes(too_late={GROUP: LateCounts(1, 2)})
    epochs = LeaderEpochs([EpochStep(SOURCE, 0, 4)])
    installed.write(TOPICS.init, b"x", b"x")
    installed.state(headers=(*notes.headers(), *epochs.headers()))
    core = installed.restored()
    assert core.cluster_id == "here"
    assert core.late_counts_by_group == {GROUP: LateCounts(1, 2)}
    assert core.leader_epochs.at(SOURCE, 5) == 4
    assert not core.has_output
    assert (core.ledger.first_pin_without_init, core.ahead_inits_end) == (None, 0)


@pytest.mark.parametrize("is_last", [True, False])
def test_bins_are_written_anew_where_something_stands_behind_state(
    is_last: bool, installed: Installation
) -> None:
    """A bin may have another value there, which does not count."""
    installed.state()
    if not is_last:
        installed.write(TOPICS.state, STORED.encode(bin_part(STORED, 0, 0, BIN)), key=part_key(0, 1_000_000))
    assert installed.restored().ledger.take_changed_bins() == (set() if is_last else {0})


def test_verdicts_settle_again_and_give_none(installed: Installation) -> None:
    installed.state()
    large = CODEC.encode(replace(ACKED, acked=ACKED.acked * 2_000))
    installed.write(TOPICS.verdict, CODEC.encode(ACKED), large, b"garbage")
    core = installed.restored()
    assert core.ledger.open_count == 9
    assert core.ledger.verdict_end_pin == Pin(3, 2 * RECORD_BYTES + len(large))
    assert len(large) > RECORD_BYTES
    assert core.ledger.counts.undecodable_records == 1
    assert not core.ledger.settled
    assert installed.operations == ["restoring: verdicts"] * 3


@pytest.mark.parametrize("ack", [0, 1, 3])
def test_contributions_are_folded_again_from_the_safe_position_on(ack: int, installed: Installation) -> None:
    """What is no contribution, or a wrong one, is passed over: the step that read it first said so."""
    installed.state(replace(STATE, ack=ack + 2))
    wrong = CODEC.encode(replace(ACKS, block=7))
    large = CODEC.encode(replace(ACKS, lane="x" * 900, runs=tuple(PositionRun(14, 15) for _ in range(30))))
    for value in (CODEC.encode(ACKED), wrong, b"x", CODEC.encode(ACKS), large)[: ack + 2]:
        installed.write(TOPICS.ack, value)
    core = installed.restored()
    assert core.ack_bytes == (ack + 2) * RECORD_BYTES
    assert (core.ack_next, core.ledger.open_count) == (ack + 2, 11)
    assert installed.operations == ["restoring: contributions"] * (ack + 2)


def test_contributions_of_a_transaction_that_was_aborted_count_again() -> None:
    """They counted when they were read first: readers of contributions do not wait for transactions."""
    world = World()
    writer = world.session()
    writer.take()
    writer.init((0, 3))
    world.settle()
    value = writer.acks(values=[(2, 1)], seq=1)
    event = CODEC.decode(value)
    assert isinstance(event, Acks)
    transactions = world.cluster.log().transactions("task")
    transactions.init(1_000)
    transactions.begin()
    transactions.send(Outgoing(TOPICS.ack, 0, CODEC.encode(replace(event, seq=2))))
    transactions.abort(1_000)
    world.settle()
    world.crash()
    # twice the same value is none: what is missing is the whole edge
    writer.acks(values=[(2, edge(2))], seq=3)
    world.settle()
    assert world.of() == {2: "ACKED"}


# what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [0, 1, 2])
def test_verdicts_that_are_needed_and_gone_are_an_error(verdict: int, installed: Installation) -> None:
    installed.state(replace(STATE, verdict=verdict))
    installed.write(TOPICS.verdict, *[CODEC.encode(ACKED)] * 4)
    installed.shorten(TOPICS.verdict, verdict)
    assert installed.restored().ledger.open_count == 9
    installed.shorten(TOPICS.verdict, verdict + 1)
    with pytest.raises(DataLoss, match="verdicts"):
        installed.restored()


@pytest.mark.parametrize("topic", [TOPICS.init, TOPICS.ack, TOPICS.fail])
def test_without_a_state_all_topics_are_needed_from_their_beginning(
    topic: str, installed: Installation
) -> None:
    installed.write(topic, b"x", b"x")
    assert installed.restored().ledger.open_count == 0
    installed.shorten(topic, 1)
    with pytest.raises(DataLoss):
        installed.restored()


def test_verdicts_without_state_are_an_error_wherever_they_stand(installed: Installation) -> None:
    installed.write(TOPICS.verdict, b"garbage", b"more")
    assert installed.restored().ledger.verdict_end_pin.offset == 2
    assert installed.operations == ["restoring: looking for verdicts without State"]
    installed.write(TOPICS.verdict, CODEC.encode(ACKED))
    with pytest.raises(Disagreement, match=r"holds verdicts .first at 2. but"):
        installed.restored()


def test_verdicts_of_another_cluster_are_an_error(installed: Installation) -> None:
    installed.cluster.cluster_id = "here"
    installed.state()
    installed.write(TOPICS.verdict, CODEC.encode(ACKED), headers=cluster_header("there"))
    with pytest.raises(Disagreement, match="there"):
        installed.restored()


class TakenOver(MemoryLog):
    """A log of which a part is gone, while another owner writes State, or does not."""

    def __init__(self, installed: Installation, *, writes: bool) -> None:
        """Look at an installation."""
        super().__init__(installed.cluster, NoFaults())
        self._installed = installed
        self._writes = writes

    def starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Fail, behind what the other one writes."""
        if self._writes:
            self._installed.state()
        raise OutOfRange("gone")


def test_what_is_gone_since_another_owner_needs_it_no_more_is_not_lost(installed: Installation) -> None:
    installed.state()
    with pytest.raises(Fenced, match="partition 0 has got another owner; give it up"):
        installed.restored(TakenOver(installed, writes=True))
    with pytest.raises(OutOfRange):
        installed.restored(TakenOver(installed, writes=False))
