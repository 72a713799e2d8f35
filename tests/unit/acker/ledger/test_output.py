"""What a step of an acker collects: each kind of output alone, and all of it gone after it was taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest

from acker.identity import source_of
from acker.kafka.port import Record
from acker.ledger.cohort import InitEmission, Session
from acker.ledger.output import AckerEvent, AckerEventKind, Counts, OutputBuilder, StepOutput
from acker.ledger.verdicts import LOST_ROOTS, LossCause, VerdictSet
from acker.wire.codec import wire_codec
from acker.wire.events import Tick, Verdicts
from acker.wire.lateness import TooLate
from acker.wire.leader_epochs import EpochStep, LeaderEpochs, read_epochs
from acker.wire.stacks import KEPT_MAX, CauseKey, read_stacks
from acker.wire.verdict import Verdict

PARTITION = 3
SOURCE = source_of(1, 0)
EMISSION = InitEmission(Session("g", 1, "s"), "lines", "id", 5, 6, 30_000)
NOTE = TooLate("g", "q", 1, True, 2, 3, 4, 5, (), (), ())
RECORD = Record("_ack_ack", PARTITION, 17, None, b"?")
TICK = Tick("g", "s", 1, 9)


def builder() -> OutputBuilder:
    return OutputBuilder(PARTITION, wire_codec())


def cause_of(message: str = "no words (split.py:12)", error: str = "ValueError") -> LossCause:
    """Return why roots failed."""
    return LossCause(Verdict.FAILED, "split", error, message, 7)


def lost(cause: LossCause, start: int = 0, count: int = 1) -> VerdictSet:
    """Lose neighbours for a cause."""
    settled = VerdictSet()
    settled.lose(cause, EMISSION, SOURCE, start, range(count))
    return settled


def acked() -> VerdictSet:
    """Ack a root."""
    settled = VerdictSet()
    settled.ack(EMISSION, SOURCE, 40, range(1))
    return settled


def verdicts_of(output: StepOutput) -> list[Verdicts]:
    """Decode what is written."""
    decoded = [wire_codec().decode(value) for value in output.verdicts]
    return [event for event in decoded if isinstance(event, Verdicts)]


EACH_OUTPUT: dict[str, Callable[[OutputBuilder], None]] = {
    "verdicts": lambda output: output.add_records([TICK]),
    "settled": lambda output: output.add_verdicts(acked(), LeaderEpochs()),
    "too late": lambda output: output.add_too_late(NOTE),
    "passed on": lambda output: output.add_note(("x", None)),
    "quarantined": lambda output: output.add_quarantined(RECORD, "no"),
    "events": lambda output: output.report(AckerEventKind.TAKEN, "g"),
    "passed over": lambda output: output.report_passed_over(RECORD, "no"),
}


@pytest.mark.parametrize("kind", EACH_OUTPUT)
def test_there_is_output_as_soon_as_there_is_one_kind_of_it(kind: str) -> None:
    """A step without output writes no transaction: a kind that is overlooked would be lost."""
    output = builder()
    assert not output
    EACH_OUTPUT[kind](output)
    assert output
    output.take()
    assert not output


def test_what_is_collected_comes_out_once_and_whole() -> None:
    output = builder()
    output.add_records([TICK])
    output.add_too_late(NOTE)
    output.add_note(("x", b"y"))
    output.report(AckerEventKind.TAKEN, "g")
    output.add_quarantined(RECORD, "no")
    settled = acked()
    output.add_verdicts(settled, LeaderEpochs())
    taken = output.take()
    assert [wire_codec().decode(value) for value in taken.verdicts] == [TICK, *settled.records()]
    assert (taken.too_late, taken.notes, taken.quarantined) == ([NOTE], [("x", b"y")], [(RECORD, "no")])
    assert taken.settled == [settled]
    assert taken.headers == {}
    assert [event.kind for event in taken.events] == [AckerEventKind.TAKEN, AckerEventKind.QUARANTINED]
    assert {event.partition for event in taken.events} == {PARTITION}
    assert output.take() == StepOutput()


def test_nothing_settled_is_no_output() -> None:
    output = builder()
    output.add_verdicts(VerdictSet(), LeaderEpochs())
    assert output.take() == StepOutput()


def test_each_record_of_verdicts_has_the_headers_of_its_own_lost_roots() -> None:
    """By its place in the output, which has answers before it; a record without lost roots has none."""
    output = builder()
    epochs = LeaderEpochs([EpochStep(SOURCE, 0, 4), EpochStep(SOURCE, LOST_ROOTS + 1, 7)])
    cause = cause_of()
    key = CauseKey("split", "ValueError", "split.py:12")
    output.keep_stacks({key: "Traceback"})
    output.add_records([TICK])
    output.add_verdicts(acked(), epochs)
    output.add_verdicts(lost(cause, count=2 * LOST_ROOTS), epochs)
    taken = output.take()
    assert [len(record.lost) for record in verdicts_of(taken)] == [0, 1, 1]
    assert sorted(taken.headers) == [2, 3]
    assert {place: read_stacks(headers) for place, headers in taken.headers.items()} == {
        2: {key: "Traceback"},
        3: {key: "Traceback"},
    }
    first, second = read_epochs(taken.headers[2]), read_epochs(taken.headers[3])
    assert (first.at(SOURCE, 0), first.at(SOURCE, LOST_ROOTS + 1)) == (4, 4)
    assert (second.at(SOURCE, LOST_ROOTS), second.at(SOURCE, LOST_ROOTS + 1)) == (4, 7)


def test_stacks_are_those_of_the_step_and_no_more_than_are_kept() -> None:
    """The first of a cause counts; what is too much has a letter without a stack."""
    keys = [CauseKey("split", f"E{number}", "") for number in range(KEPT_MAX + 1)]
    output = builder()
    output.keep_stacks({keys[0]: "first"})
    output.keep_stacks({keys[0]: "second"})
    output.keep_stacks(dict.fromkeys(keys[1:], "other"))
    for number, key in enumerate(keys):
        output.add_verdicts(lost(cause_of("", key.error), start=number), LeaderEpochs())
    taken = output.take()
    stacks = {key: stack for headers in taken.headers.values() for key, stack in read_stacks(headers).items()}
    assert stacks == {keys[0]: "first"} | dict.fromkeys(keys[1:KEPT_MAX], "other")
    output.add_verdicts(lost(cause_of("", "E0")), LeaderEpochs())
    assert output.take().headers == {}, "the next step has its own"


def test_of_each_kind_of_wrong_record_only_the_first_is_an_event() -> None:
    output = builder()
    others = [RECORD._replace(offset=offset) for offset in (18, 19)]
    for record in (RECORD, *others):
        output.add_quarantined(record, "no group")
    output.add_quarantined(others[0], "no lane")
    taken = output.take()
    assert [record.offset for record, _ in taken.quarantined] == [17, 18, 19, 18]
    assert taken.events == [
        AckerEvent(
            AckerEventKind.QUARANTINED,
            PARTITION,
            "_ack_ack/3@17: no group; further ones like it are only counted",
        ),
        AckerEvent(
            AckerEventKind.QUARANTINED,
            PARTITION,
            "_ack_ack/3@18: no lane; further ones like it are only counted",
        ),
    ]


def test_of_each_kind_of_record_that_is_passed_over_only_the_first_is_an_event() -> None:
    output = builder()
    for record in (RECORD, RECORD._replace(offset=18)):
        output.report_passed_over(record, "no Avro")
    output.report_passed_over(RECORD, "no schema")
    assert [(event.kind, event.detail) for event in output.take().events] == [
        (AckerEventKind.UNDECODABLE, "_ack_ack/3@17 is passed over: no Avro"),
        (AckerEventKind.UNDECODABLE, "_ack_ack/3@17 is passed over: no schema"),
    ]


def test_counts_are_added_each_to_its_own() -> None:
    names = [field.name for field in fields(Counts)]
    total = Counts(**{name: 10 * number for number, name in enumerate(names)})
    total.add(Counts(**{name: number + 1 for number, name in enumerate(names)}))
    assert [getattr(total, name) for name in names] == [11 * number + 1 for number in range(len(names))]
    assert Counts() == Counts(**dict.fromkeys(names, 0))
