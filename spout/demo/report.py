"""What a demo shows: a bar while it runs, then its counts and checks."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from acker.wire.verdict import Verdict
from spout.demo.judge import Check, OutcomeCounts, uncommitted
from spout.demo.observer import OutcomeObserver
from spout.demo.stage import RunningDemo
from spout.demo.words import DemoLine, count_words, special_keys_by_line
from spout.planning.pace import TIMEOUT_SHARE
from spout.planning_process.status import PlannerStatus, read_status

READ_TO_END_MS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The demo's counts: the last line of ``--json``, field for field.

    `acked` counts records (not roots) that ended fully processed, at any attempt. `replayed`,
    `timed_out` and `failed` count roots, `absent` markers of transactions, which are no
    records. `lost` counts records that ended neither acked nor as a dead letter.
    `duplicates_from_acker_kill` counts records that were open when the acker was killed and
    were replayed, though they were not meant to fail or time out; `other_replays` those of
    which a busy machine worked longer on their batch than the timeout. `seconds` runs from the
    first record written to the last verdict, `ack_seconds` from the first ack to the last;
    `records_per_second` is over `ack_seconds`.
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


def checks(
    outcome: DemoOutcome,
    *,
    expected_words: Counter[str],
    counted_words: Counter[str],
    uncommitted: Mapping[str, str],
    lost_across_kill: Sequence[str],
    repeated_verdicts: int,
) -> list[Check]:
    """Judge a finished demo.

    Args:
        outcome: its counts.
        expected_words: how often each word is in the text, dead letters left out.
        counted_words: how often each word is in the demo's table.
        uncommitted: as `spout.demo.judge.uncommitted` returns it.
        lost_across_kill: origins of records that were open when the acker was killed, and are lost
            since, though they were to be acked.
        repeated_verdicts: how many verdicts came for roots that had one.
    """
    difference = first_difference(expected_words, counted_words)
    all_checks = [
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
            ", ".join(f"{name} at {progress}" for name, progress in uncommitted.items()),
        ),
        Check("nothing is pending", outcome.pending == 0, f"{outcome.pending} roots have no verdict"),
    ]
    if outcome.acker_kills:
        first_origin = next(iter(lost_across_kill), "")
        lost_text = f"{len(lost_across_kill)} records, the first {first_origin}"
        all_checks.append(Check("the acker's kill caused no replay", not lost_across_kill, lost_text))
    return all_checks


def first_difference(expected: Counter[str], counted: Counter[str]) -> str:
    """Return a sentence on the first word, by the alphabet, whose counts differ.

    Empty: all agree.
    """
    for word in sorted(expected.keys() | counted.keys()):
        if expected[word] != counted[word]:
            return (
                f"{word!r} was counted {counted[word]} times, and stands {expected[word]} times in the text"
            )
    return ""


def judge_demo(
    demo: RunningDemo, observer: OutcomeObserver, lines: Sequence[DemoLine], seconds: float
) -> tuple[DemoOutcome, list[Check]]:
    """Count what became of every record, and make every check.

    `seconds` is the time from the first record written to the last verdict.
    """
    # 1. lines that fail or time out on purpose, by their origins
    observer.read_to_end(READ_TO_END_MS_MAX)
    counts = observer.outcomes.counts
    # as `_produce` in run.py wrote them, by turns: with 4 partitions line 9 is offset 2 of
    # partition 1
    partition_count = len(demo.partitions())
    special_origins = {
        f"{demo.input.topic}/{index % partition_count}@{index // partition_count}"
        for index in special_keys_by_line(len(lines))
    }
    # 2. replays that nobody intended: for the acker's kill, and for batches of a busy machine that
    # took longer than the timeout
    replayed_for_kill = sorted(observer.lost_across_kill() - special_origins)
    copies = observer.outcomes.emission_by_copy.values()
    unintended_copies = sum(copy.origin not in special_origins for copy in copies)
    # 3. the words, as they should be counted and as they were
    uncommitted_by_name = demo_uncommitted(demo)
    dead_lines = [line.decode() for line in observer.dead_letter_lines]
    expected_words = count_words(line.text for line in lines) - count_words(dead_lines)
    counted_words = demo.words.counts()
    # 4. all counts, and the checks
    ended_records = observer.outcomes.ended_records
    ack_seconds = (observer.last_ack_ms - observer.first_ack_ms) / 1000
    outcome = DemoOutcome(
        records=len(lines),
        acked=ended_records - counts.dead_letters,
        replayed=counts.copies,
        timed_out=counts.lost_by_reason[Verdict.TIMED_OUT],
        failed=counts.lost_by_reason[Verdict.FAILED],
        dead_lettered=counts.dead_letters,
        absent=counts.absent,
        pending=len(lines) + counts.copies - counts.settled,
        lost=len(lines) - ended_records,
        duplicates_from_acker_kill=len(replayed_for_kill),
        other_replays=unintended_copies - len(replayed_for_kill),
        acker_kills=demo.acker_kills,
        counts_correct=expected_words == counted_words,
        committed_to_end=not uncommitted_by_name,
        seconds=round(seconds, 3),
        ack_seconds=round(ack_seconds, 3),
        records_per_second=round(len(lines) / (ack_seconds or seconds), 1),
        bootstrap=demo.bootstrap,
    )
    all_checks = checks(
        outcome,
        expected_words=expected_words,
        counted_words=counted_words,
        uncommitted=uncommitted_by_name,
        lost_across_kill=replayed_for_kill,
        repeated_verdicts=counts.repeated_verdicts,
    )
    return outcome, all_checks


def demo_uncommitted(demo: RunningDemo) -> dict[str, str]:
    """Return, as `uncommitted`, which committed offsets of the demo's input are not at the end."""
    partitions = demo.partitions()
    ends = demo.log.stable_ends(partitions)
    committed = demo.log.committed(demo.input.group, partitions)
    return uncommitted(ends, committed)


