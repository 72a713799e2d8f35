"""A pass in a child process: whatever ends or hangs the child, its tuple fails, and nothing else differs."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TupleError, WorkerLost
from acker.wire.causes import without_code_line
from spout.bolts.bolts import AnyBolt, ArrowBolt, BasicBolt, BatchCollector, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext
from spout.execution.stage_run import StageRun, TaskRun
from spout.isolation import poison_finder
from spout.isolation.isolation import IsolatedRun, can_keep_blocks
from spout.planning.order import Gate, LineUp
from spout.publishing.fold import TaskReport
from spout.topology.chain import Chain, Step
from spout.topology.stage_pass import StagePass
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.poison import HUNG, WORKER_DIED, PoisonSearch
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Tuple
from tests.support.reports import failures_in, passed_in, touched_in

WORD = pa.schema([("word", pa.string())])
CONTEXT = BoltContext("pass", 0, 1)
LIMIT_MS = 1_000
"""Long for a tuple of these bolts, even where the machine is busy; what hangs, hangs for ever."""


def act(word: str) -> None:
    """Do what a word says to the process."""
    if word == "exit":
        os._exit(3)
    if word == "leave":
        raise SystemExit(4)
    if word == "crash":
        ctypes.string_at(0)
    if word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "wait":
        threading.Event().wait()
    while word == "spin":
        pass
    if word == "lock":  # keeps the interpreter's lock: PyDLL does not let go of it
        ctypes.PyDLL(None).pause()
    if word == "raise":
        raise ValueError(word)


class Words(BasicBolt):
    """Splits lines."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit each word."""
        for word in tuple[0].split():
            collector.emit([word])


class Act(BasicBolt):
    """Does to its process what words say."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit, then act."""
        collector.emit([tuple[0].upper()])
        act(tuple[0])


class Upper(BasicBolt):
    """Hands words on."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Hand the word on."""
        collector.emit([tuple[0]])


class Fussy(Bolt):
    """Acts on each word, and settles it."""

    output = "value string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Act, hand the word on and ack it."""
        act(tuple[0])
        self._collector.emit([tuple[0].upper()], anchors=[tuple])
        self._collector.ack(tuple)


class ActAll(ArrowBolt):
    """Does what words say, whole batches at once."""

    output = "value string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Act for all, then emit them in reverse order; ``bad`` fails."""
        words = batch.column(0).to_pylist()
        for word in words:
            act(word)
        order = np.arange(len(words))[::-1]
        collector.emit([pa.array([words[row].upper() for row in order])], order)
        for row, word in enumerate(words):
            if word == "bad":
                collector.fail(row, "a bad word")


class Gather(Bolt):
    """Holds all words of the task, and hands them on together in the end."""

    output = "value string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Begin with nothing."""
        self._collector = collector
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        """Hold the word, or forget it; then act."""
        act(tuple[0])
        if tuple[0] == "forget":
            return
        self._held.append(tuple)

    def cleanup(self) -> None:
        """Emit all words as one tuple, and ack them."""
        self._collector.emit([" ".join(each[0] for each in self._held)], anchors=self._held)
        for each in self._held:
            self._collector.ack(each)


class Prepared(Act):
    """Ends its process before it has seen a tuple."""

    def prepare(self, context: BoltContext) -> None:
        """End."""
        os._exit(5)


class Cleaned(Act):
    """Ends its process when all is done."""

    def cleanup(self) -> None:
        """End."""
        os._exit(6)


