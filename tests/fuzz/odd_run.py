"""One run of many records through every reader, on the in-memory log, and what must be true after each round.

A tenth of the records is odd: half of them lie in the source, the others in all other topics that somebody
reads. A round writes, lets the services work, at times kills all of them, and lets commands and pages look.
Then each record must have its verdict and its place:

- a sound record was confirmed once, one that always fails is a dead letter once;
- an odd record of the source or the replay topic was handed out and has a verdict; where it was open when the
  services were killed, and no copy of it can be written, it is a dead letter;
- an odd record of a topic by which others speak to an acker is in the quarantine, with its place;
- of a batch of the source that cannot be read, for any reason, nothing is handed out, and what lies behind
  it is;
- a record that compaction took before anybody read it is not handed out, and has no verdict of its own; one
  that it takes while it waits for its replay is a dead letter;
- where the source was cut and grew again, what is there now is handed out, and the lost records are not
  waited for;
- a record whose copy the broker refuses is a dead letter.

A log in memory has no codecs: odd records in packed batches are written to a real broker, in
tests/integration/kafka.

What was judged is deleted from the log, so a run of a million takes no more memory than one of ten thousand.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Final, Literal, assert_never

from acker.errors import NOT_UNPACKED, TOO_LARGE, CodecError, Damaged
from acker.identity import offset_of, source_of
from acker.kafka.port import Log, Outgoing, Record, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Verdicts
from replay.records.dead_letter import OUR_PREFIXES
from replay.records.headers import parted_headers
from spout.cli import main as cli
from spout.planning.journal import BEGINNING
from tests.support.memory.partition import DAMAGE_TEXT
from tests.support.odd_records import ODD_RECORDS, append_odd, odd_record
from tests.support.worlds.acker_world import outcomes_of
from tests.support.worlds.odd_world import (
    ALWAYS_FAILS,
    LETTERS,
    REPLAY,
    SOURCE,
    TEXT,
    TOPICS,
    UNEXPECTED_EXIT,
    OddWorld,
)

ODD_SHARE: Final = 0.1
FAILING_SHARE: Final = 0.01
HUGE_SHARE: Final = 0.01
"""Of the odd ones: these are drawn from `ODD_RECORDS`, which has records of 900 kB."""

HOLE_SHARE: Final = 0.05
"""Of the odd ones: these are a transaction that is given up, a hole for whoever reads committed records."""

DAMAGE_SHARE: Final = 0.02
"""Of the odd ones: beside these some records of the source cannot be read, by a reason of `WHYS`."""

WHYS: Final = (DAMAGE_TEXT, f"{TOO_LARGE}in a test", f"{NOT_UNPACKED} in a test")

COMPACTED_SHARE: Final = 0.05
"""Of the odd ones: beside these some records of one key are written, of which compaction leaves the last."""

COMPACTED_RECORDS_MAX: Final = 6
TOMBSTONE_SHARE: Final = 0.3
"""Of those: the last one has no value, and compaction may take it as well."""

CUT_SHARE: Final = 0.3
"""Of the rounds: before these the source's log loses its last records, as by an unclean election."""

CUT_RECORDS_MAX: Final = 60
AMID_SHARE: Final = 0.5
"""Of the cuts: these come while records are open that are lost."""

DAMAGED_RECORDS_MAX: Final = 5
TOMORROW_SHARE: Final = 0.5
"""Of the records that always fail: these are dated tomorrow, which the replay topic refuses."""

DAY_MS: Final = 86_400_000
AHEAD_MS_MAX: Final = "3600000"
"""So far ahead of the broker's clock a record of the replay topic may be dated, ms."""

COPIES_REFUSED: Final = ("UNWRITABLE", "REFUSED", "TOO_LARGE")
"""Why a record that was lost became a dead letter, where no copy of it could be written."""

OTHERS_TRANSACTION: Final = "a program of others"
HOLE_RECORDS_MAX: Final = 20
RESTART_SHARE: Final = 0.3
ROUNDS_TO_SETTLE_MAX: Final = 60
CALM_ROUNDS: Final = 4
"""All is settled when no root was open in so many rounds: a copy, a dead letter or a record of the quarantine
may come behind the last verdict."""

