"""What a newer topics.yaml changes, and which processes of an installation that runs must start again for it.

Inputs are the same where they have the same id, whatever they are called: the id is what Kafka's topics have
of them. Where no id fits, the same name, or the same group and topic, is an input whose id was changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from acker.config.effects import ADDED, EFFECTS, REMOVED, RENAMED, Effect, Process
from acker.config.problems import items_of, section_keys
from acker.config.settings import Input
from acker.config.topics import Topics
from acker.provisioning.describe import value_text


@dataclass(frozen=True, slots=True)
class Change:
    """One key that the newer file has another value for, or one input.

    Attributes:
        path: the key, with the name that the input has in the newer file.
        what: what is another, as text for people; no value of the section `kafka`.
    """

    path: str
    what: str
    effect: Effect

    def line(self) -> str:
        return f"{self.path}: {self.what}: {self.effect.text()}"


def changes_between(former: Topics, newer: Topics) -> list[Change]:
    """Return what the newer file changes, in the order of the file; a default counts as if written."""
    found = list(_kafka_changes(former.kafka, newer.kafka))
    found += _section_changes(former.acker, newer.acker, "acker.", "acker.")
    found += _section_changes(former.replay, newer.replay, "replay.", "replay.")
    pairs = _pairs(list(former.inputs.values()), list(newer.inputs.values()))
    for before, after in pairs:
        found += _input_changes(before, after)
    kept = {before.name for before, _after in pairs}
    found += [Change(f"inputs.{name}", "removed", REMOVED) for name in former.inputs if name not in kept]
    new = newer.inputs.keys() - {after.name for _before, after in pairs}
    found += [Change(f"inputs.{name}", "added", ADDED) for name in newer.inputs if name in new]
    return found


def summary(changes: Iterable[Change]) -> list[str]:
    """Return lines on all changes together: who starts again, and who has the choice of SIGHUP."""
    allowed = [change.effect for change in changes if not change.effect.never]
    starting = {process for effect in allowed for process in effect.start}
    reloading = {process for effect in allowed for process in effect.reload} - starting
    lines = []
    if starting:
        lines.append(f"start again: {_in_order(starting)}")
    if reloading:
        lines.append(f"SIGHUP, or start again: {_in_order(reloading)}")
    return lines or ["no process must start again"]


def _in_order(processes: Iterable[Process]) -> str:
    chosen = set(processes)
    return ", ".join(process for process in Process if process in chosen)


def _kafka_changes(former: Mapping[str, str], newer: Mapping[str, str]) -> Iterator[Change]:
    for name in sorted(former.keys() | newer.keys()):
        if former.get(name) == newer.get(name):
            continue
        what = "added" if name not in former else "removed" if name not in newer else "another value"
        yield Change(f"kafka.{name}", what, EFFECTS["kafka"])


def _section_changes(former: BaseModel, newer: BaseModel, shown: str, key_above: str) -> Iterator[Change]:
    """Yield the changes of a section and those within it; `shown` and `key_above` stand before its keys.

    `shown` has the input's name where `key_above`, by which the table is read, has ``<name>``.
    """
    names = {field.alias or name: name for name, field in type(newer).model_fields.items()}
    for key, field in section_keys(type(newer)).items():
        before, after = getattr(former, names[key]), getattr(newer, names[key])
        if isinstance(after, BaseModel):
            yield from _section_changes(before, after, f"{shown}{key}.", f"{key_above}{key}.")
            continue
        if before == after:
            continue
        what = "other rules"
        if items_of(field) is None:
            extra = field.json_schema_extra
            unit = str(extra["unit"]) if isinstance(extra, dict) else ""
            what = f"{value_text(before, unit)} -> {value_text(after, unit)}"
        yield Change(f"{shown}{key}", what, EFFECTS[f"{key_above}{key}"])


def _input_changes(former: Input, newer: Input) -> Iterator[Change]:
    if former.name != newer.name:
        yield Change(f"inputs.{newer.name}", f"the name, {former.name} before", RENAMED)
    yield from _section_changes(former, newer, f"inputs.{newer.name}.", "inputs.<name>.")


def _pairs(former: list[Input], newer: list[Input]) -> list[tuple[Input, Input]]:
    """Return (former, newer) of each input that is in both files, in the order of the newer one."""
    pairs: dict[str, tuple[Input, Input]] = {}
    # the id decides: a name may have gone over to another input, and ids are what the topics have
    for same in (_id_of, _name_of, _reading_of):
        paired = {before.name for before, _after in pairs.values()}
        left = {same(before): before for before in former if before.name not in paired}
        for after in newer:
            if after.name not in pairs and same(after) in left:
                pairs[after.name] = left[same(after)], after
    return [pairs[after.name] for after in newer if after.name in pairs]


def _id_of(one: Input) -> object:
    return one.id


def _name_of(one: Input) -> object:
    return one.name


def _reading_of(one: Input) -> object:
    return one.group, one.topic
