"""Redrives with every outcome that a letter can have, as the records that they and others write."""

from __future__ import annotations

from typing import Final, NamedTuple

from acker.config.settings import Input
from acker.identity import position_at, source_of
from acker.kafka.port import Headers, Outgoing, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import SourceRun, Verdicts
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason
from replay.records.dead_letter import DEAD
from replay.records.due import Loss, history_json
from replay.records.headers import HISTORY, Lineage, build_headers
from replay.records.letters import LETTER, LetterAction
from replay.records.redrives import REDRIVE, RedriveBegun, RedriveEnd, RedriveEnded, audit_record
from tests.support.worlds.letters_world import (
    DAY_MS,
    HOUR_MS,
    NOW_MS,
    ORDERS,
    SECOND_MS,
    SENTENCES,
    Kind,
    LettersWorld,
)

UNSEEN_NAME: Final = "r\x1b[2J\u202e/5"
"""The id of a redrive that sends commands to a terminal."""


class CopyPlace(NamedTuple):
    """Where a copy is in the replay topic of its input."""

    input: Input
    partition: int
    offset: int

    @property
    def root(self) -> str:
        return f"{self.input.replay_topic}/{self.partition}@{self.offset}"


class RedrivesWorld(LettersWorld):
    """A cluster in memory with what redrives write, and what becomes of their copies."""

    def ends(self, topic: str) -> tuple[int, ...]:
        """Return where each partition of a topic ends now."""
        ends = self.log.ends([TopicPartition(topic, number) for number in range(2)])
        return tuple(ends[place] for place in sorted(ends))

    def begin(
        self,
        topic: str,
        redrive: str,
        age_ms: int,
        action: LetterAction = LetterAction.REPLAYED,
        letters: int = 1,
        by: str = "kim",
        why: str = "fixed in 1.3",
    ) -> None:
        """Write that a redrive of the letters of a topic began so long ago."""
        input = self.input_of(topic)
        begun = RedriveBegun(
            redrive=redrive,
            action=action.value,
            by=by,
            why=why,
            which="error ValueError",
            letters=letters,
            copies_from=self.ends(input.replay_topic),
            letters_from=self.ends(topic),
            verdicts_from=self.ends("_ack_verdict"),
            at_ms=NOW_MS - age_ms,
        )
        self.put(audit_record(begun, topic))

    def end(self, topic: str, redrive: str, age_ms: int, end: RedriveEnd = RedriveEnd.DONE) -> None:
        """Write how a redrive ended so long ago."""
        ended = RedriveEnded(redrive, end.value, "lee", handled=3, acked=2, died=-1, at_ms=NOW_MS - age_ms)
        self.put(audit_record(ended, topic))

    def input_of(self, topic: str) -> Input:
        """Return the input of a dead-letter topic."""
        return next(input for input in self.topics.inputs.values() if input.dead_letter.topic == topic)

    def replay(self, letter: str, redrive: str) -> CopyPlace:
        """Let a redrive emit a letter again, and mark it; return the place of the copy."""
        topic, where = letter.split("/")
        headers: Headers = ((LETTER, letter.encode()), (REDRIVE, redrive.encode()), (HISTORY, b"[]"))
        copy = self._copy(self.input_of(topic), int(where.split("@")[0]), headers)
        self.handle(letter, LetterAction.REPLAYED, redrive)
        return copy

    def emit_again(self, lost: CopyPlace) -> CopyPlace:
        """Let a replay worker make another copy, of a copy that was lost."""
        return self._copy(lost.input, lost.partition, ((HISTORY, history_json((_loss_of(lost),))),))

    def _copy(self, input: Input, partition: int, headers: Headers) -> CopyPlace:
        lineage = build_headers(Lineage(origin=f"{input.topic}/{partition}@100", attempt=1))
        offset = self.put(Outgoing(input.replay_topic, partition, b"{}", b"k", (*lineage, *headers), NOW_MS))
        return CopyPlace(input, partition, offset)

    def settle(self, *copies: CopyPlace, verdict: Verdict = Verdict.ACKED) -> None:
        """Let an acker write that copies of one partition, each behind the one before, are settled."""
        first, last = copies[0], copies[-1]
        source = source_of(first.input.id, first.partition, replay=True)
        run = SourceRun(source, position_at(0, first.offset), position_at(0, last.offset + 1))
        is_acked = verdict is Verdict.ACKED
        event = Verdicts((run,) if is_acked else (), () if is_acked else (run,), ())
        self.put(Outgoing("_ack_verdict", first.partition, wire_codec().encode(event), timestamp_ms=NOW_MS))

    def die_again(self, copy: CopyPlace) -> None:
        """Let a copy become a dead letter."""
        loss = _loss_of(copy)
        lineage = Lineage(origin=f"{copy.input.topic}/{copy.partition}@100", reason=loss.reason.value)
        headers: Headers = (
            (DEAD, DeadReason.ATTEMPTS.encode()),
            *build_headers(lineage),
            (HISTORY, history_json((loss,))),
        )
        topic = copy.input.dead_letter.topic
        self.put(Outgoing(topic, copy.partition, b"{}", b"k", headers, NOW_MS - SECOND_MS))


