"""The wire at its limits: the last value that is as it should be, and the first that is not."""

from __future__ import annotations

import json
from itertools import combinations, product

import numpy as np
import pytest

from acker.id_ranges import INPUT_ID_MAX
from acker.identity import REPLAY_ID_OFFSET, source_of
from acker.root_sets.position_set import PositionSet
from acker.root_sets.root_set import RootSet
from acker.wire.causes import error_classes, error_text, with_code_line, without_code_line
from acker.wire.checks import NAMED_MAX, wrong_acks, wrong_source
from acker.wire.clusters import CLUSTER, CLUSTER_BYTES_MAX, cluster_of
from acker.wire.events import (
    Acks,
    Lost,
    PositionRun,
    SourceRun,
    Verdicts,
    first_emissions,
    pack_positions,
    pack_root_numbers,
    pack_values,
    positions,
    traces,
    values,
)
from acker.wire.leader_epochs import (
    EPOCH_MAX,
    LEADER_EPOCHS,
    ROWS_READ_MAX,
    UNKNOWN_EPOCH,
    EpochStep,
    LeaderEpochs,
    read_epochs,
)
from acker.wire.stacks import (
    STACK_BYTES_MAX,
    STACKS,
    STACKS_BYTES_MAX,
    CauseKey,
    cut_stack,
    read_stacks,
    stacks_header,
)
from acker.wire.verdict import Verdict

A, B = source_of(1, 3), source_of(1, 4)


class NoKey(KeyError):
    """Its built-in parent has parents of its own that are built in."""


def test_only_the_nearest_built_in_parent_is_named() -> None:
    assert error_text(NoKey) == "NoKey(KeyError)"
    assert error_classes("NoKey(KeyError)") == (
        "NoKey",
        "KeyError",
        "LookupError",
        "Exception",
        "BaseException",
    )


def test_the_parents_of_what_is_no_exception_come_nearest_first() -> None:
    assert error_classes("KeyboardInterrupt") == ("KeyboardInterrupt", "BaseException", "Exception")


@pytest.mark.parametrize("message", ["", "no words", "(a)"])
@pytest.mark.parametrize("place", ["", "split.py:12"])
def test_a_message_and_its_place_are_taken_apart_again(message: str, place: str) -> None:
    text = with_code_line(message, place)
    assert text == " ".join(part for part in (message, place and f"({place})") if part)
    assert without_code_line(text)[0] == message


@pytest.mark.parametrize(("size", "is_read"), [(CLUSTER_BYTES_MAX, True), (CLUSTER_BYTES_MAX + 1, False)])
def test_an_id_of_a_cluster_is_read_up_to_a_length(size: int, is_read: bool) -> None:
    assert cluster_of(((CLUSTER, b"x" * size),)) == ("x" * size if is_read else "")


@pytest.mark.parametrize(
    ("wire_id", "is_right"),
    [
        (-1, False), (0, False), (1, True), (INPUT_ID_MAX, True), (INPUT_ID_MAX + 1, False),
        (REPLAY_ID_OFFSET, False), (REPLAY_ID_OFFSET + 1, True), (REPLAY_ID_OFFSET + INPUT_ID_MAX, True),
        (REPLAY_ID_OFFSET + INPUT_ID_MAX + 1, False), (2 * REPLAY_ID_OFFSET, False),
        (2 * REPLAY_ID_OFFSET + 1, False), (3 * REPLAY_ID_OFFSET + 1, False), (1 << 40, False),
    ],
)  # fmt: skip
def test_a_source_is_of_an_input_or_of_its_copies(wire_id: int, is_right: bool) -> None:
    for partition in (0, 1, 65_535):
        assert (wrong_source((wire_id << 16) + partition) == "") is is_right


def acks(*runs: tuple[int, int]) -> Acks:
    position_runs = tuple(PositionRun(*run) for run in runs)
    return Acks("q/s", 1, "g", "s", 1, A, 0, position_runs, b"", b"", (), b"", 0)


