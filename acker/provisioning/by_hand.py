"""Writes how to make the topics of a file by Kafka's own tool, for clusters that refuse settings; pure.

The page docs/operate/topics-by-hand.md has what it writes of an example, and a test holds the two together.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from acker.provisioning.refused_settings import LOST_WITHOUT
from acker.provisioning.topic_specs import MUST_BE, TopicSpec


def create_command(spec: TopicSpec, bootstrap: str) -> list[str]:
    """Return the command that makes a topic, one line a setting; each line but the last goes on.

    What is negative in a spec, or missing, is left to the broker: the copies, the partitions.
    """
    topic_options = f"--topic {shlex.quote(spec.name)}"
    if spec.partitions is not None:
        topic_options += f" --partitions {spec.partitions}"
    if spec.replication > 0:
        topic_options += f" --replication-factor {spec.replication}"
    lines = [
        f"kafka-topics.sh --bootstrap-server {shlex.quote(bootstrap)} --create",
        f"    {topic_options}",
    ]
    for name, value in sorted(spec.settings.items()):
        lines.append(f"    --config {name}={shlex.quote(value)}")
    # a backslash at its end lets a line go on in the next one
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def settings_table(specs: Sequence[TopicSpec]) -> list[str]:
    """Return a table of the settings of topics: its value, on which topics, and what happens without it."""
    lines = ["| setting | value | topics | without it |", "|---|---|---|---|"]
    for (name, value), topics in sorted(_topics_by_setting(specs).items()):
        names = ", ".join(f"`{topic}`" for topic in topics)
        lines.append(f"| `{name}` | `{value}` | {names} | {LOST_WITHOUT[name]} |")
    return lines


def _topics_by_setting(specs: Iterable[TopicSpec]) -> Mapping[tuple[str, str], list[str]]:
    """Return by (name, value) of a setting the topics that need it."""
    topics_by_setting: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        for name_and_value in spec.settings.items():
            topics_by_setting.setdefault(name_and_value, []).append(spec.name)
    return topics_by_setting


def demanded_settings(specs: Iterable[TopicSpec]) -> Iterator[str]:
    """Yield rows of a table: a setting, and on which topics `windhover topics check` demands it."""
    topics_by_setting: dict[str, list[str]] = {}
    for spec in specs:
        for name, value in spec.settings.items():
            if (spec.role, name) in MUST_BE:
                topics_by_setting.setdefault(f"`{name}={value}`", []).append(spec.name)
    for setting, names in sorted(topics_by_setting.items()):
        yield f"| {setting} | {', '.join(f'`{name}`' for name in names)} |"