def _loss_of(copy: CopyPlace) -> Loss:
    """Return how the emission of a copy was lost."""
    return Loss(1, Verdict.FAILED, "split", "ValueError", "bad", NOW_MS - 2 * SECOND_MS, 500, copy.root)


def recorded_redrives() -> RedrivesWorld:
    """Return redrives of two inputs: over and running, of copies and of drops, with all outcomes."""
    world = RedrivesWorld()
    letters = [world.let_die(SENTENCES, number % 2, Kind(), 20 * DAY_MS, b"k") for number in range(20)]
    in_0, in_1 = letters[0::2], letters[1::2]
    orders = [world.let_die(ORDERS, 1, Kind(), 9 * DAY_MS, b"k") for _ in range(4)]
    # 1. one of which a part has left the log: what is open there is unknown
    world.begin(ORDERS, "r-old", 8 * DAY_MS)
    old = world.replay(orders[0], "r-old")
    world.end(ORDERS, "r-old", 8 * DAY_MS)
    world.settle(world.replay(orders[1], "r-old"))
    world.delete_before("_ack_verdict", 1, 1)
    world.settle(old)
    # 2. all outcomes: acked, acked by its second copy, gone, died, died by its second copy, open,
    #    and one whose copy nobody can find
    world.begin(SENTENCES, "r1", 3 * DAY_MS, letters=9)
    copies_0 = [world.replay(letter, "r1") for letter in in_0[:5]]
    copies_1 = [world.replay(letter, "r1") for letter in in_1[:3]]
    world.handle(in_1[3], LetterAction.REPLAYED, "r1")
    world.settle(*copies_0[:2])
    world.settle(copies_0[2], verdict=Verdict.ABSENT)
    world.settle(world.emit_again(world.emit_again(copies_0[3])))
    world.die_again(copies_1[0])
    world.die_again(world.emit_again(copies_1[1]))
    world.emit_again(copies_1[2])
    world.end(SENTENCES, "r1", 3 * DAY_MS - HOUR_MS)
    world.end(SENTENCES, "r1", 3 * DAY_MS - 2 * HOUR_MS, RedriveEnd.STALLED)
    # 3. letters that were dropped, of both inputs by one order
    world.begin(SENTENCES, "r2", DAY_MS, LetterAction.DROPPED, 2, why="test data")
    world.begin(ORDERS, "r2", DAY_MS, LetterAction.DROPPED, 1, why="test data")
    world.handle(in_0[5], LetterAction.DROPPED, "r2")
    world.handle(in_0[6], LetterAction.DROPPED, "r2")
    world.handle(orders[2], LetterAction.DROPPED, "r2")
    world.end(SENTENCES, "r2", DAY_MS)
    world.end(ORDERS, "r2", DAY_MS, RedriveEnd.CANCELLED)
    # 4. one that was killed, one with a name that nobody sees, and one that runs and handles a
    #    letter once more
    world.begin(SENTENCES, "r3", 6 * HOUR_MS, why="")
    world.replay(in_0[7], "r3")
    world.begin(SENTENCES, UNSEEN_NAME, 5 * HOUR_MS, by="b\u202et")
    world.settle(world.replay(in_0[8], UNSEEN_NAME))
    world.end(SENTENCES, UNSEEN_NAME, 5 * HOUR_MS, RedriveEnd.DIED_AGAIN)
    world.begin(SENTENCES, "r4", HOUR_MS // 2, letters=20)
    world.settle(world.replay(in_0[0], "r4"))
    # 5. records of strangers, and a mark of a redrive whose beginning nobody knows
    world.put_strangers(SENTENCES, [b"hello", b""])
    world.handle(in_1[4], LetterAction.REPLAYED, "r-nobody")
    world.handle(in_1[5], LetterAction.REPLAYED)
    return world
