"""Odd values of the types that Spark gives a store: the ends of their ranges, and what programs trip over."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

NEW_YORK: Final = "America/New_York"

ODD_VALUES: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "tinyint": (pa.int8(), [-128, 127]),
    "int": (pa.int32(), [-(1 << 31), (1 << 31) - 1]),
    "bigint": (pa.int64(), [0, 5, -(1 << 63), (1 << 63) - 1, (1 << 53) + 1, (1 << 40), (1 << 24) + 1]),
    "float": (pa.float32(), [0.1, 1.5, 3.4e38, 1e-45, float("nan"), float("inf")]),
    "double": (
        pa.float64(),
        [0.0, -0.0, 1.0, 0.1, 0.1 + 0.2, 1e300, 5e-324, 2.0**60, float("nan"), float("inf"), -float("inf")],
    ),
    "decimal": (
        pa.decimal128(38, 18),
        [Decimal(0), Decimal("1.25"), Decimal("1e-18"), Decimal("-99999999999999999999.999999999999999999")],
    ),
    "long decimal": (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal("-1" + "0" * 37), Decimal(3)]),
    # digits behind the 28th, which Python's arithmetic rounds away
    "decimal of many digits": (
        pa.decimal128(38, 21),
        [Decimal(f"12345678901234567.{'0' * 20}1"), Decimal("-10000000000.5" + "0" * 14 + "5")],
    ),
    "longest decimal": (pa.decimal256(76, 58), [Decimal("1." + "0" * 57 + "1")]),
    "string": (
        pa.string(),
        [
            *["", " ", "a", "007", "1e3", " 5 ", "+1.", ".5", "0x10", "nan", "true", "false", "NULL"],
            *["\\N", "\\x41", "a\0b", "line\r\n\t", "ä\U0001f985", "e\u0301", "x  ", "{}", "[1]"],
            *['{"a":1}', "2026-01-01", "a" * 300],
        ],
    ),
    "binary": (pa.binary(), [b"", b"a", b"\0\xff", b"007", b"\\x41"]),
    "date": (pa.date32(), [date(1, 1, 1), date(1582, 10, 4), date(1970, 1, 1), date(9999, 12, 31)]),
    "timestamp": (
        pa.timestamp("us", NEW_YORK),
        [
            datetime(2, 1, 1, tzinfo=UTC),
            datetime(1582, 10, 4, 1, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
            # the same hour of the clock once more
            datetime(2026, 11, 1, 6, 30, tzinfo=UTC),
            datetime(9999, 12, 31, 23, tzinfo=UTC),
        ],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [datetime(1, 1, 1), datetime(2026, 3, 8, 2, 30, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)],
    ),
    "time": (pa.time64("us"), [time(0), time(23, 59, 59, 999_999)]),
    "interval": (
        pa.duration("us"),
        [timedelta(0), timedelta(days=-1, microseconds=1), timedelta(days=10**6)],
    ),
    "array": (pa.list_(pa.string()), [[], [None], ["a", None, 'quote " \\ {,}', "NULL", ""]]),
    "array of numbers": (pa.list_(pa.float64()), [[], [0.1, None, float("nan")], [1.0]]),
    "array of bytes": (pa.list_(pa.binary()), [[b"\xff", None]]),
    "array of times": (pa.list_(pa.timestamp("us", NEW_YORK)), [[datetime(2026, 1, 1, tzinfo=UTC)]]),
    "array of arrays": (pa.list_(pa.list_(pa.int64())), [[], [[1, 2], [3, 4]], [[1], [2, 3]], [[]], [None]]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": None, "b": None}, {"a": (1 << 53) + 1, "b": "a\0b"}],
    ),
    "struct of others": (
        pa.struct([("t", pa.timestamp("us", NEW_YORK)), ("d", pa.decimal128(38, 18)), ("x", pa.binary())]),
        [{"t": datetime(2026, 1, 1, tzinfo=UTC), "d": Decimal("0.1"), "x": b"\xff"}],
    ),
    "array of structs": (pa.list_(pa.struct([("a", pa.float64())])), [[], [None], [{"a": float("nan")}]]),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("k", None), ("", 1 << 40)]]),
    "map of numbers": (pa.map_(pa.int64(), pa.string()), [[(1, "a"), (-1, None)]]),
    "map of times": (
        pa.map_(pa.timestamp("us", NEW_YORK), pa.int64()),
        # two keys that Python takes for one: the same hour of the clock, twice
        [[(datetime(2026, 11, 1, 5, 30, tzinfo=UTC), 1), (datetime(2026, 11, 1, 6, 30, tzinfo=UTC), 2)]],
    ),
}  # fmt: skip
"""By the name of a type of Spark: Arrow's type, and values of it."""
