"""The end of a demo: count, compare, judge, and print."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from spout.demo.checks import Check, Outcome, checks
from spout.demo.observer import Observer
from spout.demo.stage import Stage
from spout.demo.text import Line, count_words, keys_at

READ_TO_END_MS_MAX = 10_000


def judge(
    stage: Stage, observer: Observer, lines: Sequence[Line], seconds: float
) -> tuple[Outcome, list[Check]]:
    """Count what became of every record, and make every check. `seconds` is how long it took."""
    observer.read_to_end(READ_TO_END_MS_MAX)
    tally = observer.tally
    special = _special_origins(stage, len(lines))
    from_kill = sorted(observer.lost_across_kill() - special)
    unexpected = sum(n for origin, n in observer.copies_by_origin.items() if origin not in special)
    behind = uncommitted(stage)
    dead = [line.decode() for line in observer.dead_lines]
    expected = count_words(line.text for line in lines) - count_words(dead)
    found = stage.words.counts()
    done = observer.origins_done()
    ack_seconds = (tally.last_ack_ms - tally.first_ack_ms) / 1000
    outcome = Outcome(
        records=len(lines),
        acked=done - tally.dead_letters,
        replayed=tally.copies,
        timed_out=tally.lost_by_reason["TIMED_OUT"],
        failed=tally.lost_by_reason["FAILED"],
        dead_lettered=tally.dead_letters,
        absent=tally.absent,
        pending=len(lines) + tally.copies - tally.settled,
        lost=len(lines) - done,
        duplicates_from_acker_kill=len(from_kill),
        other_replays=unexpected - len(from_kill),
        acker_kills=stage.acker_kills,
        counts_correct=expected == found,
        committed_to_end=not behind,
        seconds=round(seconds, 3),
        ack_seconds=round(ack_seconds, 3),
        records_per_second=round(len(lines) / (ack_seconds or seconds), 1),
        bootstrap=stage.bootstrap,
    )
    judged = checks(
        outcome,
        expected_words=expected,
        found_words=found,
        uncommitted=behind,
        lost_across_kill=from_kill,
        repeated_verdicts=tally.repeated_verdicts,
    )
    return outcome, judged


def _special_origins(stage: Stage, records: int) -> set[str]:
    """Name the lines that fail or time out on purpose, as origins: topic/partition@offset."""
    partitions = len(stage.partitions())
    return {f"{stage.source.topic}/{index % partitions}@{index // partitions}" for index in keys_at(records)}


def uncommitted(stage: Stage) -> dict[str, str]:
    """Name the partitions whose committed offset is not at the end, each with where it is."""
    partitions = stage.partitions()
    ends = stage.log.stable_ends(partitions)
    committed = stage.log.committed(stage.source.group, partitions)
    return {
        f"{tp.topic}/{tp.partition}": f"{committed.get(tp, 'none')} of {end}"
        for tp, end in ends.items()
        if end and committed.get(tp) != end
    }


def print_report(stage: Stage, outcome: Outcome, judged: Sequence[Check]) -> None:
    """Print the table, the checks, and with ``--json`` the outcome as the last line."""
    out = Console()
    table = Table("what", "count", title="windhover demo")
    for name, value in report_rows(outcome):
        table.add_row(name, f"{value:,}" if isinstance(value, int) else value)
    out.print(table)
    for check in judged:
        out.print(
            ("ok      " if check.held else "FAILED  ")
            + check.name
            + ("" if check.held else f": {check.found}")
        )
    if stage.options.json:
        out.out(json.dumps(outcome.as_dict()), highlight=False)


def report_rows(outcome: Outcome) -> list[tuple[str, int | str]]:
    """Return the lines of the table: those that are indented add up to the one above them."""
    emissions = outcome.records + outcome.replayed
    return [
        ("records written", outcome.records),
        ("  acked: every word is counted", outcome.acked),
        ("  dead letters, each with its history", outcome.dead_lettered),
        ("  lost", outcome.lost),
        ("emissions: records and their replays", emissions),
        ("  acked", outcome.acked),
        ("  failed, on purpose", outcome.failed),
        ("  timed out", outcome.timed_out),
        ("  without a verdict", outcome.pending),
        ("replays", outcome.replayed),
        ("  of lines that fail or are not acked", outcome.replayed - _unwanted(outcome)),
        ("  caused by the killed acker", outcome.duplicates_from_acker_kill),
        ("  caused by a busy machine", outcome.other_replays),
        ("transaction markers in the log (no records)", outcome.absent),
        ("ackers killed", outcome.acker_kills),
        ("seconds, from the first record to the last verdict", f"{outcome.seconds:.1f}"),
        ("seconds, from the first ack to the last", f"{outcome.ack_seconds:.1f}"),
        ("records a second between them", round(outcome.records_per_second)),
    ]


def _unwanted(outcome: Outcome) -> int:
    return outcome.duplicates_from_acker_kill + outcome.other_replays
