"""The page for topics that are made by hand: it has what `windhover topics create` would make."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from acker.config.topics import parse
from acker.kafka.port import TopicInfo
from acker.provisioning.by_hand import create_command, demanded_settings, settings_table
from acker.provisioning.refused_settings import LOST_WITHOUT, PAGE
from acker.provisioning.topic_specs import Level, TopicSpec, required_topics, topic_findings

ROOT = Path(__file__).resolve().parents[4]
BOOTSTRAP: Final = "broker:9092"
FILE: Final = """
acker: {partitions: 4, replication_factor: 3}
inputs:
  sentences: {id: 1, group: words, topic: sentences, partitions: 6}
"""
LIMITS: Final = {
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
}
"""What each topic of Kafka 4 has, and its replay topic gets without limit."""


def specs_of_page() -> list[TopicSpec]:
    """Return the topics of the example; its source has the settings that Kafka 4 gives it."""
    topics = parse(FILE, file="topics.yaml", environ={})
    source = TopicInfo("sentences", "id", 6, 3, LIMITS)
    return required_topics(topics, {"sentences": source})


def generated() -> str:
    """Return the generated part of the page: paste it there when this test falls."""
    specs = specs_of_page()
    commands = "\n\n".join("\n".join(create_command(spec, BOOTSTRAP)) for spec in specs)
    demanded = ["| setting | topics |", "|---|---|", *demanded_settings(specs)]
    return "\n".join(
        [
            *settings_table(specs),
            "",
            "`windhover topics check` refuses topics that have another value of these:",
            "",
            *demanded,
            "",
            "The commands for all eleven topics of this file:",
            "",
            "```yaml",
            *FILE.strip().splitlines(),
            "```",
            "",
            "```sh",
            commands,
            "```",
        ]
    )


def test_the_page_has_the_settings_of_all_eleven_topics() -> None:
    """D2006"""
    assert len(specs_of_page()) == 11
    assert generated() in (ROOT / PAGE).read_text(encoding="utf-8")


def test_of_each_setting_it_is_written_what_happens_without_it() -> None:
    """D2005"""
    older = {"message.timestamp.difference.max.ms": "1"}
    of_older = required_topics(
        parse(FILE, file="topics.yaml", environ={}), {"sentences": TopicInfo("sentences", "id", 6, 3, older)}
    )
    settings = {name for spec in [*specs_of_page(), *of_older] for name in spec.settings}
    assert settings == set(LOST_WITHOUT)


def info_of_command(lines: list[str]) -> TopicInfo:
    """Return the topic that Kafka's tool makes of a command."""
    words = shlex.split(" ".join(line.removesuffix("\\") for line in lines))
    value = {words[index]: words[index + 1] for index in range(len(words) - 1)}
    settings = dict(words[index + 1].split("=", 1) for index, word in enumerate(words) if word == "--config")
    return TopicInfo(
        value["--topic"], "id", int(value["--partitions"]), int(value["--replication-factor"]), settings
    )


@pytest.mark.parametrize("spec", specs_of_page(), ids=lambda spec: spec.name)
def test_a_topic_that_is_made_by_its_command_is_right(spec: TopicSpec) -> None:
    """D2006"""
    assert topic_findings(spec, info_of_command(create_command(spec, BOOTSTRAP))) == []


@pytest.mark.parametrize(
    "setting", ["segment.bytes", "min.cleanable.dirty.ratio", "message.timestamp.type", "min.insync.replicas"]
)
def test_a_topic_without_a_setting_that_loses_no_state_is_no_error(setting: str) -> None:
    """D2006: where a cluster refuses them, `topics check` is content without them, or warns."""
    defaults = {"message.timestamp.type": "CreateTime", "min.insync.replicas": "1", **LIMITS}
    for spec in specs_of_page():
        settings = {name: value for name, value in spec.settings.items() if name != setting}
        info = TopicInfo(spec.name, "id", spec.partitions or 1, 3, defaults | settings)
        assert not [finding for finding in topic_findings(spec, info) if finding.level is Level.ERROR]


def test_a_name_with_blanks_is_quoted() -> None:
    spec = specs_of_page()[0]
    lines = create_command(spec, "broker one:9092")
    assert re.match(r"kafka-topics\.sh --bootstrap-server 'broker one:9092' --create \\", lines[0])
