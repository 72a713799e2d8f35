"""What is wrong with a configuration file: one line for each problem, all of them at once.

A line names file, line, key path, value and cure. Values of the section ``kafka`` and of unknown
keys are never shown: they may be secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from acker.errors import ConfigError
from acker.listing import and_more
from acker.redaction import cut
from acker.units import duration_text
from acker.untrusted import Untrusted, UntrustedName

Path = tuple[str, ...]

VALUE_CHARACTERS_MAX: Final = 80
"""A value is cut to this many characters in a message."""

PROBLEMS_MAX: Final = 50
"""More problems than this are counted, not listed."""

_MEANING: Final = {
    "greater_than_equal": "is too low",
    "greater_than": "is too low",
    "less_than_equal": "is too high",
    "literal_error": "is none of the choices",
    "finite_number": "is no finite number",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, at one key. `value` None: there is none to show."""

    path: Path
    text: str
    value: str | None = None

    def line(self, file: str, lines: Mapping[Path, int], hide: Callable[[str], str] = cut) -> str:
        """Return the problem as one line of text.

        `lines` leads from key paths to the lines of the file where they stand. `hide` takes
        secrets out of value and text.
        """
        line_number = line_of(self.path, lines)  # 0: it is not known
        where = f"{file}:{line_number}" if line_number else file
        key = ".".join(str(UntrustedName(part)) for part in self.path)
        value = "" if self.value is None else hide(self.value)
        if len(value) > VALUE_CHARACTERS_MAX:  # cut after `hide`: it would not find a part of a secret
            value = value[: VALUE_CHARACTERS_MAX - 1] + "…"
        shown = f" = {Untrusted(value)}" if value else ""
        text = hide(self.text)
        return f"{where}: {key}{shown}: {text}" if key else f"{where}: {text}"


def line_of(path: Path, lines: Mapping[Path, int]) -> int:
    """Return the line of a key in a file, or of the innermost section around it that has one.

    It is 0 if there is none. `lines` leads from the paths of keys to their lines.
    """
    for length in range(len(path), 0, -1):
        section = path[:length]
        if section in lines:
            return lines[section]
    return 0


def refuse(
    problems: Iterable[Problem],
    file: str,
    lines: Mapping[Path, int],
    hide: Callable[[str], str] = cut,
) -> None:
    """Raise all problems as one `ConfigError`, one line each, in the order of the file; do nothing
    if there are none.

    `lines` has the line of each key, by the key's path. `hide` is a function: it returns a text
    without its secrets. The default, `cut`, hides what has the form of a secret.
    """
    ordered = sorted(set(problems), key=lambda problem: (line_of(problem.path, lines), problem.path))
    if not ordered:
        return
    lines_shown = [problem.line(file, lines, hide) for problem in ordered[:PROBLEMS_MAX]]
    if len(ordered) > PROBLEMS_MAX:
        lines_shown.append(f"{file}: {and_more(len(ordered) - PROBLEMS_MAX, 'problems')}")
    raise ConfigError("\n".join(lines_shown))


def unknown_key(path: Path, allowed: Iterable[str]) -> Problem:
    """Describe a key that means nothing where it stands, with the nearest one that does."""
    keys = sorted(allowed)
    near = get_close_matches(path[-1], keys, n=1)
    cure = f"did you mean `{near[0]}`?" if near else f"the keys here are {', '.join(keys)}"
    return Problem(path, f"is not a key of this section; {cure}")


def section_keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys of a section as the file writes them, those that the file cannot set left out."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    return {key: field for key, field in fields.items() if allowed(field) and not _is_not_for_file(key)}


def _is_not_for_file(key: str) -> bool:
    """Return whether a key is not for the file to set: such keys are in parentheses, as ``(name)``."""
    return key.startswith("(")


def constants(model: type[BaseModel], data: Mapping[str, Any], above: Path) -> list[Problem]:
    """Return a problem for each key of a section that is a constant now, with the value that holds.

    `data` is what the file says in the section, and `above` the section's path.
    """
    settable = section_keys(model)
    constants_set: list[Problem] = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in data or key in settable or _is_not_for_file(key):
            continue
        value = duration_text(field.default) if name.endswith("_ms") else f"{field.default:,}"
        constants_set.append(Problem((*above, key), f"is a constant now, {value}; remove the key"))
    return constants_set


def allowed(field: FieldInfo) -> str:
    """Return the range of a key, in words; empty for a constant."""
    extra = field.json_schema_extra
    return str(extra["range"]) if isinstance(extra, dict) else ""


def problems_of(
    error: ValidationError, model: type[BaseModel], data: Mapping[str, Any], above: Path
) -> list[Problem]:
    """Translate what pydantic refused in a section: `data` is what the file says there, `above` its path."""
    return [
        _problem(item, model, data, above)
        for item in error.errors(include_url=False)
        if item["type"] != "default_factory_not_called"  # only follows from another error of the section
    ]


def _problem(
    item: Mapping[str, Any], model: type[BaseModel], data: Mapping[str, Any], above: Path
) -> Problem:
    """Return what pydantic refused, one item of its errors, as a problem at a key of the file.

    `data` is what the file says in the section `model`, and `above` the section's path.
    """
    # 1. the key
    location = tuple(str(part) for part in item["loc"])
    kind = item["type"]
    section, field, keys = _locate_key(model, location)
    if kind == "extra_forbidden":
        return unknown_key(above + location, section_keys(section))
    path = above + keys
    # 2. what is wrong with it, and the cure
    is_of_section = field is None and isinstance(item["input"], Mapping | BaseModel)
    # our own validator of a whole section has raised it: the problem has the validator's text, and
    # shows no value
    if kind == "value_error" and is_of_section:
        return Problem(path, str(item["ctx"]["error"]))
    cure = f"; give {allowed(field)}" if field is not None and allowed(field) else ""
    if kind == "missing":
        return Problem(path, f"is missing{cure}")
    if kind == "value_error":
        flaw = str(item["ctx"]["error"])
    elif kind in ("tuple_type", "list_type"):
        flaw = "must be a list, in brackets or with a dash before each"
    elif field is None or kind in ("model_type", "dict_type", "mapping_type"):
        flaw = "must be a section: keys with values, indented below it"
    else:
        flaw = _MEANING.get(kind, "is of the wrong type")
    # 3. its value, as the file has it, before our validators changed it; None for a section: a
    # line has no room for all of its keys
    value = _value_in_file(data, keys, item["input"])
    value_shown = None if isinstance(value, dict | BaseModel) else repr(value)
    return Problem(path, flaw + cure, value_shown)


def _value_in_file(data: Any, keys: Path, otherwise: Any) -> Any:
    """Return a value as the file has it, or where it has none what was refused: a default, a list's item."""
    for key in keys:
        if not isinstance(data, Mapping) or key not in data:
            return otherwise
        data = data[key]
    return data


def section_of_items(field: FieldInfo | None) -> type[BaseModel] | None:
    """Return the section that each item of a key's list is.

    None: it is no list of sections, or `field` is None.
    """
    # the items of `tuple[CauseRule, ...]` are CauseRule
    item_types = get_args(field.annotation) if field is not None else ()
    if item_types and isinstance(item_types[0], type) and issubclass(item_types[0], BaseModel):
        return item_types[0]
    return None


class _LocatedKey(NamedTuple):
    """What a location of pydantic's means.

    Attributes:
        section: the innermost section that it leads into.
        field: the key of that section; None: the section as a whole, or a key that it does not
            have.
        keys: the path in the file.
    """

    section: type[BaseModel]
    field: FieldInfo | None
    keys: Path


def _locate_key(model: type[BaseModel], location: Path) -> _LocatedKey:
    """Return the innermost section, and the key of it, to which the path in an error of
    pydantic's leads.

    Of an input, ``("retry", "causes", "0", "max_ms")`` is the key ``max`` of a rule, and its path
    in the file ``retry.causes.0.max``. A part in parentheses, as ``(name)``, is a key that the file
    cannot set: it is left out of the path.
    """
    field: FieldInfo | None = None
    keys: Path = ()
    for part in location:
        if part.isdecimal() and field is not None:  # an item of a list
            item_section = section_of_items(field)
            if item_section is not None:
                model, field = item_section, None
            keys += (part,)
            continue
        field = _field_of(model, part)
        if not _is_not_for_file(part):
            # the file has the alias where Python's name is another one
            alias = None if field is None else field.alias
            keys += (alias or part,)
        if field is None:  # a key that the section does not have: nothing lies below it
            break
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model, field = field.annotation, None
    return _LocatedKey(model, field, keys)


def _field_of(model: type[BaseModel], name_or_alias: str) -> FieldInfo | None:
    """Return the field of a section by its name in Python or in the file; None: there is none."""
    for name, field in model.model_fields.items():
        if name_or_alias in (name, field.alias):
            return field
    return None
