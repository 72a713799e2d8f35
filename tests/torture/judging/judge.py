"""The judgement over a run, from the topics and the sink's table alone; pure.

Each check is a sentence that must hold; `found` names the first counter-example. What is allowed is counted
by cause (`tests.torture.judging.causes`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from acker.identity import Root
from acker.wire.verdict import LOST_VERDICTS, Verdict
from spout.demo.judge import Check, Emission
from tests.support.flaws import check_none, replacement_flaws, verdict_flaws
from tests.torture.exact.rows import RowFaults, StoredRow, row_faults
from tests.torture.judging.causes import FAULTS, Cause, CauseFinder, Strike, unexplained_endings
from tests.torture.judging.evidence import Evidence
from tests.torture.workload import UNDONE, odd_of, words_of
from tests.torture.writes import Write

RUN_AGAIN: Final = "batch run again"
"""Cause of a row that the same attempt wrote twice: its driver died between the write and Spark's commit."""


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What is judged.

    Attributes:
        evidence: what the topics say.
        writes: the sink's table.
        durable: numbers of the records that the broker acknowledged.
        strikes: blows that fell, with drivers that ended by themselves.
        uncommitted: partitions whose committed offset is not at the end: name to "committed of end".
        endings: services that ended by themselves, a sentence each.
        survivors: zombies that did not end after another driver had taken their place.
        stored: what the store has, if the query writes exactly once; then there are no `writes`.
    """

    evidence: Evidence
    writes: Sequence[Write]
    durable: Set[int]
    strikes: Sequence[Strike]
    uncommitted: Mapping[str, str]
    endings: Sequence[str] = ()
    survivors: Sequence[str] = ()
    stored: Sequence[StoredRow] | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The checks, and what was counted."""

    checks: tuple[Check, ...]
    counts: Mapping[str, int]
    replays: Mapping[str, int]
    duplicates: Mapping[str, int]

    @property
    def held(self) -> bool:
        """Whether every check held."""
        return all(check.passed for check in self.checks)


def judge(aftermath: Aftermath) -> Judgement:
    """Judge a run that is drained."""
    return _Checks(aftermath).judgement()


