"""Dead-letter topics with all that they may hold: letters of many kinds, notes, marks, audits, strangers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from acker.config import topics as topics_yaml
from acker.config.topics import Topics
from acker.kafka.port import Headers, Outgoing, TopicPartition
from acker.wire.stacks import STACK
from acker.wire.verdict import LostVerdict, Verdict
from replay.policy.disposition import DeadReason
from replay.records.dead_letter import DEAD, KIP_PREFIX, MISSING
from replay.records.due import Loss, history_json, left_out_entry
from replay.records.headers import HISTORY, OWN, Lineage, build_headers
from replay.records.letters import BY, HANDLED, LETTER, WHY, LetterAction
from replay.records.record_time import RecordTime, time_headers
from replay.records.redrives import REDRIVE, RedriveBegun, audit_record
from tests.support.memory.cluster import MemoryCluster

SECOND_MS: Final = 1_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

NOW_MS: Final = 1_782_900_000_000
"""Wall time of whoever looks: some letters died half a minute before, others ten days before."""

SENTENCES: Final = "sentences.g.dlq"
ORDERS: Final = "orders.h.dlq"

TOPICS: Final[Topics] = topics_yaml.parse(
    """
acker: {partitions: 2}
inputs:
  sentences: {id: 1, group: g, partitions: 2}
  orders: {id: 2, group: h, partitions: 2}