@pytest.mark.parametrize(("more", "is_right"), [(0, True), (1, False)])
def test_the_runs_of_a_record_may_name_a_million_positions(more: int, is_right: bool) -> None:
    full = [(0, 32_768)] * (NAMED_MAX // 32_768)
    assert (wrong_acks(acks(*full, (0, more)), 0, 1) == "") is is_right


# runs ------------------------------------------------------------------------------------------------------

PLACES = range(6)
RUNS = [run for run in product(PLACES, PLACES) if run[0] < run[1]]
TWO_RUNS = [[], *([run] for run in RUNS), *(list(pair) for pair in combinations(RUNS, 2))]


def members(runs: list[tuple[int, int]]) -> set[int]:
    return {position for run in runs for position in range(*run)}


def in_runs(some_positions: set[int]) -> list[tuple[int, int]]:
    """Return the fewest runs that hold some positions."""
    starts = sorted(position for position in some_positions if position - 1 not in some_positions)
    ends = sorted(position + 1 for position in some_positions if position + 1 not in some_positions)
    return list(zip(starts, ends, strict=True))


@pytest.mark.parametrize("runs", TWO_RUNS)
def test_runs_are_joined_where_they_overlap_or_touch(runs: list[tuple[int, int]]) -> None:
    joined = in_runs(members(runs))
    of_two = [SourceRun(source, *run) for run in runs for source in (B, A)]
    assert RootSet.of_runs([*of_two, SourceRun(A, 9, 9)]).runs() == [
        SourceRun(source, *run) for source in (A, B) for run in joined
    ]
    assert list(PositionSet(runs)) == joined
    assert list(PositionSet.of_positions(np.array(list(members(runs)), np.int64))) == joined


# packed columns --------------------------------------------------------------------------------------------


def test_columns_are_packed_little_endian() -> None:
    assert pack_positions(np.array([1, -1], np.int64)) == b"\1" + bytes(7) + b"\xff" * 8
    assert positions(b"\1" + bytes(7)).tolist() == [1]
    assert pack_values(np.array([(1 << 64) - 1], np.uint64)) == b"\xff" * 8
    assert values(b"\xff" * 8).tolist() == [(1 << 64) - 1]


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_numbers_of_roots_come_back_from_their_header(count: int) -> None:
    at = np.arange(10, 10 + count)
    times = np.arange(100, 100 + count)
    ids = np.arange(1_000, 1_000 + 3 * count).reshape(-1, 3)
    emitted = first_emissions(pack_root_numbers(A, at, times))
    assert emitted is not None
    assert (emitted[0], emitted[1].tolist(), emitted[2].tolist()) == (A, at.tolist(), times.tolist())
    traced = traces(pack_root_numbers(A, at, ids))
    assert traced is not None
    assert (traced[0], traced[1].tolist(), traced[2].tolist()) == (A, at.tolist(), ids.tolist())


@pytest.mark.parametrize("size", [None, 0, 1, 7, 9, 16, 17, 32, 39, 41])
def test_a_header_of_another_length_has_no_numbers_of_roots(size: int | None) -> None:
    value = None if size is None else bytes(size)
    assert traces(value) is None
    assert first_emissions(value) is None


# leaders' epochs -------------------------------------------------------------------------------------------


def lost_at(*lost_positions: int) -> Verdicts:
    packed = pack_positions(np.array(lost_positions))
    return Verdicts((), (), (Lost(Verdict.FAILED, "g", "t", "id", "", "", "", 0, 0, 0, A, packed),))


@pytest.mark.parametrize(
    ("lost", "epochs"),
    [((3,), []), ((9,), []), ((10,), [4]), ((11, 19), [4]), ((3, 10), [4]), ((19, 20), [4, 7]), ((20,), [7]),
     ((3, 50), [4, 7, 9]), ((29,), [7]), ((30,), [9]), ((10, 30), [4, 7, 9])],
)  # fmt: skip
def test_a_record_has_the_steps_from_its_first_lost_root_to_its_last(
    lost: tuple[int, ...], epochs: list[int]
) -> None:
    steps = LeaderEpochs([EpochStep(A, 10, 4), EpochStep(A, 20, 7), EpochStep(A, 30, 9)])
    headers = steps.headers_of(lost_at(*lost))
    assert [
        step for _, value in headers for step in np.frombuffer(value or b"", "<i8")[2::3].tolist()
    ] == epochs


@pytest.mark.parametrize(
    ("rows", "is_read"), [(1, True), (20, True), (ROWS_READ_MAX, True), (ROWS_READ_MAX + 1, False)]
)
def test_a_header_of_epochs_is_read_up_to_its_most_rows(rows: int, is_read: bool) -> None:
    value = np.array([(A, number, number % 5) for number in range(rows)], "<i8").tobytes()
    assert (read_epochs(((LEADER_EPOCHS, value),)).at(A, rows) != UNKNOWN_EPOCH) is is_read


def test_the_highest_epoch_and_none_are_read() -> None:
    value = np.array([(A, 0, EPOCH_MAX), (A, 5, UNKNOWN_EPOCH), (A, 7, 0)], "<i8").tobytes()
    epochs = read_epochs(((LEADER_EPOCHS, value),))
    assert [epochs.at(A, position) for position in (0, 5, 7)] == [EPOCH_MAX, UNKNOWN_EPOCH, 0]


# stacks ----------------------------------------------------------------------------------------------------

SPLIT, PARSE = CauseKey("split", "ValueError", "split.py:12"), CauseKey("parse", "KeyError", "parse.py:7")


@pytest.mark.parametrize("bytes_max", [100, 101])
def test_a_stack_is_cut_in_its_middle_where_it_is_too_long(bytes_max: int) -> None:
    assert cut_stack("x" * bytes_max, bytes_max) == "x" * bytes_max
    start, end = cut_stack("x" * 200 + "y" * 200, bytes_max).split("\n... cut ...\n")
    kept = bytes_max - len("\n... cut ...\n")
    assert (start, end) == ("x" * (kept // 2), "y" * (kept - kept // 2))


def test_stacks_are_written_as_long_as_there_is_room() -> None:
    """The first ones find room first; a row takes its bytes and two more, and so does the list."""
    stacks = {SPLIT: "s" * 50, PARSE: "p" * 5}
    rows = {key: len(json.dumps([*key, stack])) + 2 for key, stack in stacks.items()}
    for keys in ((SPLIT, PARSE), (PARSE, SPLIT)):
        for fitting in (0, 1, 2):
            needed = len(STACKS) + 2 + sum(rows[key] for key in keys[:fitting])
            for room in (needed, needed + 1, needed + rows[keys[fitting]] - 1 if fitting < 2 else 1_000):
                assert list(read_stacks(stacks_header(keys, stacks, room))) == list(keys[:fitting])


def test_a_cause_without_a_stack_is_passed_over() -> None:
    assert read_stacks(stacks_header([PARSE, SPLIT], {SPLIT: "Traceback", PARSE: ""})) == {SPLIT: "Traceback"}


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_a_header_of_stacks_is_read_up_to_its_size(more: int, is_read: bool) -> None:
    value = json.dumps([[*SPLIT, "x" * STACK_BYTES_MAX]]).encode().ljust(STACKS_BYTES_MAX + more)
    assert (SPLIT in read_stacks(((STACKS, value),))) is is_read


@pytest.mark.parametrize("rows", [[[*SPLIT, "x"], [1]], [[1], [*SPLIT, "x"]]])
def test_a_row_that_is_none_spoils_all_stacks(rows: list[list[object]]) -> None:
    assert read_stacks(((STACKS, json.dumps(rows).encode()),)) == {}
