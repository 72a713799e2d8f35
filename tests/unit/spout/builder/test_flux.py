"""A topology's YAML file: what it means, and what is told when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from acker.errors import ConfigError, UsageError
from spout.builder.flux import load_topology
from spout.cli import main as cli
from spout.local import spark_session

PROJECT = Path(__file__).resolve().parents[4]
TOPICS = "inputs: {sentences: {id: 1, group: g}}\n"
GOOD = """
name: word-count
spouts:
  - {id: lines, inputs: [sentences], options: {startingOffsets: earliest}}
bolts:
  - {id: split, className: "examples.word_count:SplitSentence"}
  - {id: count, className: "examples.word_count:CountWords", parallelism: 2}
streams:
  - {from: lines, to: split, grouping: {type: shuffle}}
  - {from: split, to: count, grouping: {type: fields, args: [word]}}
sink: "examples.word_count:show"
checkpoint: "${FOLDER}/checkpoint"
"""


def write(folder: Path, text: str) -> Path:
    """Write a file with a topics.yaml beside it."""
    (folder / "topics.yaml").write_text(TOPICS)
    path = folder / "topology.yaml"
    path.write_text(text)
    return path


def test_a_file_is_a_topology(tmp_path: Path) -> None:
    found = load_topology(write(tmp_path, GOOD), {"FOLDER": "/var"})
    assert found.options == {"name": "word-count", "deterministic": False, "checkpoint": "/var/checkpoint"}
    told = found.builder.explain(2, found.sink)
    assert "<- split, fields(word): to one of 2 tasks" in told
    assert "sink <- count" in told


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("name: word-count", "nam: word-count", 2, "nam: is not a key of this section; did you mean `name`?"),
        ("name: word-count", "", 0, "name: is missing; give a name"),
        ("className: ", "class: ", 6, "bolts.0.class: is not a key"),
        ("word_count:SplitSentence", "word_count.Split", 6, "write module:Name"),
        ("word_count:SplitSentence", "word_count:Split", 6, "module examples.word_count has no Split"),
        ("examples.word_count:S", "exampels:S", 6, "ModuleNotFoundError: No module named 'exampels'; is its"),
        ('ence"}', 'ence", constructorArgs: [1]}', 6, "cannot be made: TypeError: SplitSentence() takes"),
        ("type: fields", "type: field", 10, "is none of the choices; give shuffle, fields"),
        ("to: count", "to: cuont", 10, "streams.1.to = 'cuont': is no bolt of this file; there are: split"),
        ("type: shuffle", "type: shuffle, args: [a]", 9, "means nothing to shuffle"),
        ("from: lines", "from: lins", 9, "streams.0: bolt 'split' reads from 'lins', which was never set"),
        ("shuffle}", "shuffle, streamId: x}", 9, "streams.0: bolt 'split' reads stream 'x', which spout"),
        ("args: [word]", "args: [wrod]", 10, "streams.1: bolt 'count' groups split by wrod; its fields"),
        ("[sentences]", "[sentence]", 4, "spouts.0: there is no input 'sentence' in topics.yaml"),
        ("parallelism: 2", "parallelism: 0", 7, "bolts.1: bolt 'count': parallelism=0"),
        ("id: count", "id: split", 7, "two components are called 'split'"),
        ("word_count:show", "word_count:shwo", 11, "sink = 'examples.word_count:shwo': is not there"),
        ("streams:", "streams: 3\nx:", 8, "must be a list of streams"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_the_cure(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError) as raised:
        load_topology(path, {"FOLDER": "/var"})
    assert says in str(raised.value)
    assert f"topology.yaml:{line}: " in str(raised.value) or not line


MODULE = """
import spout

class Lacks(spout.BasicBolt):
    def __init__(self):
        self.table = {}["table"]

class Leaves(spout.BasicBolt):
    def __init__(self):
        raise SystemExit(3)

class Silent(spout.BasicBolt):
    def __init__(self):
        raise MemoryError

class Long(spout.BasicBolt):
    def __init__(self):
        raise OSError("two\\nlines")
