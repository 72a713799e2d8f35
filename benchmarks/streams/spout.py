"""``python -m benchmarks spout``: a spout without Spark against a plain consumer and a share consumer.

The four contestants of ``benchmarks.streams.contestants`` in turn, round after round, each from the beginning
of one topic with a group of its own. The first round does not count: the broker still compiles what it runs.
Their latency is one of ``python -m benchmarks latency``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from acker.errors import CheckFailed
from benchmarks.measure import (
    Figure,
    Sample,
    cpu_seconds_of_tree,
    medians,
    print_report,
)
from benchmarks.streams.contestants import CONTESTANTS, begin_share_group, leave_out, run_contestant
from benchmarks.streams.tracking import produce_sentences
from benchmarks.world import World, bench_world, input_name
from spout.runtime.child import Child

READY_SECONDS_MAX = 60.0
LAP_INPUTS = 2
"""A round takes two of the inputs that read the topic, so that each form of a spout begins with it anew."""


@dataclass(frozen=True, slots=True)
class SpoutOptions:
    """What to run: records in a round, and rounds."""

    records: int = 500_000
    rounds: int = 5


def run(options: SpoutOptions, *, json: bool) -> int:
    """Run the benchmark and print medians and ratios. Return 0.

    Raises:
        CheckFailed: a contestant did not come to its end, or counted other words than the others.
    """
    console = Console(stderr=True)
    with bench_world(console, LAP_INPUTS * (options.rounds + 1)) as world:
        console.print(f"producing {options.records:,} sentences")
        produce_sentences(world, options.records)
        with Child("acker", world.config) as acker:
            acker.wait_ready(READY_SECONDS_MAX)
            samples = _rounds(options, world, console)
    print_report(console, _ratios(samples), samples, json=json)
    return 0


def _rounds(options: SpoutOptions, world: World, console: Console) -> list[Sample]:
    """Run all rounds; the first one warms up and does not count."""
    samples: list[Sample] = []
    names = list(CONTESTANTS)
    for lap in range(options.rounds + 1):
        of_this_lap: list[tuple[Sample, int]] = []
        for name in list(names):
            try:
                number = LAP_INPUTS * lap + (2 if name == "record" else 1)
                of_this_lap.append(_one(world, name, input_name(number), options.records))
            except CheckFailed as error:
                leave_out(names, name, error, console)
        if len({words for _, words in of_this_lap}) != 1:
            raise CheckFailed(f"the contestants counted {[words for _, words in of_this_lap]} words")
        rates = ", ".join(f"{sample.name} {sample.records_per_second:,.0f}/s" for sample, _ in of_this_lap)
        console.print(f"round {lap or 'to warm up'}: {rates}", highlight=False)
        samples += [sample for sample, _ in of_this_lap] if lap else []
    return samples


def _one(world: World, name: str, input_: str, records: int) -> tuple[Sample, int]:
    """Run one contestant over all records; return its sample, and how many words it counted."""
    begin_share_group(world.topics, input_)
    before = cpu_seconds_of_tree(os.getpid())
    found = run_contestant("benchmarks.streams.contestants", name, world.config, input_, str(records))
    cpu_seconds = cpu_seconds_of_tree(os.getpid()) - before
    if not found["rate"]:
        raise CheckFailed(f"contestant {name} had all {records} records at once; take more, with --records")
    return Sample(name, records, records / found["rate"], cpu_seconds), int(found["words"])


def _ratios(samples: Sequence[Sample]) -> list[Figure]:
    middle = {name: sample.records_per_second for name, sample in medians(samples).items()}
    pairs = [("batch", "plain", "0.70"), ("record", "plain", "0.40"), ("batch", "share", "1.00")]
    return [
        Figure(f"{own} form to {other} consumer", middle[own] / middle[other], "", aim)
        for own, other, aim in pairs
        if other in middle
    ]