class Written(BasicBolt):
    """Writes to a file at the end what it was given, as one that writes in bulk does."""

    output = "value string"

    def __init__(self, path: str) -> None:
        self._path = path
        self._buffer: list[str] = []

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Keep the word for later."""
        act(tuple[0])
        self._buffer.append(tuple[0])

    def cleanup(self) -> None:
        """Write what was kept."""
        Path(self._path).write_text(" ".join(self._buffer), encoding="utf-8")


def pass_of(*bolts: AnyBolt, carry: AnchorForm = AnchorForm.PACKED) -> StagePass:
    """Make a tracked pass."""
    steps = tuple(Step(f"{n}-{type(bolt).__name__}", bolt, WORD) for n, bolt in enumerate(bolts))
    made = Chain(steps, arriving_form=AnchorForm.PACKED, consumer="next", leaving_form=carry)
    return (replace(made, leaving_form=AnchorForm.HOPS) if made.has_rich_bolts else made).stage


def feed(run: TaskRun, lines: Sequence[str], first: int = 0) -> pa.RecordBatch:
    """Feed lines, each a root of its own."""
    rows = ArrowRows(pa.RecordBatch.from_pydict({"line": pa.array(lines, pa.string())}))
    packed = np.arange(first, first + len(lines)) << ORDINAL_BITS
    return run.feed(rows, Anchors(AnchorForm.PACKED, pa.array(packed)))


class Done:
    """What a task came to: the emitted rows, and its report."""

    def __init__(self, run: TaskRun, batches: Sequence[Sequence[str]]) -> None:
        """Run a task over batches of lines."""
        returned: list[pa.RecordBatch] = []
        first = 0
        for lines in batches:
            returned.append(feed(run, lines, first))
            first += len(lines)
        returned += run.finish()
        self.rows = [tuple(row.values()) for batch in returned for row in batch.to_pylist()]
        self.words = [row[0] for row in self.rows]
        self.report: TaskReport = run.report()

    @property
    def failed(self) -> dict[int, tuple[str, str, str]]:
        """Why roots failed."""
        return {
            root: (cause.operator, cause.error, without_code_line(cause.message)[0])
            for cause, roots in failures_in(self.report)
            for root in roots.tolist()
        }

    @property
    def ledger(self) -> tuple[object, ...]:
        """What of the report counts, but for causes."""
        report = self.report
        outstanding = {path: sorted(rows.tolist()) for path, rows in report.outstanding.items()}
        return (
            sorted(self.failed),
            outstanding,
            touched_in(report),
            report.received_fingerprint,
            report.sent_fingerprint,
        )


def isolated(
    pass_: StagePass, *batches: Sequence[str], limit_ms: int = 0, begin: Callable[..., StageRun] = StageRun
) -> Done:
    """Run a task in a child."""
    with closing(IsolatedRun(pass_, CONTEXT, limit_ms, partial(begin, context=CONTEXT))) as run:
        return Done(run, batches)


def in_process(pass_: StagePass, *batches: Sequence[str]) -> Done:
    """Run a task in this process."""
    return Done(StageRun(pass_, CONTEXT), batches)


WAYS = [
    ("exit", WORKER_DIED, "exit status 3"),
    ("crash", WORKER_DIED, "SIGSEGV"),
    ("kill", WORKER_DIED, "SIGKILL (out of memory?)"),
    ("wait", HUNG, "took longer than bolt_timeout, 1s"),
    ("spin", HUNG, "took longer than bolt_timeout, 1s"),
    ("lock", HUNG, "took longer than bolt_timeout, 1s"),
]


@pytest.mark.parametrize(("word", "error", "message"), WAYS)
def test_a_tuple_that_ends_or_hangs_its_process_fails_by_name(
    word: str, error: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    # who was killed, and by whom: that cannot be seen, so nobody else may kill here
    limit_ms = 0 if word == "kill" else LIMIT_MS
    done = isolated(pass_of(Act()), ["a", word, "b"], ["c"], limit_ms=limit_ms)
    assert done.failed == {1: ("0-Act", error, message)}
    lines = [record.getMessage() for record in caplog.records if "culprit_found" in record.getMessage()]
    assert len(lines) == 1
    assert f"bolt=0-Act error={error} how={message!r}" in lines[0]
    assert done.words == ["A", "B", "C"]


@pytest.mark.parametrize("bolts", [(Act,), (Words, Act), (Gather,), (Words, Gather), (Gather, Act)])
def test_the_ledger_comes_out_as_if_the_bolt_had_failed_the_tuple(bolts: Sequence[type[AnyBolt]]) -> None:
    made, known = (
        run(
            pass_of(*(bolt() for bolt in bolts)),
            ["a", "b", "bad"],
            [f"c {how} d" if bolts[0] is Words else how, "forget"],
            [],
            ["e", how],
        )
        for run, how in ((isolated, "exit"), (in_process, "raise"))
    )
    assert made.rows == known.rows
    assert made.ledger == known.ledger
    assert {made.failed[root] for root in (3, 6)} == {(known.failed[3][0], WORKER_DIED, "exit status 3")}


def in_line(
    run: TaskRun, *lines: Sequence[str], gates: Sequence[Gate] | None = None, offsets: Sequence[int] = ()
) -> tuple[list[str], dict[int, str]]:
    """Feed batches, each of one line of its partition; return the emitted words, and why roots failed.

    `gates` has the gate of each batch's partition, and `offsets` the offset of its first record; by default
    all batches are of one partition.
    """
    if gates is None:
        gates = [Gate("lines/0", "lines", LineUp("partition"))] * len(lines)
    returned: list[pa.RecordBatch] = []
    held: dict[int, str] = {}
    index = 0
    for number, (words, gate) in enumerate(zip(lines, gates, strict=True)):
        shift = offsets[number] - index if offsets else 0
        run.gate = gate
        causes = {index + at: gate.admit(index + at, None, index + at + shift) for at in range(len(words))}
        held |= {at: cause.message for at, cause in causes.items() if cause is not None}
        kept = [word for at, word in zip(causes, words, strict=True) if at not in held]
        if kept:
            returned.append(feed(run, kept, index))
        index += len(words)
    run.gate = None
    returned += run.finish()
    emitted = [row["word"] for batch in returned for row in batch.to_pylist()]
    failures = failures_in(run.report())
    reported = {r: without_code_line(cause.message)[0] for cause, roots in failures for r in roots.tolist()}
    return emitted, held | reported


@pytest.mark.parametrize("bolts", [(Act,), (Act, Upper), (Fussy,)])
def test_in_a_child_too_what_stands_behind_a_failed_record_is_held(bolts: Sequence[type[AnyBolt]]) -> None:
    """A query that stopped in a batch runs it again in a child: what was held must not come through then."""
    batches = ("a", "raise", "b"), ("c", "d")
    known = in_line(StageRun(pass_of(*(bolt() for bolt in bolts)), CONTEXT), *batches)
    pass_ = pass_of(*(bolt() for bolt in bolts))
    with closing(IsolatedRun(pass_, CONTEXT, 0, partial(StageRun, context=CONTEXT))) as run:
        made = in_line(run, *batches)
    waits = dict.fromkeys((2, 3, 4), "waits for lines/0@1")
    assert made == known == (["A"], {1: "raise", **waits})


@pytest.mark.parametrize("turns", [(0, 1, 2), (0, 1, 0, 2, 1)], ids=["one by one", "by turns"])
@pytest.mark.parametrize("bolts", [(Act,), (Act, Upper), (Fussy,)])
def test_in_a_child_too_each_partition_has_a_line_of_its_own(
    bolts: Sequence[type[AnyBolt]], turns: Sequence[int]
) -> None:
    """One in which a record fails holds back no other, be its offsets below or above; each names itself."""
    words = [("a", "raise", "b"), ("c", "d"), ("raise", "e")]
    first_offsets = [5, 90, 0]

    def fed(run: TaskRun) -> tuple[list[str], dict[int, str]]:
        gates = [Gate(f"lines/{number}", "lines", LineUp("partition")) for number in range(len(words))]
        # what comes of a partition when it has its turn again has higher offsets
        offsets = [
            first_offsets[number] + 10 * turns[:turn].count(number) for turn, number in enumerate(turns)
        ]
        batches = [words[number] for number in turns]
        return in_line(run, *batches, gates=[gates[number] for number in turns], offsets=offsets)

    known = fed(StageRun(pass_of(*(bolt() for bolt in bolts)), CONTEXT))
    pass_ = pass_of(*(bolt() for bolt in bolts))
    with closing(IsolatedRun(pass_, CONTEXT, 0, partial(StageRun, context=CONTEXT))) as run:
        made = fed(run)
    assert made == known
    emitted, failed = made
    if len(turns) == len(words):
        assert emitted == ["A", "C", "D"]
        waits = {2: "waits for lines/0@6", 6: "waits for lines/2@0"}
        assert failed == {1: "raise", 5: "raise", **waits}
    else:
        assert emitted == ["A", "C", "D", "C", "D"]
        waits = {2: "waits for lines/0@6", **dict.fromkeys((5, 6, 7), "waits for lines/0@6")}
        assert failed == {1: "raise", 8: "raise", 9: "waits for lines/2@0", **waits}


def test_each_line_in_which_a_record_failed_is_held_when_its_child_has_died_too() -> None:
    """Several fail by one cause, each in a line of its own; the next child knows of all of them."""
    keys = {"raise": (b"k", b"l", b"m"), "exit": (b"n",), "b": (b"k", b"l", b"m", b"o")}
    gate = Gate("lines/0", "lines", LineUp("key"))
    with closing(IsolatedRun(pass_of(Act()), CONTEXT, 0, partial(StageRun, context=CONTEXT))) as run:
        run.gate = gate
        held: list[int] = []
        index = 0
        for word, of_words in keys.items():
            kept: list[str] = []
            for key in of_words:
                is_held = gate.admit(index, key, index) is not None
                (held if is_held else kept).append(index if is_held else word)  # type: ignore[arg-type]
                index += 1
            if kept:
                feed(run, kept, index - len(kept))
        run.gate = None
        run.finish()
    assert held == [4, 5, 6]


def test_what_stands_behind_a_record_that_ends_its_process_is_held() -> None:
    with closing(IsolatedRun(pass_of(Act()), CONTEXT, 0, partial(StageRun, context=CONTEXT))) as run:
        emitted, failed = in_line(run, ("a", "exit", "b"), ("c", "d"))
    assert emitted == ["A"]
    assert failed == {1: "exit status 3", **dict.fromkeys((2, 3, 4), "waits for lines/0@1")}


def test_the_row_of_a_batch_that_ends_its_process_is_found_by_halves() -> None:
    lines = [f"line-{n}" for n in range(100)]
    for row in (0, 41, 99):
        lines[row] = "exit"
    done = isolated(pass_of(ActAll()), lines, ["bad", "last"])
    assert {root for root, cause in done.failed.items() if cause[1] == WORKER_DIED} == {0, 41, 99}
    assert done.failed[100] == ("0-ActAll", "", "a bad word")
    assert sorted(done.words) == sorted([*(x.upper() for x in lines if x != "exit"), "LAST"])
    packed = [row[1] for row in done.rows]
    assert len(set(packed)) == len(packed)


class HangsOnce(ArrowBolt):
    """Hangs at its first call for so many rows, for each number of rows from `least` on."""

    output = "value string"

    def __init__(self, marks: Path, least: int) -> None:
        self._marks = marks
        self._least = least

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Hang unless that was done; emit the words."""
        mark = self._marks / f"hung-{batch.num_rows}"
        if batch.num_rows >= self._least and not mark.exists():
            mark.touch()
            threading.Event().wait()
        words = batch.column(0).to_pylist()
        for word in words:
            act(word)
        collector.emit([pa.array(words)], np.arange(len(words)))


