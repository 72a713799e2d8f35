"""How verdicts are written: the same roots always as the same records, each small enough for the wire."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from acker.hot_paths import Indices, as_array
from acker.identity import I64, is_replay, source_of
from acker.ledger.cohort import InitEmission, Session
from acker.ledger.verdicts import (
    LOST_ROOTS,
    RECORD_BUDGET_BYTES,
    RUN_BYTES,
    LossCause,
    RunCollector,
    VerdictSet,
    split_into_records,
)
from acker.wire.causes import TEXT_BYTES_MAX
from acker.wire.codec import RECORD_BYTES_MAX, wire_codec
from acker.wire.events import Lost, SourceRun, positions
from acker.wire.verdict import Verdict

SOURCES = (source_of(1, 0), source_of(1, 0, replay=True), source_of(2, 7))
EMISSIONS = tuple(
    InitEmission(Session("g", 1, "s"), topic, "id", at_ms, at_ms + 1, 30_000)
    for topic in ("lines", "words")
    for at_ms in (5, 9)
)
REASONS = (Verdict.FAILED, Verdict.TIMED_OUT, Verdict.ABANDONED)


def hits_of(random: Random, free: set[int], start: int) -> Indices:
    """Draw neighbours or scattered roots among those that have no verdict yet, as indices from `start` on."""
    drawn = sorted(random.sample(sorted(free), min(len(free), random.choice([0, 1, 2, 6]))))
    if random.random() < 0.6 and drawn:
        drawn = [drawn[0]]
        while drawn[-1] + 1 in free and random.random() < 0.8:
            drawn.append(drawn[-1] + 1)
    free -= set(drawn)
    if drawn and random.random() < 0.7 and drawn[-1] - drawn[0] == len(drawn) - 1:
        return range(drawn[0] - start, drawn[-1] + 1 - start)
    return np.array(drawn, np.int64) - start


def maximal_runs(roots: set[tuple[int, int]]) -> list[SourceRun]:
    """Join roots to runs, one root after the other."""
    runs: list[SourceRun] = []
    for source, position in sorted(roots):
        if runs and runs[-1].source == source and runs[-1].end == position:
            runs[-1] = runs[-1]._replace(end=position + 1)
        else:
            runs.append(SourceRun(source, position, position + 1))
    return runs


@pytest.mark.parametrize("seed", range(10))
def test_verdicts_are_written_as_maximal_runs_and_lost_roots_in_order(seed: int) -> None:
    """However they came: by ranges or scattered, in any order, of several sources, emissions and causes."""
    random = Random(seed)
    free = {source: set(range(100, 160)) for source in SOURCES}
    settled = VerdictSet()
    acked: set[tuple[int, int]] = set()
    absent: set[tuple[int, int]] = set()
    lost: dict[tuple[LossCause, InitEmission, int], set[int]] = {}
    assert not settled
    for _ in range(30):
        source, start = random.choice(SOURCES), random.choice([0, 64, 100])
        emission = random.choice(EMISSIONS)
        hits = hits_of(random, free[source], start)
        places = {(source, start + index) for index in as_array(hits).tolist()}
        kind = random.randrange(3)
        if kind == 0:
            settled.ack(emission, source, start, hits)
            acked |= places
        elif kind == 1:
            settled.absent.add(source, start, hits)
            absent |= places
        else:
            cause = LossCause(random.choice(REASONS), random.choice("ab"), "E", "", random.choice([3, 4]))
            settled.lose(cause, emission, source, start, hits)
            if places:
                lost.setdefault((cause, emission, source), set()).update(position for _, position in places)
        assert bool(settled) == bool(acked or absent or lost)
    [record] = settled.records() or [None]
    assert record is not None
    assert list(record.acked) == maximal_runs(acked)
    assert list(record.absent) == maximal_runs(absent)
    written = [(entry, positions(entry.positions).tolist()) for entry in record.lost]
    assert [(described(entry), at) for entry, at in written] == [
        ((*cause, emission.topic, emission.at_ms, emission.wall_ms, source), sorted(at))
        for (cause, emission, source), at in sorted(
            lost.items(),
            key=lambda item: (
                REASONS.index(item[0][0].reason),
                item[0][1].at_ms,
                item[0][2],
                min(item[1]),
                item[0][0],
            ),
        )
    ]
    assert sorted(settled.lost_counts()) == sorted(
        (cause, source, len(at)) for (cause, _, source), at in lost.items()
    )
    assert roots_of_copies(settled.acked_copies) == {place for place in acked if is_replay(place[0])}
    assert roots_of_completed(settled.acked_roots) == {place for place in acked if not is_replay(place[0])}


def described(entry: Lost) -> tuple[object, ...]:
    """Return cause, emission and source of lost roots."""
    assert (entry.group, entry.topic_id) == ("g", "id")
    cause = entry.reason, entry.operator, entry.error, entry.message, entry.decided_at
    return (*cause, entry.topic, entry.emitted_at, entry.emitted_wall, entry.source)


def roots_of_copies(copies: list[tuple[InitEmission, int, I64]]) -> set[tuple[int, int]]:
    return {(source, position) for _, source, at in copies for position in at.tolist()}


def roots_of_completed(completed: list[tuple[InitEmission, int, int, Indices]]) -> set[tuple[int, int]]:
    return {
        (source, start + index) for _, source, start, hits in completed for index in as_array(hits).tolist()
    }


def test_the_fewest_records_have_all_lost_roots_of_a_bad_day_each_below_the_limit_of_the_wire() -> None:
    """A quarter of a million roots of one cause, with the longest texts: in order, none twice."""
    settled = VerdictSet()
    count = 2 * LOST_ROOTS + 1
    text = "ä" * 400
    cause = LossCause(Verdict.FAILED, text, text, text, 0)
    settled.lose(cause, EMISSIONS[0], SOURCES[0], 50, np.arange(count // 2, count))
    settled.lose(cause, EMISSIONS[0], SOURCES[0], 50, range(count // 2))
    records = settled.records()
    entries = [entry for record in records for entry in record.lost]
    parts = [positions(entry.positions) for entry in entries]
    assert [len(part) for part in parts] == [LOST_ROOTS, LOST_ROOTS, 1]
    assert np.array_equal(np.concatenate(parts), np.arange(50, 50 + count))
    assert {len(entry.message.encode()) for entry in entries} == {TEXT_BYTES_MAX}
    assert {len(entry.operator.encode()) for entry in entries} == {TEXT_BYTES_MAX}
    assert {len(entry.error.encode()) for entry in entries} == {TEXT_BYTES_MAX}
    assert len(records) == 2, "what is left finds room beside the second part"
    assert max(len(wire_codec().encode(record)) for record in records) < RECORD_BYTES_MAX


def test_the_place_at_the_end_of_a_long_message_stays() -> None:
    """By it a reader finds the stack. Ours are cut before; those of another program may not be."""
    settled = VerdictSet()
    cause = LossCause(Verdict.FAILED, "split", "E", f"{'no words, ' * 60} (split.py:12)", 0)
    settled.lose(cause, EMISSIONS[0], SOURCES[0], 50, range(1))
    [[lost]] = [record.lost for record in settled.records()]
    assert len(lost.message.encode()) == TEXT_BYTES_MAX
    assert lost.message.endswith(" (split.py:12)")


def test_a_record_is_filled_to_its_budget_and_no_further() -> None:
    runs_max = RECORD_BUDGET_BYTES // RUN_BYTES
    settled = RunCollector()
    for index in range(runs_max + 1):
        settled.add(SOURCES[0], 2 * index, range(1))
    rows = [(index % 2, run, RUN_BYTES) for index, run in enumerate(settled.runs())]
    first, second = split_into_records(3, rows)
    assert [len(part) for part in first] == [(runs_max + 1) // 2, runs_max // 2, 0]
    assert sum(map(len, second)) == 1
    assert split_into_records(2, [(0, "a", RECORD_BUDGET_BYTES - 1), (1, "b", 1)]) == [(("a",), ("b",))]
    assert split_into_records(2, [(0, "a", RECORD_BUDGET_BYTES), (1, "b", 1)]) == [(("a",), ()), ((), ("b",))]
    assert split_into_records(2, []) == []


@pytest.mark.parametrize("text", ["", "x" * 500, "äöü" * 100])
def test_what_lost_roots_take_in_a_record_is_not_less_than_what_is_written(text: str) -> None:
    """Else a record that is filled to its budget would be too large for the broker."""
    cause = LossCause(Verdict.FAILED, text, text, text, 1 << 52)
    emission = InitEmission(Session("g" * 200, 1, "s"), "t" * 249, "i" * 22, 1 << 52, 1 << 52, 1)
    settled = VerdictSet()
    each_source = [source_of(3, partition) for partition in range(2_000)]
    for source in each_source:
        settled.lose(cause, emission, source, 1 << 60, range(40))
    records = settled.records()
    sizes = [len(wire_codec().encode(record)) for record in records]
    assert max(sizes) <= RECORD_BUDGET_BYTES
    assert [entry.source for record in records for entry in record.lost] == each_source
    assert min(sizes[:-1]) > RECORD_BUDGET_BYTES // 4, "and they are not half empty"


def test_lost_roots_fill_a_record_by_their_own_size() -> None:
    """Eight bytes a position, three a character, and 100: so many fit, and the next begins a record."""
    cause = LossCause(Verdict.FAILED, "it", "E", "0000", 7)
    emission = replace(EMISSIONS[0], topic="t", topic_id="i")
    texts = (
        emission.session.group,
        emission.topic,
        emission.topic_id,
        cause.operator,
        cause.error,
        cause.message,
    )
    needed = 8 + 3 * sum(map(len, texts)) + 100
    fit = RECORD_BUDGET_BYTES // needed
    assert fit != RECORD_BUDGET_BYTES // (needed + 1)
    settled = VerdictSet()
    for number in range(fit + 1):
        settled.lose(cause._replace(message=f"{number:04}"), emission, SOURCES[0], number, range(1))
    assert [len(record.lost) for record in settled.records()] == [fit, 1]
