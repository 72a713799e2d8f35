"""``python -m benchmarks idle`` counts every request once."""

from __future__ import annotations

import struct

from benchmarks.services import idle


def request(kind: int, client: str, body: bytes = b"") -> bytes:
    """Return a request as Kafka's protocol has it: length, key, version, correlation id, client id, body."""
    text = client.encode()
    frame = struct.pack(">hhih", kind, 4, 7, len(text)) + text + body
    return struct.pack(">i", len(frame)) + frame


def test_requests_are_counted_by_client_and_kind_however_they_are_cut() -> None:
    requests = idle.Requests()
    sent = (
        request(1, "windhover-acker", bytes(90))
        + request(12, "windhover-acker")
        + request(1, "windhover-replay")
    )
    whole, cut = requests.connection(), requests.connection()
    whole(sent)
    for at in range(len(sent)):
        cut(sent[at : at + 1])
    assert requests.take() == {
        ("windhover-acker", 1): 2,
        ("windhover-acker", 12): 2,
        ("windhover-replay", 1): 2,
    }
    assert not requests.take()
