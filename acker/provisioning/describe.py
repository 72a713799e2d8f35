"""A topics.yaml as lines for people: every key with its effective value."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from acker.config.problems import section_keys, section_of_items
from acker.config.topics import Topics
from acker.provisioning.topic_times import longest_need_ms, rounded_up_ms
from acker.units import duration_text, time_text


def describe(topics: Topics) -> Iterator[str]:
    """Yield the sections and keys of a file, with defaults filled in; of Kafka settings only the names."""
    yield f"kafka: {', '.join(topics.kafka)} (values hidden)"
    yield "acker:"
    yield from _keys(topics.acker, "  ")
    yield f"  topics: {', '.join(topics.ack_topics.names())}"
    yield "replay:"
    yield from _keys(topics.replay, "  ")
    yield "inputs:" if topics.inputs else "inputs: none"
    for name, input in topics.inputs.items():
        yield f"  {name}:"
        yield from _keys(input, "    ")
        if input.tracked:
            need_ms = longest_need_ms(input)
            need_text = "ever: an open one never times out"
            if need_ms is not None:
                need = duration_text(rounded_up_ms(need_ms))
                need_text = f"{need}: so long one may live, with all its replays"
            yield f"    # topic {input.topic} has to keep its records for {need_text}"


def _keys(section: BaseModel, indent: str) -> Iterator[str]:
    """Yield a line for each key of a section with its value, and for those of its sections, indented."""
    # a key of the file is the alias of an attribute, where Python has no such name
    attributes = {field.alias or name: name for name, field in type(section).model_fields.items()}
    for key, field in section_keys(type(section)).items():
        value = getattr(section, attributes[key])
        if isinstance(value, BaseModel):
            yield f"{indent}{key}:"
            yield from _keys(value, indent + "  ")
            continue
        if section_of_items(field) is not None:  # a list of rules
            yield f"{indent}{key}:{'' if value else ' none'}"
            for number, rule in enumerate(value):
                yield f"{indent}  {number}:"
                yield from _keys(rule, indent + "    ")
            continue
        extra = field.json_schema_extra
        unit = extra["unit"] if isinstance(extra, dict) else ""
        yield f"{indent}{key}: {value_text(value, str(unit))}"


def value_text(value: object, unit: str) -> str:
    """Return a value as topics.yaml would have it.

    `unit` is that of its key: "duration" and "time" are written with a unit, any other one is not.
    """
    if isinstance(value, tuple):
        return ", ".join(value_text(item, unit) for item in value)
    if isinstance(value, bool):  # before int, since True is an int, too
        return str(value).lower()
    if isinstance(value, int) and unit in ("duration", "time"):
        return duration_text(value) if unit == "duration" else time_text(value)
    if value is None:
        return "not given"
    return str(value) or '""'  # an empty text
