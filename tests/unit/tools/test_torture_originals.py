"""What a dead letter must have of its record, where a client cannot write all of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from acker.identity import source_of
from acker.kafka.port import Headers, Outgoing, Record, UnreadableName
from replay.records.dead_letter import OUR_PREFIXES
from replay.records.headers import joined_headers, plain_headers
from tests.simulation.truth.originals import content_flaw

NAMES: Headers = (("torture.number", b"228"), (UnreadableName(rb"\xff\xfe"), b"1"))


def flaw_of(own: Headers) -> str:
    """Return what is wrong with a dead letter that has these headers of its record."""
    original = Record("torture", 0, 57, b"key", b"value", NAMES, 1_000)
    ours: Headers = (("windhover.dead", b"UNWRITABLE"), ("windhover.timestamp", b"1000"))
    letter = Outgoing("torture.dlq", 0, b"value", b"key", joined_headers(own, ours, OUR_PREFIXES), 2_000)
    source = SimpleNamespace(dead_letter=SimpleNamespace(topic="torture.dlq"), replay_topic="torture.replay")
    topic = SimpleNamespace(partitions=[None])
    truth: Any = SimpleNamespace(
        original=lambda _root: original,
        input_of=lambda _root: source,
        cluster=SimpleNamespace(topic=lambda _name: topic),
    )
    root: Any = SimpleNamespace(source=source_of(1, 0))
    return content_flaw(truth, root, letter, dead=True)


def test_a_letter_names_the_headers_whose_names_no_client_can_write() -> None:
    """As plain text, with a header that says which they are."""
    assert flaw_of(plain_headers(NAMES)) == ""


@pytest.mark.parametrize("own", [NAMES[:1], plain_headers(NAMES)[:-1], ()], ids=["lost", "not named", "none"])
def test_a_letter_that_does_not_is_a_finding(own: Headers) -> None:
    assert flaw_of(own).startswith("headers is")
