"""Which records of a batch were isolated, by name; pure.

A task knows a root by its index; the driver has the batch's plan, and so the record's place in its topic.

Source: docs/design/protocol.md, section 3 rule 11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from acker.config.topics import Input
from acker.identity import input_id_of, offset_of, partition_of
from replay.records.headers import location
from spout.group.sources import topic_names
from spout.planning.plan import BatchPlan
from spout.publishing.fold import Outcome
from spout.tuples.collector import Cause
from spout.tuples.culprits import HUNG, WORKER_DIED

LOGGED_MAX: Final = 100
"""Isolated records of one batch that are logged by name; more are counted only."""


class IsolatedRecord(NamedTuple):
    """A record that ended or hung a process: its place, ``topic/partition@offset``, and why it failed."""

    place: str
    cause: Cause


def isolated_records(outcome: Outcome, inputs: Sequence[Input]) -> Iterator[IsolatedRecord]:
    """Name what was isolated in a batch; inputs that are not known leave their source's number."""
    place = places(outcome.plan, inputs)
    for cause, roots in outcome.failed:
        if cause.error not in (WORKER_DIED, HUNG):
            continue
        for root in roots.tolist():
            yield IsolatedRecord(place(root), cause)


def places(plan: BatchPlan, inputs: Sequence[Input]) -> Callable[[int], str]:
    """Return what names the record of a root, by its index: ``topic/partition@offset``."""
    known = {each.id for each in inputs}
    topics = topic_names(inputs, (run for run in plan.ranges if input_id_of(run.source) in known))
    firsts = plan.starts()

    def place(root: int) -> str:
        at = max(number for number, first in enumerate(firsts) if first <= root)
        run = plan.ranges[at]
        offset = offset_of(run.start + root - firsts[at])
        return location(topics.get(run.source, str(run.source)), partition_of(run.source), offset)

    return place


def counted(outcome: Outcome) -> Mapping[str, int]:
    """Count the isolated records of a batch, by error."""
    found: dict[str, int] = {}
    for cause, roots in outcome.failed:
        if cause.error in (WORKER_DIED, HUNG):
            found[cause.error] = found.get(cause.error, 0) + len(roots)
    return found
