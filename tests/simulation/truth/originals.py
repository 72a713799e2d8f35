"""What a copy or a dead letter must hold of the record that it stands for, made from the truth alone."""

from __future__ import annotations

import json
from typing import Any, Final

from acker.identity import is_replay, partition_of
from acker.kafka.port import Headers, Outgoing, Record
from acker.wire.causes import error_class
from acker.wire.verdict import Verdict
from replay.records.dead_letter import DEAD, KIP_PREFIX, MISSING, OUR_PREFIXES
from replay.records.due import HISTORY_MAX
from replay.records.headers import (
    ABANDONED,
    ATTEMPT,
    CAUSE,
    FIRST_EMITTED,
    HELD,
    HISTORY,
    OPERATOR,
    ORIGIN,
    PREFIX,
    REASON,
    TIMED_OUT,
    our_values,
    parse_location,
    parted_headers,
    plain_headers,
)
from replay.records.record_time import TIMESTAMP
from tests.simulation.truth.facts import RootTruth
from tests.simulation.truth.truth import Truth

GONE: Final = frozenset({b"GONE", b"RECREATED"})
"""Reasons of dead letters whose record could not be read any more."""

DROPPED: Final = b"DROPPED"
"""Reason of dead letters that keep the record's key alone."""


def content_flaw(truth: Truth, root: RootTruth, record: Outgoing, *, dead: bool) -> str:
    """Say what of a root's record does not stand in its copy or dead letter; empty when all of it does."""
    own, ours = parted_headers(record.headers, OUR_PREFIXES if dead else (PREFIX,))
    headers = dict(ours)
    original = truth.original(root)
    if dead and headers.get(DEAD) in GONE:
        silent = record.key is None and record.value is None and headers.get(MISSING)
        return "" if silent else "it has a payload or says of none, though its record is gone"
    if original is None:
        return "there never was a record"
    if dead and headers.get(DEAD) == DROPPED:
        kept = (record.value, own, record.key)
        return (
            "" if kept == (None, (), original.key) else "it is dropped, and keeps more or less than its key"
        )
    topic = truth.input_of(root).dead_letter.topic if dead else truth.input_of(root).replay_topic
    count = len(truth.cluster.topic(topic).partitions)
    stamp: object = headers.get(TIMESTAMP) if dead else record.timestamp_ms
    pairs = {
        "value": (record.value, original.value),
        "key": (record.key, original.key),
        "headers": (own, _own(root, original)),
        "partition": (record.partition, partition_of(root.source) % count),
        "timestamp": (stamp, b"%d" % original.timestamp_ms if dead else original.timestamp_ms),
    }
    return _difference(pairs)


def story_flaw(truth: Truth, root: RootTruth, record: Outgoing, *, dead: bool) -> str:
    """Say what of a record's past its copy or dead letter does not tell; empty when it tells all."""
    told = parted_headers(record.headers, OUR_PREFIXES if dead else (PREFIX,)).added
    ours = [name for name, _ in told]
    headers = dict(told)
    if dead and headers.get(DEAD) in GONE and is_replay(root.source):
        return ""  # what was before stood in the headers of a record that is no longer there
    if len(ours) != len(set(ours)):
        return f"it has a header twice: {ours}"
    wanted = _lineage(root, attempt=root.attempt if dead else root.attempt + 1)
    if dead:
        wanted |= _of_letter(root)
        if not headers.get(f"{KIP_PREFIX}message"):
            return "it does not say why it is here"
    found = {name: headers.get(name, wanted[name] and b"") or b"" for name in wanted}
    flaw = _difference({name: (found[name], value) for name, value in wanted.items()})
    return flaw or _first_emitted_flaw(truth, root, headers) or _history_flaw(root, headers.get(HISTORY))


def _own(root: RootTruth, original: Record) -> Headers:
    """Return what a root's record came with, as a client can write it: on a source topic all that it has."""
    own = parted_headers(original.headers).original if is_replay(root.source) else original.headers
    return plain_headers(own)


def _difference(pairs: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(
        f"{name} is {found!r}, should be {wanted!r}"
        for name, (found, wanted) in pairs.items()
        if found != wanted
    )


def _lineage(root: RootTruth, attempt: int) -> dict[str, bytes]:
    """Return the headers that tell what became of the emissions so far."""
    lost, emissions = root.lost, root.emissions
    if lost is None:
        return {}
    timed_out = sum(each.verdict == Verdict.TIMED_OUT for each in emissions)
    held = sum(each.was_held for each in emissions)
    cause = ": ".join(part for part in (error_class(lost.error), lost.message) if part)
    return {
        ORIGIN: root.origin.encode(),
        ATTEMPT: b"%d" % attempt,
        REASON: str(root.verdict).encode(),
        OPERATOR: lost.operator.encode(),
        CAUSE: cause.encode(),
        ABANDONED: b"%d" % sum(each.verdict == Verdict.ABANDONED for each in emissions),
        TIMED_OUT: b"%d" % timed_out if timed_out else b"",
        HELD: b"%d" % held if held else b"",
    }


def _of_letter(root: RootTruth) -> dict[str, bytes]:
    """Return the headers of KIP-1191: where the record was emitted first, who gave up, and when."""
    topic, partition, offset = parse_location(root.origin) or ("", 0, 0)
    return {
        f"{KIP_PREFIX}topic": topic.encode(),
        f"{KIP_PREFIX}partition": b"%d" % partition,
        f"{KIP_PREFIX}offset": b"%d" % offset,
        f"{KIP_PREFIX}group": root.group.encode(),
        f"{KIP_PREFIX}delivery.count": b"%d" % root.attempt,
    }


def _first_emitted_flaw(truth: Truth, root: RootTruth, headers: dict[str, bytes | None]) -> str:
    """Compare with the first emission; of one that no bolt has seen, the time begins when it comes again."""
    told = int(headers.get(FIRST_EMITTED) or -1)
    if all(each.was_held for each in root.emissions):
        first, last = (root.verdict_ms - truth.skew_ms_max, truth.now_ms + truth.skew_ms_max)
        return "" if first <= told <= last else f"{FIRST_EMITTED} is {told}, not in [{first}, {last}]"
    before: Record | None = truth.original(root) if root.parent is not None else None
    wanted = root.wall if before is None else int(our_values(before.headers).get(FIRST_EMITTED) or -1)
    return "" if told == wanted else f"{FIRST_EMITTED} is {told}, should be {wanted}"


def _history_flaw(root: RootTruth, told: bytes | None) -> str:
    """Compare with one entry for each emission; what was held in a row has one, and the middle may be cut."""
    wanted: list[dict[str, object]] = []
    was_held = False
    for each in root.emissions:
        if was_held and each.was_held:
            wanted.pop()
        was_held = each.was_held
        wanted.append(_loss(each))
    found = json.loads(told or b"[]")
    if len(wanted) > HISTORY_MAX >= len(found) > 1:  # how the middle is told is not for us to say
        wanted, found = [wanted[0], wanted[-1]], [found[0], found[-1]]
    return "" if found == wanted else f"its history is {found}, should be {wanted}"


def _loss(root: RootTruth) -> dict[str, object]:
    lost = root.lost
    if lost is None:
        return {}
    return {
        "attempt": root.attempt,
        "reason": str(root.verdict),
        "operator": lost.operator,
        "error": error_class(lost.error),
        "message": lost.message,
        "emitted_ms": max(0, root.wall),
        "age_ms": max(0, lost.decided_at - lost.emitted_at),
        "root": root.location,
    }
