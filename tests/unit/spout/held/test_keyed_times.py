"""Times of a keyed bolt: read with the zone of the session, out of Spark's numbers and out of old states."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

import spout
from spout.bolts.keyed_bolt import KeyedTuple
from spout.held.keyed_exit import EMITTED, REPORT
from spout.held.keyed_rows import TUPLE, KeyedTask, KeyForm
from spout.held.keyed_values import TupleDecoder, has_times, needs_encoding, nested_array_within
from spout.spark.versions import FRAMES_KEEP_WHOLE_NUMBERS
from spout.tuples.columns import ANCHOR
from tests.support.fake_state import FakeState

ZONE = "America/New_York"
NEW_YORK = ZoneInfo(ZONE)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AT = TimestampType()
KIND = StructType(
    [
        StructField("at", AT), StructField("n", LongType()), StructField("ntz", TimestampNTZType()),
        StructField("all", ArrayType(AT)), StructField("named", StructType([StructField("at", AT)])),
        StructField("by", MapType(StringType(), AT)), StructField("from", MapType(AT, LongType())),
    ]
)  # fmt: skip

INSTANTS = [
    datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC), datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
    datetime(2026, 11, 1, 6, 30, tzinfo=UTC), datetime(1883, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(2050, 7, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]  # fmt: skip


SINCE_1970 = datetime(2026, 1, 1) - datetime(1970, 1, 1)


def micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def arriving(at: datetime) -> dict[str, Any]:
    """Return a tuple as Spark hands it in."""
    us = micros(at)
    return {
        "at": us, "n": us, "ntz": SINCE_1970, "all": np.array([us, None], object),
        "named": {"at": us}, "by": {b"k": us, b"none": None}, "from": {us: 7},
    }  # fmt: skip


@pytest.mark.parametrize("at", INSTANTS)
def test_each_time_of_a_tuple_has_the_zone_and_is_its_instant(at: datetime) -> None:
    """O907: an hour of autumn and the first day of all years as well; also behind a state."""
    read = TupleDecoder(KIND, ZONE).decode(arriving(at))
    [key] = read["from"]
    for found in (read["at"], read["all"][0], read["named"]["at"], read["by"]["k"], key):
        for time in (found, pickle.loads(pickle.dumps(found, protocol=5))):
            assert isinstance(time, pd.Timestamp)
            assert micros(time.to_pydatetime(warn=False)) == micros(at)
    assert (read["n"], read["ntz"], read["all"][1], read["by"]["none"]) == (
        micros(at), pd.Timestamp("2026-01-01"), None, None,
    )  # fmt: skip


def test_the_clock_shows_local_time() -> None:
    """O907: and not UTC's."""
    read = TupleDecoder(KIND, ZONE).decode(arriving(INSTANTS[0]))
    assert read["at"].isoformat() == "2026-01-01T07:00:00.000005-05:00"


def test_nulls_stay_nulls_and_a_stream_without_times_is_not_touched() -> None:
    nothing = dict.fromkeys(KIND.names)
    assert TupleDecoder(KIND, ZONE).decode(nothing) == nothing
    plain = StructType([StructField("is", BooleanType()), StructField("all", ArrayType(BooleanType()))])
    values = {"is": True, "all": np.array([True])}
    assert not has_times(plain)
    assert not needs_encoding(plain)
    assert TupleDecoder(plain, ZONE).decode(values) is values


def test_a_time_beyond_pythons_years_is_refused() -> None:
    with pytest.raises(OverflowError):
        TupleDecoder(KIND, ZONE).decode(arriving(INSTANTS[0]) | {"at": 2**62})


FORMS = StructType(
    [
        StructField("text", StringType()), StructField("texts", ArrayType(StringType())),
        StructField("by", MapType(StringType(), DateType())), StructField("day", DateType()),
        StructField("local", TimestampNTZType()), StructField("locals", ArrayType(TimestampNTZType())),
        StructField("ratios", ArrayType(DoubleType())), StructField("narrow", ArrayType(FloatType())),
        StructField("named", StructType([StructField("n", LongType()), StructField("text", StringType())])),
    ]
)  # fmt: skip


def test_a_value_is_read_from_its_form_and_a_null_beside_it_stays_one() -> None:
    """O810: a null among numbers became NaN; the second half of each array is a null."""
    form = {
        "text": "é".encode(), "texts": np.array([b"a", None], object), "by": {b"k": -1, b"l": None}, "day": 0,
        "local": SINCE_1970, "locals": np.array([SINCE_1970, None], "timedelta64[us]"),
        "ratios": [{"v": 1.5}, {"v": None}, {"v": float("nan")}], "narrow": [{"v": 1.5}, {"v": 2.0}],
        "named": {"n": 7, "text": b"b"},
    }  # fmt: skip
    values = pickle.loads(pickle.dumps(TupleDecoder(FORMS, ZONE))).decode(form)
    assert values["text"] == "é"
    assert values["texts"].tolist() == ["a", None]
    assert values["by"] == {"k": date(1969, 12, 31), "l": None}
    assert values["day"] == date(1970, 1, 1)
    assert values["local"] == pd.Timestamp("2026-01-01")
    assert values["locals"].tolist() == [pd.Timestamp("2026-01-01"), None]
    assert values["ratios"].tolist()[:2] == [1.5, None]
    assert np.isnan(values["ratios"][2])
    assert values["narrow"].dtype == np.float32
    assert values["named"] == {"n": 7, "text": "b"}


