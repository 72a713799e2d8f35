"""Compares two topics.yaml: what the newer one changes, and which running processes must start again for it.

An input is the same in both files if its id is: records in Kafka have the id, and not the name. Inputs that
are left then are compared by name, and then by group and topic: such a pair is an input whose id was changed,
which is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from acker.config.effects import ADDED, EFFECTS, REMOVED, RENAMED, Effect, Process
from acker.config.problems import section_keys, section_of_items
from acker.config.settings import Input
from acker.config.topics import Topics
from acker.provisioning.describe import value_text


@dataclass(frozen=True, slots=True)
class Change:
    """One key with another value in the newer file, or an input that was added, removed or renamed.

    Attributes:
        path: the key, with the name that the input has in the newer file.
        what: the difference, for people: ``30s -> 1m``. Values of the section `kafka`, such as passwords,
            are not in it.
        effect: what the change asks of somebody.
    """

    path: str
    what: str
    effect: Effect

    def line(self) -> str:
        """Return the change as one line of text."""
        return f"{self.path}: {self.what}: {self.effect.text()}"


def changes_between(former: Topics, newer: Topics) -> list[Change]:
    """Return what the newer file changes, in the order of the file; a default counts as if written."""
    changes = list(_kafka_changes(former.kafka, newer.kafka))
    changes += _section_changes(former.acker, newer.acker, "acker.", "acker.")
    changes += _section_changes(former.replay, newer.replay, "replay.", "replay.")
    # inputs that are in both files
    pairs = _pairs_of_same_input(list(former.inputs.values()), list(newer.inputs.values()))
    for former_input, newer_input in pairs:
        changes += _input_changes(former_input, newer_input)
    kept_former_names = {former_input.name for former_input, _newer_input in pairs}
    kept_newer_names = {newer_input.name for _former_input, newer_input in pairs}
    for name in former.inputs:
        if name not in kept_former_names:
            changes.append(Change(f"inputs.{name}", "removed", REMOVED))
    for name in newer.inputs:
        if name not in kept_newer_names:
            changes.append(Change(f"inputs.{name}", "added", ADDED))
    return changes


def summary(changes: Iterable[Change]) -> list[str]:
    """Return lines on all changes together: who must start again, and for whom SIGHUP is enough."""
    allowed = [change.effect for change in changes if not change.effect.why_refused]
    starting = {process for effect in allowed for process in effect.start}
    reloading = {process for effect in allowed for process in effect.reload}
    # a process that must start again for one change takes all others with it
    reloading -= starting
    lines = []
    if starting:
        lines.append(f"start again: {_in_order(starting)}")
    if reloading:
        lines.append(f"SIGHUP, or start again: {_in_order(reloading)}")
    return lines or ["no process must start again"]


def _in_order(processes: Iterable[Process]) -> str:
    """Return the names of processes in the order of `Process`."""
    to_name = set(processes)
    return ", ".join(process for process in Process if process in to_name)


def _kafka_changes(former: Mapping[str, str], newer: Mapping[str, str]) -> Iterator[Change]:
    """Yield the settings of `kafka` that differ, without their values."""
    for name in sorted(former.keys() | newer.keys()):
        if former.get(name) == newer.get(name):
            continue
        if name not in former:
            change = "added"
        elif name not in newer:
            change = "removed"
        else:
            change = "another value"  # it may be a password
        yield Change(f"kafka.{name}", change, EFFECTS["kafka"])


def _section_changes(
    former: BaseModel, newer: BaseModel, path_prefix: str, table_prefix: str
) -> Iterator[Change]:
    """Yield the changes of a section and of the sections in it.

    Args:
        path_prefix: what stands before the section's keys for people: ``inputs.orders.``
        table_prefix: what stands before them in the table of effects: ``inputs.<name>.``
    """
    # a key of the file is the alias of an attribute, where Python has no such name
    attributes = {field.alias or name: name for name, field in type(newer).model_fields.items()}
    for key, field in section_keys(type(newer)).items():
        former_value = getattr(former, attributes[key])
        newer_value = getattr(newer, attributes[key])
        if isinstance(newer_value, BaseModel):  # a section in this one
            yield from _section_changes(
                former_value,
                newer_value,
                f"{path_prefix}{key}.",
                f"{table_prefix}{key}.",
            )
            continue
        if former_value == newer_value:
            continue
        is_list_of_rules = section_of_items(field) is not None
        if is_list_of_rules:
            change = "other rules"
        else:
            extra = field.json_schema_extra
            unit = str(extra["unit"]) if isinstance(extra, dict) else ""
            change = f"{value_text(former_value, unit)} -> {value_text(newer_value, unit)}"
        yield Change(f"{path_prefix}{key}", change, EFFECTS[f"{table_prefix}{key}"])


def _input_changes(former: Input, newer: Input) -> Iterator[Change]:
    """Yield the changes of one input, its name among them."""
    if former.name != newer.name:
        yield Change(f"inputs.{newer.name}", f"the name, {former.name} before", RENAMED)
    yield from _section_changes(former, newer, f"inputs.{newer.name}.", "inputs.<name>.")


def _pairs_of_same_input(former: list[Input], newer: list[Input]) -> list[tuple[Input, Input]]:
    """Return (former, newer) of each input that is in both files, in the order of the newer one."""
    # by the newer name: the input in both files
    pair_by_name: dict[str, tuple[Input, Input]] = {}
    # The id comes first: where two inputs have exchanged their names, each keeps its id, and is the same.
    for trait_of in (_id_of, _name_of, _reading_of):
        paired_names = {former_input.name for former_input, _newer in pair_by_name.values()}
        unpaired_by_trait = {
            trait_of(former_input): former_input
            for former_input in former
            if former_input.name not in paired_names
        }
        for newer_input in newer:
            trait = trait_of(newer_input)
            if newer_input.name not in pair_by_name and trait in unpaired_by_trait:
                pair_by_name[newer_input.name] = unpaired_by_trait[trait], newer_input
    return [pair_by_name[newer_input.name] for newer_input in newer if newer_input.name in pair_by_name]


def _id_of(input: Input) -> object:
    """Return an input's id, a trait by which inputs of two files are the same."""
    return input.id


def _name_of(input: Input) -> object:
    """Return an input's name, another such trait."""
    return input.name


def _reading_of(input: Input) -> object:
    """Return who reads what, the last such trait."""
    return input.group, input.topic
