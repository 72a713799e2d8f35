"""What a topics.yaml says, in lines for people: every key with the value that holds."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from acker.problems import keys_of
from acker.topics import Topics
from acker.units import duration_text, time_text


def describe(topics: Topics) -> Iterator[str]:
    """Yield the sections and keys of a file, defaults filled in; of Kafka settings the names only."""
    yield f"kafka: {', '.join(topics.kafka)} (values hidden)"
    yield "acker:"
    yield from _keys(topics.acker, "  ")
    yield f"  topics: {', '.join(topics.ack_topics.names())}"
    yield "replay:"
    yield from _keys(topics.replay, "  ")
    yield "inputs:" if topics.inputs else "inputs: none"
    for name, each in topics.inputs.items():
        yield f"  {name}:"
        yield from _keys(each, "    ")


def _keys(section: BaseModel, indent: str) -> Iterator[str]:
    names = {field.alias or name: name for name, field in type(section).model_fields.items()}
    for key, field in keys_of(type(section)).items():
        value = getattr(section, names[key])
        if isinstance(value, BaseModel):
            yield f"{indent}{key}:"
            yield from _keys(value, indent + "  ")
            continue
        extra = field.json_schema_extra
        unit = extra["unit"] if isinstance(extra, dict) else ""
        yield f"{indent}{key}: {_text(value, str(unit))}"


def _text(value: object, unit: str) -> str:
    if isinstance(value, int) and unit in ("duration", "time"):
        return duration_text(value) if unit == "duration" else time_text(value)
    return "not given" if value is None else str(value) or '""'
