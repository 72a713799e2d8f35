"""A topology's YAML file: what it means, and what is told when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from acker.errors import ConfigError
from spout import cli
from spout.flux import load_topology

PROJECT = Path(__file__).resolve().parents[2]
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
        ("examples.word_count:S", "exampels:S", 6, "cannot be imported: No module named 'exampels'"),
        ("ence\"}", "ence\", constructorArgs: [1]}", 6, "SplitSentence': cannot be made: SplitSentence()"),
        ("type: fields", "type: field", 10, "is none of the choices; give shuffle, fields"),
        ("to: count", "to: cuont", 10, "streams.1.to = 'cuont': is no bolt of this file; there are: split"),
        ("type: shuffle", "type: shuffle, args: [a]", 9, "means nothing to shuffle"),
        ("[sentences]", "[sentence]", 4, "spouts.0: there is no input 'sentence' in topics.yaml"),
        ("parallelism: 2", "parallelism: 0", 7, "bolts.1: bolt 'count': parallelism=0"),
        ("id: count", "id: split", 7, "two components are called 'split'"),
        ("word_count:show", "word_count:shwo", 11, "sink = 'examples.word_count:shwo': is not there"),
        ("streams:", "streams: 3\nx:", 8, "must be a list of streams"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place_and_the_cure(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError) as raised:
        load_topology(path, {"FOLDER": "/var"})
    assert says in str(raised.value)
    assert f"topology.yaml:{line}: " in str(raised.value) or not line


def test_the_command_explains_a_file_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    assert cli.run(["submit", "examples/word_count.yaml", "--explain"]) == 0
    assert "stage 1: one Python pass, 2 tasks" in capsys.readouterr().out
    assert cli.run(["submit", str(write(tmp_path, GOOD)), "--explain"]) == 4
    assert "needs the variable FOLDER" in capsys.readouterr().err
