"""The tests that another version of Python runs."""

from __future__ import annotations

from tests.matrix.pythons import ON_SPARK, WITHOUT_SERVER
from tests.matrix.versions import PROJECT


def test_the_tests_of_a_python_exist() -> None:
    files = [name.partition("::")[0] for name in (*WITHOUT_SERVER, *ON_SPARK)]
    assert [name for name in files if not (PROJECT / name).exists()] == []