"""
BROKEN = {
    "no_syntax": "class Split(:\n",
    "no_name": "from spout import NoSuchBolt\n",
    "no_key": "import os\n\nos.environ['WINDHOVER_NO_SUCH_VARIABLE']\n",
    "leaves": "raise SystemExit('usage: leaves FILE')\n",
    "looks_up": "def __getattr__(name):\n    raise LookupError(name)\n",
}


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("bolts_that_raise:Lacks", "cannot be made: KeyError: 'table' (bolts_that_raise.py:6)"),
        ("bolts_that_raise:Leaves", "cannot be made: SystemExit: 3 (bolts_that_raise.py:10)"),
        ("bolts_that_raise:Silent", "cannot be made: MemoryError (bolts_that_raise.py:14)"),
        ("bolts_that_raise:Long", "cannot be made: OSError: two lines (bolts_that_raise.py:18)"),
        ("no_syntax:Split", "cannot be imported: SyntaxError: invalid syntax (no_syntax.py, line 1)"),
        ("no_name:Split", "cannot be imported: ImportError: cannot import name 'NoSuchBolt' from 'spout'"),
        ("no_key:Split", "imported: KeyError: 'WINDHOVER_NO_SUCH_VARIABLE' (no_key.py:3)"),
        ("leaves:Split", "cannot be imported: SystemExit: usage: leaves FILE (leaves.py:1)"),
        ("looks_up:Split", "cannot be imported: LookupError: Split (looks_up.py:2)"),
    ],
)
def test_whatever_a_class_of_the_file_raises_is_told_at_its_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    named: str,
    says: str,
) -> None:
    """File, key, class and what it raised stand in one line; the command shows no traceback."""
    for name, text in {**BROKEN, "bolts_that_raise": MODULE}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FOLDER", "/var")
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, GOOD.replace("examples.word_count:SplitSentence", named))
    with pytest.raises(ConfigError) as raised:
        load_topology(path, {"FOLDER": "/var"})
    [told] = str(raised.value).splitlines()
    assert told.startswith(f"{path}:6: bolts.0.className = '{named}': ")
    assert says in told
    assert cli.run(["submit", str(path)]) == ConfigError.exit_code
    printed = capsys.readouterr().err
    assert told in printed
    assert "Traceback" not in printed


def test_a_sink_that_cannot_be_imported_is_told_at_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_sink.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = write(tmp_path, GOOD.replace("examples.word_count:show", "no_sink:write"))
    with pytest.raises(ConfigError, match=r"sink = 'no_sink:write': cannot be imported: ZeroDivisionError: "):
        load_topology(path, {"FOLDER": "/var"})


def test_a_sink_that_is_a_store_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D3224: a topology has no rows yet for which somebody could make an exact sink."""
    (tmp_path / "stores.py").write_text('import spout\nstore = spout.SQLiteStore("words.sqlite", "words")\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FOLDER", "/var")
    monkeypatch.chdir(PROJECT)
    path = write(tmp_path, GOOD.replace("examples.word_count:show", "stores:store"))
    assert cli.run(["submit", str(path), "--explain"]) == UsageError.exit_code
    assert "the sink of a topology does not write exactly once" in capsys.readouterr().err


@pytest.mark.parametrize("asks", ["spark.remote: 'sc://spark:15002'", "spark.api.mode: connect"])
def test_a_file_that_asks_for_spark_connect_is_refused_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asks: str
) -> None:
    monkeypatch.setenv("FOLDER", "/var")
    monkeypatch.chdir(PROJECT)
    monkeypatch.setattr(spark_session, "local_session", None)
    path = write(tmp_path, GOOD + f"spark: {{{asks}}}\n")
    assert cli.run(["submit", str(path)]) == UsageError.exit_code
    printed = capsys.readouterr().err
    assert "no classic Spark session" in printed
    assert "Traceback" not in printed


def test_the_command_explains_a_file_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    assert cli.run(["submit", "examples/word_count.yaml", "--explain"]) == 0
    assert "stage 1: one Python pass, 2 tasks" in capsys.readouterr().out
    assert cli.run(["submit", str(write(tmp_path, GOOD)), "--explain"]) == 4
    assert "needs the variable FOLDER" in capsys.readouterr().err