_DELETED: Final = (SOURCE.topic, REPLAY, LETTERS, "_ack_quarantine")
_COMPACTED: Final = ("_ack_state", "_ack_due")
_CODEC: Final = wire_codec()
_READ_MAX: Final = 1_000_000
_QUARANTINING: Final = ("_ack_init", "_ack_ack", "_ack_fail")
_LOOKS: Final = (
    "status", "roots", "machinery", "failures", "latency", "check", "dlq list --all", "dlq stats --all",
    "dlq redrives", "topics repair",
)  # fmt: skip
_PATHS: Final = (
    "/partition/sentences/0",
    "/machinery",
    "/failures",
    "/letters?all=on",
    "/latency",
    "/redrives",
)


Reader = Literal["spout", "query"]
"""Who emits: a `KafkaSpout` and its client, or the planning process of a query and its publisher."""


class OddRun:
    """A world, what was written into it, and what was seen of it.

    Attributes:
        written: how many records others have written, in all topics.
        odd: how many of them are odd, by topic.
        holes: how many transactions others have given up, beside them.
        damaged: how many records of the source cannot be read, beside them.
        compacted: how many records of the source compaction took.
        cuts: how often the source was cut.
        refused: how many records have copies that the broker refuses.
    """

    def __init__(self, seed: int, reader: Reader) -> None:
        self.written = 0
        self.odd: Counter[str] = Counter()
        self.holes = 0
        self.damaged = 0
        self.compacted = 0
        self.cuts = 0
        self.refused = 0
        self.looks = 0
        self.restarts = 0
        self._reader = reader
        self._journal = BEGINNING
        self._random = random.Random(seed)
        # of a damaged batch nobody can say what it held: to stop there would end the run
        self._world = OddWorld(f"{TEXT}    on_data_loss: skip\n")
        self._world.cluster.configure(SOURCE.topic, "cleanup.policy", "compact,delete")
        self._world.cluster.configure(REPLAY, "message.timestamp.after.max.ms", AHEAD_MS_MAX)
        self._log: Log = self._world.cluster.log()
        self._read_until: Counter[str] = Counter()
        self._serial = 0
        self._offsets_to_compact: dict[bytes | None, range] = {}  # by their key
        self._values: dict[int, bytes | None] = {}  # of the source's records that are to be confirmed
        self._odd_values: dict[str, bytes | None] = {}  # of the odd ones among them, and of copies, by place
        self._lost_values: Counter[bytes | None] = Counter()
        self._lost_letters: set[str] = set()
        self._confirmed_wanted: Counter[bytes | None] = Counter()
        self._letters_wanted: set[str] = set()
        self._quarantine_wanted: set[str] = set()
        self._quarantined: set[str] = set()
        self._letters: Counter[str] = Counter()
        self._roots_open: set[tuple[int, int]] = set()
        self._delete_until: Counter[str] = Counter()
        self._wrong: list[str] = []

    def round(self, count: int) -> None:
        """Write records, and let everybody read them."""
        is_cut = self._random.random() < CUT_SHARE
        is_amid = is_cut and self._random.random() < AMID_SHARE
        if is_cut and not is_amid:
            self._cut()
        self._write(count)
        if is_amid:
            self._work(1)
            self._read_what_came()
            self._cut()
            self._write(CUT_RECORDS_MAX)
        self.written += count
        self._settle()
        self._look()

    def _write(self, count: int) -> None:
        for _ in range(count):
            if self._random.random() < ODD_SHARE:
                self._write_odd()
                if self._random.random() < HOLE_SHARE:
                    self._write_hole()
                if self._random.random() < DAMAGE_SHARE:
                    self._write_damaged()
                if self._random.random() < COMPACTED_SHARE:
                    self._write_compacted()
            else:
                self._write_sound()

    def wrong(self) -> list[str]:
        """Return what is not as it must be, one sentence each; and delete what was judged."""
        self._read_what_came()
        lost = self._confirmed_wanted - Counter(self._world.confirmed)
        # what was cut off may have been confirmed before
        twice = Counter(self._world.confirmed) - self._confirmed_wanted - self._lost_values
        found = [f"{count} records {value!r} were not confirmed" for value, count in lost.items()]
        found += [f"{value!r} was confirmed {count} times too often" for value, count in twice.items()]
        found += [f"{place} is no dead letter" for place in self._letters_wanted - self._letters.keys()]
        found += [
            f"{place} is {count} dead letters"
            for place, count in self._letters.items()
            if count > 1 + (place in self._lost_letters)  # another record may be there now
        ]
        found += [
            f"{place} is not in the quarantine" for place in self._quarantine_wanted - self._quarantined
        ]
        found += [f"root {position} of {source} has no verdict" for source, position in self._roots_open]
        found += self._wrong
        self._forget()
        return found

    def report(self) -> str:
        """Return what was done, for people."""
        odd = ", ".join(f"{topic} {count:,}" for topic, count in sorted(self.odd.items()))
        ended = Counter(ended.service for ended in self._world.ended)
        return (
            f"{self._reader}: {self.written:,} records, {self.odd.total():,} of them odd ({odd}),"
            f" {self.holes:,} holes, {self.damaged:,} records that cannot be read,"
            f" {self.compacted:,} taken by compaction, {self.cuts} cuts, {self.refused:,} refused copies;"
            f" {self.restarts} restarts, {self.looks} commands; {dict(ended)} ended at records that `topics"
            " repair` marked. Nothing else ended, and each record has its verdict and its place"
        )

    def _write_sound(self) -> None:
        offset = self._world.cluster.partition(SOURCE).end
        is_failing = self._reader == "spout" and self._random.random() < FAILING_SHARE
        self._serial += 1
        value = ALWAYS_FAILS if is_failing else b"%d" % self._serial
        is_of_tomorrow = is_failing and self._random.random() < TOMORROW_SHARE
        self.refused += is_of_tomorrow
        record_ms = self._world.now_ms + DAY_MS if is_of_tomorrow else None
        sound = Outgoing(*SOURCE, value, b"key", (), record_ms)
        self._world.cluster.partition(SOURCE).append(sound, self._world.now_ms)
        if is_failing:
            self._letters_wanted.add(f"{SOURCE.topic}/0@{offset}")
        else:
            self._want(offset, value)

    def _want(self, offset: int, value: bytes | None) -> None:
        """Note that the record of the source at an offset is to be confirmed."""
        if self._reader == "spout":
            self._confirmed_wanted[value] += 1
            self._values[offset] = value

    def _write_odd(self) -> None:
        """Write one odd record, and note what must become of it."""
        is_of_a_kind = self._random.random() < HUGE_SHARE
        odd = self._random.choice(ODD_RECORDS) if is_of_a_kind else odd_record(self._random)
        topic = SOURCE.topic if self._random.random() < 0.5 else self._random.choice(TOPICS[1:])
        offset = append_odd(self._world.cluster, TopicPartition(topic, 0), odd)
        self.odd[topic] += 1
        if topic == SOURCE.topic:
            self._want(offset, odd.record.value)
        elif topic == REPLAY and self._reader == "spout":
            self._confirmed_wanted[odd.record.value] += 1
        if topic in (SOURCE.topic, REPLAY) and self._reader == "spout":
            self._odd_values[f"{topic}/0@{offset}"] = odd.record.value
        elif topic in _QUARANTINING:
            self._quarantine_wanted.add(f"{topic}/0@{offset}")

    def _write_hole(self) -> None:
        """Write records of a transaction and give it up: none of them may be handed out or judged."""
        topic = SOURCE.topic if self._random.random() < 0.5 else self._random.choice(TOPICS[1:])
        partition = self._world.cluster.partition(TopicPartition(topic, 0))
        for _ in range(self._random.randint(1, HOLE_RECORDS_MAX)):
            raw = odd_record(self._random).record
            given_up = Outgoing(*partition.name, b"given up", raw.key, (), raw.timestamp_ms)
            partition.append(given_up, self._world.cluster.now_ms, OTHERS_TRANSACTION)
        partition.end_transaction(OTHERS_TRANSACTION, self._world.cluster.now_ms, committed=False)
        self.holes += 1

    def _write_damaged(self) -> None:
        """Write records to the source that nobody can read: none of them may be handed out."""
        count = self._random.randint(1, DAMAGED_RECORDS_MAX)
        self._world.write([b"damaged"] * count)
        partition = self._world.cluster.partition(SOURCE)
        partition.damage(partition.end - count, partition.end, self._random.choice(WHYS))
        self.damaged += count

    def _write_compacted(self) -> None:
        """Write records of one key, of which compaction leaves the last one, now or a moment later.

        By then some were read: those of them that fail have no record any more for their replay.
        """
        self._serial += 1
        key = b"compacted %d" % self._serial
        is_now = self._random.random() < 0.5
        partition = self._world.cluster.partition(SOURCE)
        count = self._random.randint(1, COMPACTED_RECORDS_MAX)
        has_tombstone = self._random.random() < TOMBSTONE_SHARE
        for number in range(count + 1):
            is_last = number == count
            value = ALWAYS_FAILS if number % 2 and self._reader == "spout" else b"%s, %d" % (key, number)
            if is_last:
                value = None if has_tombstone else b"%s, the last" % key
            offset = partition.append(Outgoing(*SOURCE, value, key), self._world.cluster.now_ms)
            if is_now and not is_last:
                continue
            if value == ALWAYS_FAILS:
                self._letters_wanted.add(f"{SOURCE.topic}/0@{offset}")
            elif not (is_last and has_tombstone and is_now):
                self._want(offset, value)
        self.compacted += count
        if is_now:
            partition.compact(drop_tombstones=has_tombstone, keys={key})
        else:
            self._offsets_to_compact[key] = range(partition.end - count - 1, partition.end - 1)

    def _compact(self) -> None:
        """Let compaction take the records that were written for it, read or not."""
        partition = self._world.cluster.partition(SOURCE)
        for key, offsets in self._offsets_to_compact.items():
            partition.compact(drop_tombstones=False, keys={key})
            for offset in offsets:
                if offset not in self._world.opened:  # nobody will get it
                    self._forget_record(offset)
        self._offsets_to_compact.clear()

    def _forget_record(self, offset: int) -> None:
        """Wait no more for what becomes of a record of the source; it may have become that."""
        if offset in self._values:
            value = self._values.pop(offset)
            self._confirmed_wanted[value] -= 1
            self._lost_values[value] += 1
        place = f"{SOURCE.topic}/0@{offset}"
        self._odd_values.pop(place, None)
        self._lost_letters.add(place)
        self._letters_wanted.discard(place)
        self._roots_open.discard((source_of(1, 0), offset))

    def _forget_odd_record(self, place: str) -> None:
        """Wait no more for the confirmation of an odd record whose copy cannot be written."""
        if place in self._odd_values:
            value = self._odd_values.pop(place)
            self._confirmed_wanted[value] -= 1
            self._lost_values[value] += 1
            topic, _, offset = place.partition("/0@")
            if topic == SOURCE.topic:
                del self._values[int(offset)]

    def _cut(self) -> None:
        """Let the source lose its last records; what is written from now on takes their offsets.

        Some of them may be open, or wait for a replay: these may be confirmed, or become dead letters.
        """
        partition = self._world.cluster.partition(SOURCE)
        end = partition.end
        cut_at = max(partition.start, end - self._random.randint(1, CUT_RECORDS_MAX))
        partition.cut(cut_at)
        self.cuts += 1
        for offset in range(cut_at, end):
            self._forget_record(offset)
        self._world.opened -= set(range(cut_at, end))
        for key, offsets in list(self._offsets_to_compact.items()):
            if offsets.stop >= cut_at:  # the last one of its key is lost, too
                del self._offsets_to_compact[key]
        self._read_until[SOURCE.topic] = min(self._read_until[SOURCE.topic], cut_at)
        self._delete_until[SOURCE.topic] = min(self._delete_until[SOURCE.topic], cut_at)

    def _settle(self) -> None:
        """Let the services work until all is settled, and kill them at times."""
        if self._random.random() < RESTART_SHARE:
            self._world.restart_all()
            self.restarts += 1
        calm_rounds = 0
        for _ in range(ROUNDS_TO_SETTLE_MAX):
            self._work(1)
            self._compact()
            self._read_what_came()
            calm_rounds = 0 if self._roots_open else calm_rounds + 1
            if calm_rounds == CALM_ROUNDS:
                break

    def _work(self, rounds: int) -> None:
        match self._reader:
            case "spout":
                self._world.work(rounds)
            case "query":
                self._journal = self._world.work_as_query(self._journal, rounds, is_failing=_fails_once)
            case _:
                assert_never(self._reader)

    def _look(self) -> None:
        """Run a command and open a page or two, drawn from all that there are."""
        newest = self._world.cluster.partition(SOURCE).end - 1
        commands = [*self._random.sample(_LOOKS, 2), f"inspect {SOURCE.topic}/0@{newest}"]
        nowhere = io.StringIO()
        with self._world.commands(), redirect_stdout(nowhere), redirect_stderr(nowhere):
            for command in commands:
                self.looks += 1
                if cli.run(command.split()) == UNEXPECTED_EXIT and command != "check":
                    self._wrong.append(f"windhover {command} fell over")
        codes = self._world.pages(["/", self._random.choice(_PATHS)])
        self._wrong += [f"the page {path} answers {code}" for path, code in codes.items() if code >= 500]

    def _read_what_came(self) -> None:
        """Read on in the topics that tell what became of the records."""
        for topic, is_copy in ((SOURCE.topic, False), (REPLAY, True)):
            source = source_of(1, 0, replay=is_copy)
            self._roots_open |= {(source, record.offset) for record in self._new_records(topic)}
        for record in self._new_records("_ack_verdict"):
            # a log that was cut goes on in another generation of positions
            self._roots_open -= {(source, offset_of(root)) for source, root in settled_roots(record)}
        for record in self._new_records(LETTERS):
            if origin := _text_of(record, "windhover.origin"):
                self._letters[origin] += 1
                if _text_of(record, "windhover.dead") in COPIES_REFUSED:
                    self._forget_odd_record(origin)
        for record in self._new_records("_ack_quarantine"):
            self._quarantined.add(_text_of(record, "windhover.origin"))

    def _new_records(self, topic: str) -> Sequence[Record]:
        place = TopicPartition(topic, 0)
        reader = self._log.reader(committed=True)
        reader.assign({place: self._read_until[topic]})
        records: list[Record] = []
        end = self._world.cluster.partition(place).stable_end
        while reader.position(place) < end:
            try:
                records += reader.poll(0, _READ_MAX)
            except Damaged:
                reader.pass_over(place)
        self._read_until[topic] = reader.position(place)
        reader.close()
        return records

    def _forget(self) -> None:
        """Delete what was judged, as a topic's retention does; one round stays."""
        self._wrong.clear()
        self._confirmed_wanted.clear()
        self._values.clear()
        self._odd_values.clear()
        self._world.opened.clear()
        self._lost_values.clear()
        self._lost_letters.clear()
        self._world.confirmed.clear()
        self._letters_wanted.clear()
        self._letters.clear()
        self._quarantine_wanted.clear()
        self._quarantined.clear()
        places = [TopicPartition(topic, 0) for topic in _DELETED]
        self._log.delete_before({place: self._delete_until[place.topic] for place in places})
        self._delete_until = Counter(
            {place.topic: self._world.cluster.partition(place).end for place in places}
        )
        for topic in _COMPACTED:
            self._world.cluster.partition(TopicPartition(topic, 0)).compact(drop_tombstones=True)


def _fails_once(position: int) -> bool:
    """Return whether a query fails this record of the source; it acks every copy."""
    return position % 100 == 7


def settled_roots(record: Record) -> Iterator[tuple[int, int]]:
    """Yield source and position of each root that a record of the verdict topic settles."""
    try:
        event = _CODEC.decode(record.value)
    except CodecError:
        return  # an odd one
    if isinstance(event, Verdicts):
        for root, _ in outcomes_of(event):
            yield root


def _text_of(record: Record, name: str) -> str:
    """Return one of our headers as text; empty where the record has none."""
    for header, value in parted_headers(record.headers, OUR_PREFIXES).added:
        if header == name and value is not None:
            return value.decode("utf-8", "replace")
    return ""
