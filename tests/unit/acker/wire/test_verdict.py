"""The five verdicts: which of them are losses, and that no text of the wire makes a loss of another one."""

from __future__ import annotations

import json

import pytest

from acker.errors import CodecError
from acker.wire.codec import Codec, load_schema
from acker.wire.events import Lost, SourceRun, Verdicts
from acker.wire.verdict import DONE_VERDICTS, LOST_VERDICTS, Verdict, lost_verdict
from replay.records.due import parse_history

LOSS = {
    "attempt": 1, "reason": "FAILED", "operator": "split", "error": "ValueError", "message": "no",
    "emitted_ms": 1_000, "age_ms": 20, "root": "sentences/3@7",
}  # fmt: skip


def test_every_verdict_is_done_or_lost() -> None:
    assert sorted([*DONE_VERDICTS, *LOST_VERDICTS]) == sorted(Verdict)


def test_a_lost_verdict_is_found_by_its_name() -> None:
    assert [lost_verdict(verdict.value) for verdict in LOST_VERDICTS] == list(LOST_VERDICTS)


@pytest.mark.parametrize("name", [*DONE_VERDICTS, "failed", "HELD"])
def test_another_name_is_that_of_no_lost_verdict(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        lost_verdict(name)


def test_a_record_of_verdicts_has_the_runs_of_each_done_verdict() -> None:
    runs = {verdict: (SourceRun(7, at, at + 1),) for at, verdict in enumerate(DONE_VERDICTS)}
    event = Verdicts(**{verdict.lower(): of_one for verdict, of_one in runs.items()}, lost=())

    assert dict(event.done()) == runs
    assert list(event.done_runs()) == [run for (run,) in runs.values()]


def test_the_schema_of_verdicts_has_the_names_of_lost_ones() -> None:
    lost = next(field for field in load_schema("acker.wire", "verdicts")["fields"] if field["name"] == "lost")
    reason = next(field for field in lost["type"]["items"]["fields"] if field["name"] == "reason")

    assert reason["type"]["symbols"] == list(LOST_VERDICTS)


@pytest.mark.parametrize("reason", LOST_VERDICTS)
def test_a_history_tells_by_which_verdict_an_emission_was_lost(reason: str) -> None:
    (loss,) = parse_history(json.dumps([LOSS | {"reason": reason}]).encode())
    assert loss.reason is Verdict(reason)


@pytest.mark.parametrize("reason", [*DONE_VERDICTS, "BLOCKED", None, 1, ["FAILED"]])
def test_a_history_has_no_loss_by_another_verdict(reason: object) -> None:
    assert parse_history(json.dumps([LOSS | {"reason": reason}]).encode()) == ()


@pytest.mark.parametrize("reason", DONE_VERDICTS)
def test_a_lost_root_with_another_verdict_does_not_decode(reason: str) -> None:
    """A schema that allowed it would be none of ours; nobody may take its root for a lost one."""
    types = {
        "int": ("source",),
        "long": ("emitted_at", "emitted_wall", "decided_at"),
        "bytes": ("positions",),
    }
    type_of = {name: kind for kind, names in types.items() for name in names}
    fields = [{"name": name, "type": type_of.get(name, "string")} for name in Lost._fields]
    codec: Codec[Lost] = Codec({Lost: {"type": "record", "name": "Lost", "fields": fields}})
    lost = Lost(Verdict.FAILED, "g", "t", "id", "", "", "", 0, 0, 0, 7, b"")

    assert codec.decode(codec.encode(lost)) == lost
    with pytest.raises(CodecError, match="does not decode: ValueError"):
        codec.decode(codec.encode(lost._replace(reason=Verdict(reason))))  # type: ignore[arg-type]
