"""Each harness runs for some seconds with every test run; a finding shows its input."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.support.lacking import lacking

SECONDS = 4
LIMIT_SECONDS = 120


@pytest.mark.sample(3)
@pytest.mark.parametrize("harness", ["codec", "headers", "topics"])
def test_a_harness_finds_nothing(harness: str) -> None:
    """Only the named errors come out; see `tests.fuzz` for a longer run."""
    if importlib.util.find_spec("atheris") is None:
        lacking(
            "atheris is not installed: uv sync --group fuzz, on Linux and a Python that it has a wheel for"
        )
    flags = ["-seed=1", "-runs=20000", f"-max_total_time={SECONDS}"]
    command = [sys.executable, "-m", f"tests.fuzz.{harness}", *flags]
    found = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert found.returncode == 0, found.stderr[-5_000:] + found.stdout[-2_000:]
    assert "Done " in found.stderr


@pytest.mark.parametrize("error", [ValueError, RecursionError, KeyError])
def test_an_error_of_the_journal_that_is_not_named_comes_out(error: type[Exception]) -> None:
    """Errors of the JSON, which Spark parses, pass; the same errors of what we read from it do not."""
    if importlib.util.find_spec("atheris") is None:
        lacking("atheris is not installed: uv sync --group fuzz")
    from tests.fuzz import headers

    def raises(offset: object) -> None:
        raise error("found")

    headers.one(b"no JSON", raises)
    headers.one(b"[" * 100_000, raises)
    with pytest.raises(error, match="found"):
        headers.one(b"{}", raises)