@pytest.mark.parametrize(("least", "roots"), [(8, [*range(8)]), (4, [*range(4)])], ids=["whole", "half"])
def test_a_hang_that_does_not_repeat_leaves_its_records(tmp_path: Path, least: int, roots: list[int]) -> None:
    """D1405: no record fails, so nobody heard of it. The smallest call that hung is named."""
    done = isolated(pass_of(HangsOnce(tmp_path, least)), [f"line-{n}" for n in range(8)], limit_ms=LIMIT_MS)
    assert len(done.words) == 8
    assert done.failed == {}
    ((cause, indices),) = passed_in(done.report)
    assert (cause.operator, cause.error) == ("0-HangsOnce", HUNG)
    assert cause.message == "took longer than bolt_timeout, 1s"
    assert indices.tolist() == roots


def test_a_hang_whose_row_is_found_is_no_hang_that_passed() -> None:
    """D1405: the halving of it is not told a second time."""
    done = isolated(pass_of(ActAll()), [*(f"line-{n}" for n in range(7)), "wait"], limit_ms=LIMIT_MS)
    assert list(done.failed) == [7]
    assert passed_in(done.report) == ()


def test_a_bolt_that_writes_in_the_end_writes_all_that_is_acked(tmp_path: Path) -> None:
    """What the dead child had kept died with it, so its rows are worked on again."""
    path = tmp_path / "written"
    done = isolated(pass_of(Written(str(path))), ["a", "b"], ["exit", "c"])
    assert path.read_text() == "a b c"
    assert sorted(done.failed) == [2]


