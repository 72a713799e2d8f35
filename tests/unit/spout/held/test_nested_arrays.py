"""Which types Spark cannot carry to a keyed bolt before 4.2: arrays within arrays or maps."""

from __future__ import annotations

import pytest

from acker.errors import UsageError
from spout.bolts.ddl_types import read_ddl
from spout.held.keyed_rows import refuse_type_around_array
from spout.held.keyed_values import type_around_array
from tests.support.bolts.type_bolts import LEAVES

CARRIED = [
    "{}",
    "array<{}>",
    "map<string,{}>",
    "map<{},string>",
    "struct<f:{},g:array<{}>>",
    "array<struct<f:{}>>",
    "array<map<string,{}>>",
    "map<string,map<string,{}>>",
    "struct<s:struct<m:map<string,{}>>>",
]
REFUSED = {
    "array<array<{}>>": "array<array<{}>>",
    "array<array<array<{}>>>": "array<array<array<{}>>>",
    "map<string,array<{}>>": "map<string,array<{}>>",
    "array<struct<f:array<{}>>>": "array<struct<f:array<{}>>>",
    "map<string,struct<f:array<{}>>>": "map<string,struct<f:array<{}>>>",
    "array<map<string,array<{}>>>": "array<map<string,array<{}>>>",
    "struct<n:int,m:map<string,array<{}>>>": "map<string,array<{}>>",
    "struct<n:struct<a:array<array<{}>>>>": "array<array<{}>>",
}
"""By type the type within it that is named."""


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_type_is_refused_exactly_where_an_array_may_have_no_elements_in_a_batch(leaf: str) -> None:
    """O811."""
    for template in CARRIED:
        spark_type = read_ddl("x " + template.replace("{}", leaf)).fields[0].dataType
        assert type_around_array(spark_type) is None, template
        refuse_type_around_array("sessions", "clicks", spark_type)
    for template, named in REFUSED.items():
        spark_type = read_ddl("x " + template.replace("{}", leaf)).fields[0].dataType
        named_type = read_ddl("x " + named.replace("{}", leaf)).fields[0].dataType
        assert type_around_array(spark_type) == named_type, template
        with pytest.raises(UsageError, match=r"'sessions': PySpark .* cannot carry the type") as refusal:
            refuse_type_around_array("sessions", "clicks", spark_type)
        assert f"type {named_type.simpleString()} of 'clicks' to a keyed bolt" in str(refusal.value)
