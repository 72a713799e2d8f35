"""A small run of the program, and that it sees what it is there to see."""

from __future__ import annotations

import pytest

from replay.worker import accept, outcome
from tests.fuzz import odd_run
from tests.fuzz.odd_run import OddRun, Reader
from tests.support.worlds.odd_world import SOURCE, OddWorld

RECORDS = 1_500
ROUNDS = 2


@pytest.mark.parametrize("reader", ["spout", "query"])
def test_each_record_of_a_small_run_has_its_verdict_and_its_place(reader: Reader) -> None:
    """O123, O125: `python -m tests.fuzz --records 1000000` is the long run of it."""
    run = OddRun(11, reader)
    for _ in range(ROUNDS):
        run.round(RECORDS)
        assert run.wrong() == []
    assert set(run.odd) > {SOURCE.topic, "_ack_init", "_ack_verdict", "_ack_state"}
    assert run.written == ROUNDS * RECORDS
    assert min(run.holes, run.damaged, run.compacted) > 0


def test_a_run_sees_a_record_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody works, so nothing is settled."""
    run = OddRun(11, "spout")
    monkeypatch.setattr(OddWorld, "work", lambda _world, _rounds: None)
    run.round(10)
    wrong = run.wrong()
    assert any("were not confirmed" in sentence for sentence in wrong)
    assert any("has no verdict" in sentence for sentence in wrong)


def test_a_run_sees_that_a_record_was_confirmed_twice() -> None:
    run = OddRun(11, "spout")
    run.round(10)
    run._world.confirmed.append(b"0")
    assert [sentence for sentence in run.wrong() if "too often" in sentence]


def test_a_run_sees_that_the_record_of_now_was_copied_in_place_of_a_lost_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replays compare no epochs, so behind a cut a copy is made of whatever took the lost record's place."""
    for module in (outcome, accept):
        monkeypatch.setattr(module, "is_of_later_leader", lambda _record, _epoch: False)
    monkeypatch.setattr(odd_run, "CUT_SHARE", 1.0)
    monkeypatch.setattr(odd_run, "AMID_SHARE", 1.0)
    monkeypatch.setattr(odd_run, "CUT_RECORDS_MAX", 600)
    run = OddRun(1, "spout")
    run.round(RECORDS)
    assert [sentence for sentence in run.wrong() if "too often" in sentence]
    assert run.cuts == 1
