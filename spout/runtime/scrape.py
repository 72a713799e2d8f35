"""Reads the metrics that another process serves, in Prometheus' text over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPException
from typing import Final, NamedTuple
from urllib.request import ProxyHandler, build_opener

from prometheus_client.parser import text_string_to_metric_families

from acker.errors import Unreachable, UsageError
from acker.redaction import cut
from acker.untrusted import Untrusted
from spout.serving.hosts import split_address

TIMEOUT_S: Final = 2.0
BYTES_MAX: Final = 10_000_000


class MetricSample(NamedTuple):
    """The value of a metric for one set of labels, when it was read."""

    name: str
    labels: Mapping[str, str]
    value: float


def metrics_address(text: str) -> str:
    """Parse an address of metrics, ``HOST:PORT``; a port alone is one of this machine.

    >>> metrics_address("[::1]:9103"), metrics_address("9103")
    ('[::1]:9103', '127.0.0.1:9103')

    Raises:
        UsageError: it is none.
    """
    address = text.strip()
    has_host = ":" in address.removeprefix(":")
    full_address = address if has_host else f"127.0.0.1:{address.removeprefix(':')}"
    if split_address(full_address) is None:
        wrong_address = Untrusted(cut(text))
        raise UsageError(
            f"'{wrong_address}' is no address of metrics; give HOST:PORT, such as 127.0.0.1:9103"
        )
    return full_address


def read_metrics(address: str) -> list[MetricSample]:
    """Read all samples of a process; no proxy is asked.

    Raises:
        Unreachable: it does not answer, or what it answers is no text of metrics.
    """
    opener = build_opener(ProxyHandler({}))  # without proxies
    try:
        with opener.open(f"http://{address}/metrics", timeout=TIMEOUT_S) as answer:
            text = answer.read(BYTES_MAX).decode()
        return [
            MetricSample(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]
    except (OSError, HTTPException, ValueError, LookupError) as error:
        # the last two are those of the parser
        raise Unreachable(
            f"{address} serves no metrics: {error}; is a driver there, started with metrics_port?"
        ) from error
