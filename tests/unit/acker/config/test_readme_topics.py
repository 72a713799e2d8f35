"""The pages about the keys of topics.yaml say what the models say, and `windhover explain` says the same."""

from __future__ import annotations

import json
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from acker.config import effects
from acker.config.effects import EFFECTS, effect_of
from acker.config.topics import parse
from acker.errors import UsageError
from acker.provisioning.describe import describe
from acker.provisioning.key_texts import COMPUTED_DEFAULTS, KeyText, key_texts, key_texts_named
from spout.cli import main as cli

PROJECT = Path(__file__).resolve().parents[4]
TEXTS = list(key_texts())
PATHS = [text.path for text in TEXTS]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script that writes the generated parts of pages."""
    monkeypatch.syspath_prepend(PROJECT / "docs" / "hooks")
    return import_module("keys")


@pytest.mark.parametrize("page", ["reference/topics.md", "operate/restarts.md"])
def test_the_generated_part_of_a_page_is_what_the_models_say(page: str, written: ModuleType) -> None:
    text = (PROJECT / "docs" / page).read_text(encoding="utf-8")
    assert text == written.with_part(text, written.PARTS[page]()), f"write it anew: `{written.COMMAND}`"


def test_every_generated_part_is_compared(written: ModuleType) -> None:
    compared_elsewhere = {"reference/picture.md"}
    assert set(written.PARTS) == {"reference/topics.md", "operate/restarts.md", *compared_elsewhere}


def test_a_page_without_the_comments_is_refused(written: ModuleType) -> None:
    with pytest.raises(ValueError, match="has no <!-- written by"):
        written.with_part("# Keys\n", iter(["a line"]))


def test_every_key_that_a_change_can_name_is_explained_and_no_other() -> None:
    assert {path for path in PATHS if "[]" not in path} == set(EFFECTS)
    assert len(PATHS) == len(set(PATHS))


@pytest.mark.parametrize("text", TEXTS, ids=PATHS)
def test_a_key_lacks_nothing(text: KeyText) -> None:
    """Add an example to `key(...)`, and a docstring below the field, if one of these is empty."""
    assert text.text.endswith("."), "sentences"
    assert text.summary
    assert text.default
    assert text.range
    assert text.example
    assert text.change == " ".join(effect_of(text.path).sentences())


@pytest.mark.parametrize("text", TEXTS, ids=PATHS)
def test_the_example_of_a_key_is_accepted_and_is_not_the_default(text: KeyText) -> None:
    plain, with_example = files_for(text)
    assert shown(with_example) != shown(plain)


def shown(file: dict[str, Any]) -> list[str]:
    return list(describe(parse(yaml.safe_dump(file), file="topics.yaml", environ={})))


def files_for(text: KeyText) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a file without a key, and the same file with the key's example."""
    value: Any = yaml.safe_load(text.example)
    rule = {"error": "ValueError", "then": "retry"}
    orders: dict[str, Any] = {"id": 1, "group": "g", "retry": {"time_limit": "2d", "causes": [rule]}}
    plain: dict[str, Any] = {"inputs": {"orders": orders}}
    with_example = deepcopy(plain)
    *sections, last = text.path.replace("<name>", "orders").split(".")
    section = with_example
    for name in sections:
        section = section["causes"][0] if name == "causes[]" else section.setdefault(name, {})
    section[last] = value
    return plain, with_example


