"""What a bolt raises: its cause names file and line, and its traceback is in the log, once for each kind."""

from __future__ import annotations

import inspect
import json
import logging
import pickle
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from acker.wire.causes import TEXT_BYTES_MAX
from spout.bolts.bolts import AnyBolt, ArrowBolt, BasicBolt, BatchCollector, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext, TaskHook
from spout.builder.topology import TopologyBuilder
from spout.execution.stage_run import StageRun, TaskRun
from spout.inspect.tables import cut_message
from spout.isolation.isolation import IsolatedRun
from spout.isolation.task_runs import no_garbage_collection
from spout.publishing.blob import decode, encode
from spout.publishing.fold import TaskReport, merged
from spout.publishing.publish import BatchLane, merge_causes
from spout.publishing.report_accumulator import BatchReports, LedgerParam, TracebackLog, add_report, is_local
from spout.runtime.logs import RECURRING_EVERY_S
from spout.sinks.batch_end import BatchEnd
from spout.streaming.application import Stream
from spout.topology.chain import Chain, Step
from spout.topology.stage_pass import StagePass
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.failures import Cause, FailTuple, RejectTuple, cause_of, cause_of_output
from spout.tuples.raised import (
    KINDS_MAX,
    TRACEBACK_CHARACTERS_MAX,
    Raised,
    Tracebacks,
    first_of_each,
    place_of,
    place_of_code,
    place_of_thread,
)
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Tuple, values_in_order
from tests.support.reports import failures_in, task_report
from tests.support.worlds import topology_world

WORD = pa.schema([("word", pa.string())])
CONTEXT = BoltContext("pass", 0, 1)
HERE = "test_raised.py"


def refuse(line: str) -> None:
    """Raise, as what a bolt calls does."""
    if line.startswith("raise"):
        raise ValueError("no words")  # here


def line_of(mark: str, code: Callable[..., object]) -> int:
    """Return the number of the line of some code that ends with a mark."""
    lines, first = inspect.getsourcelines(code)
    [number] = [n for n, line in enumerate(lines, start=first) if line.rstrip().endswith(mark)]
    return number


PLACE = f"{HERE}:{line_of('# here', refuse)}"
CAUSE = Cause("it", "ValueError", f"no words ({PLACE})")


class Basic(BasicBolt):
    """Calls what raises."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Refuse a line."""
        refuse(bytes(tuple["value"]).decode())


class Later(BasicBolt):
    """Fails by name."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Fail a line."""
        raise FailTuple("not now")


class Rich(Bolt):
    """Likewise, by hand."""

    output = "word string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self.collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Refuse a line."""
        refuse(bytes(tuple["value"]).decode())
        self.collector.ack(tuple)


class Catches(Rich):
    """Fails a tuple with what it has caught."""

    def execute(self, tuple: Tuple) -> None:
        """Refuse a line."""
        try:
            super().execute(tuple)
        except ValueError as error:
            self.collector.fail(tuple, error)


class Batched(ArrowBolt):
    """Likewise, row for row of a batch."""

    output = "word string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Refuse lines."""
        for row, value in enumerate(batch.column("value").to_pylist()):
            try:
                refuse(value.decode())
            except ValueError as error:
                collector.fail(row, error)


class Whole(ArrowBolt):
    """Likewise, for all rows of a batch."""

    output = "word string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Refuse lines."""
        for value in batch.column("value").to_pylist():
            refuse(value.decode())


LINES = (b"raise a", b"raise b", b"raise c")


def in_pass(bolt: AnyBolt, *hooks: TaskHook) -> StagePass:
    """Make a tracked pass of one bolt."""
    return Chain((Step("it", bolt, WORD, hooks),), arriving_form=AnchorForm.PACKED).stage


def fed(run: TaskRun, lines: Sequence[bytes] = LINES) -> TaskReport:
    """Return what a task reports of lines, each a root of its own."""
    rows = ArrowRows(pa.RecordBatch.from_pydict({"value": list(lines)}))
    run.feed(rows, Anchors(AnchorForm.PACKED, pa.array(np.arange(len(lines)) << ORDINAL_BITS)))
    run.finish()
    return run.report()


