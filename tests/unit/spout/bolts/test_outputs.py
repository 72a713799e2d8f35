"""What an output may declare."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StructType

from acker.errors import UsageError
from spout.bolts.outputs import parse_output


@pytest.mark.parametrize(
    "names", [[], ["word", "n", "word"], ["_task"], ["_to"], ["_windhover"], ["_windhover_0"]]
)
def test_a_field_has_a_name_of_its_own_that_is_none_of_windhovers(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a bundle the last one is the column of a hop's ordinals; a bolt could not read the first of two."""
    parsed = StructType()
    for name in names:
        parsed.add(name, IntegerType())
    monkeypatch.setattr(StructType, "fromDDL", lambda _: parsed)  # which asks Spark
    with pytest.raises(UsageError, match=r"bolt 'it': output = '.*'; name fields and types, .*, each once"):
        parse_output("it", ", ".join(f"{name} int" for name in names))
