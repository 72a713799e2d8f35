"""What sections and keys of topics.yaml are made of (docs/design/protocol.md, section 7)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationInfo

from acker.config.yaml_text import VariableText
from acker.units import TIME_MS_MAX, duration_ms, time_ms

FROM_FILE: Final = "topics.yaml"
"""The validation context of a file, where a duration needs its unit and a time its date; in Python
an int is milliseconds."""

NAME_KEY: Final = "(name)"
"""Under this an input learns the name of its section; a file may not set it."""

TOPIC_CHARACTERS_MAX: Final = 249
"""Kafka's own limit."""

GROUP_CHARACTERS_MAX: Final = 255
NAME_CHARACTERS_MAX: Final = 100
WHY_CHARACTERS_MAX: Final = 200

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")


class Section(BaseModel):
    """A section of the file: frozen, without unknown keys, and silent about values in errors.

    A key is called as its field, without its ``_ms``. The docstring below a field is its text in
    docs/reference/topics.md and `windhover explain`, where `acker.provisioning.key_texts` reads
    it. Pydantic does not read it: that takes as long as all else that makes these classes.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        populate_by_name=True,
        hide_input_in_errors=True,
        defer_build=True,  # a planning process gets settings that were checked, and checks none
        alias_generator=lambda name: name.removesuffix("_ms"),
    )


def key(*, range: str, example: str = "", unit: str = "", storm: str = "", **field: Any) -> Any:
    """Return the field of a section that is one key of topics.yaml.

    Args:
        range: what the file may say; it is part of messages, too.
        example: another value than the default, as a file writes it; empty: the key is a section.
        unit: of the value; empty: it has none.
        storm: what Storm calls it; empty: Storm has no such thing.
        field: further arguments of pydantic's `Field`, such as its default and bounds.
    """
    return Field(
        json_schema_extra={"unit": unit, "range": range, "storm": storm, "example": example}, **field
    )


def duration(
    default: str | int, between: str, example: str, *, or_never: bool = False, storm: str = ""
) -> Any:
    """Return the field of a section that is a key of topics.yaml for a duration, kept in ms.

    Args:
        between: its range, such as ``1s to 7d``; the lower bound may be ``0``, or the name of
            another key, as in ``initial to 7d``, with which it is compared there.
        or_never: 0 is possible too, for never.
        storm: as for `key`.
    """
    low, high = between.split(" to ")
    low_is_zero = len(low) == 1  # "0", which needs no unit
    low_is_key = low.isalpha()  # pydantic cannot compare two keys: the section does
    lowest_ms = 0 if or_never or low_is_zero or low_is_key else duration_ms(low)
    highest_ms = duration_ms(high)
    text = f"a duration, {between}{', or 0 for never' if or_never else ''}"
    bounds = {"ge": lowest_ms, "le": highest_ms}
    return key(unit="duration", range=text, example=example, storm=storm, default=default, **bounds)


def whole(default: int | None, between: tuple[int, int], unit: str, example: str, *, storm: str = "") -> Any:
    """Make a key of a whole number, the lowest to the highest of `between`."""
    low, high = between
    text = f"a whole number, {low} to {high}"
    return key(unit=unit, range=text, example=example, storm=storm, default=default, ge=low, le=high)


def ratio(default: float, between: tuple[int, int], unit: str, example: str, *, storm: str = "") -> Any:
    """Make a key of a number, the lowest to the highest of `between`."""
    low, high = between
    text, bounds = f"a number, {low} to {high}", {"ge": low, "le": high, "allow_inf_nan": False}
    return key(unit=unit, range=text, example=example, storm=storm, default=default, **bounds)


def _whole_of_variable(value: object) -> object:
    """Return the whole number that a variable holds; any other value as it is."""
    return value.whole() if isinstance(value, VariableText) else value


def _none_if_empty(value: object) -> object:
    """Return None for a variable that is empty, where a number may be left out."""
    return None if isinstance(value, VariableText) and not value else value


def _fraction_of_variable(value: object) -> object:
    """Return the number that a variable holds; any other value as it is."""
    return value.fraction() if isinstance(value, VariableText) else value


def _truth_of_variable(value: object) -> object:
    """Return the truth value that a variable holds; any other value as it is."""
    return value.truth() if isinstance(value, VariableText) else value


def _duration(value: object, info: ValidationInfo) -> object:
    """Return a duration in ms, of a text with a unit, or of a number of ms that Python code gives.

    Raises `ValueError`: it is neither, or a file has a number without a unit.
    """
    if isinstance(value, VariableText) and value == "0":  # the one duration that needs no unit
        return 0
    if isinstance(value, str):
        return duration_ms(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("is no duration with its unit (ms, s, m, h or d)")
    if info.context == FROM_FILE and value != 0:
        raise ValueError("has no unit (ms, s, m, h or d)")
    return value


def _timeout(value: int) -> int:
    """Return a timeout in ms; raise `ValueError` if it is too low; 0 is none."""
    if 0 < value < TIMEOUT_MS_MIN:
        raise ValueError("is too low")
    return value


def _topic(value: str) -> str:
    """Return the name of a topic; raise `ValueError` if Kafka does not allow it."""
    if value in (".", "..") or not _TOPIC.fullmatch(value):
        raise ValueError("is no name of a topic")
    if len(value) > TOPIC_CHARACTERS_MAX:
        raise ValueError(f"is longer than {TOPIC_CHARACTERS_MAX} characters")
    return value


def _group(value: str) -> str:
    """Return the name of a consumer group; raise `ValueError` if it is none."""
    if not value.strip() or not value.isprintable() or len(value) > GROUP_CHARACTERS_MAX:
        raise ValueError("is no name of a consumer group")
    return value


def _empty_if_none(value: object) -> object:
    """Return an empty text for a key without a value, which says the same as no key."""
    return "" if value is None else value


def _stop_reason(value: str) -> str:
    """Return the reason why an input is stopped, without spaces around it.

    Empty: it is not stopped. Raises `ValueError`: it is longer than `WHY_CHARACTERS_MAX`, or
    has a character that is not printable, such as a line break.
    """
    if len(value) > WHY_CHARACTERS_MAX:
        raise ValueError(f"is longer than {WHY_CHARACTERS_MAX} characters")
    if not value.isprintable():
        raise ValueError("is no text of one line")
    return value.strip()


def _name(pattern: str, wrong: str) -> AfterValidator:
    """Return a validator that raises `ValueError` with the text `wrong` for what does not fit a pattern."""

    def checked(value: str) -> str:
        if not re.fullmatch(pattern, value) or len(value) > NAME_CHARACTERS_MAX:
            raise ValueError(wrong)
        return value

    return AfterValidator(checked)


def _start(value: object, info: ValidationInfo) -> object:
    """Return where a group without history starts to read: a word, or a time in ms since 1970.

    Raises `ValueError`: it is neither.
    """
    if value in ("committed", "earliest", "latest"):
        return value
    if isinstance(value, str):
        return time_ms(value)
    # a number of ms is for Python alone: in a file it might be seconds, or an offset
    if isinstance(value, bool) or not isinstance(value, int) or info.context == FROM_FILE:
        raise ValueError("is no place to start")
    if not 0 <= value <= TIME_MS_MAX:  # to Kafka -1 is the end, -2 the beginning
        raise ValueError("is no time in ms since 1970")
    return value


Truth = Annotated[bool, Strict(), BeforeValidator(_truth_of_variable)]
Whole = Annotated[int, Strict(), BeforeValidator(_whole_of_variable)]
WholeOrNone = Annotated[Whole | None, BeforeValidator(_none_if_empty)]
Ratio = Annotated[float, Strict(), BeforeValidator(_fraction_of_variable)]
DurationMs = Annotated[int, BeforeValidator(_duration)]
TimeoutMs = Annotated[DurationMs, AfterValidator(_timeout)]
TopicName = Annotated[str, AfterValidator(_topic)]
GroupName = Annotated[str, AfterValidator(_group)]
StopReason = Annotated[str, BeforeValidator(_empty_if_none), AfterValidator(_stop_reason)]
InputName = Annotated[str, _name(r"[A-Za-z0-9][A-Za-z0-9._-]*", "is no name of an input")]
TopicPrefix = Annotated[str, _name(r"[A-Za-z0-9._-]*", "cannot begin the name of a topic")]
StartAt = Annotated[Literal["committed", "earliest", "latest"] | int, BeforeValidator(_start)]

TIMEOUT_MS_MIN: Final = 500
"""The clock moves with the session's ticks, every 500 ms; a shorter timeout would mean nothing."""
