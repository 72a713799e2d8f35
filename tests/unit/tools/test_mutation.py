"""The mutation tester: what it edits, how it swaps, whom it asks, and its list of equivalents."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from acker.errors import UsageError
from spout.cli.main import run
from tests.mutation.__main__ import app
from tests.mutation.coverage_map import CoverageMap
from tests.mutation.edits import Edit, edits_of
from tests.mutation.equivalents import Equivalent, equivalents, reasons
from tests.mutation.host import PROJECT, STARVED_MIN_S, is_ready
from tests.mutation.kept import keys, line_of, read_verdicts
from tests.mutation.run import Hosts
from tests.mutation.swap import Functions, Unswappable
from tests.mutation.verdict import Fate, Verdict


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


IN_ROOM = "tests/unit/acker/wire/test_room.py::"
ELSEWHERE = "tests/unit/spout/test_other.py::"


def mapped(seconds: dict[str, float], lines_run: dict[str, int]) -> CoverageMap:
    """Return a map of tests that all run line 2 of a file of a room, and so many lines of another file."""
    tests: dict[str, dict[int, set[str]]] = {"acker/wire/f.py": {2: set(seconds)}, "acker/g.py": {}}
    for test in seconds:
        for line in range(lines_run.get(test, 0)):
            tests["acker/g.py"].setdefault(line, set()).add(test)
    return CoverageMap(seconds, tests)


def chosen(lines: CoverageMap, budget_s: float) -> list[str]:
    edit = edits_of("acker/wire/f.py", "def f(a):\n    return a + 1\n")[0]
    return [test for test, _ in lines.tests_of(edit, budget_s)]


def test_tests_of_the_own_folder_come_first_and_the_quickest_of_both() -> None:
    quick, slow, foreign = IN_ROOM + "quick", IN_ROOM + "slow", ELSEWHERE + "quick"
    lines = mapped({slow: 9.0, foreign: 0.1, quick: 1.0}, {slow: 5})
    assert chosen(lines, 20) == [quick, slow, foreign]
    # what is too slow for the rest of the budget makes room for what is not
    assert chosen(lines, 5) == [quick, foreign]
    assert chosen(lines, 0.5) == [quick]
    assert chosen(CoverageMap(), 20) == []


@pytest.mark.parametrize("budget_s", [0.5, 5.0, 20.0])
def test_the_test_that_runs_fewest_lines_is_kept_however_slow_it_is(budget_s: float) -> None:
    broad, close = IN_ROOM + "broad", IN_ROOM + "close"
    foreign = ELSEWHERE + "closer"
    lines = mapped({broad: 0.1, close: 30.0, foreign: 0.1}, {broad: 50, close: 3, foreign: 1})
    assert close in chosen(lines, budget_s)
    # without one in the own folder, the closest of all others is kept
    others = mapped({ELSEWHERE + "broad": 0.1, ELSEWHERE + "closer": 30.0}, {ELSEWHERE + "broad": 50})
    assert ELSEWHERE + "closer" in chosen(others, budget_s)


def test_a_folder_below_or_above_is_not_the_own_one() -> None:
    above, below, own = "tests/unit/acker/test_a.py::", "tests/unit/acker/wire/more/test_a.py::", IN_ROOM
    lines = mapped({above: 0.1, below: 0.2, own: 0.3}, {})
    assert chosen(lines, 20) == [own, above, below]


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


def test_verdicts_are_kept_for_edits_that_look_the_same(tmp_path: Path) -> None:
    edits = edits_of("f.py", "def f(a):\n    if a > 1:\n        return g(a, 5)\n    return g(a, 5)\n")
    keys_of_edits = keys(edits)
    assert len(set(keys_of_edits.values())) == len(edits) == 4
    fates = [Fate.HUNG, Fate.SURVIVED, Fate.KILLED, Fate.SURVIVED]
    verdicts = [Verdict(edit, fate, "test") for edit, fate in zip(edits, fates, strict=True)]
    kept = tmp_path / "kept"
    kept.write_text("".join(line_of(verdict, keys_of_edits[verdict.edit]) for verdict in verdicts))
    assert read_verdicts(kept, keys_of_edits) == verdicts
    # the file goes on: of two verdicts the last counts; what cannot be made any more is left out
    fell = verdicts[1]._replace(fate=Fate.KILLED)
    with kept.open("a") as written:
        written.write(line_of(fell, keys_of_edits[fell.edit]))
    assert read_verdicts(kept, keys_of_edits)[1] == fell
    assert read_verdicts(kept, keys(edits[:2])) == [verdicts[0], fell]


class JudgesAll:
    """Stands in for the hosts: every edit that it gets falls."""

    def __init__(self, *_arguments: object) -> None:
        """Take what `Hosts` takes."""

    def __enter__(self) -> JudgesAll:
        return self

    def __exit__(self, *_error: object) -> None:
        """Close nothing."""

    def mapped(self, _kept: Path | None) -> CoverageMap:
        return CoverageMap()

    def judged(self, edits: Sequence[Edit], _tests_of: object) -> Iterator[Verdict]:
        for edit in edits:
            yield Verdict(edit, Fate.KILLED, "test")


def test_the_share_of_a_second_run_is_that_of_the_whole_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.mutation.__main__.Hosts", JudgesAll)
    name = "acker/identity.py"
    edits = edits_of(name, (PROJECT / name).read_text(encoding="utf-8"))
    first = [Verdict(edit, Fate.KILLED, "test") for edit in edits[:-1]]
    first[0] = first[0]._replace(fate=Fate.SURVIVED)
    first[1] = first[1]._replace(fate=Fate.NOT_RUN)
    first[2] = first[2]._replace(fate=Fate.EQUIVALENT)  # it is no longer listed
    first[3] = first[3]._replace(fate=Fate.UNSWAPPABLE)
    kept = tmp_path / "kept"
    kept.write_text("".join(line_of(verdict, keys(edits)[verdict.edit]) for verdict in first))
    second = tmp_path / "second"
    options = ["--again", str(kept), "--out", str(second), "--at-least", "100"]
    assert run([name, *options], app, "mutation") == 0
    printed = capsys.readouterr()
    assert "0 tests are mapped" in printed.out
    assert "; 3 edits" in printed.out
    fell = len(edits) - 2
    assert f"acker: 100.0 % of {fell} ({fell} killed, 1 unswappable)" in printed.out
    assert f"1 edits are not in {kept}, and are left out" in printed.err
    # the file of the second run has the verdicts of the first, so a third run can go on from it
    rows = read_verdicts(second, keys(edits))
    assert [verdict.fate for verdict in rows].count(Fate.KILLED) == fell
    assert len(rows) == len(first)


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


@pytest.mark.parametrize(
    ("starved_s", "writes_at", "ready"),
    [
        pytest.param([0.0, 0.0], None, False, id="it hangs"),
        pytest.param([5.0, 5.0], None, False, id="it has had no processor before"),
        pytest.param([0.0, STARVED_MIN_S / 2], None, False, id="it was hardly ever without a processor"),
        pytest.param([0.0, 0.2, 0.2], None, False, id="it had no processor, then it hangs"),
        pytest.param([0.0, 0.2], 1, True, id="it had no processor, and goes on"),
        pytest.param([0.0, 0.2, 0.4], 2, True, id="it had none for long"),
        pytest.param([0.0], 0, True, id="it goes on at once"),
    ],
)
def test_an_edit_hangs_only_where_it_has_a_processor_and_makes_no_progress(
    starved_s: list[float], writes_at: int | None, ready: bool
) -> None:
    """On a machine with twenty processes for two processors, 137 of 143 edits seemed to hang."""
    reader, writer = os.pipe()
    answers = iter(starved_s)
    asked: list[float] = []

    def read_starved_s() -> float:
        if len(asked) == writes_at:
            os.write(writer, b".")
        asked.append(next(answers))
        return asked[-1]

    with os.fdopen(reader, "rb", buffering=0) as progress:
        assert is_ready(progress, 0.05, read_starved_s) is ready
    os.close(writer)
    assert asked == starved_s