def on_frames(bolt: AnyBolt) -> TaskReport:
    """Run a bolt on a DataFrame."""
    pass_ = in_pass(bolt)
    return fed(StageRun(pass_, CONTEXT))


def hooked(bolt: AnyBolt) -> TaskReport:
    """Run a bolt that is watched."""
    pass_ = in_pass(bolt, TaskHook())
    return fed(StageRun(pass_, CONTEXT))


def in_child(bolt: AnyBolt) -> TaskReport:
    """Run a bolt in a child of the worker."""
    run = IsolatedRun(in_pass(bolt), CONTEXT, 0, lambda pass_: StageRun(pass_, CONTEXT))
    try:
        return fed(cast("TaskRun", run))
    finally:
        run.close()


def in_topology(bolt: AnyBolt) -> TaskReport:
    """Run a bolt of a topology."""
    builder = TopologyBuilder()
    builder.set_spout("lines", topology_world.TOPICS, "lines")
    builder.set_bolt("it", bolt).shuffle_grouping("lines")
    [read] = topology_world.run(builder, LINES, tasks=1).evaluated
    return read


@pytest.mark.parametrize("bolt", [Basic, Rich, Catches, Batched, Whole])
@pytest.mark.parametrize("way", [on_frames, hooked, in_child, in_topology])
def test_the_cause_names_file_and_line_and_one_traceback_of_them_all_is_reported(
    bolt: Callable[[], AnyBolt], way: Callable[[AnyBolt], TaskReport]
) -> None:
    report = decode(encode(way(bolt())))
    assert {cause: roots.tolist() for cause, roots in failures_in(report)} == {CAUSE: [0, 1, 2]}
    [raised] = report.raised
    assert raised.kind == ("it", "ValueError", PLACE)
    assert raised.text.startswith("Traceback (most recent call last):\n")
    assert 'raise ValueError("no words")  # here' in raised.text
    assert raised.text.endswith("ValueError: no words")


class Unfit(BasicBolt):
    """Emits more than its output has."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit two values."""
        collector.emit(("a", "b"))


class Returns(BasicBolt):
    """Returns what it should emit."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Return a list."""
        return ["a"]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("bolt", "says"), [(Unfit, "TupleError: bolt 'it' emitted 2 values"), (Returns, "returned a list")]
)
@pytest.mark.parametrize("way", [on_frames, hooked, in_child, in_topology])
def test_what_windhover_has_against_a_bolt_is_reported_for_the_log_as_well(
    bolt: Callable[[], AnyBolt], says: str, way: Callable[[AnyBolt], TaskReport]
) -> None:
    """No line of the bolt raised it, so it had no place, and the log was silent while all records died."""
    report = way(bolt())
    [raised] = report.raised
    assert raised.kind[:2] == ("it", "TupleError(WindhoverError)")
    assert says in raised.text


class OwnError(Exception):
    """Is raised, and seen to go."""


class Remembers(BasicBolt):
    """Raises an error for each tuple."""

    output = "word string"

    def __init__(self) -> None:
        """Begin with none."""
        self.errors: list[weakref.ref[OwnError]] = []

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Fail a line."""
        error = OwnError("no words")
        self.errors.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error


@pytest.mark.parametrize("way", [on_frames, hooked])
def test_what_was_raised_does_not_keep_the_rows_of_its_task(way: Callable[[AnyBolt], TaskReport]) -> None:
    """A read task collects no cycles, and a traceback holds the frame that holds the rows."""
    bolt = Remembers()
    with no_garbage_collection():
        report = way(bolt)
        assert [error() for error in bolt.errors] == [None] * 3
    assert len(report.raised) == 1


@pytest.mark.parametrize("way", [on_frames, hooked, in_child, in_topology])
def test_an_explicit_fail_has_neither_place_nor_traceback(way: Callable[[AnyBolt], TaskReport]) -> None:
    report = way(Later())
    [(cause, roots)] = failures_in(report)
    assert (cause, roots.tolist()) == (Cause("it", "", "not now"), [0, 1, 2])
    assert report.raised == ()


def compiled(file: str, source: str, module: str, **names: object) -> Callable[..., object]:
    """Define the function ``run`` as a module in some file does."""
    scope: dict[str, Any] = {"__name__": module, **names}
    exec(compile(source, file, "exec"), scope)
    found: Callable[..., object] = scope["run"]
    return found


PACKAGES = "/venv/lib/python3.12/site-packages"
LIBRARY = compiled(f"{PACKAGES}/lib/deep.py", "def run():\n    raise KeyError('x')", "lib.deep")
INSTALLED = compiled(f"{PACKAGES}/flows/parse.py", "def run(call):\n\n\n    call()", "flows.parse")
GENERATED = compiled("<string>", "def run():\n    raise KeyError('x')", "somewhere")
TYPED = compiled("<stdin>", "def run():\n    raise KeyError('x')", "__main__")


def of_an_author(call: Callable[[], object]) -> None:
    """Call something, as a bolt calls a library."""
    call()  # the call


CALL = f"{HERE}:{line_of('# the call', of_an_author)}"


def raised_by(call: Callable[[], object]) -> Exception:
    """Return what a call raises, without the frames of this file that lead to it."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        behind = error.__traceback__ and error.__traceback__.tb_next
        return error.with_traceback(behind)
    raise AssertionError("it raised nothing")


