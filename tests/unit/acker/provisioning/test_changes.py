"""What a newer topics.yaml changes, and who must start again for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from acker.config.effects import EFFECTS, Process
from acker.config.limits import ReplaySettings
from acker.config.problems import section_keys
from acker.config.settings import AckerSettings, Input
from acker.config.topics import Topics, parse
from acker.errors import Disagreement
from acker.provisioning.changes import changes_between, summary
from replay.worker.service import ReplayService
from tests.support.memory.clients import NoFaults
from tests.support.memory.cluster import MemoryCluster, MemoryLog

OTHER_VALUES: dict[str, Any] = {
    "kafka": {"linger.ms": "7"},
    "acker.partitions": 5,
    "acker.topic_prefix": "p",
    "acker.group": "other-ackers",
    "acker.replay_group": "other-workers",
    "acker.replication_factor": 3,
    "acker.verdict_retention": "9d",
    "acker.limits.pace": "300ms",
    "acker.limits.operation": "14s",
    "acker.limits.unreachable": "6m",
    "acker.limits.step": "2m",
    "acker.limits.stop": "21s",
    "acker.limits.refold_bytes": 1,
    "acker.limits.retention_interval": "2m",
    "replay.limits.operation_timeout": "29s",
    "replay.limits.unreachable": "6m",
    "replay.limits.step": "9m",
    "replay.limits.stop": "21s",
    "replay.limits.waiting_max": 7,
    "replay.limits.waiting_bytes_max": 7,
    "replay.limits.fetch_bytes_max": 7,
    "replay.limits.input_retry": "2m",
    "replay.limits.breaker_window": "2m",
    "replay.limits.breaker_dead_min": 7,
    "replay.limits.breaker_settled_min": 7,
    "inputs.<name>.id": 7,
    "inputs.<name>.group": "other",
    "inputs.<name>.topic": "elsewhere",
    "inputs.<name>.partitions": 7,
    "inputs.<name>.timeout": "31s",
    "inputs.<name>.held_timeout": "4d",
    "inputs.<name>.bolt_timeout": "10s",
    "inputs.<name>.max_spout_pending": 7,
    "inputs.<name>.start": "latest",
    "inputs.<name>.unreachable": "4m",
    "inputs.<name>.on_data_loss": "skip",
    "inputs.<name>.ackers": 0,
    "inputs.<name>.stopped": "a repair until Monday",
    "inputs.<name>.ordering": "key",
    "inputs.<name>.max_held": 7,
    "inputs.<name>.hold": "2s",
    "inputs.<name>.retry.attempts": 7,
    "inputs.<name>.retry.initial": "2s",
    "inputs.<name>.retry.multiplier": 3,
    "inputs.<name>.retry.max": "6m",
    "inputs.<name>.retry.delays": ["5s"],
    "inputs.<name>.retry.jitter": 0.5,
    "inputs.<name>.retry.time_limit": "1d",
    "inputs.<name>.retry.count_timed_out": False,
    "inputs.<name>.retry.count_abandoned": True,
    "inputs.<name>.retry.max_abandoned": 7,
    "inputs.<name>.retry.causes": [{"error": "KeyError", "then": "drop"}],
    "inputs.<name>.replay_topic": "copies",
    "inputs.<name>.dead_letter.topic": "letters",
    "inputs.<name>.dead_letter.max_ratio": 0.5,
    "inputs.<name>.dead_letter.max_consecutive": 7,
}
"""Another value than the default for each key."""

FOLLOW: dict[str, set[str]] = {
    "acker.topic_prefix": {"acker.group", "acker.replay_group"},
    "inputs.<name>.group": {"inputs.<name>.replay_topic", "inputs.<name>.dead_letter.topic"},
    "inputs.<name>.topic": {"inputs.<name>.replay_topic", "inputs.<name>.dead_letter.topic"},
    # it is refused without a limit of time
    "inputs.<name>.retry.count_timed_out": {"inputs.<name>.retry.time_limit"},
}
"""Which keys change with another, since their defaults are made of it."""


def file_of(document: dict[str, Any]) -> Topics:
    return parse(yaml.safe_dump(document), file="topics.yaml", environ={})


def document(**of_input: Any) -> dict[str, Any]:
    return {"inputs": {"sentences": {"id": 1, "group": "g", **of_input}}}


def with_value(key: str, value: Any) -> Topics:
    """Return the file of `document` in which one key has a value."""
    whole = document()
    *above, last = key.replace("<name>", "sentences").split(".")
    section = whole
    for part in above:
        section = section.setdefault(part, {})
    section[last] = value
    if last == "count_timed_out":
        section["time_limit"] = "1d"
    return file_of(whole)


def keys_of(model: type[BaseModel], above: str) -> Iterator[str]:
    for key, field in section_keys(model).items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from keys_of(field.annotation, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def test_every_key_has_an_effect_and_every_effect_a_key() -> None:
    """D2101: whoever adds a key says what its change asks."""
    keys = {"kafka", *keys_of(AckerSettings, "acker."), *keys_of(ReplaySettings, "replay.")}
    keys |= set(keys_of(Input, "inputs.<name>."))
    assert set(EFFECTS) == keys
    assert set(OTHER_VALUES) == keys


@pytest.mark.parametrize("key", OTHER_VALUES)
def test_a_changed_key_is_found_with_those_that_follow_from_it(key: str) -> None:
    """D2102."""
    changes = changes_between(file_of(document()), with_value(key, OTHER_VALUES[key]))
    paths = {change.path.replace("inputs.sentences", "inputs.<name>") for change in changes}
    expected = {"kafka.linger.ms"} if key == "kafka" else {key, *FOLLOW.get(key, ())}
    assert paths == expected
    assert all(change.effect.text() in change.line() for change in changes)


@pytest.mark.parametrize("key", OTHER_VALUES)
def test_a_running_worker_takes_what_the_table_says_that_it_takes(key: str) -> None:
    """D2103: the worker itself is asked; SIGHUP lets it take a file, or it refuses with the key's name."""
    former, newer = file_of(document()), with_value(key, OTHER_VALUES[key])
    worker = ReplayService(MemoryLog(MemoryCluster(), NoFaults()), former, jitter=lambda: 0.0)
    starts = any(Process.REPLAY in change.effect.start for change in changes_between(former, newer))
    if starts or (EFFECTS[key].why_refused and key.startswith("acker.")):
        with pytest.raises(Disagreement, match="start it again"):
            worker.take_topics(newer)
    else:
        worker.take_topics(newer)


