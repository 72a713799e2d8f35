"""``python -m benchmarks idle``: it counts every request once, and sees what an idle installation sends."""

from __future__ import annotations

import json
import struct

import pytest

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


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_the_bench_prints_every_figure_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert idle.run(2, 1, json=True) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    services = {f"{part}: {what}" for part in idle.PARTS for what in ("CPU", "requests")}
    assert services < set(figures)
    assert all(figures[f"{part}: requests"] > 0 for part in (*idle.PARTS, *idle.QUERIES))
    assert all(figures[f"{name}: a record is planned after"] > 0 for name in idle.QUERIES)
