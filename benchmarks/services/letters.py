"""How fast ``windhover dlq replay`` lets dead letters live again, part of ``python -m benchmarks replay``."""

from __future__ import annotations

import time

from acker.config.settings import Input
from acker.errors import CheckFailed
from acker.identity import position_at, source_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, Record
from acker.wire.verdict import Verdict
from benchmarks.measure import Figure
from benchmarks.world import World
from replay.handling.letter_handling import Order, RateLimit
from replay.handling.redrive import Redrive, RedriveLimits
from replay.policy.disposition import DeadReason
from replay.records.dead_letter import Death, LetterTopic, build_dead_letter
from replay.records.due import Due, Loss
from replay.records.headers import location
from replay.records.letters import Filter, LetterAction
from spout.inspect.dead_letters import carry_out
from spout.questions.letters import letters_read

LETTERS = 50_000
RECORD_BYTES = 100
FLUSH_MS_MAX = 60_000


def letters_replayed(world: World, log: KafkaLog, one: Input) -> list[Figure]:
    """Bury records, list them, and let all of them live again.

    Raises:
        CheckFailed: not all of them were replayed.
    """
    now_ms = time.time_ns() // 1_000_000
    _bury(log, one, now_ms)
    meant = [(one, Filter())]
    begun = time.perf_counter()
    with letters_read(log, world.topics, meant) as letters:
        listed = len(letters.rows())
    looked = time.perf_counter() - begun
    begun = time.perf_counter()
    order = Order(LetterAction.REPLAYED, Filter(), "bench", "", "bench")
    limits = RedriveLimits(at_once=LETTERS)
    redrive = Redrive(log, world.topics, meant, order, RateLimit(None, now_ms), limits)
    outcome = carry_out(redrive, clock=lambda: now_ms, sleep_ms=lambda _: None, progress=lambda _: None)
    seconds = time.perf_counter() - begun
    if (listed, outcome.handled_count) != (LETTERS, LETTERS):
        raise CheckFailed(f"{listed} of {LETTERS} letters were found, and {outcome.handled_count} replayed")
    return [
        Figure("dlq list: letters read", listed / looked, "letters/s"),
        Figure("dlq replay: letters", outcome.handled_count / seconds, "letters/s"),
    ]


def _bury(log: KafkaLog, one: Input, now_ms: int) -> None:
    producer = log.producer()
    info = log.topics([one.dead_letter.topic])[one.dead_letter.topic]
    loss = Loss(5, Verdict.FAILED, "split", "ValueError", "a line without words", now_ms, 20, "")
    for offset in range(LETTERS):
        origin = location(one.topic, 0, offset)
        history = (loss._replace(root=origin),)
        source, position = source_of(one.id, 0), position_at(0, offset)
        due = Due(
            source, position, 0, DeadReason.ATTEMPTS, one.group, one.topic, "", origin, 5, 0, now_ms, history
        )
        record = Record(one.topic, 0, offset, b"%d" % offset, b"x" * RECORD_BYTES, (), now_ms)
        topic = LetterTopic(info.name, info.partitions, bytes_max=1_000_000)
        letter: Outgoing = build_dead_letter(due, Death(DeadReason.ATTEMPTS), record, topic, now_ms)
        producer.send(letter)
    producer.flush(FLUSH_MS_MAX)
    producer.close()