@pytest.mark.parametrize(
    ("call", "place"),
    [
        pytest.param(partial(of_an_author, partial(json.loads, "{")), CALL, id="Python"),
        pytest.param(partial(of_an_author, LIBRARY), CALL, id="a library"),
        pytest.param(
            partial(of_an_author, partial(pc.call_function, "utf8_upper", [1])), CALL, id="compiled"
        ),
        pytest.param(partial(of_an_author, GENERATED), CALL, id="code that a library has made"),
        pytest.param(
            partial(of_an_author, partial(values_in_order, {1}, ["word"], "it")), CALL, id="Windhover"
        ),
        pytest.param(partial(of_an_author, TYPED), "<stdin>:2", id="typed in"),
        pytest.param(partial(INSTALLED, LIBRARY), "parse.py:4", id="an installed bolt calls a library"),
        pytest.param(partial(INSTALLED, partial(json.loads, "{")), "parse.py:4", id="an installed bolt"),
        pytest.param(partial(INSTALLED, partial(of_an_author, LIBRARY)), CALL, id="the author's before all"),
        pytest.param(partial(values_in_order, {1}, ["word"], "it"), "", id="Windhover alone"),
    ],
)
def test_the_place_is_the_last_line_of_the_authors_own(call: Callable[[], object], place: str) -> None:
    assert place_of(raised_by(call)) == place


def test_what_was_never_raised_has_no_place_and_an_explicit_fail_shows_none() -> None:
    tracebacks = Tracebacks()
    assert cause_of("it", ValueError("no words"), tracebacks) == Cause("it", "ValueError", "no words")

    def fail() -> None:
        raise FailTuple("not now")

    assert cause_of("it", raised_by(fail), tracebacks) == Cause("it", "", "not now")
    assert list(tracebacks) == []


def test_a_place_stays_however_long_the_message_is() -> None:
    """In the cause, where many causes share an entry, and in a table."""

    def reject(text: str) -> None:
        raise RejectTuple(text)  # here

    end = f" ({HERE}:{line_of('# here', reject)})"
    causes = [cause_of("it", raised_by(partial(reject, f"{n:03}{'é' * 500}"))) for n in range(300)]
    assert all(cause.message.endswith(f"é{end}") for cause in causes)
    assert max(len(cause.message.encode()) for cause in causes) <= TEXT_BYTES_MAX
    shared, _ = merge_causes([(cause, np.array([n])) for n, cause in enumerate(causes)])[-1]
    assert shared.message.startswith("and 44 more, first: 255é")
    assert shared.message.endswith(f"é{end}")
    assert len(shared.message.encode()) <= TEXT_BYTES_MAX
    for shown in (cut_message(60)(causes[0].message), cut_message(80)(causes[0].message)):
        assert shown.startswith("000é")
        assert shown.endswith(f"…{end}")
    assert len(cut_message(60)(causes[0].message)) == 60
    assert cause_of("it", raised_by(partial(reject, ""))).message == end[1:]
    strange = compiled(f"/jobs/{'ä' * 50}(1).py", "def run():\n    raise ValueError('x' * 999)", "jobs")
    message = cause_of("it", raised_by(strange)).message
    assert message.endswith(f"x ({'ä' * 20}:2)")
    assert len(message.encode()) == TEXT_BYTES_MAX


