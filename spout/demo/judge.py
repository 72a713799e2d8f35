"""The end of a demo: count, compare, judge, and print."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from spout.demo.observer import OutcomeObserver
from spout.demo.stage import Stage
from spout.demo.words import DemoLine, count_words, keys_at

READ_TO_END_MS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The demo's counts: the last line of ``--json``, field for field.

    `acked` counts records (not roots) that ended fully processed, at any attempt. `replayed`, `timed_out` and
    `failed` count roots, `absent` markers of transactions, which are no records. `lost` counts records that
    ended neither acked nor as a dead letter. `duplicates_from_acker_kill` counts records that were open when
    the acker was killed and were replayed, though they were not meant to fail or time out; `other_replays`
    those of which a busy machine worked longer on their batch than the timeout. `seconds` runs from the first
    record written to the last verdict, `ack_seconds` from the first ack to the last; `records_per_second` is
    over `ack_seconds`.
    """

    records: int
    acked: int
    replayed: int
    timed_out: int
    failed: int
    dead_lettered: int
    absent: int
    pending: int
    lost: int
    duplicates_from_acker_kill: int
    other_replays: int
    acker_kills: int
    counts_correct: bool
    committed_to_end: bool
    seconds: float
    ack_seconds: float
    records_per_second: float
    bootstrap: str


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what it requires, whether that is true, and what was found if not."""

    name: str
    passed: bool
    found: str = ""


def checks(
    outcome: DemoOutcome,
    *,
    expected_words: Counter[str],
    found_words: Counter[str],
    uncommitted: Mapping[str, str],
    lost_across_kill: Sequence[str],
    repeated_verdicts: int,
) -> list[Check]:
    """Judge a finished demo.

    `expected_words` is the plain count of the text without dead-lettered lines, `uncommitted` maps partitions
    whose committed offset is not at the end to "committed of end", `lost_across_kill` are origins open at the
    kill and lost after it, though not meant to fail or time out.
    """
    difference = first_difference(expected_words, found_words)
    judged = [
        Check("every word was counted exactly", not difference, difference),
        Check(
            "every record ended acked or dead-lettered",
            outcome.lost == 0,
            f"{outcome.lost} of {outcome.records} did neither",
        ),
        Check("every root has one verdict", repeated_verdicts == 0, f"{repeated_verdicts} have more"),
        Check(
            "the committed offsets have reached the end",
            not uncommitted,
            ", ".join(f"{name} at {where}" for name, where in uncommitted.items()),
        ),
        Check("nothing is pending", outcome.pending == 0, f"{outcome.pending} roots have no verdict"),
    ]
    if outcome.acker_kills:
        first = next(iter(lost_across_kill), "")
        found = f"{len(lost_across_kill)} records, the first {first}"
        judged.append(Check("the acker's kill caused no replay", not lost_across_kill, found))
    return judged


def first_difference(expected: Counter[str], found: Counter[str]) -> str:
    """Return the first word, in alphabetical order, whose counts differ; empty if there is none."""
    for word in sorted(expected.keys() | found.keys()):
        if expected[word] != found[word]:
            return f"{word!r} was counted {found[word]} times, and stands {expected[word]} times in the text"
    return ""


def judge(
    stage: Stage, observer: OutcomeObserver, lines: Sequence[DemoLine], seconds: float
) -> tuple[DemoOutcome, list[Check]]:
    """Count the outcome of every record, and make every check. `seconds` is how long the demo took."""
    observer.read_to_end(READ_TO_END_MS_MAX)
    counts = observer.counts
    partitions = len(stage.partitions())
    special = {
        f"{stage.source.topic}/{index % partitions}@{index // partitions}" for index in keys_at(len(lines))
    }
    from_kill = sorted(observer.lost_across_kill() - special)
    unexpected = sum(n for origin, n in observer.copies_by_origin.items() if origin not in special)
    behind = uncommitted(stage)
    dead = [line.decode() for line in observer.dead_lines]
    expected = count_words(line.text for line in lines) - count_words(dead)
    found = stage.words.counts()
    done = observer.origins_done()
    ack_seconds = (counts.last_ack_ms - counts.first_ack_ms) / 1000
    outcome = DemoOutcome(
        records=len(lines),
        acked=done - counts.dead_letters,
        replayed=counts.copies,
        timed_out=counts.lost_by_reason["TIMED_OUT"],
        failed=counts.lost_by_reason["FAILED"],
        dead_lettered=counts.dead_letters,
        absent=counts.absent,
        pending=len(lines) + counts.copies - counts.settled,
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
        repeated_verdicts=counts.repeated_verdicts,
    )
    return outcome, judged


def uncommitted(stage: Stage) -> dict[str, str]:
    """Return the partitions whose committed offset is not at the end, each with that offset."""
    partitions = stage.partitions()
    ends = stage.log.stable_ends(partitions)
    committed = stage.log.committed(stage.source.group, partitions)
    return {
        f"{tp.topic}/{tp.partition}": f"{committed.get(tp, 'none')} of {end}"
        for tp, end in ends.items()
        if end and committed.get(tp) != end
    }


def print_report(stage: Stage, outcome: DemoOutcome, judged: Sequence[Check]) -> None:
    """Print the table, the checks, and with ``--json`` the outcome as the last line."""
    out = Console()
    table = Table("what", "count", title="windhover demo")
    for name, value in report_rows(outcome):
        table.add_row(name, f"{value:,}" if isinstance(value, int) else value)
    out.print(table)
    for check in judged:
        found = "" if check.passed else f": {check.found}"
        out.print(f"{'ok      ' if check.passed else 'FAILED  '}{check.name}{found}")
    if stage.options.json:
        out.out(json.dumps(asdict(outcome)), highlight=False)


def report_rows(outcome: DemoOutcome) -> list[tuple[str, int | str]]:
    """Return the lines of the table; indented lines add up to the line above them."""
    emissions = outcome.records + outcome.replayed
    unwanted = outcome.duplicates_from_acker_kill + outcome.other_replays
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
        ("  of lines that fail or are not acked", outcome.replayed - unwanted),
        ("  caused by the killed acker", outcome.duplicates_from_acker_kill),
        ("  caused by a busy machine", outcome.other_replays),
        ("transaction markers in the log (no records)", outcome.absent),
        ("ackers killed", outcome.acker_kills),
        ("seconds, from the first record to the last verdict", f"{outcome.seconds:.1f}"),
        ("seconds, from the first ack to the last", f"{outcome.ack_seconds:.1f}"),
        ("records a second between them", round(outcome.records_per_second)),
    ]
