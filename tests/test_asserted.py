"""What operators are shown is asserted: each field of a status with a value, each event of a log by its name.

A field that no test has seen with a value may be wired to another one, or to nothing, and all tests pass.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from acker.ledger.output import AckerEventKind, AckerStatus
from replay.worker.report import ReplayStatus
from spout.builder.streams import StreamStatus
from spout.builder.submitted import TopologyStatus
from spout.planning_process.status import PlannerStatus
from spout.standalone.queues import SpoutStatus

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = ("acker", "replay", "spout")
STATUSES = (AckerStatus, ReplayStatus, PlannerStatus, SpoutStatus, StreamStatus, TopologyStatus)

NOTHING = {"0", "0.0", "''", "None", "False", "()", "[]", "{}"}
"""Values that a field has too where nobody fills it."""

EVENT = re.compile(r"[a-z]+(_[a-z]+)+(?= |:|$)")
"""The name of an event, with which its line begins."""


UNSEEN = {
    "tasks_are_tried_once": "it wants a Spark session of another master than the one that all tests share",
    "waits_for_its_end": "it is logged after a minute of real time",
}
"""Events that no test waits for, and why."""


@cache
def trees(*folders: str) -> list[ast.Module]:
    paths = sorted(path for folder in folders for path in (PROJECT / folder).rglob("*.py"))
    own = Path(__file__)
    return [ast.parse(path.read_text(encoding="utf-8")) for path in paths if path != own]


def named(value: ast.expr) -> Iterator[str]:
    """Yield the fields that an expression reads: ``status.acked`` and ``status["acked"]``."""
    for node in ast.walk(value):
        match node:
            case ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
                yield name


def is_something(value: ast.expr) -> bool:
    return ast.unparse(value) not in NOTHING


def pairs(left: ast.expr, right: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what is compared with what: two tuples of one length are compared item by item."""
    match left, right:
        case (ast.Tuple(elts=firsts), ast.Tuple(elts=seconds)) if len(firsts) == len(seconds):
            for first, second in zip(firsts, seconds, strict=True):
                yield from pairs(first, second)
        case _:
            yield left, right


def asserted_in(assertion: ast.Assert) -> Iterator[str]:
    """Yield the names of fields that an assertion holds to a value that is not nothing."""
    if isinstance(assertion.test, ast.Attribute | ast.Subscript):
        yield from named(assertion.test)
    for node in ast.walk(assertion.test):
        match node:
            case ast.keyword(arg=str(name), value=value) if is_something(value):
                yield name
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str) and is_something(value):
                        yield key.value
            case ast.Compare(left=left, ops=operators, comparators=comparators):
                for operator, right in zip(operators, comparators, strict=True):
                    for first, second in pairs(left, right):
                        # x > 0 says that there is something, x == 0 does not
                        if not isinstance(operator, ast.Eq | ast.Is | ast.LtE) or is_something(second):
                            yield from named(first)
                        if is_something(first):
                            yield from named(second)
                    left = right


@cache
def asserted() -> frozenset[str]:
    assertions = (node for tree in trees("tests") for node in ast.walk(tree) if isinstance(node, ast.Assert))
    return frozenset(name for assertion in assertions for name in asserted_in(assertion))


@pytest.mark.parametrize(
    ("assertion", "names"),
    [
        ("assert status.acked == 3", {"acked"}),
        ("assert status.acked == 0", set()),
        ("assert status.error is None", set()),
        ("assert status.acked > 0", {"acked"}),
        ("assert status['acked'] == 3", {"acked"}),
        ("assert (status.acked, status.failed) == (3, 0)", {"acked"}),
        ("assert status.error", {"error"}),
        ("assert not status.error", set()),
        ("assert 'x' in status.error", {"error"}),
        ("assert status == Status(acked=3, failed=0)", {"acked"}),
        ("assert rows == [{'acked': 3, 'failed': 0}]", {"acked"}),
    ],
)
def test_an_assertion_counts_where_the_value_is_something(assertion: str, names: set[str]) -> None:
    (statement,) = ast.parse(assertion).body
    assert isinstance(statement, ast.Assert)
    assert set(asserted_in(statement)) == names


@pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.__name__)
def test_each_field_of_a_status_is_asserted_with_a_value(status: type[PlannerStatus]) -> None:
    assert [field.name for field in fields(status) if field.name not in asserted()] == []


def texts(folder: str) -> Iterator[str]:
    for tree in trees(folder):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def logged() -> Iterator[str]:
    """Yield the events that the product logs by name: the first word of a line, or what it reports."""
    for tree in trees(*PACKAGES):
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="debug" | "info" | "warning" | "error" | "critical"),
                    args=[ast.Constant(value=str(text)), *_],
                ) if name := EVENT.match(text):
                    yield name.group()
                case ast.Call(
                    func=ast.Attribute(attr="report" | "_report") | ast.Name(id="ReplayEvent"),
                    args=[ast.Constant(value=str(text)), *_],
                ):
                    yield text


@cache
def events_in_tests() -> tuple[frozenset[str], str]:
    """Return the kinds of an acker's events that tests name, and all texts of tests."""
    kinds = {
        node.attr
        for tree in trees("tests")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "AckerEventKind"
    }
    return frozenset(kinds), "\n".join(texts("tests"))


def test_each_event_of_a_log_is_asserted_by_its_name() -> None:
    _, in_tests = events_in_tests()
    events = set(logged())
    assert len(events) > 40
    assert sorted(event for event in events if event not in in_tests and event not in UNSEEN) == []
    assert events >= UNSEEN.keys()


def test_each_kind_of_an_ackers_events_is_asserted() -> None:
    kinds, in_tests = events_in_tests()
    missing = [kind for kind in AckerEventKind if kind.name not in kinds and f"acker.{kind}" not in in_tests]
    assert missing == []