def test_a_default_that_is_computed_is_the_one_that_a_file_gets() -> None:
    topics = parse("inputs: {orders: {id: 1, group: g}}", file="topics.yaml", environ={})
    orders = topics.input("orders")
    names = {"topic": orders.topic, "group": orders.group, "topic_prefix": ""}
    computed = {
        "kafka": f"{{bootstrap.servers: {topics.kafka['bootstrap.servers']}}}",
        "acker.group": topics.acker.group,
        "acker.replay_group": topics.acker.replay_group,
        "inputs.<name>.replay_topic": orders.replay_topic,
        "inputs.<name>.dead_letter.topic": orders.dead_letter.topic,
    }
    for path, value in computed.items():
        text = COMPUTED_DEFAULTS[path].strip("`")
        for name, of_orders in names.items():
            text = text.replace(f"<{name}>", of_orders)
        assert text == value
    assert set(COMPUTED_DEFAULTS) - set(computed) == {"inputs.<name>.topic"}
    assert orders.topic == orders.name


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("timeout", ["inputs.<name>.timeout"]),
        (" timeout ", ["inputs.<name>.timeout"]),
        ("inputs.orders.timeout", ["inputs.<name>.timeout"]),
        ("inputs.<name>.timeout", ["inputs.<name>.timeout"]),
        ("inputs.my.own.orders.retry.attempts", ["inputs.<name>.retry.attempts"]),
        ("inputs.dead_letter.topic", ["inputs.<name>.topic"]),
        ("inputs.a.dead_letter.topic", ["inputs.<name>.dead_letter.topic"]),
        ("retry.attempts", ["inputs.<name>.retry.attempts"]),
        ("retry.causes.0.then", ["inputs.<name>.retry.causes[].then"]),
        ("inputs.a.retry.causes[12].then", ["inputs.<name>.retry.causes[].then"]),
        ("causes[].then", ["inputs.<name>.retry.causes[].then"]),
        ("causes", ["inputs.<name>.retry.causes"]),
        ("step", ["acker.limits.step", "replay.limits.step"]),
        ("limits.stop", ["acker.limits.stop", "replay.limits.stop"]),
        ("kafka", ["kafka"]),
        ("kafka.sasl.password", ["kafka"]),
        ("dead_letter", [path for path in PATHS if ".dead_letter." in path]),
        ("inputs.a.dead_letter", [path for path in PATHS if ".dead_letter." in path]),
        ("acker.limits", [path for path in PATHS if path.startswith("acker.limits.")]),
    ],
)  # fmt: skip
def test_a_key_is_named_in_any_way_that_a_file_or_a_message_names_it(name: str, paths: list[str]) -> None:
    assert [text.path for text in key_texts_named(name)] == paths


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("max_attempts", "has no key max_attempts; the nearest are inputs.<name>.retry.attempts"),
        ("inputs.orders.tmeout", "the nearest are inputs.<name>.timeout, "),
        ("xyzzy", "has no key xyzzy; `windhover explain` lists all keys"),
        ("", "is empty; `windhover explain` lists all keys"),
        ("out", "has no key out"),
        ("a`b\n", "has no key a%60b"),
    ],
)
def test_a_key_that_does_not_exist_is_refused_with_the_nearest_ones(name: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        key_texts_named(name)
    assert says in str(refused.value)


@pytest.mark.parametrize("text", TEXTS, ids=PATHS)
def test_the_command_prints_the_block_of_the_page(text: KeyText, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", text.path]) == 0
    printed = capsys.readouterr().out
    page = (PROJECT / "docs" / "reference" / "topics.md").read_text(encoding="utf-8")
    assert printed.startswith(f"{text.path}\n\n")
    assert f"### `{text.path}`\n\n{printed.partition(chr(10))[2].strip()}\n\n" in page


def test_the_command_without_a_key_lists_all_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split("│")[1:3] for line in lines if line.startswith("│")]
    assert [(key.strip(), what.strip()) for key, what in rows] == [
        (text.path, text.summary) for text in TEXTS
    ]


def test_the_command_prints_several_keys_of_one_name_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "step"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("acker.limits.step\n\n")
    assert "\n\nreplay.limits.step\n\n" in printed


@pytest.mark.parametrize(("arguments", "count"), [([], len(TEXTS)), (["step"], 2)])
def test_the_command_prints_data(
    arguments: list[str], count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["explain", *arguments, "-o", "json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert cli.run(["explain", *arguments, "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert len(as_json) == count
    assert set(as_json[0]) == {
        "path", "text", "default", "unit", "range", "storm", "change", "example",
    }  # fmt: skip


def test_the_command_refuses_an_unknown_key_as_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "max_attempts"]) == 2
    assert capsys.readouterr().err == (
        "windhover: topics.yaml has no key max_attempts; the nearest are inputs.<name>.retry.attempts\n"
    )


def test_a_key_without_an_example_would_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test of what a key lacks is worth something."""
    monkeypatch.setattr(effects, "EFFECTS", {})
    with pytest.raises(KeyError):
        list(key_texts())
