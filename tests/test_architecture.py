"""The shape of the code: who may import whom, what pure files stay away from, where loops may be endless."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from acker.kafka.client import CHECKED
from acker.kafka.reader import FORCED

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = ("acker", "replay", "spout")
FILES = sorted(path for package in PACKAGES for path in (PROJECT / package).rglob("*.py"))

MAY_IMPORT = {"acker": {"acker"}, "replay": {"acker", "replay"}, "spout": {"acker", "replay", "spout"}}

ROOMS = [
    "acker/root_sets", "acker/wire", "acker/config", "acker/kafka", "acker/provisioning", "acker/ledger",
    "acker/service", "replay/policy", "replay/records", "replay/worker", "replay/handling", "spout/serving",
    "spout/runtime", "spout/spark", "spout/tuples", "spout/bolts", "spout/planning", "spout/link",
    "spout/group",
    "spout/planning_process", "spout/publishing", "spout/store_columns", "spout/exactly_once",
    "spout/topology", "spout/execution", "spout/isolation",
    "spout/streaming", "spout/held", "spout/sinks", "spout/builder", "spout/standalone",
    "spout/picture", "spout/inspect", "spout/questions", "spout/ui", "spout/local", "spout/demo",
    "spout/doctor", "spout/cli",
]  # fmt: skip
"""A room may import from those before it, and from the files of its package and of the packages before."""

TOOLS = (
    "benchmarks",
    "tests/simulation",
    "tests/torture",
    "tests/mutants",
    "tests/mutation",
    "tests/matrix",
    "tests/brokers",
    "tests/support/memory",
)
"""Programs that prove and measure the product. They may look into every room; no room knows them."""
TOOL_FILES = sorted(path for tool in TOOLS for path in (PROJECT / tool).rglob("*.py"))
TOOL_ROOMS = sorted({path.parent.relative_to(PROJECT).as_posix() for path in TOOL_FILES})

FILES_MAX = 15
"""Nobody reads more files of one folder through."""

UNFORMATTED_MAX = 20
"""Tables that read better as they stand than one value a line."""

PURE = [
    "acker/identity.py", "acker/notation.py", "acker/untrusted.py", "acker/wire/events.py",
    "acker/wire/codec.py",
    "acker/errors.py",
    "acker/ledger/ledger.py", "acker/config/topics.py", "acker/config/settings.py",
    "acker/config/limits.py", "acker/config/keys.py",
    "acker/config/problems.py",
    "acker/config/kafka_settings.py", "acker/config/yaml_text.py", "acker/units.py",
    "acker/provisioning/topic_specs.py", "acker/provisioning/topic_times.py", "acker/kafka/port.py",
    "acker/kafka/standing.py", "acker/provisioning/roles.py", "replay/policy/damage.py",
    "replay/policy/disposition.py",
    "replay/worker/waiting.py", "replay/records/dead_letter.py", "replay/records/due_fold.py",
    "replay/records/letters.py",
    "spout/inspect/letter_rows.py", "spout/inspect/story.py", "spout/planning/window.py",
    "spout/group/session_state.py",
    "spout/tuples/tuple.py", "spout/tuples/failures.py", "spout/publishing/fold.py",
    "spout/publishing/delayed.py", "spout/publishing/publish.py", "spout/publishing/root_marks.py",
    "spout/standalone/store.py", "spout/exactly_once/store.py", "spout/exactly_once/rooted_rows.py",
    "spout/exactly_once/acked_roots.py", "spout/exactly_once/publication_bytes.py",
    "spout/exactly_once/writer.py",
    "spout/topology/graph.py", "spout/topology/stages.py",
    "spout/topology/routing.py", "spout/topology/chain.py", "spout/bolts/collectors.py",
    "spout/tuples/counts.py",
    "spout/topology/explain.py", "spout/tuples/poison.py", "spout/runtime/pulse.py",
    "spout/topology/keyed_graph.py", "spout/tuples/columns.py", "spout/doctor/codes.py", "acker/id_ranges.py",
    "acker/root_sets/root_set.py", "acker/root_sets/numbering.py", "acker/root_sets/position_set.py",
    "acker/wire/verdict.py",
]  # fmt: skip
"""What needs no clock, thread, log or broker to be tested. See docs/design/protocol.md, section 6."""

# Where arrays are searched, or summed up in parts, and a set of roots is not the idea.
SETS_BY_HAND = {
    "acker/hot_paths.py": "which of an array's numbers are in another one: a flag or a row for each of them",
    "acker/ledger/cohort.py": "a deadline for each open root, moved in place",
    "acker/ledger/contribution.py": "a value for each position, cut where a cohort begins and ends",
    "acker/ledger/roots.py": "an XOR value for each open root, found in a sparse array of 32 bits a root",
    "acker/ledger/tally.py": "a wall time for each position, taken once",
    "replay/worker/waiting.py": "a queue by due time: its numbers are times, and many roots are due at one",
    "spout/held/holding.py": "rows of a data frame, of which one may have several anchors",
    "spout/standalone/item_records.py": "records beside their positions, cut where a segment begins",
    "spout/standalone/read_ahead.py": "messages beside their positions, cut at a run",
    "spout/tuples/anchors.py": "a fingerprint for each path, which is the sum of its numbers",
}
"""Files that look up, or sum up in parts, without `RootSet`, and why. The list only shrinks."""

SEARCHES = {"searchsorted", "reduceat"}
RUNS_BY_HAND = {"joined_bounds", "joined_runs", "difference", "runs_of", "IntervalSet"}
"""What makes, joins or subtracts runs of positions outside `acker/root_sets`."""

IMPURE = {
    "asyncio", "confluent_kafka", "logging", "multiprocessing", "pyspark", "random", "secrets", "signal",
    "socket", "structlog", "subprocess", "threading", "time", "uuid",
}  # fmt: skip

CLOCKS = {"now", "utcnow", "today", "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"}

# A broad except ends a process, ends a thread, or stands around code of the user, whose errors are causes.
MAY_CATCH_ALL = {
    "spout/cli/main.py": "the top of the process",
    "acker/kafka/tokens.py": "code of the user",
    "spout/streaming/source.py": "the top of the planning thread",
    "spout/standalone/engine.py": "the top of a spout's threads",
    "spout/sinks/follower.py": "the top of a thread, whose error the planning process raises",
    "spout/execution/adapters.py": "code of the user",
    "spout/execution/fitting.py": "values of the user",
    "spout/tuples/failures.py": "an exception of the user, which was only to be asked for its class",
    "spout/tuples/raised.py": "a traceback of an exception of the user, which was only to be shown",
    "spout/tuples/rows.py": "values of the user",
    "spout/tuples/tuple.py": "a text of the user, which was only to be shown",
    "spout/held/keyed_rows.py": "code of the user",
    "spout/streaming/read_task.py": "code of the user",
    "spout/publishing/report_accumulator.py": "an accumulator's merge, which must never raise",
    "spout/execution/guards.py": "code of the user",
    "spout/builder/flux.py": "code of the user, which a file names, before anything runs",
    "spout/isolation/feeds.py": "an error of the user, which another process shall raise",
    "spout/isolation/isolation.py": "the top of a child's work, which is raised again in its worker",
    "spout/isolation/child_process.py": "the top of a process",
    "spout/doctor/on_executor.py": "code of an installed package",
    "spout/ui/jobs.py": "the top of a thread, whose error the page shows",
}


MAY_UNPICKLE = {
    "spout/publishing/blob.py": "what a task reports, from Spark's workers to the driver",
    "spout/held/keyed_rows.py": "what a keyed bolt holds, in the state store of its own query",
    "spout/doctor/cluster.py": "nothing is read: it names the module whose function Spark sends by value",
    "spout/streaming/options.py": "the bolts of a source, from the driver to its read tasks",
    "spout/isolation/feeds.py": "rows and reports, between a worker and the child that it forked",
}

EXECUTES = re.compile(
    r"eval|exec|compile|__import__|yaml\.(unsafe_|full_)?load(_all)?|(numpy|np)\.load|runpy\.run_\w+"
)
"""Calls that turn what they are given into code, or into objects of its choice."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def short(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def imports(path: Path) -> Iterator[str]:
    """Yield the full names that a file imports, for types only left out."""
    for node in _run_nodes(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{short(path)}:{node.lineno}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _run_nodes(child)


def file_of(name: str) -> Path | None:
    """Return the file of a module of the project, None for anything else."""
    path = PROJECT / Path(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if name.split(".")[0] in (*PACKAGES, "tests", "benchmarks") and candidate.is_file():
            return candidate
    return None


def reached(path: Path) -> dict[Path, list[str]]:
    """Return every file of the project that importing one runs, each with the way to it."""
    ways = {path: [short(path)]}
    todo = [path]
    while todo:
        current = todo.pop()
        for name in imports(current):
            found = file_of(name)
            if found is not None and found not in ways:
                ways[found] = [*ways[current], short(found)]
                todo.append(found)
    return ways


def nodes(kind: type[ast.AST]) -> Iterator[tuple[Path, ast.AST]]:
    for path in FILES:
        yield from ((path, node) for node in ast.walk(tree_of(path)) if isinstance(node, kind))


def test_the_arrow_between_packages_points_one_way() -> None:
    wrong = [
        f"{short(path)} imports {name}"
        for path in FILES
        for name in imports(path)
        if (package := name.split(".")[0]) in (*PACKAGES, "tests", "benchmarks")
        and package not in MAY_IMPORT[path.relative_to(PROJECT).parts[0]]
    ]

    assert wrong == []


def room_of(path: Path) -> str | None:
    """Return the room of a file; None: it lies in a package itself."""
    room = short(path.parent)
    return None if room in PACKAGES else room


def imported(path: Path) -> set[Path]:
    """Return the files of the project that a file imports: within functions and for types alone as well."""
    names = {name for node in ast.walk(tree_of(path)) for name in _names(node)}
    return {found for name in names if (found := file_of(name)) is not None and found != path}


def test_every_room_stands_in_the_list_and_says_what_it_is_for() -> None:
    folders = {room for path in FILES if (room := room_of(path)) is not None}
    assert folders == set(ROOMS)
    silent = [room for room in ROOMS if not ast.get_docstring(tree_of(PROJECT / room / "__init__.py"))]
    assert silent == []


def test_the_page_of_the_architecture_lists_every_room_in_order() -> None:
    page = (PROJECT / "docs/design/architecture.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z]+/[a-z_]+)` \|", page, re.MULTILINE) == ROOMS


def test_a_room_imports_from_the_rooms_before_it_alone() -> None:
    wrong = []
    for path in FILES:
        room = room_of(path)
        for other in imported(path) if room is not None else ():
            theirs = room_of(other)
            if theirs is not None and ROOMS.index(theirs) > ROOMS.index(room):
                wrong.append(f"{short(path)} imports {short(other)}, of a later room")
    assert wrong == []


def test_no_two_modules_import_each_other_by_any_way_round() -> None:
    order = TopologicalSorter(
        {path: imported(path) for path in (*FILES, *TOOL_FILES) if path.name != "__init__.py"}
    )
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail("a circle: " + " <- ".join(map(short, error.args[1])))


def test_a_public_name_lives_in_one_module() -> None:
    """So that whoever finds a name has found what it means."""
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(path.relative_to(PROJECT).as_posix())
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("room", [*PACKAGES, *ROOMS, *TOOL_ROOMS])
def test_a_room_is_small_enough_to_be_read_through(room: str) -> None:
    assert len(list((PROJECT / room).glob("*.py"))) <= FILES_MAX


def test_sparks_private_side_has_one_door() -> None:
    private = {"_jdf", "_jvm", "_jsq", "_jsc", "_jsparkSession", "_jreader", "_jwrite", "_jtracker", "_df"}
    wrong = [
        f"{short(path)}:{node.lineno}: {node.attr}"
        for path, node in nodes(ast.Attribute)
        if isinstance(node, ast.Attribute)
        and node.attr in private
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node.value) != "self"
    ]
    wrong += [
        f"{short(path)}: {name}"
        for path in FILES
        for name in imports(path)
        if name.startswith("pyspark.sql.pandas.types") or re.search(r"^pyspark\..*\._", name)
    ]
    assert [each for each in wrong if not each.startswith("spout/spark/private.py")] == []


DIFFERS_BY_VERSION = re.compile(
    r"arrow_udf|repartitionById|metadataOpt|prefer_timestamp_ntz|pyspark\.sql\.streaming\.datasource"
    r"|execution\.streaming\.(checkpointing\.)?FileSystemBased|pyspark\.__version__|\bSparkVersion\b"
)
"""Names that not every version of Spark has, and the version itself."""


def test_what_differs_between_versions_of_spark_stands_behind_one_door() -> None:
    """Nobody else asks which version runs."""
    wrong = [
        f"{short(path)}: {match.group()}"
        for path in FILES
        if room_of(path) != "spout/spark"
        for match in DIFFERS_BY_VERSION.finditer(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


def test_nothing_is_planted_on_an_object_of_another_package() -> None:
    """What belongs to a DataFrame or a SparkContext is in a registry of ours, where nobody overwrites it."""
    wrong = [
        f"{short(path)}:{node.lineno}: {ast.unparse(node)}"
        for path, node in nodes(ast.Subscript)
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and re.match(r"vars\(|.*\.__dict__$", ast.unparse(node.value))
    ]
    wrong += [
        f"{short(path)}:{node.lineno}: {ast.unparse(node)}"
        for path, node in nodes(ast.Call)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "setattr"
        and ast.unparse(node.args[0]) != "self"
    ]
    assert wrong == []


def test_few_places_are_kept_from_the_formatter() -> None:
    kept = [
        f"{short(path)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith("# fmt: skip")
    ]
    assert len(kept) <= UNFORMATTED_MAX


@pytest.mark.parametrize("name", PURE)
def test_a_pure_file_reaches_no_clock_thread_log_or_broker(name: str) -> None:
    wrong = [
        f"{' -> '.join(way)} imports {imported}"
        for path, way in reached(PROJECT / name).items()
        for imported in imports(path)
        if imported.split(".")[0] in IMPURE
    ]

    assert wrong == []


@pytest.mark.parametrize("name", PURE)
def test_a_pure_file_reads_no_clock(name: str) -> None:
    wrong = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree_of(PROJECT / name))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CLOCKS
        and ast.unparse(node.func.value) in ("datetime", "date", "time")
    ]

    assert wrong == []


def test_no_further_file_does_algebra_on_positions_by_hand() -> None:
    """`RootSet` has it. Take a file that does without out of the list; add none."""
    by_hand = {
        short(path)
        for path in FILES
        if room_of(path) != "acker/root_sets"
        and any(_is_algebra_by_hand(node) for node in ast.walk(tree_of(path)))
    }
    assert by_hand == SETS_BY_HAND.keys()


def _is_algebra_by_hand(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr=name):
            return name in SEARCHES
        case ast.ImportFrom(names=aliases):
            return any(alias.name in RUNS_BY_HAND for alias in aliases)
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name in RUNS_BY_HAND
        case _:
            return False


def test_sets_of_roots_need_numbers_alone() -> None:
    """Everything may build on them, so they build on NumPy, and on how roots are numbered."""
    room = {path for path in FILES if room_of(path) == "acker/root_sets"}
    outside = {short(path) for file in room for path in imported(file) - room}
    assert outside == {"acker/identity.py"}


def test_an_endless_loop_ends_by_itself_or_is_the_loop_of_the_process() -> None:
    """A `while True` has a way out; the loop that only a signal ends is that of spout/runtime/process.py."""
    wrong = [
        f"{short(path)}:{node.lineno}"
        for path, node in nodes(ast.While)
        if isinstance(node, ast.While)
        and isinstance(node.test, ast.Constant)
        and not any(isinstance(inner, ast.Break | ast.Return | ast.Raise) for inner in ast.walk(node))
    ]

    assert wrong == []


def test_a_broad_except_stands_only_at_a_top_or_around_code_of_the_user() -> None:
    found = {
        short(path)
        for path, node in nodes(ast.ExceptHandler)
        if isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _raises_again(node)
    }

    assert found <= MAY_CATCH_ALL.keys()
    assert not found & {short(path) for path in FILES if path.parts[-2] in ("acker", "replay")}


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = "" if handler.type is None else ast.unparse(handler.type)
    return handler.type is None or bool(re.search(r"\b(Base)?Exception\b", caught))


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_nothing_read_from_kafka_is_unpickled() -> None:
    """Pickles travel between Spark's driver and its own workers alone; whoever reads them reads no log."""
    found = {
        short(path)
        for path in FILES
        for name in imports(path)
        if name.split(".")[-1] in ("pickle", "cloudpickle", "dill", "marshal", "shelve")
    }
    readers = {
        short(path) for path in FILES for name in imports(path) if name == "spout.publishing.blob.decode"
    }

    assert found == MAY_UNPICKLE.keys()
    assert readers == {"spout/publishing/report_accumulator.py"}


def test_nothing_that_is_read_is_executed() -> None:
    """No text becomes code: none of topics.yaml, of a record, of a schema."""
    wrong = [
        f"{short(path)}:{node.lineno}: {ast.unparse(node)}"
        for path, node in nodes(ast.Call)
        if isinstance(node, ast.Call) and EXECUTES.fullmatch(ast.unparse(node.func))
    ]

    assert wrong == []


def test_a_schema_comes_from_the_package_never_from_the_wire() -> None:
    """`schemaless_reader` is given its schema; fastavro's other readers take it from what they read."""
    used = {
        (short(path), node.attr)
        for path, node in nodes(ast.Attribute)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "fastavro"
    }

    assert used == {
        ("acker/wire/codec.py", "schemaless_reader"),
        ("acker/wire/codec.py", "schemaless_writer"),
        # by the user's schema, for the user's readers, and to see what they read
        ("spout/exactly_once/value_encoding.py", "schemaless_reader"),
        ("spout/exactly_once/value_encoding.py", "schemaless_writer"),
    }


def test_a_cause_is_made_and_cut_in_one_place() -> None:
    """`Cause.of` cuts it; `Cause(*parts)` gives back what was made before, and was sent as plain values."""
    wrong = [
        f"{short(path)}:{node.lineno}: {ast.unparse(node)}"
        for path, node in nodes(ast.Call)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "Cause"
        and not all(isinstance(part, ast.Starred) for part in node.args)
    ]

    assert wrong == []


def test_product_code_has_no_assert() -> None:
    """`assert` disappears under -O; an invariant is raised."""
    assert [
        f"{short(path)}:{node.lineno}" for path, node in nodes(ast.Assert) if hasattr(node, "lineno")
    ] == []


def test_only_the_command_prints() -> None:
    wrong = [
        f"{short(path)}:{node.lineno}"
        for path, node in nodes(ast.Call)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]

    assert wrong == []


def test_every_consumer_has_its_checksums_compared() -> None:
    """O309: librdkafka's default is to hand out what was changed on a broker's disk.

    A module that makes a consumer names `CHECKED`, or the `FORCED` settings of a reader that have it in them.
    """
    makers = {path for path in [*FILES, *TOOL_FILES] if any(map(_makes_a_consumer, ast.walk(tree_of(path))))}
    unchecked = [short(path) for path in makers if not _says(path, {"CHECKED", "FORCED"})]

    assert short(PROJECT / "spout" / "streaming" / "consume.py") in set(map(short, makers))
    assert CHECKED["check.crcs"]
    assert FORCED["check.crcs"]
    assert unchecked == []


def _makes_a_consumer(node: ast.AST) -> bool:
    """Tell whether this calls a consumer's class, or hands it to `KafkaClient.make`."""
    if not isinstance(node, ast.Call):
        return False
    names = [part for part in (node.func, *node.args[:1]) if isinstance(part, ast.Name | ast.Attribute)]
    classes = {part.id if isinstance(part, ast.Name) else part.attr for part in names}
    return bool(classes & {"Consumer", "ShareConsumer"}) and "isinstance" not in classes


def _says(path: Path, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(tree_of(path)))


def test_nobody_calls_what_waits_without_end() -> None:
    """It ignores its timeout where a coordinator leaves (librdkafka issues 5456, 5511)."""
    called = [path for path in FILES if ".send_offsets_to_transaction(" in path.read_text(encoding="utf-8")]
    assert called == []


def test_every_package_carries_its_types() -> None:
    assert [package for package in PACKAGES if not (PROJECT / package / "py.typed").is_file()] == []


def test_the_command_loads_neither_spark_nor_kafka_before_it_knows_what_to_do() -> None:
    start = PROJECT / "spout" / "cli" / "main.py"
    top_level = {
        name.split(".")[0]
        for path in _reached_at_import(start)
        for node in _top_nodes(path)
        for name in _names(node)
    }

    assert not top_level & {"pyspark", "confluent_kafka", "numpy", "pydantic"}


def test_a_planning_process_loads_nothing_that_runs_bolts() -> None:
    """A query waits for its first batch until its planning process is there."""
    reached = {short(path) for path in _reached_at_import(PROJECT / "spout" / "streaming" / "source.py")}

    assert "spout/planning_process/planner.py" in reached
    assert not {path for path in reached if path.startswith(("spout/topology/", "spout/execution/"))}


def _reached_at_import(path: Path) -> set[Path]:
    found, todo = {path}, [path]
    while todo:
        for node in _top_nodes(todo.pop()):
            for name in _names(node):
                for prefix in (name, name.rpartition(".")[0], name.split(".")[0]):
                    file = file_of(prefix) if prefix else None
                    if file is not None and file not in found:
                        found.add(file)
                        todo.append(file)
    return found


def _top_nodes(path: Path) -> Iterator[ast.stmt]:
    """Yield the statements that importing a file runs, functions left out."""
    yield from (node for node in tree_of(path).body if isinstance(node, ast.Import | ast.ImportFrom))


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []
