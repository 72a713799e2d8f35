"""What is wrong with a configuration file: one line for each problem, all of them at once.

A line names file, line, key path, value and cure. Values of the section ``kafka`` and of unknown keys are
never shown: they may be secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, get_args

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
        """Write the problem in one line; `lines` has the line number of each key path, where it is known.

        `hide` takes the secrets out of what is said of the value.
        """
        number = line_of(self.path, lines)
        where = f"{file}:{number}" if number else file
        key = ".".join(str(UntrustedName(part)) for part in self.path)
        value = "" if self.value is None else hide(self.value)
        if len(value) > VALUE_CHARACTERS_MAX:  # not before: a part of a secret would not be found
            value = value[: VALUE_CHARACTERS_MAX - 1] + "…"
        shown = f" = {Untrusted(value)}" if value else ""
        text = hide(self.text)
        return f"{where}: {key}{shown}: {text}" if key else f"{where}: {text}"


def line_of(path: Path, lines: Mapping[Path, int]) -> int:
    """Return the line of a key, or of the section that it would stand in; 0 where nothing is known."""
    return next((lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in lines), 0)


def refuse(
    problems: Iterable[Problem],
    file: str,
    lines: Mapping[Path, int],
    hide: Callable[[str], str] = cut,
) -> None:
    """Raise all problems as one `ConfigError`, one line each, in the order of the file; if there are any.

    `hide` takes the secrets out of what a line says of a value.
    """
    found = sorted(set(problems), key=lambda problem: (line_of(problem.path, lines), problem.path))
    if not found:
        return
    shown = [problem.line(file, lines, hide) for problem in found[:PROBLEMS_MAX]]
    if len(found) > PROBLEMS_MAX:
        shown.append(f"{file}: {and_more(len(found) - PROBLEMS_MAX, 'problems')}")
    raise ConfigError("\n".join(shown))


def unknown_key(path: Path, allowed: Iterable[str]) -> Problem:
    """Describe a key that means nothing where it stands, with the nearest one that does."""
    keys = sorted(allowed)
    near = get_close_matches(path[-1], keys, n=1)
    cure = f"did you mean `{near[0]}`?" if near else f"the keys here are {', '.join(keys)}"
    return Problem(path, f"is not a key of this section; {cure}")


def section_keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys of a section as the file writes them, those that the file cannot set left out."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    return {key: field for key, field in fields.items() if allowed(field) and not key.startswith("(")}


def constants(model: type[BaseModel], data: Mapping[str, Any], above: Path) -> list[Problem]:
    """Return what to say of those keys of a section that are constants, with the values that hold."""
    settable, found = section_keys(model), []
    for name, field in model.model_fields.items():
        if (key := field.alias or name) in data and key not in settable and not key.startswith("("):
            value = duration_text(field.default) if name.endswith("_ms") else f"{field.default:,}"
            found.append(Problem((*above, key), f"is a constant now, {value}; remove the key"))
    return found


def allowed(field: FieldInfo) -> str:
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
    loc = tuple(str(part) for part in item["loc"])
    section, field, keys = _find(model, loc)
    if item["type"] == "extra_forbidden":
        return unknown_key(above + loc, section_keys(section))
    path = above + keys
    if isinstance(item["input"], Mapping | BaseModel) and item["type"] == "value_error" and field is None:
        return Problem(path, str(item["ctx"]["error"]))
    cure = f"; give {allowed(field)}" if field is not None and allowed(field) else ""
    if item["type"] == "missing":
        return Problem(path, f"is missing{cure}")
    if item["type"] == "value_error":
        what = str(item["ctx"]["error"])
    elif item["type"] in ("tuple_type", "list_type"):
        what = "must be a list, in brackets or with a dash before each"
    elif field is None or item["type"] in ("model_type", "dict_type", "mapping_type"):
        what = "must be a section: keys with values, indented below it"
    else:
        what = _MEANING.get(item["type"], "is of the wrong type")
    value = _written(data, keys, item["input"])
    return Problem(path, what + cure, None if isinstance(value, dict | BaseModel) else repr(value))


def _written(data: Any, keys: Path, otherwise: Any) -> Any:
    """Return a value as the file has it, or where it has none what was refused: a default, a list's item."""
    for key in keys:
        if not isinstance(data, Mapping) or key not in data:
            return otherwise
        data = data[key]
    return data


def items_of(field: FieldInfo | None) -> type[BaseModel] | None:
    """Return the section that each item of a key's list is; None where it is no list of sections."""
    kinds = get_args(field.annotation) if field is not None else ()
    return kinds[0] if kinds and isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel) else None


def _find(model: type[BaseModel], loc: Path) -> tuple[type[BaseModel], FieldInfo | None, Path]:
    """Find the innermost section, the key of it, and the path, that a location of pydantic speaks of."""
    field: FieldInfo | None = None
    path: Path = ()
    for part in loc:
        if part.isdecimal() and field is not None:  # an item of a list
            model, field = (items, None) if (items := items_of(field)) else (model, field)
            path += (part,)
            continue
        fields = model.model_fields
        field = next((found for name, found in fields.items() if part in (name, found.alias)), None)
        path += () if part.startswith("(") else ((field and field.alias) or part,)
        if field is None:
            break
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model, field = field.annotation, None
    return model, field, path
