"""Bytes that are no record, and records that decode and are wrong all the same, for the fuzzing tests.

`mutated` spoils bytes that were right; `values` builds any value of a record type from its annotations, with
numbers at the edges of their types; both prefer what comes deep into the code that reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import EnumType
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from hypothesis import strategies as st

from acker.wire.codec import Codec
from acker.wire.events import pack_positions
from acker.wire.verdict import Verdict
from replay.records.due import Due, Loss, Progress, due_codec
from tests.support import golden

EDGES = (0, 1, 2, 7, 8, 255, (1 << 15) - 1, 1 << 15, 1 << 16, 1 << 31, 1 << 48, 1 << 60, (1 << 63) - 1)
"""Numbers at which something ends; each is also tried negated."""

LONGS = st.one_of(
    st.integers(0, 40),
    st.sampled_from([sign * edge for edge in EDGES for sign in (1, -1)]),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
SPLICES = (
    b"", b"\x00", b"\xff", b"\x80" * 11, b"\xff" * 10 + b"\x01",  # truncated and overlong numbers
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x20",  # 2^60, as a count or a length
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # -2^63
    b"\x01", b"\x03", b"nan", b"[" * 40, b"{" * 40, bytes(range(32)), b"\xed\xa0\x80",
)  # fmt: skip
"""What `mutated` puts in: the pieces that random bytes would rarely hit upon."""

HEADERS = (
    ("windhover.origin", b"sentences/3@1042"), ("windhover.attempt", b"3"), ("windhover.abandoned", b"1"),
    ("windhover.reason", b"FAILED"), ("windhover.cause", b"ValueError: no"), ("windhover.operator", b"split"),
    ("windhover.first-emitted", b"1700000000000"),
)  # fmt: skip
LOSS = {
    "attempt": 1, "reason": "FAILED", "operator": "split", "error": "ValueError", "message": "no",
    "emitted_ms": 1, "age_ms": 2, "root": "sentences/3@1042",
}  # fmt: skip
HISTORY = json.dumps([LOSS, {**LOSS, "attempt": 2}]).encode()
JOURNAL = {
    "v": 1, "session": "s1", "epoch": 1, "now": 5, "tasks": 2,
    "sources": {"65536": {"from": 0, "next": 9, "gaps": [[1, 2]]}}, "ranges": [[65536, 0, 9]],
    "topics": {"sentences": "id"},
}  # fmt: skip
DUE = Due(
    65_539, 1_042, 99, "", "word-count", "sentences", "id", "sentences/3@1042", 2, 1, 77,
    (Loss(1, Verdict.FAILED, "split", "ValueError", "no", 1, 2, "sentences/3@1042"),),
)  # fmt: skip
YAML = (
    (Path(__file__).parents[2] / "topics.yaml").read_text(encoding="utf-8"),
    "inputs: {a: {id: 1, group: g, retry: {multiplier: .inf, jitter: .nan}}}",
    "inputs: {a: {id: .nan, group: .inf, timeout: 9999999999999d, start: 9999-99-99}}",
    'inputs: {a: {id: 1, group: g, start: "0001-01-01T00:00:00+23:59"}}',
    "inputs: {a: &a {id: 1, group: g}, b: {<<: *a, id: 2}}",
    "a: &a [*a]", "a: &a {<<: *a}", "a: 1:99::", "a: !!int x", "a: !!float 1_:", "a: 2001-99-99",
    "? [a]\n: b",
    "a: !!python/object/apply:os.system [echo]", "%YAML 9.9\n---\na: 1", "acker: {partitions: 1e999}",
)  # fmt: skip
"""Files that are right, and files that are wrong in a way of their own."""


@cache
def golden_records() -> Mapping[str, bytes]:
    """Return one right record of every kind, encoded."""
    waiting = {"due": DUE, "progress": Progress(7, 3)}
    return {
        **{name: bytes.fromhex(text) for name, text in golden.encoded().items()},
        **{name: due_codec().encode(value) for name, value in waiting.items()},
    }


@st.composite
def mutated(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """Draw one of some right records, spoilt in a few places; now and then it stays as it is."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        gone = draw(st.sampled_from((0, 1, 2, 8, len(data))))
        data = data[:at] + draw(st.sampled_from(SPLICES) | st.binary(max_size=9)) + data[at + gone :]
    return data


def garbage(codec: Codec[Any], kinds: Sequence[type], seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Draw bytes of any kind of wrongness; many begin with the header of one of `kinds`."""
    headers = st.sampled_from([codec.header(kind) for kind in kinds] + [b"", b"\xc3\x01" + bytes(8)])
    return st.one_of(
        mutated(seeds),
        st.builds(lambda header, body: header + body, headers, st.binary(max_size=200)),
        st.builds(
            lambda header, parts: header + b"".join(parts), headers, st.lists(st.sampled_from(SPLICES))
        ),
    )


def values(kind: Any, known: Mapping[str, st.SearchStrategy[Any]] | None = None) -> st.SearchStrategy[Any]:
    """Draw values of a record type, from its annotations.

    Args:
        kind: a dataclass or NamedTuple of the wire, or the type of a field of one.
        known: values for fields with these names, at any depth, instead of values of their types.
    """
    known = known or {}
    if get_origin(kind) is tuple:
        return st.lists(values(get_args(kind)[0], known), max_size=4).map(tuple)
    if isinstance(kind, EnumType):
        return st.sampled_from(list(kind))
    if get_origin(kind) is Literal:  # some of an enum's members
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
    if kind is int:
        return LONGS
    if kind is str:
        return st.sampled_from(("", "s1", "x" * 1_001, "\x00", "é" * 300)) | st.text(max_size=8)
    if kind is bytes:
        return packed() | st.binary(max_size=40)
    hints = get_type_hints(kind).items()
    fields = {name: known[name] if name in known else values(hint, known) for name, hint in hints}
    return st.builds(kind, **fields)


def packed() -> st.SearchStrategy[bytes]:
    """Draw packed positions: in order or not, repeated, negative, too far."""
    return st.lists(LONGS, max_size=6).map(lambda named: pack_positions(np.array(named, np.int64)))
