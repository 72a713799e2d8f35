"""Records that are allowed and that nobody expects: of each kind one, and what a reader must see of it.

Who reads a topic must come through each of them: the record is handed out with what can be read, or it has a
verdict and a place; its neighbours are not touched. `ODD_RECORDS` has one of each kind, `odd_record` draws
one.

Kinds of other origin have modules of their own: a damaged batch is `tests.support.damage`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from acker.kafka.port import Headers, Outgoing, TopicPartition, UnreadableName
from tests.support.garbage import golden_records
from tests.support.memory.partition import MemoryPartition
from tests.support.raw_records import RawRecord


class HasPartitions(Protocol):
    """The in-memory cluster, as far as it is needed here."""

    now_ms: int

    def partition(self, name: TopicPartition) -> MemoryPartition: ...


NO_UTF8: Final = b"\xff\xfe"
HALF_A_CHARACTER: Final = b"ab\xc3"
A_SURROGATE: Final = b"\xed\xa0\x80"
"""UTF-8 has no form for half of a pair of UTF-16; some encoders write one all the same."""

HUGE_BYTES: Final = 900_000
"""Below the megabyte that a broker takes by default."""

MANY_HEADERS: Final = 5_000

OUR_NAMES: Final = (
    *(
        f"windhover.{name}"
        for name in (
            "abandoned", "attempt", "audit", "by", "cause", "clock", "cluster", "dead", "deadlines",
            "first-emissions", "first-emitted", "handled", "held", "history", "late-total",
            "leader-epochs", "leaves", "letter", "missing", "operator", "origin", "own",
            "passed-calls", "reads", "reason", "record-id", "redrive", "restored", "shared", "stack",
            "stacks", "timed-out", "timestamp", "too-late", "traces", "unreadable-names", "until",
            "who", "why",
        )
    ),
    *(
        f"__dlq.errors.{name}"
        for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
    ),
)  # fmt: skip
"""Headers that Windhover writes, to one topic or another."""


@dataclass(frozen=True, slots=True)
class OddRecord:
    """A kind of record.

    Attributes:
        kind: its name in tests.
        record: as it is written, past any client (`tests.support.raw_records.produce`).
        headers: what a reader must see of its headers.
        can_be_copied: whether a client can write a record with all that it has.
    """

    kind: str
    record: RawRecord
    headers: Headers

    @property
    def can_be_copied(self) -> bool:
        return not any(isinstance(name, UnreadableName) for name, _ in self.headers)


def append_odd(cluster: HasPartitions, place: TopicPartition, odd: OddRecord) -> int:
    """Let an in-memory partition hold a record as a program of others wrote it; return its offset."""
    raw = odd.record
    stored = Outgoing(*place, raw.value, raw.key, odd.headers, raw.timestamp_ms)
    return cluster.partition(place).append(stored, cluster.now_ms)


def odd_headers(kind: str, headers: Sequence[tuple[bytes, bytes | None]], seen: Sequence[str]) -> OddRecord:
    """Make a kind that is odd in its headers; `seen` are their names as a reader must see them."""
    shown: Headers = tuple((name, value) for name, (_, value) in zip(seen, headers, strict=True))
    return OddRecord(kind, RawRecord(b"v", b"k", tuple(headers)), shown)


def _unreadable(name: bytes | None) -> str:
    return UnreadableName.of(name)


NAMES: Final = (
    odd_headers("name_no_utf8", [(NO_UTF8, b"1")], [_unreadable(NO_UTF8)]),
    odd_headers("name_half_a_character", [(HALF_A_CHARACTER, b"1")], [_unreadable(HALF_A_CHARACTER)]),
    odd_headers("name_a_surrogate", [(A_SURROGATE, b"1")], [_unreadable(A_SURROGATE)]),
    odd_headers("name_bad_without_value", [(NO_UTF8, None)], [_unreadable(NO_UTF8)]),
    odd_headers("name_bad_first", [(NO_UTF8, b"1"), (b"b", b"2")], [_unreadable(NO_UTF8), "b"]),
    odd_headers("name_bad_last", [(b"a", b"1"), (NO_UTF8, b"2")], ["a", _unreadable(NO_UTF8)]),
    odd_headers(
        "name_bad_amid_others",
        [("é".encode(), b""), (NO_UTF8, b"1"), (b"a", None), (b"a", b"\xff")],
        ["é", _unreadable(NO_UTF8), "a", "a"],
    ),
    odd_headers(
        "names_bad_several",
        [(NO_UTF8, b"1"), (b"a", b"2"), (HALF_A_CHARACTER, b"3"), (NO_UTF8, None)],
        [_unreadable(NO_UTF8), "a", _unreadable(None), _unreadable(None)],
    ),
    odd_headers(
        "name_of_ours_spoilt", [(b"windhover.origin\xff", b"x")], [_unreadable(b"windhover.origin\xff")]
    ),
    odd_headers("name_empty", [(b"", b"1")], [""]),
    odd_headers("name_twice", [(b"a", b"1"), (b"a", b"2")], ["a", "a"]),
    odd_headers("name_with_a_newline", [(b"a\nb", b"1")], ["a\nb"]),
)
VALUES_OF_HEADERS: Final = (
    odd_headers("header_without_value", [(b"a", None)], ["a"]),
    odd_headers("header_empty", [(b"a", b"")], ["a"]),
    odd_headers("header_no_utf8", [(b"a", NO_UTF8)], ["a"]),
    odd_headers("header_huge", [(b"a", b"h" * HUGE_BYTES)], ["a"]),
    odd_headers("headers_many", [(b"a", b"1")] * MANY_HEADERS, ["a"] * MANY_HEADERS),
    odd_headers("ours_garbage", [(b"windhover.attempt", b"\xff"), (b"windhover.origin", None)],
                ["windhover.attempt", "windhover.origin"]),
    *(
        odd_headers(f"ours_all_{kind}", [(name.encode(), value) for name in OUR_NAMES], OUR_NAMES)
        for kind, value in (("none", None), ("empty", b""), ("no_utf8", NO_UTF8), ("negative", b"-1"),
                            ("long", b"9" * 300), ("nested", b"[" * 300), ("object", b'{"a": [null]}'),
                            ("largest", b"9" * 15), ("zero", b"0"), ("one", b"1"), ("place", b"a/0@0"),
                            ("half_a_pair", b'["\\ud800", {"\\udfff": "\\ud800"}]'),
                            ("no_number", b"[NaN, 1e999]"), ("null_byte", b"a\0b"))
    ),
    OddRecord("ours_of_nothing", RawRecord(None, b"k", ((b"windhover.cluster", b"there"),)),
              (("windhover.cluster", b"there"),)),
)  # fmt: skip
KEYS: Final = (
    OddRecord("key_none", RawRecord(b"v", None), ()),
    OddRecord("key_empty", RawRecord(b"v", b""), ()),
    OddRecord("key_no_utf8", RawRecord(b"v", NO_UTF8), ()),
    OddRecord("key_with_newlines", RawRecord(b"v", b"a\nb\r\n\x00"), ()),
    OddRecord("key_huge", RawRecord(b"v", b"k" * HUGE_BYTES), ()),
)
VALUES: Final = (
    OddRecord("value_none", RawRecord(None, b"k"), ()),
    OddRecord("value_empty", RawRecord(b"", b"k"), ()),
    OddRecord("value_garbage", RawRecord(b"\xc3\x01" + bytes(range(40)), b"k"), ()),
    OddRecord("value_no_utf8", RawRecord(NO_UTF8 * 50, b"k"), ()),
    OddRecord("value_huge", RawRecord(b"x" * HUGE_BYTES, b"k"), ()),
)
ODD_RECORDS: Final = (*NAMES, *VALUES_OF_HEADERS, *KEYS, *VALUES)


def cut_short(kind: str, record: bytes, key: bytes | None, headers: Headers = ()) -> list[OddRecord]:
    """Return a record of ours cut short behind each of its bytes but the last, with the same key."""
    return [
        OddRecord(f"{kind}_cut_at_{size}", RawRecord(record[:size], key), headers)
        for size in range(len(record))
    ]


OWN_KINDS: Final = {"ack_verdict": ("verdicts",), "ack_due": ("due", "progress")}
"""The kinds of records of such a topic: who reads another one there stops at it, as at a newer version."""


def cut_golden(topic: str) -> list[OddRecord]:
    """Return records of ours of each kind that does not stop the readers of a topic, cut short."""
    golden = golden_records()
    kinds = next((kinds for name, kinds in OWN_KINDS.items() if topic.endswith(name)), tuple(golden))
    return [odd for kind in kinds for odd in cut_short(kind, golden[kind], b"k")]


_NAME_PARTS: Final = (
    b"a",
    b"",
    "é".encode(),
    b"windhover.",
    NO_UTF8,
    HALF_A_CHARACTER,
    A_SURROGATE,
    b"\n",
    b"x" * 40,
)
TIMES_MS: Final = (
    None,
    -1,
    0,
    1,
    1_700_000_000,
    1_700_000_000_000,
    1_700_000_000_000_000,
    1_700_000_000_000_000_000,
    4_102_444_800_000,
    253_402_300_800_000,
    2**63 - 1,
)
"""None is now; then no time, the epoch, seconds, ms, µs and ns of 2023, years 2100 and 10000, the last."""

_BYTES: Final = (None, b"", b"v", NO_UTF8, b"a\nb", b"\xc3\x01" + bytes(8), b"z" * 300)


def odd_record(random_: random.Random) -> OddRecord:
    """Draw a record that is odd in any of its parts, or in none."""
    headers = [
        (b"".join(random_.choices(_NAME_PARTS, k=random_.randrange(3))), random_.choice(_BYTES))
        for _ in range(random_.choice((0, 0, 1, 2, 8)))
    ]
    drawn = RawRecord(
        random_.choice(_BYTES), random_.choice(_BYTES), tuple(headers), random_.choice(TIMES_MS)
    )
    return OddRecord("drawn", drawn, headers_as_read(headers))


def headers_as_read(headers: Sequence[tuple[bytes, bytes | None]]) -> Headers:
    """Return headers as a reader must show them: of bad names only the first one's bytes are known."""
    shown: list[tuple[str, bytes | None]] = []
    is_first = True
    for name, value in headers:
        try:
            shown.append((name.decode(), value))
        except UnicodeDecodeError:
            shown.append((UnreadableName.of(name if is_first else None), value))
            is_first = False
    return tuple(shown)
