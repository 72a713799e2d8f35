"""The end of a torture: a table of blows, one of what was counted, the checks, one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from tests.torture.judging.judge import Judgement
from tests.torture.judging.recovery import Recovery


@dataclass(frozen=True, slots=True)
class Report:
    """What a run ends with.

    Attributes:
        seed: what the blows were drawn from.
        minutes: how long blows fell.
        seconds: how long all of it took, healing and draining included.
        kills: how often SIGKILL was sent.
        blows: how many blows fell, by victim and deed.
        left_out: deeds that cannot be done on this machine.
        spared: blows that were left out: on what had not come back from the one before in time, and moves of
            coordinators while a broker was away by itself.
        driver_endings: how often the driver ended by itself and was started again.
        recoveries: what each kind of blow cost, by victim and deed.
        judgement: checks and counts.
    """

    seed: int
    minutes: float
    seconds: float
    kills: int
    blows: Mapping[str, int]
    left_out: Sequence[str]
    spared: int
    driver_endings: int
    recoveries: Mapping[str, Recovery]
    judgement: Judgement

    def as_dict(self) -> dict[str, object]:
        """Return it as JSON can hold it."""
        judgement = self.judgement
        return {
            "held": judgement.held,
            "seed": self.seed,
            "minutes": self.minutes,
            "seconds": round(self.seconds, 1),
            "kills": self.kills,
            "blows": dict(self.blows),
            "left_out": list(self.left_out),
            "spared": self.spared,
            "driver_endings": self.driver_endings,
            "recoveries": {kind: asdict(each) for kind, each in self.recoveries.items()},
            **judgement.counts,
            "replays": dict(judgement.replays),
            "duplicates": dict(judgement.duplicates),
            "failed_checks": {check.name: check.found for check in judgement.checks if not check.passed},
        }


def print_report(report: Report, *, as_json: bool) -> None:
    """Print the tables and the checks, and with ``--json`` the object as the last line."""
    out = Console()
    judgement = report.judgement
    out.print(_table("blow", {**report.blows, "SIGKILL in all": report.kills}))
    counts = {name.replace("_", " "): count for name, count in judgement.counts.items()}
    by_itself = {"blows left out": report.spared, "driver ended by itself": report.driver_endings}
    out.print(_table("what", {**counts, **by_itself}))
    out.print(_table("roots lost, by cause", judgement.replays))
    out.print(_table("rows written again, by cause", judgement.duplicates))
    out.print(_recovery_table(report.recoveries))
    for deed in report.left_out:
        out.print(f"left out {deed}: it cannot be done on this machine")
    for check in judgement.checks:
        found = "" if check.passed else f": {check.found}"
        out.print(f"{'ok      ' if check.passed else 'FAILED  '}{check.name}{found}")
    if as_json:
        out.out(json.dumps(report.as_dict()), highlight=False)


def _table(title: str, counts: Mapping[str, int]) -> Table:
    table = Table(title, "count")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    return table


def _recovery_table(recoveries: Mapping[str, Recovery]) -> Table:
    table = Table("seconds from a blow to a later record acked, on each partition", "count", "median", "most")
    for kind, each in recoveries.items():
        count = f"{each.faults}" + (f" ({each.open} at the end)" if each.open else "")
        table.add_row(kind, count, f"{each.median_s:.1f}", f"{each.max_s:.1f}")
    return table
