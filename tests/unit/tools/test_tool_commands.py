"""The commands of the tools: called wrongly they end with 2 and one line, as the product's own do."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import app as benchmarks
from spout.cli import main as windhover
from tests.torture.__main__ import app as torture


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--brokers", "2"], "--brokers 2: must be 1, or 3"),
        (["--brokers", "3", "--spark-workers", "1"], "--spark-workers 1: must be 0, or 2"),
        (["--spark-workers", "2"], "comes with --brokers 3"),
        (["--minutes", "0"], "--minutes 0.0: must be more than 0"),
        (["--minutes", "nan"], "--minutes nan: must be a number; give 5 for five minutes"),
        (["--minutes", "inf"], "--minutes inf: must be a number"),
        (["--records-per-second", "nan"], "--records-per-second nan: must be a number"),
        (["--records-per-second", "inf"], "--records-per-second inf: must be a number"),
    ],
)
def test_a_wrong_call_of_torture_ends_with_2_and_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert windhover.run(arguments, torture, "torture") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("windhover: ")
    assert says in line


def test_each_benchmark_has_a_help(capsys: pytest.CaptureFixture[str]) -> None:
    names = [
        found.name or str(getattr(found.callback, "__name__", "")) for found in benchmarks.registered_commands
    ]
    assert {"tracking", "ledger", "replay"} <= set(names)
    for name in names:
        assert windhover.run([name, "--help"], benchmarks, "benchmarks") == 0
        assert f"Usage: benchmarks {name}" in capsys.readouterr().out
