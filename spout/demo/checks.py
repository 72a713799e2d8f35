"""What the demo proves at its end, each check by name; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from spout.demo.counts import first_difference


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo counted: the last line of ``--json``, field for field.

    `acked` counts records (not roots) that ended fully processed, at whatever attempt; `replayed`,
    `timed_out` and `failed` count roots; `absent` counts markers of transactions, which take up
    positions in the log and hold no record; `lost` counts records that ended neither acked nor dead-lettered.
    `duplicates_from_acker_kill` counts records that were open when the acker was killed and had to be
    replayed though nothing was to fail or time out; `other_replays` those that were replayed because a busy
    machine took longer than the timeout over their batch. `seconds` runs from the first record that was
    written to the last verdict, `ack_seconds` from the first ack to the last one: it is what
    `records_per_second` is taken over.
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

    def as_dict(self) -> dict[str, object]:
        """Return the fields as JSON can hold them."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was demanded, whether it held, and what was found where it did not."""

    name: str
    held: bool
    found: str = ""


def checks(
    outcome: Outcome,
    *,
    expected_words: Counter[str],
    found_words: Counter[str],
    uncommitted: Mapping[str, str],
    lost_across_kill: Sequence[str],
    repeated_verdicts: int,
) -> list[Check]:
    """Judge a finished demo.

    Args:
        outcome: what was counted.
        expected_words: the plain count of the text, dead-lettered lines left out.
        found_words: what the sink's table holds.
        uncommitted: partitions whose committed offset is not at the end: name to "committed of end".
        lost_across_kill: origins open at the kill and lost after it, though nothing was to fail or time out.
        repeated_verdicts: roots that have more than one verdict.
    """
    difference = first_difference(expected_words, found_words)
    held = [
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
        held.append(Check("the acker's kill caused no replay", not lost_across_kill, found))
    return held