def print_report(demo: RunningDemo, outcome: DemoOutcome, all_checks: Sequence[Check]) -> None:
    """Print the table, the checks, and with ``--json`` the outcome as the last line."""
    console = Console(markup=False, emoji=False)
    table = Table("what", "count", title="windhover demo")
    for name, value in report_rows(outcome):
        table.add_row(name, f"{value:,}" if isinstance(value, int) else value)
    console.print(table)
    for check in all_checks:
        if check.passed:
            console.print(f"ok      {check.name}")
        else:
            console.print(f"FAILED  {check.name}: {check.found}")
    if demo.options.json:
        console.out(json.dumps(asdict(outcome)), highlight=False)


def report_rows(outcome: DemoOutcome) -> list[tuple[str, int | str]]:
    """Return the lines of the table; those that are indented add up to the line above them."""
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


LINE_SECONDS = 2.0
"""How often a line is printed where there is no terminal to redraw one on."""

SPEED_UPDATES = 30
"""Over how many updates, of 0.1 s each, the speed is computed."""

BAR_CELLS = 40

THROTTLED_FROM = 1.5
"""When a batch took this many times longer than it should, the demo shows that its size is cut."""


def status_line(
    status: PlannerStatus | None, counts: OutcomeCounts, per_second: float, timeout_ms: int
) -> str:
    """Return a line that describes the progress.

    `status` None: the planning process has written none yet. `per_second` is in records;
    `timeout_ms` 0: the records never time out.
    """
    pending = status.pending if status else 0
    batch_ms = status.batch_ms if status else 0
    parts = [
        f"{per_second:,.0f} records/s",
        f"pending {pending:,}",
        f"replayed {counts.copies:,}",
        f"dead {counts.dead_letters:,}",
    ]
    # a batch should take at most 1 / TIMEOUT_SHARE of the timeout: of 30 s a quarter, 7.5 s
    is_throttled = batch_ms * TIMEOUT_SHARE > timeout_ms * THROTTLED_FROM
    if timeout_ms and is_throttled:
        parts.append(f"throttled: batch took {batch_ms / 1000:.1f} s of {timeout_ms / 1000:g} s timeout")
    return "  ".join(parts)


class DemoProgress:
    """Redraws a bar on a terminal; elsewhere prints a line from time to time."""

    def __init__(self, console: Console, status_path: Path, total: int, timeout_ms: int) -> None:
        """Show nothing yet; `total` is how many records are to be done."""
        self._console = console
        self._status_path = status_path
        self._total = total
        self._timeout_ms = timeout_ms
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._printed_s = 0.0  # when the last line was printed, by the monotonic clock
        # time, and the records done by then, of the last updates; the speed is computed over them
        self._updates: deque[tuple[float, int]] = deque(maxlen=SPEED_UPDATES)

    def __enter__(self) -> DemoProgress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def show(self, records_done: int, counts: OutcomeCounts) -> None:
        """Show how many records are done.

        Where there is no terminal, at most every `LINE_SECONDS`.
        """
        now_s = time.monotonic()
        self._updates.append((now_s, records_done))
        first_s, first_done = self._updates[0]
        per_second = 0.0  # at the first update, which has none before it
        if now_s > first_s:
            per_second = (records_done - first_done) / (now_s - first_s)
        line = status_line(read_status(self._status_path), counts, per_second, self._timeout_ms)
        done_of_total = f"{records_done:,} of {self._total:,}"
        if self._console.is_terminal:
            row = Table.grid(padding=(0, 1))
            row.add_row(ProgressBar(self._total, records_done, width=BAR_CELLS), done_of_total)
            self._live.update(Group(row, Text(line)))
        elif now_s - self._printed_s >= LINE_SECONDS:
            self._printed_s = now_s
            self._console.print(f"{done_of_total}  {line}", highlight=False, soft_wrap=True)
