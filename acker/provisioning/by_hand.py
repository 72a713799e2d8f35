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
    words = [f"kafka-topics.sh --bootstrap-server {shlex.quote(bootstrap)} --create"]
    place = f"--topic {shlex.quote(spec.name)}"
    if spec.partitions is not None:
        place += f" --partitions {spec.partitions}"
    if spec.replication > 0:
        place += f" --replication-factor {spec.replication}"
    words.append(place)
    words += [f"--config {name}={shlex.quote(value)}" for name, value in sorted(spec.settings.items())]
    first, *others = words
    lines = [first, *(f"    {word}" for word in others)]
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
    topics: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        for setting in spec.settings.items():
            topics.setdefault(setting, []).append(spec.name)
    return topics


def demanded_settings(specs: Iterable[TopicSpec]) -> Iterator[str]:
    """Yield of which setting another value is refused by `windhover topics check`, on which topics."""
    topics: dict[str, list[str]] = {}
    for spec in specs:
        for name, value in spec.settings.items():
            if (spec.role, name) in MUST_BE:
                topics.setdefault(f"`{name}={value}`", []).append(spec.name)
    for setting, names in sorted(topics.items()):
        yield f"| {setting} | {', '.join(f'`{name}`' for name in names)} |"
