"""What must not be refused: the error that refuses it is the first line of the failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException

from acker.errors import WindhoverError


@contextmanager
def not_refused(what: str) -> Iterator[None]:
    """Fail the test, naming `what` and the error, where Kafka or Windhover refuses something within."""
    try:
        yield
    except (WindhoverError, KafkaException) as error:
        pytest.fail(f"{what} is refused: {type(error).__name__}: {error}")
