"""Equal values of a grouping's fields have one number, in whatever batch they come."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spout.topology.routing import value_keys


def keys(values: list[Any], kind: pa.DataType) -> list[int]:
    """Number values that come in one batch."""
    return value_keys(pa.record_batch({"field": pa.array(values, kind)}), ["field"]).tolist()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (5, pa.int32()),
        (-5, pa.int64()),
        (1.5, pa.float64()),
        (True, pa.bool_()),
        ("a", pa.string()),
        (b"a", pa.binary()),
        ([5], pa.list_(pa.int32())),
    ],
)
def test_a_null_beside_a_value_does_not_send_it_to_another_task(value: Any, kind: pa.DataType) -> None:
    [alone] = keys([value], kind)
    beside, null = keys([value, None], kind)
    assert alone == beside
    assert [null] == keys([None], kind)
    assert null != alone


def test_zero_is_zero_whatever_its_sign() -> None:
    zero, other, nan, also = keys([0.0, -0.0, float("nan"), -float("nan")], pa.float64())
    assert zero == other
    assert nan == also


def test_a_value_that_python_has_no_form_of_changes_no_other_value_and_ends_no_task() -> None:
    """A record whose text is no UTF-8, or whose time is far beyond the year 9999, would end the query."""
    texts = pa.record_batch({"field": pa.array([b"a", b"\xff", None]).view(pa.string())})
    assert value_keys(texts, ["field"])[::2].tolist() == keys(["a", None], pa.string())
    times = pa.array([0, 2**61]).cast(pa.timestamp("us", tz="UTC"))
    first = value_keys(pa.record_batch({"field": times}), ["field"])[0]
    assert [first] == value_keys(pa.record_batch({"field": times[:1]}), ["field"]).tolist()
    nested = pa.ListArray.from_arrays([0, 1, 2], times)
    first = value_keys(pa.record_batch({"field": nested}), ["field"])[0]
    assert [first] == value_keys(pa.record_batch({"field": nested[:1]}), ["field"]).tolist()
