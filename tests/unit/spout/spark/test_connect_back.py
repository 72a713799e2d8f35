"""A Python process of Spark's that is too slow to start is tried once more, and said by its cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from spout.spark.connect_back import SlowStarts, tried_twice

TOO_SLOW = "org.apache.spark.SparkException: Python worker failed to connect back."


class Query:
    """A query, as Spark shows it."""

    def __init__(self, number: int, error: Exception | None = None) -> None:
        self.id = f"query {number}"
        self.runId = f"run {number}"
        self.error = error

    def exception(self) -> Exception | None:
        return self.error


def call_of(*outcomes: Exception | str) -> Callable[[], str]:
    """Return a function that raises or returns these in turn."""
    left: Iterator[Exception | str] = iter(outcomes)

    def call() -> str:
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return call


@pytest.mark.parametrize("kind", [PySparkException, Py4JError])
def test_a_worker_that_was_too_slow_is_tried_once_more_with_one_line(
    kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """D2118."""
    assert tried_twice("loading the source", call_of(kind(TOO_SLOW), "loaded")) == "loaded"
    (line,) = caplog.messages
    assert line.startswith("worker_too_slow: loading the source: Spark gives a Python process 10 s to start")
    assert "docs/operate/faq.md" in line


@pytest.mark.parametrize(
    "outcomes",
    [
        (PySparkException("no such column"),),
        (ValueError(TOO_SLOW),),
        (PySparkException(TOO_SLOW), PySparkException(TOO_SLOW)),
    ],
    ids=["something else", "not Spark's", "twice"],
)
def test_what_does_not_help_is_raised(outcomes: tuple[Exception, ...]) -> None:
    """D2118: what has another cause is not tried again, and nothing is tried a third time."""
    with pytest.raises(type(outcomes[-1]), match=r"no such column|failed to connect back"):
        tried_twice("loading the source", call_of(*outcomes, "never"))


def test_each_query_that_ended_by_a_slow_worker_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """D2119: the first query of a session and later ones; those that ended otherwise have none."""
    slow = [Query(1, PySparkException(TOO_SLOW)), Query(2, PySparkException(TOO_SLOW))]
    others = [Query(3, PySparkException("no such column")), Query(4)]
    starts = SlowStarts()
    starts.log_ended([slow[0], others[0]])
    starts.log_ended([slow[1], *others])
    (first,) = caplog.messages
    starts.log_ended([others[1]])
    starts.log_ended([])
    starts.log_ended([])
    assert first.startswith("worker_too_slow: query query 1 has ended: Spark gives a Python process 10 s")
    assert len(caplog.messages) == 2
    assert "query 2" in caplog.messages[1]
    assert "docs/operate/faq.md" in caplog.messages[1]
