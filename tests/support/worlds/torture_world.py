"""Made-up topics and a made-up table of a torture, record by record, for the tests of the judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from acker.identity import source_of
from acker.kafka.port import Headers, Record
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    Event,
    Init,
    Lost,
    PositionRun,
    SourceRun,
    Take,
    Tick,
    Verdicts,
    pack_positions,
)
from acker.wire.verdict import Verdict
from replay.records.due import Loss, history_json
from replay.records.headers import HISTORY, Lineage, build_headers
from spout.demo.judge import Outcomes
from spout.planning.session import SessionName
from tests.torture.judging.causes import Strike
from tests.torture.judging.evidence import Evidence, Names
from tests.torture.judging.judge import Aftermath, Judgement, judge
from tests.torture.workload import headers_of, key_of, words_of
from tests.torture.writes import Write

NAMES = Names("t", "t.replay", "t.dlq", "_ack_init", "_ack_ack", "_ack_fail", "_ack_verdict")
SOURCE = source_of(1, 0)
REPLAY = source_of(1, 0, replay=True)
FIRST = SessionName(1, "first")
SECOND = SessionName(2, "second")
TIMEOUT_MS = 15_000


@dataclass
class World:
    """One partition of everything. Offsets of the source topic are the numbers of the records."""

    evidence: Evidence = field(
        default_factory=lambda: Evidence(NAMES, Outcomes(1, NAMES.source, NAMES.replay))
    )
    writes: list[Write] = field(default_factory=list)
    durable: set[int] = field(default_factory=set)
    strikes: list[Strike] = field(default_factory=list)
    uncommitted: dict[str, str] = field(default_factory=dict)
    endings: list[str] = field(default_factory=list)
    survivors: list[str] = field(default_factory=list)

    def produce(self, number: int) -> None:
        """Write a record, acknowledged."""
        value = " ".join(words_of(number)).encode()
        record = Record(NAMES.source, 0, number, key_of(number) or None, value, headers_of(number), 0)
        self.evidence.read(record)
        self.durable.add(number)

    def append(self, topic: str, event: Event, at_ms: int) -> None:
        """Append an event to a topic of the ackers."""
        self.evidence.read(Record(topic, 0, 0, None, wire_codec().encode(event), (), at_ms))

    def init(
        self, source: int, start: int, at_ms: int, *, end: int = 0, session: SessionName = FIRST
    ) -> None:
        """Initialise roots; the session's clock is the wall clock."""
        runs = (SourceRun(source, start, end or start + 1),)
        wire = Init("g", session.id, session.epoch, at_ms, at_ms, TIMEOUT_MS, 1, "t", "id", runs)
        self.append(NAMES.init, wire, at_ms)

    def tick(self, at_ms: int, *, session: SessionName = FIRST) -> None:
        """Set the session's clock to the wall clock."""
        self.append(NAMES.init, Tick("g", session.id, session.epoch, at_ms), at_ms)

    def take(self, session: SessionName, at_ms: int) -> None:
        """Let a session take the group."""
        self.append(NAMES.init, Take("g", session.id, session.epoch, at_ms, 1, ()), at_ms)

    def contribute(self, source: int, position: int, at_ms: int, *, session: SessionName = FIRST) -> None:
        """Complete a root."""
        runs = (PositionRun(position, position + 1),)
        acks = Acks("q/s", 0, "g", session.id, session.epoch, source, 0, runs, b"", b"", (), b"", 0)
        self.append(NAMES.ack, acks, at_ms)

    def acked(self, source: int, position: int, at_ms: int) -> None:
        """Give the verdict ACKED."""
        self.append(NAMES.verdict, Verdicts((SourceRun(source, position, position + 1),), (), ()), at_ms)

    def lose(self, source: int, position: int, reason: Verdict, at_ms: int, error: str = "") -> None:
        """Give another verdict."""
        packed = pack_positions(np.array([position]))
        lost = Lost(reason, "g", "t", "id", "split", error, "", 0, 0, at_ms, source, packed)
        self.append(NAMES.verdict, Verdicts((), (), (lost,)), at_ms)

    def copy(self, number: int, offset: int, *, attempt: int = 2, of: str = "") -> None:
        """Write a copy of a record at an offset of the replay topic; `of` is the root that was lost."""
        self._replace(NAMES.replay, number, offset, attempt, of or f"t/0@{number}")

    def bury(self, number: int, *, attempt: int = 1, of: str = "") -> None:
        """Write a dead letter of a record."""
        self._replace(NAMES.dead_letters, number, number, attempt, of or f"t/0@{number}")

    def write(self, number: int, at_ms: int, *, attempt: int = 1, words: Sequence[str] = ()) -> None:
        """Write the words of a record to the table, as an attempt of it."""
        for ordinal, word in enumerate(words or words_of(number)):
            self.writes.append(Write(f"t/0@{number}", ordinal, attempt, word, at_ms, 1))

    def complete(self, number: int, at_ms: int) -> None:
        """Let a record go through at its first attempt, as most do."""
        self.produce(number)
        self.init(SOURCE, number, at_ms)
        self.write(number, at_ms + 100)
        self.contribute(SOURCE, number, at_ms + 200)
        self.acked(SOURCE, number, at_ms + 300)

    def complete_copy(self, number: int, offset: int, at_ms: int, *, attempt: int = 2) -> None:
        """Let a copy go through."""
        self.init(REPLAY, offset, at_ms)
        self.write(number, at_ms + 100, attempt=attempt)
        self.contribute(REPLAY, offset, at_ms + 200)
        self.acked(REPLAY, offset, at_ms + 300)

    def judgement(self) -> Judgement:
        """Judge."""
        return judge(
            Aftermath(
                self.evidence, self.writes, self.durable, self.strikes, self.uncommitted,
                self.endings, self.survivors,
            )
        )  # fmt: skip

    def fallen(self) -> list[str]:
        """Return the names of the checks that do not hold."""
        return [check.name for check in self.judgement().checks if not check.passed]

    def _replace(self, topic: str, number: int, offset: int, attempt: int, of: str) -> None:
        loss = Loss(attempt - 1, Verdict.FAILED, "", "", "", 0, 0, of)
        lineage = Lineage(f"t/0@{number}", attempt=attempt)
        headers: Headers = (*headers_of(number), *build_headers(lineage), (HISTORY, history_json((loss,))))
        self.evidence.read(Record(topic, 0, offset, None, b"", headers, 0))
