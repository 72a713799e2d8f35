"""The mutation tester: what it edits, how it swaps, whom it asks, and its list of equivalents."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from acker.errors import UsageError
from spout.cli.main import run
from tests.mutation.__main__ import app
from tests.mutation.coverage_map import CoverageMap
from tests.mutation.edits import Edit, edits_of
from tests.mutation.equivalents import Equivalent, equivalents, reasons
from tests.mutation.host import PROJECT
from tests.mutation.run import Hosts
from tests.mutation.swap import Functions, Unswappable
from tests.mutation.verdict import Fate


def edited(body: str, kind: str) -> list[str]:
    """Return the first changed line of each edit of one kind."""
    text = "def f(a, b, c):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    return [edit.after for edit in edits_of("f.py", text) if edit.kind == kind]


@pytest.mark.parametrize(
    ("body", "kind", "after"),
    [
        ("return a < b", "comparison", ["return a <= b"]),
        ("return a is not b", "comparison", ["return a is b"]),
        ("return (a) not in (b)", "comparison", ["return (a) in (b)"]),
        ("return a < b < c", "comparison", ["return a <= b < c", "return a < b <= c"]),
        ("return a + b - c", "operator", ["return a - b - c", "return a + b + c"]),
        ("a ^= b", "operator", ["a |= b"]),
        ("a ^= b", "effect", ["pass"]),
        ("return a and b or c", "logic", ["return a or b or c", "return a and b and c"]),
        ("return not a", "logic", ["return  a"]),
        ("return 5", "number", ["return (5 + 1)"]),
        ("return 1.5", "number", ["return (1.5 + 1)"]),
        ("return True", "truth", ["return False"]),
        ("if a:\n    return b", "condition", ["if not (a):"]),
        ("return [x for x in a if b(x)]", "condition", ["return [x for x in a if not (b(x))]"]),
        ("return a if b else c", "condition", ["return a if not (b) else c"]),
        ("a.run(b)", "effect", ["pass"]),
        ("a.b = c", "effect", ["pass"]),
        ("a.b: int = c", "effect", ["pass"]),
        ("a[b] = c", "effect", ["pass"]),
        ("del a[b]", "effect", ["pass"]),
        ("raise ValueError(a + 1)", "effect", ["pass"]),
        ("for x in a:\n    break", "jump", ["continue"]),
        ("for x in a:\n    continue", "jump", ["break"]),
        ("return min(any(a), max(b))", "function",
         ["return max(any(a), max(b))", "return min(all(a), max(b))", "return min(any(a), min(b))"]),
        ("return 'größer' < a", "comparison", ["return 'größer' <= a"]),
        ("return 'größer' if b == 3 else a", "number", ["return 'größer' if b == (3 + 1) else a"]),
    ],
)  # fmt: skip
def test_each_rule_changes_what_it_says(body: str, kind: str, after: list[str]) -> None:
    assert edited(body, kind) == after


@pytest.mark.parametrize(
    "body",
    [
        '"""A docstring."""',
        "a = b",
        "return f'{a + 1}'",
        "a: list[int, 3]",
        "assert_never(a)",
        "def inner(d=5): ...",
        "return 'text'",
    ],
)
def test_texts_annotations_and_defaults_are_left_alone(body: str) -> None:
    assert edits_of("f.py", "def f(a, b=3):\n    " + body + "\n") == []


def test_what_runs_at_import_is_left_alone() -> None:
    text = "LIMIT = 5 + 3\nclass A:\n    size: int = 7\n    @cached(9)\n    def f(self): ...\n"
    assert edits_of("f.py", text) == []


def test_an_edit_knows_the_head_of_its_statement() -> None:
    text = "def f(a):\n    if (a and\n            a > 3):\n        return a\n"
    assert {edit.lines for edit in edits_of("f.py", text) if edit.line == 3} == {(2, 3)}


def test_every_edit_of_the_product_can_be_compiled_and_differs() -> None:
    for name in ("acker/ledger/ledger.py", "acker/wire/codec.py", "spout/tuples/tuple.py"):
        text = (PROJECT / name).read_text(encoding="utf-8")
        edits = edits_of(name, text)
        assert len(edits) > 20
        for edit in edits:
            assert edit.applied(text) != text
            compile(edit.applied(text), name, "exec")


def module_of(text: str, path: Path) -> ModuleType:
    path.write_text(text, encoding="utf-8")
    module = ModuleType("edited")
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def swapped(text: str, path: Path, edit: Edit) -> None:
    Functions().swap(str(path), text, edit.applied(text))


def test_a_swapped_function_is_the_same_object_for_who_has_it_already(tmp_path: Path) -> None:
    text = (
        "import functools\n"
        "class A:\n"
        "    @functools.cached_property\n"
        "    def size(self):\n        return 1\n"
        "    @staticmethod\n"
        "    def add(a):\n        return [x + a for x in (1, 2)]\n"
    )
    path = tmp_path / "a.py"
    module = module_of(text, path)
    add = module.A.add
    for edit in edits_of("a.py", text):
        if edit.before == "return 1" or edit.kind == "operator":
            swapped(text, path, edit)
    assert (module.A().size, add(5)) == (2, [-4, -3])


def test_a_function_that_a_decorator_made_is_swapped_too(tmp_path: Path) -> None:
    text = (
        "def twice(f):\n    def inner(a):\n        return 2 * f(a)\n    return inner\n"
        "@twice\ndef plain(a):\n    return a\n"
    )
    path = tmp_path / "a.py"
    module = module_of(text, path)
    swapped(text, path, next(edit for edit in edits_of("a.py", text) if edit.kind == "number"))
    assert module.plain(5) == 15


def test_what_does_not_live_cannot_be_swapped(tmp_path: Path) -> None:
    text = "def f(a):\n    return a + 1\n"
    with pytest.raises(Unswappable, match="no function of"):
        swapped(text, tmp_path / "nobody.py", edits_of("f.py", text)[0])


def test_the_quickest_tests_of_a_line_come_first_and_one_at_least() -> None:
    edit = next(iter(edits_of("f.py", "def f(a):\n    return a + 1\n")))
    lines = CoverageMap(
        {"slow": 9.0, "quick": 1.0, "other": 0.1}, {"f.py": {2: {"slow", "quick"}, 3: {"other"}}}
    )
    assert [test for test, _ in lines.tests_of(edit, 20)] == ["quick", "slow"]
    assert [test for test, _ in lines.tests_of(edit, 5)] == ["quick"]
    assert [test for test, _ in lines.tests_of(edit, 0.5)] == ["quick"]
    assert CoverageMap().tests_of(edit, 20) == []


def test_a_map_is_written_and_read_and_cut(tmp_path: Path) -> None:
    lines = CoverageMap({"a": 1.0, "b": 2.0}, {"f.py": {2: {"a", "b"}}}, ["c"])
    lines.write(tmp_path / "map")
    again = CoverageMap()
    again.add(tmp_path / "map")
    assert again == lines
    again.keep_only(["b"])
    assert (again.seconds, again.tests) == ({"b": 2.0}, {"f.py": {2: {"b"}}})


def test_each_equivalent_edit_can_still_be_made_and_has_a_reason() -> None:
    listed = equivalents()
    assert len(set(listed)) == len(listed)
    edits = []
    for file in sorted({entry.file for entry in listed}):
        edits += edits_of(file, (PROJECT / file).read_text(encoding="utf-8"))
    made = {(edit.file, edit.function, edit.before, edit.after) for edit in edits}
    gone = [entry for entry in listed if entry[:4] not in made]
    assert not gone, "take these out of tests/mutation/equivalent.toml: the code has changed"
    assert all(len(entry.why.split()) >= 3 for entry in listed)


def test_an_edit_that_is_listed_has_its_reason() -> None:
    operator, number = edits_of("f.py", "def f(a):\n    return a + 1\n")
    listed = Equivalent("f.py", "f", "return a + 1", "return a - 1", "nobody asks")
    assert reasons([operator, number], [listed]) == {operator: "nobody asks"}


@pytest.mark.slow
def test_an_edit_falls_where_a_test_runs_it_and_survives_where_none_does(tmp_path: Path) -> None:
    name = "acker/identity.py"
    edits = edits_of(name, (PROJECT / name).read_text(encoding="utf-8"))
    with Hosts(1, ["tests/unit/acker/test_identity.py", "-m", "not slow"]) as hosts:
        lines = hosts.mapped(tmp_path / "map")
        verdicts = list(hosts.judged(edits, lambda edit: lines.tests_of(edit, 20)))
    assert not lines.failed
    fell = [verdict for verdict in verdicts if verdict.fate is Fate.KILLED]
    assert len(fell) > len(edits) / 2
    assert all("test_identity.py::" in verdict.test for verdict in fell)
    not_run = [verdict for verdict in verdicts if verdict.fate is Fate.NOT_RUN]
    assert all(lines.tests_of(verdict.edit, 20) == [] for verdict in not_run)


def test_a_room_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["acker/nowhere"], app, "mutation") == UsageError.exit_code
    assert "acker/nowhere" in capsys.readouterr().err