def test_slow_tuples_below_the_limit_are_left_alone() -> None:
    calls = multiprocessing.Value("q", 0)  # which the child shares

    class Slow(BasicBolt):
        output = "value string"

        def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
            calls.value += 1
            threading.Event().wait(0.05)
            collector.emit([tuple[0]])

    def clock_ms() -> int:
        """Go on with each call alone, however long the machine stands still."""
        return 50 * calls.value

    begin = partial(StageRun, context=CONTEXT)
    with closing(IsolatedRun(pass_of(Slow()), CONTEXT, LIMIT_MS, begin, clock_ms=clock_ms)) as run:
        done = Done(run, [[str(n) for n in range(25)]])
    assert clock_ms() > LIMIT_MS
    assert done.words == [str(n) for n in range(25)]
    assert not done.failed


def test_a_bolt_that_dies_on_everything_ends_its_task_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison_finder, "POISON_MAX", 5)
    with pytest.raises(WorkerLost, match=r"6 tuples of one task killed or hung .* '0-Act' \(exit status 3\)"):
        isolated(pass_of(Act()), ["exit"] * 20)


@pytest.mark.parametrize(
    ("bolt", "how"), [(Prepared, r"in prepare \(exit status 5\)"), (Cleaned, r"\(exit status 6\) whichever")]
)
def test_a_bolt_that_dies_without_a_tuple_is_named(bolt: type[AnyBolt], how: str) -> None:
    with pytest.raises(WorkerLost, match=rf"bolt '0-{bolt.__name__}' ended its process {how}"):
        isolated(pass_of(bolt()), ["a", "b"])


