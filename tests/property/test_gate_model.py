"""The gate of a partition in order, and what stands behind a failure, against lists and dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from acker.identity import I64
from acker.wire.causes import HELD
from spout.planning.order import WHOLE, Gate, LinedRecords, LineUp, find_blocked_behind, line_of_key
from spout.tuples.failures import Cause

KEYS = (b"a", b"b", b"c", b"", None)
PLACE, OPERATOR = "t/0", "lines"

keys = st.sampled_from(KEYS)
origins = st.none() | st.integers(0, 20)
records = st.tuples(keys, origins)


def numbers(values: Sequence[int]) -> I64:
    """Make an array."""
    return np.array(values, np.int64)


@dataclass(slots=True)
class Model:
    """What a gate has to know, record by record."""

    line_up: LineUp
    most: int | None
    passed: int = 0
    standing: dict[int, tuple[int, int]] = field(default_factory=dict)
    failed: dict[int, int] = field(default_factory=dict)
    stop: tuple[int, str] | None = None

    def line_of(self, key: bytes | None, origin: int | None) -> int | None:
        """Return the line of a record; None: it is in none."""
        if origin is None:
            return None
        if self.line_up.by == "partition":
            return WHOLE
        return None if key is None else line_of_key(key)

    def blocks(self, line: int, origin: int) -> str | None:
        """Return why a record is blocked."""
        for firsts in (self.line_up.waiting, self.failed):
            if line in firsts and firsts[line] < origin:
                return f"waits for {PLACE}@{firsts[line]}"
        return self.stop[1] if self.stop is not None and self.stop[0] < origin else None

    def admit(self, index: int, key: bytes | None, origin: int | None) -> str | None:
        """Admit a record; return why it is blocked."""
        line = self.line_of(key, origin)
        why = None
        if line is not None and origin is not None:
            self.standing[index] = line, origin
            why = self.blocks(line, origin)
        if why is None and self.most is not None and self.passed >= self.most:
            why = f"the batch has room for {self.most} copies of {PLACE}"
            self.fail(index)
        self.passed += why is None
        return why

    def fail(self, index: int) -> None:
        """Note a failure."""
        if index in self.standing:
            line, origin = self.standing[index]
            self.failed[line] = min(origin, self.failed.get(line, origin))

    def why_blocked_now(self, index: int) -> str | None:
        """Return why a record that has passed is blocked by what failed in its line."""
        if index not in self.standing or self.standing[index][0] not in self.failed:
            return None
        return self.blocks(*self.standing[index])


def message(cause: Cause | None) -> str | None:
    """Return the message of a cause; all are of one operator and kind."""
    if cause is None:
        return None
    assert (cause.operator, cause.error) == (OPERATOR, HELD)
    return cause.message


steps = st.one_of(
    st.tuples(st.just("admit"), st.lists(records, min_size=1, max_size=1)),
    st.tuples(st.just("together"), st.lists(records, max_size=6)),
    st.tuples(st.just("refuse"), st.lists(records, min_size=1, max_size=1)),
    st.tuples(st.just("fail"), st.integers(0, 20)),
    st.tuples(st.just("stop"), st.integers(0, 20)),
    st.tuples(st.just("new"), st.none()),
)
line_ups = st.builds(
    LineUp,
    st.just("key"),
    st.dictionaries(
        st.sampled_from([line_of_key(key) for key in KEYS if key is not None]), st.integers(0, 9)
    ),
    st.none() | st.integers(1, 4),
) | st.builds(LineUp, st.just("partition"), st.just({}) | st.just({WHOLE: 6}), st.none() | st.integers(1, 4))


@settings(max_examples=80, deadline=None)
@given(line_ups, st.lists(steps, max_size=14))
def test_a_gate_knows_of_each_record_what_a_list_of_all_of_them_knows(
    line_up: LineUp, script: list[tuple[str, object]]
) -> None:
    """P32, S78: one by one or together, failed, refused, without room, and behind what cannot be read."""
    gate, model = Gate(PLACE, OPERATOR, line_up), Model(line_up, line_up.copies_max)
    index = 0
    for what, value in script:
        if what == "fail":
            assert isinstance(value, int)
            gate.fail(value)
            model.fail(value)
        elif what == "stop":
            assert isinstance(value, int)
            gate.stop_all(value, f"nobody can read {value}")
            if model.stop is None or value < model.stop[0]:
                model.stop = value, f"nobody can read {value}"
        elif what == "new":
            gate.begin_new()
            model.most = None
        else:
            assert isinstance(value, list)
            here = list(range(index, index + len(value)))
            index += len(value)
            if what == "refuse":
                [(key, origin)] = value
                assert message(gate.refuse(here[0], key, origin, "no room")) == "no room"
                if (line := model.line_of(key, origin)) is not None:
                    model.standing[here[0]] = line, origin
                    model.fail(here[0])
                continue
            expected = [model.admit(at, *record) for at, record in zip(here, value, strict=True)]
            if what == "admit":
                [(key, origin)] = value
                assert message(gate.admit(here[0], key, origin)) == expected[0]
            else:
                causes = gate.admit_all(numbers(here), [k for k, _ in value], [o for _, o in value])
                assert {row: message(cause) for row, cause in causes.items()} == {
                    row: why for row, why in enumerate(expected) if why is not None
                }
        assert gate.failed == model.failed
        assert [message(gate.why_blocked_now(at)) for at in range(index)] == [
            model.why_blocked_now(at) for at in range(index)
        ]
    every = range(index)
    assert message(gate.why_any_blocked_now(every)) == next(
        filter(None, map(model.why_blocked_now, every)), None
    )
    rows = {at: (line, origin) for at, line, origin in gate.lined_records().rows.tolist()}
    assert rows == model.standing
    _assert_slip_and_lines_of_stops(gate, model, index)


def _assert_slip_and_lines_of_stops(gate: Gate, model: Model, count: int) -> None:
    """Hold what goes to a child process, and what is said of the lines of some records, against the model."""
    some = list(range(0, count, 2))
    gate_state = gate.state_for(some)
    assert (gate_state.partition_name, gate_state.operator) == (PLACE, OPERATOR)
    assert gate_state.failed == model.failed
    assert {at: (line, origin) for at, line, origin in gate_state.rows_in_lines} == {
        at: model.standing[at] for at in some if at in model.standing
    }
    child = Gate(PLACE, OPERATOR, model.line_up)
    child.add_state(gate_state)
    child.stop_all(*(model.stop or (1_000, "never")))
    assert [message(child.why_blocked_now(at)) for at in some] == [model.why_blocked_now(at) for at in some]
    lines = {model.standing[at][0] for at in some if at in model.standing}
    assert {at for at, _, _ in gate.lined_records(numbers(some)).rows.tolist()} == {
        at for at, (line, _) in model.standing.items() if line in lines
    }


rows_in_lines = st.lists(st.integers(1, 3), max_size=9)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(rows_in_lines, max_size=3),
    st.randoms(use_true_random=False),
    st.sets(st.integers(0, 26)),
    st.sets(st.integers(0, 26)),
    st.sets(st.integers(0, 26)),
)
def test_behind_stands_what_has_a_higher_origin_than_the_first_that_stops_its_line(
    partitions: list[list[int]],
    random: st.randoms,  # type: ignore[valid-type]
    failed: set[int],
    open_: set[int],
    free: set[int],
) -> None:
    """P32: several partitions, copies in any order, and best-effort records between them."""
    lined_records: list[LinedRecords] = []
    expected: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    index = 0
    for partition, lines in enumerate(partitions):
        ordered = list(range(len(lines)))
        random.shuffle(ordered)  # type: ignore[attr-defined]
        rows = [
            (index + at, line, origin) for at, (line, origin) in enumerate(zip(lines, ordered, strict=True))
        ]
        index += len(lines)
        lined_records.append(
            LinedRecords(f"t/{partition}", OPERATOR, numbers([*sum(rows, ())]).reshape(-1, 3))
        )
        bound = [row for row in rows if row[0] not in free]
        for at, line, origin in bound:
            stops = [o for i, other, o in bound if other == line and i in failed | open_]
            if stops and min(stops) < origin and at not in failed:
                expected[f"waits for t/{partition}@{min(stops)}", OPERATOR].add(at)
    found = find_blocked_behind(
        lined_records,
        failed=numbers(sorted(failed)),
        open_=numbers(sorted(open_)),
        best_effort=numbers(sorted(free)),
    )
    assert {(cause.message, cause.operator): set(at.tolist()) for cause, at in found} == expected
    assert all(cause.error == HELD for cause, _ in found)
