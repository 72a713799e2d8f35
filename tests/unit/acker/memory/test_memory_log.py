"""What the in-memory cluster lets a test do besides the port: compaction, timeouts, faults, its clock."""

from __future__ import annotations

import pytest

from acker.errors import Aborted, Fenced, TopicError, Unreachable
from acker.kafka.port import Outgoing, Reader, Record, TopicPartition
from tests.support.memory.cluster import MemoryCluster, NoFaults

TOPIC = "topic"
PARTITION = TopicPartition(TOPIC, 0)
TIMEOUT_MS = 1000


class Break(NoFaults):
    """Lets one operation fail, before or after its effect."""

    def __init__(self, operation: str, error: Exception, *, after: bool = False) -> None:
        self._broken = (operation, after)
        self._error = error

    def before(self, operation: str) -> None:
        """Fail here unless the effect is wanted."""
        if self._broken == (operation, False):
            raise self._error

    def after(self, operation: str) -> None:
        """Fail here if the effect is wanted."""
        if self._broken == (operation, True):
            raise self._error


def _cluster(*, compacted: bool = False) -> MemoryCluster:
    cluster = MemoryCluster(now_ms=5000)
    cluster.create_topic(TOPIC, 1, compacted)
    return cluster


def _write(cluster: MemoryCluster, *pairs: tuple[bytes, bytes | None]) -> None:
    producer = cluster.log().producer()
    for key, value in pairs:
        producer.send(Outgoing(TOPIC, 0, value, key))
    producer.flush(TIMEOUT_MS)


def _reader(cluster: MemoryCluster, position: int = 0, *, committed: bool = True) -> Reader:
    reader = cluster.log().reader(committed=committed)
    reader.assign({PARTITION: position})
    return reader


def _offsets(records: list[Record] | tuple[Record, ...]) -> list[int]:
    return [record.offset for record in records]