def raised(operator: str = "it", place: str = "a.py:1", text: str = "Traceback: a") -> Raised:
    """Make a traceback."""
    return Raised(operator, "ValueError", place, text)


def test_a_task_keeps_few_kinds_and_a_long_traceback_is_cut_in_its_middle() -> None:
    tracebacks = Tracebacks()
    for n in range(KINDS_MAX + 3):
        tracebacks.keep("it", "ValueError", f"a.py:{n}", ValueError("x" * 100_000))
    kept = list(tracebacks)
    assert [each.place for each in kept] == [f"a.py:{n}" for n in range(KINDS_MAX)]
    assert len(kept[0].text) < TRACEBACK_CHARACTERS_MAX + 100
    assert kept[0].text.startswith("ValueError: xxx")
    assert "characters left out" in kept[0].text
    first = task_report("it", raised=(raised(), raised("other")))
    assert merged([first, task_report("it", raised=(raised(text="b"),))]).raised == (
        raised(),
        raised("other"),
    )
    assert len(first_of_each(raised(place=str(n)) for n in range(100))) == KINDS_MAX


def test_a_kind_of_traceback_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [1.0]
    log = TracebackLog(lambda: now_s[0])
    seen = []
    for at_s, place in ((1, "a.py:1"), (1, "a.py:1"), (2, "b.py:2"), (RECURRING_EVERY_S + 0.999, "a.py:1"),
                        (RECURRING_EVERY_S + 1, "a.py:1")):  # fmt: skip
        now_s[0] = at_s
        caplog.clear()
        log.warn([raised(place=place, text="Traceback (most recent call last):\n  x")], 7)
        seen.append([record.getMessage() for record in caplog.records])
    assert [len(each) for each in seen] == [1, 0, 1, 0, 1]
    assert seen[0][0].startswith("bolt_raised operator=it error=ValueError place=a.py:1 batch=7: ")
    assert seen[0][0].endswith("\nTraceback (most recent call last):\n  x")


def test_the_log_names_the_class_as_the_failures_and_the_rules_do(caplog: pytest.LogCaptureFixture) -> None:
    TracebackLog().warn([Raised("it", "TupleError(WindhoverError)", "", "x")], 7)
    assert "bolt_raised operator=it error=TupleError place=none batch=7: " in caplog.text


class Accumulator:
    """What a task has of Spark's accumulator."""

    def __init__(self, *, has_executors: bool) -> None:
        self.accum_param = LedgerParam(has_executors=has_executors)
        self.added = 0

    def add(self, _value: object) -> None:
        """Count."""
        self.added += 1


def test_an_executor_logs_what_its_task_raised_unless_its_log_is_the_drivers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for has_executors in (False, True):
        accumulator = Accumulator(has_executors=has_executors)
        assert pickle.loads(pickle.dumps(accumulator.accum_param)).has_executors is has_executors
        for _ in range(2):  # task after task
            add_report(
                cast("Any", accumulator), "stream", task_report("it", raised=(raised("of an executor"),))
            )
        assert accumulator.added == 2
        assert [record.getMessage().count("Traceback: a") for record in caplog.records] == [1] * has_executors


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[4]", True), ("local[*,3]", True), ("local-cluster[2,1,1024]", False),
     ("spark://host:7077", False), ("yarn", False)],
)  # fmt: skip
def test_driver_and_tasks_share_a_log_under_a_local_master_alone(master: str, local: bool) -> None:
    assert is_local(master) is local