""",
    file="topics.yaml",
    environ={},
)


class Kind(NamedTuple):
    """How records of one kind die."""

    dead: DeadReason = DeadReason.ATTEMPTS
    verdict: LostVerdict = Verdict.FAILED
    operator: str = "split"
    error: str = "ValueError"
    missing: str = ""


TIMED_OUT: Final = Kind(verdict=Verdict.TIMED_OUT, operator="", error="")
GONE: Final = Kind(dead=DeadReason.GONE, missing="the record is no longer in the log")
DROPPED: Final = Kind(dead=DeadReason.DROPPED, missing="a rule drops what fails by this cause")
UNSEEN: Final = Kind(operator="b\u202et", error="E\x1b[2JError")
"""Names that send commands to a terminal."""


class LettersWorld:
    """A cluster in memory whose dead-letter topics a test fills."""

    now_ms = NOW_MS

    def __init__(self, topics: Topics = TOPICS) -> None:
        self.topics = topics
        self.cluster = MemoryCluster()
        self.log = self.cluster.log()
        names: set[str] = set()
        for input in topics.inputs.values():
            names |= {input.topic, input.replay_topic, input.dead_letter.topic}
        for name in sorted(names):
            self.cluster.create_topic(name, 2)
        for topic in ("_ack_init", "_ack_verdict", "_ack_state", "_ack_quarantine"):
            self.cluster.create_topic(topic, 2)
        self.cluster.create_topic("_ack_due", 2, compacted=True)

    def put(self, record: Outgoing) -> int:
        """Write a record; return its offset."""
        place = TopicPartition(record.topic, record.partition)
        offset = self.log.ends([place])[place]
        producer = self.log.producer()
        producer.send(record)
        producer.flush(0)
        return offset

    def let_die(
        self,
        topic: str,
        partition: int,
        kind: Kind,
        age_ms: int,
        key: bytes | None,
        value: bytes = b"{}",
        record_time: RecordTime | None = None,
    ) -> str:
        """Write a letter of a record that died so long ago; return its place.

        `record_time`: of the record; None: the letter has the time of the death.
        """
        input = next(input for input in self.topics.inputs.values() if input.dead_letter.topic == topic)
        place = TopicPartition(topic, partition)
        number = self.log.ends([place])[place]
        origin = f"{input.topic}/{partition}@{100 + number}"
        died_ms = NOW_MS - age_ms
        lineage = Lineage(
            origin=origin,
            attempt=3,
            first_emitted_ms=died_ms - 2_000,
            reason=kind.verdict.value,
            cause=f"{kind.error}: bad",
            operator=kind.operator,
        )
        loss = Loss(3, kind.verdict, kind.operator, kind.error, "bad", died_ms - 1_000, 500, origin)
        missing: Headers = ((MISSING, kind.missing.encode()),) if kind.missing else ()
        headers: Headers = (
            (DEAD, kind.dead.encode()),
            *missing,
            *build_headers(lineage),
            *(time_headers(record_time) if record_time else ()),
            (HISTORY, history_json((loss,))),
        )
        payload = None if kind.missing else value
        offset = self.put(Outgoing(topic, partition, payload, key, headers, died_ms))
        return f"{topic}/{partition}@{offset}"

    def handle(self, letter: str, action: LetterAction, redrive: str = "") -> None:
        """Write the mark of a letter, an hour before now."""
        topic, where = letter.split("/")
        headers: Headers = (
            (HANDLED, action.encode()),
            (LETTER, letter.encode()),
            (BY, b"kim"),
            (WHY, b"no use"),
            *(((REDRIVE, redrive.encode()),) if redrive else ()),
        )
        self.put(Outgoing(topic, int(where.split("@")[0]), None, None, headers, NOW_MS - HOUR_MS))

    def begin_redrive(self, topic: str, redrive: str) -> None:
        """Write that a redrive began."""
        begun = RedriveBegun(
            redrive, LetterAction.REPLAYED, "kim", "fixed", "all", 1, (0, 0), (0, 0), (0, 0), NOW_MS - HOUR_MS
        )
        self.put(audit_record(begun, topic))

    def put_strangers(self, topic: str, values: Sequence[bytes]) -> None:
        """Write records that are no letters of Windhover's."""
        for value in values:
            self.put(Outgoing(topic, 0, value, timestamp_ms=NOW_MS - HOUR_MS))

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Clean the log of a partition."""
        self.log.delete_before({TopicPartition(topic, partition): offset})


def recorded_letters() -> LettersWorld:
    """Return two dead-letter topics with every kind of record, handled and not, one of them cleaned."""
    world = LettersWorld()
    ages_ms = (30 * SECOND_MS, HOUR_MS // 2, 5 * HOUR_MS, 3 * DAY_MS, 10 * DAY_MS)
    # thirteen keys and operators, so that some are among the others
    for number in range(13):
        kind = Kind(operator=f"bolt-{number}", error=("ValueError", "KeyError", "OSError")[number % 3])
        world.let_die(SENTENCES, number % 2, kind, ages_ms[number % 5], b"key-%d" % number)
    for key in (None, b"", b"null", b"\xff", "grün\u202e".encode(), b"key-3"):
        world.let_die(SENTENCES, 0, UNSEEN if key == b"\xff" else TIMED_OUT, ages_ms[2], key)
    world.let_die(SENTENCES, 1, GONE, ages_ms[3], None)
    world.let_die(SENTENCES, 1, DROPPED, ages_ms[1], b"key-3")
    world.put_strangers(SENTENCES, [b"hello", b""])
    # the log of one partition of the other topic begins behind its first two letters
    orders = [world.let_die(ORDERS, 1, Kind(), ages_ms[4], b"order-%d" % number) for number in range(4)]
    world.delete_before(ORDERS, 1, 2)
    replayed = world.let_die(ORDERS, 0, Kind(operator="count"), ages_ms[2], b"order-3")
    world.let_die(ORDERS, 0, Kind(operator="count"), ages_ms[0], b"order-3")
    world.begin_redrive(ORDERS, "r1")
    world.handle(replayed, LetterAction.REPLAYED, "r1")
    world.handle(orders[3], LetterAction.DROPPED)
    # a mark of a letter that its log has no longer
    world.handle(orders[0], LetterAction.DROPPED)
    return world


def recorded_details() -> LettersWorld:
    """Return letters with all that a letter may have: headers, stacks, long histories, odd bytes."""
    world = LettersWorld()

    def put(partition: int, headers: Headers, *, key: bytes | None, value: bytes | None) -> None:
        world.put(Outgoing(SENTENCES, partition, value, key, headers, NOW_MS - HOUR_MS))

    loss = Loss(1, Verdict.FAILED, "split", "ValueError", "bad", NOW_MS - DAY_MS, 500, "sentences/1@7")
    # 1. all that a replay worker writes, with headers of the record's own
    lineage = Lineage(
        origin="sentences/1@7",
        attempt=4,
        abandoned=1,
        first_emitted_ms=NOW_MS - 2 * DAY_MS,
        reason="TIMED_OUT",
        cause="ValueError: bad \u202e line",
        operator="spl\u202eit",
        timed_out=1,
        record_id="t2Yz4Qb8R0u0qk1Xn3m1Wg/1@7#5",
    )
    timed_out = loss._replace(attempt=4, reason=Verdict.TIMED_OUT, error="", age_ms=0)
    history = (loss, left_out_entry(loss, 7), timed_out)
    ours: Headers = (
        (DEAD, DeadReason.ATTEMPTS.encode()),
        *build_headers(lineage),
        (HISTORY, history_json(history)),
        (STACK, 'File "split.py", line 12\n  \u202eraise\nValueError: bad'.encode()),
        (f"{KIP_PREFIX}group", b"g\x1b[2J"),
        (f"{KIP_PREFIX}message", b"given up after 4 emissions"),
        *time_headers(RecordTime(NOW_MS - 3 * DAY_MS)),
    )
    odd: Headers = (("gr\u00fcn\u202e", b"\xff\x00"), ("", b"x"))
    own: Headers = (("trace", b"1"), ("trace", None), ("empty", b""), *odd)
    put(1, (*own, *ours), key=b"k\xff", value='{"grün": "\u202e"}'.encode())
    # 2. keys and payloads that are null, empty, long, or no text; one whose record is gone, and a note
    for key, value in ((None, None), (b"", b""), (b"null", b"\x00\xff" * 40), (b"x" * 5_000, b"y" * 2_000)):
        put(0, ours[:3], key=key, value=value)
    gone: Headers = ((MISSING, b"the record is no longer in the log"),)
    put(0, (*ours[:1], *gone), key=None, value=None)
    put(0, ((DEAD, DeadReason.DROPPED.encode()), *gone), key=b"k", value=None)
    # 3. a letter of a letter: it came with headers of its own that have our names
    put(0, (*ours, (OWN, b"%d" % len(ours)), *ours[:4]), key=b"k", value=b"again")
    # 4. headers that no worker wrote, and no history
    strange: Headers = ((DEAD, b"\xff\x1b[2J"), ("windhover.attempt", b"many"), (HISTORY, b"[1, {}"))
    put(0, strange, key=b"k", value=b"{}")
    # 5. letters of one record in both partitions; one of them was replayed, and dropped later
    second = f"{SENTENCES}/0@{world.log.ends([TopicPartition(SENTENCES, 0)])[TopicPartition(SENTENCES, 0)]}"
    put(0, ours, key=b"k", value=b"{}")
    world.handle(second, LetterAction.REPLAYED, "r1")
    world.handle(second, LetterAction.DROPPED)
    world.put_strangers(SENTENCES, [b"hello"])
    world.let_die(ORDERS, 1, Kind(), DAY_MS, b"k")
    return world
