"""What `windhover size` computes is what a query, its services and a real broker do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from acker.provisioning.sizing import size_of
from benchmarks.streams import size
from benchmarks.streams.size import SizeOptions
from tests.support.programs import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.by_turns,
    pytest.mark.spark,
    pytest.mark.timeout(300),
]

TOLERANCE = 0.3


@pytest.mark.parametrize(
    "options",
    [SizeOptions(lost_every=997, seconds=16), SizeOptions(8_000, 2.0, 1.5, sources=8, ackers=4, seconds=20)],
    ids=["small batches, some lost", "large batches that take all the time"],
)
def test_a_real_run_takes_what_size_computes(options: SizeOptions) -> None:
    arguments = [
        *("--rate", options.rate, "--batch", options.batch_s, "--sink", options.sink_s),
        *("--sources", options.sources, "--ackers", options.ackers),
        *("--lost-every", options.lost_every, "--seconds", options.seconds),
    ]
    command = [sys.executable, "-m", "benchmarks", "size", "--json", *map(str, arguments)]
    # what it prints beside the figures, request by request, is shown where this test falls
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=280)
    measured = json.loads(done.stdout.splitlines()[-1])["figures"]
    computed = size_of(options.load(measured[size.BATCH], measured[size.WORK]))
    expected = {
        size.TOTAL: computed.ack_bytes_per_s,
        size.PENDING: computed.pending,
        size.ACKERS: computed.acker_requests_per_s,
        size.REPLAYS: computed.replay_requests_per_s,
        size.QUERY: computed.query_requests_per_s,
    }
    assert {name: measured[name] for name in expected} == pytest.approx(expected, rel=TOLERANCE)
    assert measured[size.ACKER_MEMORY] <= computed.acker_bytes
    assert measured[size.REPLAY_MEMORY] <= computed.replay_bytes