def test_the_driver_logs_what_the_tasks_of_a_batch_raised(caplog: pytest.LogCaptureFixture) -> None:
    """Each task reports it; so does each batch."""
    builder = TopologyBuilder()
    builder.set_spout("lines", topology_world.TOPICS, "lines")
    builder.set_bolt("it", Basic()).shuffle_grouping("lines")
    ran = topology_world.run(builder, LINES, tasks=3)
    assert [len(report.raised) for report in ran.evaluated] == [1, 1, 1]
    stream = Stream("stream", "g", True, 4, cast("Any", None), cast("Any", None))
    application = SimpleNamespace(tasks_of=lambda stage: None)
    for batch in (7, 8):
        end = BatchEnd(cast("Any", application), BatchLane("query", batch))
        end.settle(stream, BatchReports(frozenset({"stream"}), tuple(ran.evaluated), has_untracked=False))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.name == "windhover.spout"
    assert f"operator=it error=ValueError place={PLACE} batch=7: " in record.getMessage()
    assert record.getMessage().endswith("ValueError: no words")


def raised_error(text: str) -> ValueError:
    """Raise an error of some text, and catch it."""
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_a_task_keeps_the_first_traceback_of_each_kind_up_to_its_limit() -> None:
    """Kinds differ by bolt, class and place; what was taken does not come again until all is forgotten."""
    tracebacks = Tracebacks()
    assert tracebacks.code_place == ""
    kinds = [("it", "ValueError", f"a.py:{line}") for line in range(KINDS_MAX - 2)]
    kinds += [("other", "ValueError", "a.py:0"), ("it", "KeyError", "a.py:0")]
    for number, kind in enumerate([*kinds, *kinds, ("it", "ValueError", "one more")]):
        tracebacks.keep(*kind, raised_error(f"number {number}"))
    kept = tracebacks.take()
    assert [found.kind for found in kept] == kinds
    assert [found.text.rsplit("ValueError: ", 1)[1] for found in kept] == [
        f"number {number}" for number in range(KINDS_MAX)
    ]
    tracebacks.keep(*kinds[0], raised_error("again"))
    assert tracebacks.take() == []
    tracebacks.clear()
    tracebacks.keep(*kinds[0], raised_error("again"))
    assert [found.kind for found in tracebacks] == kinds[:1]
    tracebacks.clear()
    assert list(tracebacks) == []


@pytest.mark.parametrize("beyond", [-1, 0, 1, 2, 1_000])
def test_a_traceback_is_whole_up_to_its_limit_and_then_keeps_both_its_ends(beyond: int) -> None:
    def traceback_of(text: str) -> str:
        tracebacks = Tracebacks()
        tracebacks.keep("it", "ValueError", "", raised_error(text))
        [kept] = tracebacks
        return kept.text

    frame = len(traceback_of(""))
    whole = traceback_of("x" * 10).removesuffix("x" * 10)
    text = f"{'a' * 5_000}{'z' * (TRACEBACK_CHARACTERS_MAX - 5_000 - len(whole) + beyond)}"
    found = traceback_of(text)
    assert frame <= len(whole)
    if beyond <= 0:
        assert found == whole + text
        return
    half = TRACEBACK_CHARACTERS_MAX // 2
    expected = f"{(whole + text)[:half]}\n… {beyond:,} characters left out …\n{text[-half:]}"
    assert found == expected


def test_an_output_that_does_not_fit_has_the_place_of_the_bolt_unless_somebody_raised_it() -> None:
    tracebacks = Tracebacks()
    tracebacks.code_place = "split.py:3"
    assert cause_of_output("it", ValueError("no words"), tracebacks).message == "no words (split.py:3)"
    own = raised_error("no words")
    place = place_of(own)
    assert place.startswith(f"{HERE}:")
    assert cause_of_output("it", own, tracebacks).message == f"no words ({place})"
    assert [found.place for found in tracebacks] == ["split.py:3", place]


def test_a_thread_is_at_a_place_of_the_author_and_one_that_is_gone_is_nowhere() -> None:
    assert place_of_thread(threading.get_ident()).startswith(f"{HERE}:")
    assert place_of_thread(-1) == ""


def test_a_bolt_begins_where_its_author_wrote_it_and_nowhere_if_nobody_did() -> None:
    """Code of Windhover, and what has no code of Python, is nobody's; so is what is no bolt."""
    assert place_of_code(Basic()) == f"{HERE}:{inspect.getsourcelines(Basic.execute)[1]}"
    for nobodys in (object(), BasicBolt, 5, type("Compiled", (), {"execute": len})()):
        assert place_of_code(nobodys) == ""