class Together(Bolt):
    """Works on every four words together, and on the rest in the end."""

    output = "value string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Begin with nothing."""
        self._collector = collector
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        """Hold the word, and work on four."""
        self._held.append(tuple)
        if len(self._held) == 4:
            self._work()

    def cleanup(self) -> None:
        """Work on the rest."""
        self._work()

    def _work(self) -> None:
        for each in self._held:
            act(each[0])
        for each in self._held:
            self._collector.emit([each[0]], anchors=each)
            self._collector.ack(each)
        self._held.clear()


@pytest.mark.parametrize("count", [2, 30, 150])
def test_what_dies_while_it_is_held_is_found_by_trial(count: int) -> None:
    """It dies at another tuple, or at none."""
    words = [f"word-{n}" for n in range(count)]
    for place in {1, count // 2, count - 2} - {0}:
        words[place] = "exit"
    done = isolated(pass_of(Together()), words[: count // 3], words[count // 3 :])
    assert {words[root] for root in done.failed} == {"exit"}
    assert set(done.failed.values()) == {("0-Together", WORKER_DIED, "exit status 3")}
    assert done.words == [word for word in words if word != "exit"]
    assert not done.report.outstanding


class Peel(BasicBolt):
    """Acts, and hands words on without a dash before them."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit what the next bolt may act on."""
        act(tuple[0])
        collector.emit([tuple[0].removeprefix("-")])


def test_while_one_bolt_is_searched_what_dies_in_another_is_found_too() -> None:
    first = ["a", "-crash", *"bcdefg"]
    done = isolated(pass_of(Peel(), Together()), first, ["h", "exit", "i"])
    assert done.failed == {
        1: ("1-Together", WORKER_DIED, "SIGSEGV"),
        9: ("0-Peel", WORKER_DIED, "exit status 3"),
    }
    assert done.words == list("abcdefghi")


@pytest.mark.parametrize("poison", [{0}, {7}, {3, 4}, {0, 1, 6, 7}, set(range(8))])
def test_a_search_finds_the_poison_and_nothing_else(poison: set[int]) -> None:
    search = PoisonSearch(range(8))
    for _ in range(60):
        if poison <= search.withheld:
            if search.record_survival():
                break
        else:
            assert search.record_death()
    assert sorted(search.poison) == sorted(poison)


def test_a_search_gives_up_where_nothing_helps() -> None:
    assert not PoisonSearch(range(8)).record_death()


def test_an_error_that_is_no_tuple_s_is_raised_in_the_worker() -> None:
    class Unanchored(Bolt):
        output = "value string"

        def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
            self._collector = collector

        def execute(self, tuple: Tuple) -> None:
            self._collector.emit([7])

    with pytest.raises(TupleError, match="emitted, unanchored, what does not fit its output"):
        isolated(pass_of(Unanchored()), ["a"])


def test_children_that_end_while_no_bolt_is_called_are_given_up() -> None:
    def begins_to_die(pass_: StagePass, context: BoltContext) -> TaskRun:
        os._exit(9)

    with pytest.raises(
        WorkerLost, match="4 processes of 'pass' ended while no bolt was called, the last by exit"
    ):
        isolated(pass_of(Act()), ["a"], begin=begins_to_die)


def test_what_a_child_returned_is_kept_only_where_bolts_hold_nothing() -> None:
    assert can_keep_blocks(pass_of(Act()))
    assert can_keep_blocks(pass_of(Words(), ActAll()))
    assert not can_keep_blocks(pass_of(Gather()))
    assert not can_keep_blocks(pass_of(Words(), Cleaned()))


def test_no_child_outlives_its_task() -> None:
    run = IsolatedRun(pass_of(Act()), CONTEXT, 0, partial(StageRun, context=CONTEXT))
    feed(run, ["a"])
    child = run._child
    assert child is not None
    os.kill(child.pid, 0)
    run.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
