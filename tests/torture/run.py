"""`python -m tests.torture`: hurt every part at random, heal, wait, and judge from the topics.

1. Start everything and a producer. 2. Let the blows of the schedule fall. 3. Stop the producer, heal, and
wait until every record has ended. 4. Judge what the topics and the sink's table say.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from rich.console import Console

from spout.demo.judge import Check
from tests.torture.exact.struck_store import Order
from tests.torture.exact.torturing import StruckFromOutside
from tests.torture.judging import answers, rules
from tests.torture.judging.judge import Aftermath, Judgement, judge
from tests.torture.judging.recovery import recoveries
from tests.torture.judging.witness import Witness
from tests.torture.report import Report, print_report
from tests.torture.schedule import (
    CHANCES,
    CHANCES_WITH_STORE,
    CLOCK_STEP_MS_MAX,
    Blow,
    Deed,
    deal,
    draw,
    missing,
)
from tests.torture.stage.producer import NumberedProducer
from tests.torture.stage.stage import Stage, TortureOptions, set_up, wall_ms
from tests.torture.torturer import Torturer
from tests.torture.writes import WriteTable

STEP_MS: Final = 50
LINE_MS: Final = 10_000
STALLED_MS_MAX: Final = 300_000
"""A run in which no record ends for so long is given up: a driver may come back meanwhile, and what was never
acked time out and be replayed."""

COMMIT_MS_MAX: Final = 20_000
LOOK_MS: Final = 1_000
PUT_OFF_MS: Final = 2_000
PUT_OFF_MS_MAX: Final = 60_000
"""A blow is left out if its victim has not come back from the one before for so long behind its time."""


def run(options: TortureOptions, environ: Mapping[str, str]) -> int:
    """Torture, judge, print.

    Args:
        options: what the command line says.
        environ: this process's environment; the parts get it with the broker's address added.

    Returns:
        0 when every check held, 1 when one did not.

    Raises:
        WindhoverError: a part does not come up; its `exit_code` says of which kind.
    """
    console = Console(stderr=True)
    with ExitStack() as stack:
        stage = set_up(options, environ, console, stack)
        report = _torture(stage, stack)
    # behind the last word of everything that was started, so that the object of --json is the last line
    print_report(report, as_json=options.json)
    return 0 if report.judgement.held else 1


def _torture(stage: Stage, stack: ExitStack) -> Report:
    options, source = stage.options, stage.source
    for_ms = int(options.minutes * 60_000)
    left_out: list[Deed] = []
    if options.missing_minutes:
        blow, for_ms = missing(options.missing_minutes)
        blows = [blow]
    elif options.on_cluster:
        blows = deal(options.seed, for_ms, spark=stage.spark is not None)
    else:
        left_out = [] if stage.disk is not None else [Deed.FULL_DISK]
        chances = CHANCES if stage.store is None else CHANCES_WITH_STORE
        blows = draw(options.seed, for_ms, set(Deed) - set(left_out), chances, options.pace)
    torturer = Torturer(
        stage.brokers, stage.parts, stage.driver, stage.disk, stage.spark, stage.strangers,
        store=None if stage.store is None else StruckFromOutside(stage.store, Order(stage.folder)),
        clock=wall_ms, grace_ms=source.timeout_ms,
    )  # fmt: skip
    stack.callback(torturer.release)
    witness = stage.witness
    partitions = stage.log.topics([source.topic])[source.topic].partitions
    bootstrap = stage.topics.kafka["bootstrap.servers"]
    producer = NumberedProducer(
        stage.log, source.topic, partitions, options.records_per_second, _steady_ms, bootstrap
    )
    begun_ms = _steady_ms()
    producer.start()
    _let_fall(blows, for_ms, torturer, stage)
    producer.stop()
    stage.console.print(f"{torturer.kills} kills; healing and waiting for every record to end")
    drained = _drain(torturer, witness, stage.console)
    return Report(
        seed=options.seed,
        minutes=options.minutes,
        seconds=(_steady_ms() - begun_ms) / 1000,
        kills=torturer.kills,
        blows={f"{victim}: {deed}": count for (victim, deed), count in sorted(torturer.blows.items())},
        left_out=[str(deed) for deed in left_out],
        spared=torturer.spared,
        driver_endings=torturer.driver_endings,
        recoveries=recoveries(witness.evidence, torturer.strikes),
        judgement=_judge(stage, torturer, witness, producer, drained),
    )


def _let_fall(blows: list[Blow], for_ms: int, torturer: Torturer, stage: Stage) -> None:
    """Begin and end each blow when it is time to, for `for_ms` or until the last of them is over.

    Read, supervise and ask in between.
    """
    console, witness = stage.console, stage.witness

    def say(now_ms: int, what: str) -> None:
        console.print(f"{now_ms / 1000:7.1f} s  {what}", highlight=False, soft_wrap=True)

    actions = [(blow.at_ms, 0, number) for number, blow in enumerate(blows)]
    heapq.heapify(actions)
    begun_ms = told_ms = _steady_ms()
    while actions or _steady_ms() - begun_ms < for_ms:
        now_ms = _steady_ms() - begun_ms
        if actions and actions[0][0] <= now_ms:
            _at_ms, ends, number = heapq.heappop(actions)
            blow = blows[number]
            if not ends and torturer.waits(blow):
                if now_ms < blow.at_ms + PUT_OFF_MS_MAX:
                    heapq.heappush(actions, (now_ms + PUT_OFF_MS, 0, number))
                else:
                    torturer.spared += 1
                    say(now_ms, f"{blow.victim}: spared {blow.deed}, the blow before is not over")
                continue
            say(now_ms, f"{blow.victim}: {blow.deed}{' is over' if ends else ''}")
            if ends:
                torturer.relent(blow)
            else:
                torturer.strike(blow)
                heapq.heappush(actions, (now_ms + blow.hold_ms, 1, number))
            continue
        witness.step(STEP_MS)
        torturer.look()
        if stage.operator is not None:
            stage.operator.step()
        if _steady_ms() - told_ms >= LINE_MS:
            told_ms = _steady_ms()
            say(now_ms, _progress(torturer, witness))


def _progress(torturer: Torturer, witness: Witness) -> str:
    evidence, counts = witness.evidence, witness.evidence.outcomes.counts
    return (
        f"{sum(torturer.blows.values())} blows, {torturer.kills} kills;"
        f" {len(evidence.numbers):,} records, {witness.open_roots():,} roots open,"
        f" {counts.copies:,} copies, {counts.dead_letters:,} dead letters,"
        f" driver {'works' if torturer.is_well else 'is coming back'}"
    )


def _drain(torturer: Torturer, witness: Witness, console: Console) -> bool:
    """Wait until every record has ended and every root has its verdict; tell whether they have."""
    looked_ms = told_ms = moved_ms = _steady_ms()
    fewest = witness.unfinished()
    while _steady_ms() - moved_ms < STALLED_MS_MAX:
        witness.step(STEP_MS)
        torturer.look()
        now_ms = _steady_ms()
        if now_ms - told_ms >= LINE_MS:
            told_ms = now_ms
            console.print(_progress(torturer, witness), highlight=False, soft_wrap=True)
        if now_ms - looked_ms < LOOK_MS:
            continue
        looked_ms = now_ms
        unfinished = witness.unfinished()
        if unfinished < fewest:
            fewest, moved_ms = unfinished, now_ms
        if torturer.is_well and not unfinished and not witness.open_roots() and witness.has_read_all():
            return True
    return False


def _judge(
    stage: Stage, torturer: Torturer, witness: Witness, producer: NumberedProducer, drained: bool
) -> Judgement:
    deadline_ms = _steady_ms() + COMMIT_MS_MAX
    while (uncommitted := witness.uncommitted()) and _steady_ms() < deadline_ms:
        witness.step(STEP_MS)
    if stage.store is None:
        table = WriteTable(stage.folder / "writes.sqlite")
        writes, stored = table.writes(), None
        table.close()
    else:
        writes, stored = [], stage.store.rows()
    judgement = judge(
        Aftermath(
            evidence=witness.evidence,
            writes=writes,
            durable=producer.durable,
            strikes=torturer.strikes,
            uncommitted=uncommitted,
            endings=torturer.endings,
            survivors=torturer.survivors,
            stored=stored,
        )
    )
    found = (
        ""
        if drained
        else f"nothing ended for {STALLED_MS_MAX // 1000} s; {stage.driver.child.how_it_ended()}"
    )
    stepped_ms = CLOCK_STEP_MS_MAX if torturer.has_stepped else 0
    checks = (
        *judgement.checks,
        *rules.checks(witness.recording(), stage.topics, stepped_ms),
        *_answer_checks(stage, torturer),
        Check("everything came to rest once it was healed", drained, found),
    )
    return Judgement(checks, judgement.counts, judgement.replays, judgement.duplicates)


def _answer_checks(stage: Stage, torturer: Torturer) -> list[Check]:
    """Judge what the views answered, if they were asked while a broker was missing."""
    if stage.operator is None:
        return []
    blow, _ = missing(stage.options.missing_minutes)
    began_ms = torturer.strikes[0].began_ms
    return answers.checks(stage.operator.answers, str(blow.victim), began_ms, began_ms + blow.hold_ms)


def _steady_ms() -> int:
    return time.monotonic_ns() // 1_000_000