class _Checks:
    """Looks at everything once and keeps what several checks need."""

    def __init__(self, aftermath: Aftermath) -> None:
        self._after = aftermath
        evidence = self._evidence = aftermath.evidence
        self._outcomes = evidence.outcomes
        causes = CauseFinder(evidence, aftermath.strikes)
        self._lost = {
            root: causes.cause_of(root, verdict)
            for root, verdict in evidence.verdicts.items()
            if verdict.kind in LOST_VERDICTS
        }
        self._acked = {
            root: verdict.at_ms
            for root, verdict in evidence.verdicts.items()
            if verdict.kind is Verdict.ACKED
        }
        self._rows: dict[tuple[str, int], dict[int, Write]] = defaultdict(dict)
        for write in aftermath.writes:
            self._rows[write.origin, write.attempt][write.ordinal] = write

    def judgement(self) -> Judgement:
        duplicates = self._duplicates()
        counts = self._counts()
        of_rows: tuple[Check, ...]
        if (faults := self._row_faults()) is None:
            of_rows = (self._early(), self._rows_right(), self._undone(), self._explained(duplicates))
        else:
            of_rows = faults.checks()
            counts |= {"rows": len(self._after.stored or ()), **faults.counts()}
        checks: tuple[Check, ...] = (
            self._durable(), self._lost_records(), self._ended_once(), self._one_verdict(), *of_rows,
            self._replaced_once(), *self._faults(), self._committed(),
            check_none("no acker or replay worker ended by itself", self._after.endings),
            self._driver_ended(), check_none("every zombie ended by itself", self._after.survivors),
        )  # fmt: skip
        causes = Counter(cause.value for cause in self._lost.values())
        replays = {cause.value: causes[cause.value] for cause in Cause}
        return Judgement(checks, counts, replays, duplicates)

    # -- records

    def _durable(self) -> Check:
        there = set(self._evidence.numbers.values())
        missing = sorted(self._after.durable - there)
        return check_none("every acknowledged record is in its topic", (f"number {n}" for n in missing))

    def _lost_records(self) -> Check:
        return check_none("every record ended acked or dead-lettered", self._unended())

    def _unended(self) -> list[str]:
        return [origin for origin in self._evidence.numbers if not self._outcomes.has_ended(origin)]

    def _ended_once(self) -> Check:
        again = (
            f"{origin} ended {times + 1} times"
            for origin, times in self._outcomes.extra_ends_by_origin.items()
        )
        return check_none("no record ended twice", again)

    # -- roots

    def _one_verdict(self) -> Check:
        flaws = verdict_flaws(self._outcomes, self._evidence.stories.keys())
        return check_none("every root has one verdict", flaws)

    def _early(self) -> Check:
        """An acked root's words were all written, by its very attempt, before the verdict."""
        return check_none(
            "no root was acked before its words were written", filter(None, map(self._hasty, self._acked))
        )

    def _hasty(self, root: Root) -> str:
        emission = self._outcomes.emission_of(root)
        number = None if emission is None else self._evidence.numbers.get(emission.origin)
        if emission is None or number is None:
            return f"{self._outcomes.place_of(root)} is no committed record, and acked"
        rows = self._rows.get((emission.origin, emission.attempt), {})
        for ordinal, word in enumerate(words_of(number)):
            row = rows.get(ordinal)
            if row is None:
                return f"{emission.origin}, attempt {emission.attempt}: {word!r} was not written"
            if row.first_ms > self._acked[root]:
                late_ms = row.first_ms - self._acked[root]
                return (
                    f"{emission.origin}, attempt {emission.attempt}: {word!r} came {late_ms} ms after the ack"
                )
        return ""

    def _replaced_once(self) -> Check:
        """A replay worker's death must neither lose a copy nor make one twice; no record, no copy."""
        flaws = replacement_flaws(self._outcomes, lambda root: self._lost[root] is not Cause.NO_RECORD)
        return check_none("every lost root has one copy or one dead letter", flaws)

    def _faults(self) -> Iterable[Check]:
        sentences = {
            Cause.ACKER: "no acker lost a root whose acks it had in time",
            Cause.ACKS_AWAY: "no acks stayed away though their batch had ended",
            Cause.EARLY: "no root timed out early",
            Cause.UNEXPLAINED: "every loss has a cause",
        }
        for fault in FAULTS:
            roots = [self._outcomes.place_of(root) for root, cause in self._lost.items() if cause is fault]
            yield check_none(sentences[fault], roots)

    # -- the store

    def _row_faults(self) -> RowFaults | None:
        """Compare the store with what is acked; None: the query does not write exactly once."""
        if self._after.stored is None:
            return None
        emissions = map(self._outcomes.emission_of, self._acked)
        return row_faults({emission for emission in emissions if emission is not None}, self._after.stored)

    # -- the table

    def _rows_right(self) -> Check:
        """Each row is a word of a committed record, in its place, the same at each attempt."""
        wrong = []
        for write in self._after.writes:
            number = self._evidence.numbers.get(write.origin)
            words = () if number is None else words_of(number)
            if words[write.ordinal : write.ordinal + 1] != (write.word,):
                wrong.append(f"{write.origin} has {write.word!r} in place {write.ordinal}")
        return check_none("every row is a word of its record, in its place", wrong)

    def _undone(self) -> Check:
        seen = (write.origin for write in self._after.writes if UNDONE in write.word)
        return check_none("nothing of an aborted transaction was seen", seen)

    def _explained(self, duplicates: Mapping[str, int]) -> Check:
        unruly = [f"{duplicates[name]} rows"] if (name := Cause.UNEXPLAINED.value) in duplicates else []
        return check_none("every row that was written again had a cause", unruly)

    def _duplicates(self) -> dict[str, int]:
        """Count rows that were written more than once, by why."""
        causes = {
            emission: cause
            for root, cause in self._lost.items()
            if (emission := self._outcomes.emission_of(root)) is not None
        }
        found: Counter[str] = Counter()
        attempts: dict[tuple[str, int], list[int]] = defaultdict(list)
        for write in self._after.writes:
            attempts[write.origin, write.ordinal].append(write.attempt)
            found[RUN_AGAIN] += write.times - 1
        for (origin, _ordinal), written in attempts.items():
            for attempt in sorted(written)[:-1]:
                found[str(causes.get(Emission(origin, attempt), Cause.UNEXPLAINED))] += 1
        return {cause: count for cause, count in sorted(found.items()) if count}

    # -- the end

    def _driver_ended(self) -> Check:
        alone = unexplained_endings(self._after.strikes)
        return check_none(
            "no driver ended by itself without a blow", (f"at {end.began_ms} ms" for end in alone)
        )

    def _committed(self) -> Check:
        behind = (f"{name} at {where}" for name, where in self._after.uncommitted.items())
        return check_none("the committed offsets have reached the end", behind)

    def _counts(self) -> dict[str, int]:
        counts = self._outcomes.counts
        return {
            "records": len(self._evidence.numbers),
            "odd": sum(odd_of(number) is not None for number in self._evidence.numbers.values()),
            "acked": counts.acked,
            "dead_lettered": counts.dead_letters,
            "lost": len(self._unended()),
            "copies": counts.copies,
            "failed": counts.lost_by_reason[Verdict.FAILED],
            "timed_out": counts.lost_by_reason[Verdict.TIMED_OUT],
            "abandoned": counts.lost_by_reason[Verdict.ABANDONED],
            "absent": counts.absent,
            "sessions": len({story.session for story in self._evidence.stories.values()}),
        }