@pytest.mark.parametrize(
    ("form", "error", "says"),
    [
        ({"text": b"\xff"}, UnicodeDecodeError, "can't decode byte 0xff"),
        ({"texts": np.array([b"a", b"\xff"], object)}, UnicodeDecodeError, "can't decode byte 0xff"),
        ({"by": {b"\xff": 1}}, UnicodeDecodeError, "can't decode byte 0xff"),
        ({"named": {"n": 7, "text": b"\xff"}}, UnicodeDecodeError, "can't decode byte 0xff"),
        ({"day": 3_000_000}, OverflowError, "a date lies 3000000 days behind 1970"),
        ({"day": -800_000}, OverflowError, "a date lies -800000 days behind 1970"),
        ({"day": (1 << 31) - 1}, OverflowError, "Python has the years 1 to 9999 alone"),
        ({"local": timedelta(microseconds=1 << 62)}, OverflowError, f"a time lies {1 << 62} µs behind 1970"),
    ],
)
def test_a_form_that_is_no_value_of_python_is_refused(
    form: dict[str, Any], error: type[Exception], says: str
) -> None:
    """O810: each of them ended the query, at each start."""
    with pytest.raises(error, match=re.escape(says)):
        TupleDecoder(FORMS, ZONE).decode(form)


class Shows(spout.KeyedBolt):
    """Emits the times that it holds, and that of its key."""

    output = "us bigint"

    def __init__(self, keys: list[Any]) -> None:
        """Note the keys."""
        self.keys = keys

    def execute(
        self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Emit them once there are three."""
        self.keys.append(key)
        if len(held) == 3:
            for each in held:
                collector.emit((micros(each["at"].to_pydatetime()),))
            collector.ack(*held)


NAMED = StructType([StructField("at", AT)])


class Key:
    """One key at work."""

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.keys: list[Any] = []
        self.state = FakeState()
        self.schema = pa.schema([("us", pa.int64())])
        self.key = key
        self.task = KeyedTask(
            "shows", Shows(self.keys), self.schema, tracked=True, key_paths={TUPLE: [("at",)]},
            decoders={TUPLE: TupleDecoder(NAMED, ZONE)}, key_forms=(KeyForm(has_times=True),),
        )  # fmt: skip

    def get(self, *us: int) -> list[dict[str, Any]]:
        """Let tuples come."""
        anchors = [{"source": 1, "position": n, "edge": 7} for n in range(len(us))]
        part = pd.DataFrame({TUPLE: [{"at": each} for each in us], ANCHOR: anchors})
        frames = self.task(self.key, [part], self.state)  # type: ignore[arg-type]
        return [row for frame in frames for row in frame.to_dict("records")]

    def emitted(self, rows: list[dict[str, Any]]) -> list[int]:
        """Return what was emitted."""
        packed = [row[EMITTED] for row in rows if row[EMITTED] is not None]
        return [
            pa.ipc.read_record_batch(pa.py_buffer(row), self.schema).to_pylist()[0]["us"] for row in packed
        ]


def test_what_a_state_of_before_holds_is_local_time() -> None:
    """O907: it has a time without a zone; beside it stands one with a zone now, and both are compared."""
    key = Key((pd.Timestamp("2026-01-01 07:00"),))
    old = KeyedTuple({"at": pd.Timestamp("2026-01-01 07:00")}, (1, 9, 7))
    key.state.update((pickle.dumps((0, [old]), protocol=5),))
    noon = micros(datetime(2026, 1, 1, 12, tzinfo=UTC))
    assert key.emitted(key.get(noon, noon)) == [noon] * 3


def test_a_key_has_the_exact_time_of_its_tuples() -> None:
    """O907: of an hour that is there twice Spark's key does not say which one it is."""
    second = INSTANTS[2]
    key = Key((pd.Timestamp("2026-11-01 01:30"),))
    key.get(micros(second))
    [(time,)] = key.keys
    assert micros(time.to_pydatetime()) == micros(second)


def test_a_tuple_that_cannot_be_read_fails_alone() -> None:
    """O909: the query ended at it each time that it was started."""
    key = Key((None,))
    noon = micros(INSTANTS[0])
    rows = key.get(noon, 2**62)
    [failed] = [row for row in rows if "OverflowError" in str(row[REPORT]) and row[ANCHOR]]
    assert "the years 1 to 9999" in failed[REPORT]
    assert [anchor["position"] for anchor in failed[ANCHOR]] == [1]
    assert key.emitted(key.get(noon, noon)) == [noon] * 3


@pytest.mark.parametrize("far", [datetime(1600, 1, 1, tzinfo=UTC), datetime(2300, 1, 1, tzinfo=UTC)])
def test_a_key_that_pandas_does_not_have_fails_its_tuple_alone(far: datetime) -> None:
    """O810: Python has such a time, and where it is no key it is read."""
    key = Key((None,))
    noon = micros(INSTANTS[0])
    rows = key.get(noon, micros(far))
    [failed] = [row for row in rows if "OverflowError" in str(row[REPORT]) and row[ANCHOR]]
    assert "the key 'at' is a time" in failed[REPORT]
    assert [anchor["position"] for anchor in failed[ANCHOR]] == [1]
    assert key.emitted(key.get(noon, noon)) == [noon] * 3


class Joins(spout.KeyedBolt):
    """Emits each text that it holds."""

    output = "text string"

    def execute(
        self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Emit and ack them."""
        for each in held:
            collector.emit((each["text"],))
        collector.ack(*held)


def test_a_text_that_is_no_utf8_fails_alone() -> None:
    """O810: the record with the key FF ended the query, each time that it was started."""
    kind = StructType([StructField("text", StringType())])
    task = KeyedTask(
        "joins", Joins(), pa.schema([("text", pa.string())]), tracked=True, key_paths={TUPLE: [("text",)]},
        decoders={TUPLE: TupleDecoder(kind)}, key_forms=(KeyForm(),),
    )  # fmt: skip
    texts = [b"a", b"\xff", "é".encode()]
    anchors = [{"source": 1, "position": place, "edge": 7} for place in range(len(texts))]
    part = pd.DataFrame({TUPLE: [{"text": text} for text in texts], ANCHOR: anchors})
    frames = task(("",), [part], FakeState())  # type: ignore[arg-type]
    rows = [row for frame in frames for row in frame.to_dict("records")]
    [failed] = [row for row in rows if "UnicodeDecodeError" in str(row[REPORT]) and row[ANCHOR]]
    assert [anchor["position"] for anchor in failed[ANCHOR]] == [1]
    assert sum(row[EMITTED] is not None for row in rows) == 2


NUMBERED = StructType([StructField("n", LongType())])
RATIOS = ArrayType(ArrayType(DoubleType()))
TABLES = StructType(
    [
        StructField("ratios", RATIOS), StructField("structs", ArrayType(ArrayType(NUMBERED))),
        StructField("maps", ArrayType(ArrayType(MapType(StringType(), LongType())))),
        StructField("deep", ArrayType(RATIOS)),
    ]
)  # fmt: skip


def test_arrays_of_different_lengths_have_forms_that_numpy_takes() -> None:
    """O811: of [[{}], [{}, {}]] it makes no array; so each array within another one is put into a struct."""
    one, two = [{"v": 1.0}], [{"v": 1.0}, {"v": None}]
    form = {
        "ratios": [{"v": one}, {"v": two}, {"v": None}], "structs": [{"v": [{"n": 1}]}, {"v": []}],
        "maps": [{"v": [{b"k": 1}]}, {"v": [{}, None]}],
        "deep": [{"v": [{"v": one}, {"v": two}]}, {"v": None}],
    }  # fmt: skip
    values = TupleDecoder(TABLES, ZONE).decode(form)
    assert [None if part is None else part.tolist() for part in values["ratios"]] == [
        [1.0],
        [1.0, None],
        None,
    ]
    assert [list(part) for part in values["structs"]] == [[{"n": 1}], []]
    assert [part.tolist() for part in values["maps"]] == [[{"k": 1}], [{}, None]]
    assert [part.tolist() for part in values["deep"][0]] == [[1.0], [1.0, None]]
    assert values["deep"][1] is None


@pytest.mark.parametrize("kind", TABLES.fields, ids=lambda field: field.name)
def test_each_array_of_arrays_with_dictionaries_within_needs_a_form(kind: StructField) -> None:
    """O811: `numpy.array` is made of what is no form."""
    assert needs_encoding(kind.dataType)
    assert not needs_encoding(ArrayType(ArrayType(ArrayType(BooleanType()))))
    # whole numbers are encoded where pandas would make floats of them
    assert needs_encoding(ArrayType(NUMBERED)) is not FRAMES_KEEP_WHOLE_NUMBERS


def test_a_key_that_may_have_no_form_is_told_from_others() -> None:
    """O811: a key stays what it is, so it is refused where PySpark would make an array of such arrays."""
    for refused in (NUMBERED, AT, TimestampNTZType(), ArrayType(NUMBERED)):
        table = ArrayType(ArrayType(refused))
        assert nested_array_within(StructType([StructField("a", table)])) == table
    for taken in (RATIOS, ArrayType(NUMBERED), ArrayType(AT), ArrayType(ArrayType(LongType())), NUMBERED):
        assert nested_array_within(taken) is None