def test_equal_files_change_nothing_also_where_one_writes_the_defaults() -> None:
    written = document(timeout="30s", topic="sentences", retry={"attempts": 10})
    assert changes_between(file_of(document()), file_of(written)) == []


def lines(former: dict[str, Any], newer: dict[str, Any]) -> list[str]:
    return [change.line() for change in changes_between(file_of(former), file_of(newer))]


def inputs(**sections: dict[str, Any]) -> dict[str, Any]:
    return {"inputs": sections}


ONE, TWO = {"id": 1, "group": "g"}, {"id": 2, "group": "h"}


def test_inputs_that_come_and_go_are_named() -> None:
    """D2104."""
    added, removed = lines(inputs(a=ONE), inputs(b=TWO))
    assert added.startswith("inputs.a: removed: page, replay worker (SIGHUP); before that, wait until")
    assert removed.startswith("inputs.b: added: page, replay worker (SIGHUP); run `windhover topics create`")


def test_an_input_of_the_same_id_is_the_same_under_another_name() -> None:
    """D2105: also where its former name has gone over to another input."""
    kept = {**ONE, "topic": "a"}
    (renamed,) = lines(inputs(a=ONE), inputs(b=kept))
    assert renamed.startswith("inputs.b: the name, a before: query, acker, page, replay worker (SIGHUP)")

    renamed, added = lines(inputs(a=ONE), inputs(a={**TWO, "topic": "x"}, b=kept))
    assert renamed.startswith("inputs.b: the name, a before")
    assert added.startswith("inputs.a: added")

    swapped = lines(inputs(a=ONE, b=TWO), inputs(a={**TWO, "topic": "b"}, b=kept))
    assert [line.partition(":")[0] for line in swapped] == ["inputs.a", "inputs.b"]


def test_a_name_that_took_its_topic_along_is_refused() -> None:
    """D2106: without a key `topic` a renamed input would read the topic of its new name."""
    paths = {
        change.path: change for change in changes_between(file_of(inputs(a=ONE)), file_of(inputs(b=ONE)))
    }
    assert set(paths) == {"inputs.b", "inputs.b.topic", "inputs.b.replay_topic", "inputs.b.dead_letter.topic"}
    assert paths["inputs.b.topic"].effect.why_refused
    assert paths["inputs.b.topic"].what == "a -> b"


@pytest.mark.parametrize(
    "newer",
    [inputs(a={"id": 3, "group": "g"}), inputs(b={"id": 3, "group": "g", "topic": "a"})],
    ids=["same name", "same group and topic"],
)
def test_an_input_with_another_id_is_refused_by_its_name_or_by_what_it_reads(newer: dict[str, Any]) -> None:
    """D2107."""
    changes = changes_between(file_of(inputs(a=ONE)), file_of(newer))
    (refused,) = [change for change in changes if change.effect.why_refused]
    assert refused.what == "1 -> 3"
    assert refused.path.endswith(".id")


def test_values_of_kafka_settings_are_never_shown() -> None:
    former = file_of({"kafka": {"sasl.password": "hunter2", "client.rack": "a"}})
    newer = file_of({"kafka": {"sasl.password": "hunter3", "linger.ms": 3}})
    changes = changes_between(former, newer)
    assert [(change.path, change.what) for change in changes] == [
        ("kafka.client.rack", "removed"),
        ("kafka.linger.ms", "added"),
        ("kafka.sasl.password", "another value"),
    ]


def test_the_summary_names_each_process_once_and_prefers_a_start() -> None:
    """D2108: a worker that has to start again gets no SIGHUP."""
    policy = with_value("inputs.<name>.retry.attempts", 7)
    assert summary(changes_between(file_of(document()), policy)) == ["SIGHUP, or start again: replay worker"]
    timeout = with_value("inputs.<name>.timeout", "1m")
    assert summary(changes_between(file_of(document()), timeout)) == ["start again: query, page"]
    both = file_of({**document(retry={"attempts": 7}), "replay": {"limits": {"stop": "30s"}}})
    assert summary(changes_between(file_of(document()), both)) == ["start again: replay worker"]
    refused = with_value("inputs.<name>.id", 7)
    assert summary(changes_between(file_of(document()), refused)) == ["no process must start again"]
