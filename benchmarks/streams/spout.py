"""``python -m benchmarks spout``: a spout without Spark against a plain consumer and a share consumer.

Throughput: the four contestants of ``benchmarks.streams.contestants`` in turn, round after round, each
from the beginning of one topic with a group of its own. Latency: at a steady rate, from the producer's
clock to the answer that a confirmation is durable, for a spout, a share consumer and a plain one, lap after
lap. The first lap and the first round do not count: the broker still compiles what they run.
"""

from __future__ import annotations

import json as json_module
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from rich.console import Console

from acker.errors import CheckFailed
from benchmarks.measure import (
    Figure,
    Sample,
    cpu_seconds_of_tree,
    medians,
    print_report,
)
from benchmarks.streams.contestants import CONTESTANTS, share_group
from benchmarks.streams.tracking import produce_sentences
from benchmarks.world import World, bench_world, input_name
from spout.runtime.child import Child

ROUND_SECONDS_MAX = 120.0
READY_SECONDS_MAX = 60.0
LAP_INPUTS = 2
"""A round takes two of the inputs that read the topic, so that each form of a spout begins with it anew."""

LATENCY_CONTESTANTS = ("batch", "share", "plain")
LATENCY_LAPS = 3


@dataclass(frozen=True, slots=True)
class SpoutOptions:
    """What to run: records in a round, rounds, and the rate and seconds of the latency part; 0 s: none."""

    records: int = 500_000
    rounds: int = 5
    rate: int = 2_000
    seconds: int = 20


def run(options: SpoutOptions, *, json: bool) -> int:
    """Run the benchmark and print medians and ratios. Return 0.

    Raises:
        CheckFailed: a contestant did not come to its end, or counted other words than the others.
    """
    console = Console(stderr=True)
    with bench_world(console, LAP_INPUTS * (options.rounds + 1) + len(LATENCY_CONTESTANTS)) as world:
        console.print(f"producing {options.records:,} sentences")
        produce_sentences(world, options.records)
        with Child("acker", world.config) as acker:
            acker.wait_ready(READY_SECONDS_MAX)
            samples = _rounds(options, world, console)
            figures = [*_ratios(samples), *_latencies(options, world, console)]
    print_report(console, figures, samples, json=json)
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
                _without(names, name, error, console)
        if len({words for _, words in of_this_lap}) != 1:
            raise CheckFailed(f"the contestants counted {[words for _, words in of_this_lap]} words")
        rates = ", ".join(f"{sample.name} {sample.records_per_second:,.0f}/s" for sample, _ in of_this_lap)
        console.print(f"round {lap or 'to warm up'}: {rates}", highlight=False)
        samples += [sample for sample, _ in of_this_lap] if lap else []
    return samples


def _without(names: list[str], name: str, error: CheckFailed, console: Console) -> None:
    """Go on without a contestant, and say so; only without the share consumer, a preview of its makers."""
    if name != "share":
        raise error
    names.remove(name)
    console.print(f"without the share consumer, and without its figures: {error}", highlight=False)


def _one(world: World, name: str, input_: str, records: int) -> tuple[Sample, int]:
    """Run one contestant over all records; return its sample, and how many words it counted."""
    _begin_share_group(world, input_)
    before = cpu_seconds_of_tree(os.getpid())
    found = _contestant(world, "benchmarks.streams.contestants", name, input_, str(records))
    cpu_seconds = cpu_seconds_of_tree(os.getpid()) - before
    if not found["rate"]:
        raise CheckFailed(f"contestant {name} had all {records} records at once; take more, with --records")
    return Sample(name, records, records / found["rate"], cpu_seconds), int(found["words"])


def _contestant(world: World, module: str, name: str, input_: str, *arguments: str) -> dict[str, float]:
    """Run a process to its end and return what it printed.

    Raises:
        CheckFailed: it failed.
    """
    command = [sys.executable, "-m", module, name, str(world.config), input_, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ROUND_SECONDS_MAX, check=False)
    if done.returncode:
        raise CheckFailed(f"contestant {name} ended with {done.returncode}: {done.stderr.strip()}")
    found: dict[str, float] = json_module.loads(done.stdout)
    return found


def _begin_share_group(world: World, input_: str) -> None:
    """Let the share group of an input begin at the first record; by default it begins behind the last."""
    admin = AdminClient(dict(world.topics.kafka))
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = share_group(world.topics.input(input_).group)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[earliest])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(READY_SECONDS_MAX)


def _ratios(samples: Sequence[Sample]) -> list[Figure]:
    middle = {name: sample.records_per_second for name, sample in medians(samples).items()}
    pairs = [("batch", "plain", "0.70"), ("record", "plain", "0.40"), ("batch", "share", "1.00")]
    return [
        Figure(f"{own} form to {other} consumer", middle[own] / middle[other], "", aim)
        for own, other, aim in pairs
        if other in middle
    ]


def _latencies(options: SpoutOptions, world: World, console: Console) -> list[Figure]:
    """Measure from the producer's clock to the durable confirmation, in turn; medians of the laps."""
    if not options.seconds:
        return []
    found: dict[str, list[dict[str, float]]] = {}
    names = list(LATENCY_CONTESTANTS)
    first = LAP_INPUTS * (options.rounds + 1) + 1
    inputs = {name: input_name(first + number) for number, name in enumerate(names)}
    _begin_share_group(world, inputs["share"])
    for lap in range(LATENCY_LAPS + 1):
        for name in list(names):
            arguments = inputs[name], str(options.rate), str(options.seconds)
            try:
                parts = _contestant(world, "benchmarks.streams.latency", name, *arguments)
            except CheckFailed as error:
                _without(names, name, error, console)
                continue
            said = ", ".join(f"{part} {value:,.1f} ms" for part, value in parts.items())
            console.print(f"{name} at {options.rate:,}/s, lap {lap or 'to warm up'}: {said}", highlight=False)
            found.setdefault(name, []).extend([parts] if lap else [])
    return [
        Figure(
            f"{name}, produced to durably confirmed, {part}",
            median(lap[part] for lap in laps),
            "ms",
            "20" if (name, part) == ("batch", "p99") else "",
        )
        for name, laps in found.items()
        if laps
        for part in laps[0]
    ]
