"""A store, or an exact sink, in place of a function of a batch's rows: it is refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from acker.config.settings import AckTopics
from acker.errors import UsageError
from spout.builder.topology import sinks_of
from spout.exactly_once.sqlite_store import SQLiteStore
from spout.sinks.exact_sink import ExactSink
from spout.sinks.foreach_batch import sink
from spout.topology.graph import Component, Graph, OutputStream
from spout.tuples.anchors import AnchorForm

STORE: Final = SQLiteStore("words.sqlite", "words")


def a_sink() -> ExactSink:
    """Make an exact sink that nobody calls."""
    publisher = SimpleNamespace(topics=AckTopics.with_prefix(""), write=lambda records: None)
    stream: Any = SimpleNamespace(group="g", publisher=publisher)
    application: Any = SimpleNamespace()
    return ExactSink(STORE, stream, AnchorForm.PACKED, application)


EXACT = {"a store": STORE, "its class": SQLiteStore, "a sink": a_sink()}


@pytest.mark.parametrize("kind", EXACT)
def test_what_writes_exactly_once_is_refused_where_a_function_is_wanted(kind: str) -> None:
    """D3224: by `spout.sink`, and by a topology."""
    write: Any = EXACT[kind]
    with pytest.raises(UsageError, match=r"^spout\.sink does not write exactly once.*spout\.exact_sink"):
        sink(write)
    graph = Graph(
        {"upper": Component("upper", {"default": OutputStream(("word",))}, is_spout=True)}
    ).checked()
    with pytest.raises(UsageError, match=r"^the sink of a topology does not write exactly once"):
        sinks_of(graph, {"upper": write})