def test_compaction_keeps_the_last_record_of_each_key_at_its_offset() -> None:
    """Ends and positions do not change; tombstones stay until they are dropped on request."""
    cluster = _cluster(compacted=True)
    _write(cluster, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", b"1"))
    cluster.compact(TOPIC)
    assert _offsets(list(_reader(cluster).poll(0))) == [2, 3, 4]
    cluster.compact(TOPIC, drop_tombstones=True, young_ms=cluster.now_ms)
    assert _offsets(list(_reader(cluster).poll(0))) == [2, 3, 4]
    cluster.compact(TOPIC, drop_tombstones=True)
    reader = _reader(cluster)
    assert _offsets(list(reader.poll(0))) == [2, 4]
    assert reader.position(PARTITION) == cluster.log().ends([PARTITION])[PARTITION] == 5


def test_compaction_leaves_what_is_not_stable_alone() -> None:
    """An open transaction may still be aborted; then the earlier record of the key is the last one."""
    cluster = _cluster(compacted=True)
    _write(cluster, (b"a", b"1"))
    owner = cluster.log().transactions("owner")
    owner.init(TIMEOUT_MS)
    owner.begin()
    owner.send(Outgoing(TOPIC, 0, b"2", b"a"))
    cluster.compact(TOPIC)
    owner.abort(TIMEOUT_MS)
    cluster.compact(TOPIC)
    assert _offsets(list(_reader(cluster).poll(0))) == [0]


def test_only_a_compacted_topic_is_compacted() -> None:
    """A mistake in a test must not pass unseen."""
    with pytest.raises(TopicError):
        _cluster().compact(TOPIC)


def test_a_transaction_that_is_open_too_long_is_aborted_and_its_owner_fenced() -> None:
    """As the broker does after `transaction.timeout.ms`."""
    cluster = _cluster()
    owner = cluster.log().transactions("owner")
    owner.init(TIMEOUT_MS)
    owner.begin()
    owner.send(Outgoing(TOPIC, 0, b"v"))
    cluster.expire_transaction("owner")
    assert cluster.log().stable_ends([PARTITION]) == {PARTITION: 2}
    with pytest.raises(Fenced):
        owner.commit(TIMEOUT_MS)


def test_a_record_gets_the_clusters_time() -> None:
    """The clock is whatever the test sets."""
    cluster = _cluster()
    _write(cluster, (b"k", b"1"))
    cluster.now_ms = 9000
    _write(cluster, (b"k", b"2"))
    assert [record.timestamp_ms for record in _reader(cluster).poll(0)] == [5000, 9000]
    assert cluster.log().offsets_at([PARTITION], 6000) == {PARTITION: 1}


def test_nothing_is_in_the_log_before_flush() -> None:
    """So that code that forgets to flush fails a test."""
    cluster = _cluster()
    producer = cluster.log().producer()
    producer.send(Outgoing(TOPIC, 0, b"v"))
    assert cluster.log().ends([PARTITION]) == {PARTITION: 0}


def test_memory_of_deleted_records_is_given_back_without_moving_an_offset() -> None:
    """Ten thousand records go, the rest keep their offsets."""
    cluster = _cluster()
    _write(cluster, *[(b"k", b"%d" % number) for number in range(10_010)])
    cluster.log().delete_before({PARTITION: 10_000})
    assert _offsets(list(_reader(cluster, 10_000).poll(0))) == list(range(10_000, 10_010))
    _write(cluster, (b"k", b"next"))
    assert _offsets(list(_reader(cluster, 10_010).poll(0))) == [10_010]


@pytest.mark.parametrize(("after", "end"), [(False, 1), (True, 2)])
def test_a_commit_whose_answer_is_lost_has_or_has_not_happened(after: bool, end: int) -> None:
    """`Unreachable` says neither; the log does, once the next owner is initialised."""
    cluster = _cluster()
    owner = cluster.log(Break("commit", Unreachable("lost"), after=after)).transactions("owner")
    owner.init(TIMEOUT_MS)
    owner.begin()
    owner.send(Outgoing(TOPIC, 0, b"v"))
    with pytest.raises(Unreachable):
        owner.commit(TIMEOUT_MS)
    assert cluster.log().ends([PARTITION]) == {PARTITION: end}
    cluster.log().transactions("owner").init(TIMEOUT_MS)
    assert len(_reader(cluster).poll(0)) == after


def test_a_commit_that_is_aborted_leaves_nothing_and_lets_the_owner_begin_again() -> None:
    """`Aborted` before a commit aborts for real."""
    cluster = _cluster()
    owner = cluster.log(Break("commit", Aborted("broker says so"))).transactions("owner")
    owner.init(TIMEOUT_MS)
    owner.begin()
    owner.send(Outgoing(TOPIC, 0, b"v"))
    with pytest.raises(Aborted):
        owner.commit(TIMEOUT_MS)
    assert list(_reader(cluster).poll(0)) == []
    assert len(_reader(cluster, committed=False).poll(0)) == 1
    owner.begin()


@pytest.mark.parametrize(
    "operation", ["ends", "stable_ends", "starts", "topics", "committed", "poll", "flush", "delete_before"]
)
def test_every_kind_of_call_can_be_made_to_fail(operation: str) -> None:
    """What a simulation draws faults for."""
    cluster = _cluster()
    log = cluster.log(Break(operation, Unreachable("away")))
    reader = log.reader(committed=True)
    calls = {
        "ends": lambda: log.ends([PARTITION]),
        "stable_ends": lambda: log.stable_ends([PARTITION]),
        "starts": lambda: log.starts([PARTITION]),
        "topics": lambda: log.topics([TOPIC]),
        "committed": lambda: log.committed("group", [PARTITION]),
        "poll": lambda: reader.poll(0),
        "flush": lambda: log.producer().flush(TIMEOUT_MS),
        "delete_before": lambda: log.delete_before({PARTITION: 0}),
    }
    with pytest.raises(Unreachable):
        calls[operation]()
