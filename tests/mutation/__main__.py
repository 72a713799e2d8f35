"""``python -m tests.mutation ROOM...``: change each rule of a room once, and see a test fall."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from pathlib import Path
from time import monotonic
from typing import Annotated, Final

import typer

from acker.errors import UsageError
from spout.cli import main as windhover
from tests.mutation.edits import Edit, edits_of
from tests.mutation.equivalents import equivalents, reasons
from tests.mutation.host import MEASURED, PROJECT
from tests.mutation.kept import keys, line_of, read_verdicts
from tests.mutation.run import Hosts
from tests.mutation.verdict import Fate, Verdict

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

FAILED: Final = 1
SELECTION: Final = "not slow and not spark and not kafka and not docker"


@app.command()
def mutation(
    rooms: Annotated[list[str], typer.Argument(help="Folders or files of the product.")],
    tests: Annotated[
        list[str] | None,
        typer.Option(help="Tests to run; default: the package's unit tests, and tests/property."),
    ] = None,
    sample: Annotated[int, typer.Option(min=0, help="Judge only so many edits, drawn; 0: all.")] = 0,
    seed: Annotated[int, typer.Option(help="Draws the sample.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Processes at work.")] = 2,
    budget: Annotated[float, typer.Option(help="Seconds of tests for one edit.")] = 20.0,
    at_least: Annotated[float, typer.Option(help="Exit with 1 if a smaller share falls, in %.")] = 0.0,
    again: Annotated[
        Path | None,
        typer.Option(
            help="Judge only what survived in this file, which --out wrote; shares are of all edits in it."
        ),
    ] = None,
    kept_map: Annotated[
        Path | None,
        typer.Option("--map", help="Keep here which test runs which line; delete it if tests change."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write one JSON line for each edit.")] = None,
    toml: Annotated[bool, typer.Option(help="Print survivors as entries for equivalent.toml.")] = False,
) -> int:
    """Edit the functions of rooms, one at a time; print edits that no test sees, and the shares by room."""
    edits = _edits(rooms)
    keys_of_edits = keys(edits)
    began = monotonic()
    listed = reasons(edits, equivalents())
    verdicts: list[Verdict] = []
    if again is not None:
        former = read_verdicts(again, keys_of_edits)
        if len(former) < len(edits):
            typer.echo(f"{len(edits) - len(former)} edits are not in {again}, and are left out", err=True)
        # the shares below are of all edits in the file, so what fell there counts without being judged again
        verdicts = [verdict for verdict in former if not _is_open(verdict, listed)]
        edits = [verdict.edit for verdict in former if _is_open(verdict, listed)]
    if sample and sample < len(edits):
        edits = sorted(random.Random(seed).sample(edits, sample))
    with Hosts(jobs, [*(tests or _default_tests(rooms)), "-m", SELECTION]) as hosts:
        lines = hosts.mapped(kept_map)
        typer.echo(f"{len(lines.seconds)} tests are mapped, {monotonic() - began:.0f} s; {len(edits)} edits")
        for test in lines.failed:
            typer.echo(f"falls without any edit, and is left out: {test}", err=True)
        with (out or Path("/dev/null")).open("a", encoding="utf-8") as written:
            # what fell before is written too, so that the new file is as good as both
            for verdict in verdicts:
                written.write(line_of(verdict, keys_of_edits[verdict.edit]))
            for verdict in hosts.judged(edits, lambda edit: lines.tests_of(edit, budget)):
                if verdict.fate in (Fate.SURVIVED, Fate.NOT_RUN) and verdict.edit in listed:
                    verdict = verdict._replace(fate=Fate.EQUIVALENT)
                verdicts.append(verdict)
                written.write(line_of(verdict, keys_of_edits[verdict.edit]))
                written.flush()
                if verdict.fate in (Fate.SURVIVED, Fate.NOT_RUN):
                    typer.echo(_entry(verdict.edit) if toml else f"{verdict.fate:<8} {verdict.edit.name}")
    typer.echo(f"in {monotonic() - began:.0f} s")
    return FAILED if _print_shares(verdicts) < at_least else 0


def _edits(rooms: Sequence[str]) -> list[Edit]:
    files = sorted(path for package in MEASURED for path in (PROJECT / package).rglob("*.py"))
    edits: list[Edit] = []
    for room in rooms:
        inside = [path for path in files if path.is_relative_to(PROJECT / room)]
        if not inside:
            raise UsageError(f"there is no room or file {room!r}; a room is acker/ledger, for example")
        for path in inside:
            edits += edits_of(str(path.relative_to(PROJECT)), path.read_text(encoding="utf-8"))
    return edits


def _default_tests(rooms: Sequence[str]) -> list[str]:
    packages = sorted({Path(room).parts[0] for room in rooms})
    return [*(f"tests/unit/{package}" for package in packages), "tests/property"]


def _is_open(verdict: Verdict, listed: Container[Edit]) -> bool:
    """Return whether an edit is judged again: nothing fell, and no reason for that is listed."""
    match verdict.fate:
        case Fate.SURVIVED | Fate.NOT_RUN:
            return True
        case Fate.EQUIVALENT:
            return verdict.edit not in listed
        case Fate.KILLED | Fate.HUNG | Fate.UNSWAPPABLE:
            return False


def _entry(edit: Edit) -> str:
    """Return an edit as an entry of equivalent.toml, without its reason."""
    rows = {
        "file": edit.file,
        "function": edit.function,
        "before": edit.before,
        "after": edit.after,
        "why": "",
    }
    return "\n[[equivalent]]\n" + "\n".join(f"{name} = {json.dumps(text)}" for name, text in rows.items())


def _print_shares(verdicts: Sequence[Verdict]) -> float:
    """Print what became of the edits of each room; return the smallest share that fell, in percent."""
    by_room: dict[str, Counter[Fate]] = defaultdict(Counter)
    for verdict in verdicts:
        by_room[str(Path(verdict.edit.file).parent)][verdict.fate] += 1
    least = 100.0
    for room, fates in sorted(by_room.items()):
        fell = fates[Fate.KILLED] + fates[Fate.HUNG]
        judged = fell + fates[Fate.SURVIVED] + fates[Fate.NOT_RUN]
        share = 100 * fell / judged if judged else 100.0
        least = min(least, share)
        details = ", ".join(f"{number} {fate}" for fate, number in sorted(fates.items()))
        typer.echo(f"{room}: {share:.1f} % of {judged} ({details})")
    return least


if __name__ == "__main__":
    sys.exit(windhover.run(sys.argv[1:], app, "python -m tests.mutation"))
