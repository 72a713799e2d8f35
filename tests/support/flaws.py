"""What is wrong with what became of the records of an input: the sentences in which a judge says it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from acker.identity import Root
from acker.wire.verdict import LOST_VERDICTS
from spout.demo.judge import Check, Outcomes, roots_of_run


def check_none(name: str, flaws: Iterable[str]) -> Check:
    """Return a check that passes when there are no flaws; else it names how many, and the first."""
    found = sorted(flaws)
    return Check(name, not found, f"{len(found)}, the first: {found[0]}" if found else "")


def verdict_flaw(verdicts: Sequence[str], *, initialised: bool = True) -> str:
    """Return what is wrong with all verdicts of a root, in their order; empty when it has one, as it must."""
    if not initialised:
        return "was never initialised"
    if not verdicts:
        return "never got a verdict"
    return f"is {' and then '.join(verdicts)}" if len(verdicts) > 1 else ""


def replacement_flaw(verdict: str, replacements: int, *, has_record: bool = True) -> str:
    """Return what is wrong with the copies and dead letters of a root; empty when nothing is.

    `verdict` is the root's, empty while it has none. A root at whose position there never was a record (a
    transaction's marker) becomes neither.
    """
    if replacements and verdict not in LOST_VERDICTS:
        return f"has a copy or dead letter, and was not lost: its verdict is {verdict or 'not known'}"
    if replacements and not has_record:
        return "is no record, and has a copy or dead letter"
    if replacements > 1:
        return f"became a copy or dead letter {replacements} times"
    if verdict in LOST_VERDICTS and has_record and not replacements:
        return f"is {verdict} and has neither copy nor dead letter"
    return ""


def verdict_flaws(outcomes: Outcomes, initialised: Set[Root]) -> Iterator[str]:
    """Yield what is wrong with the verdicts; at the end, each initialised root has one."""
    settled = {
        root
        for source, runs in outcomes.settled_by_source.items()
        for start, end in runs
        for root in roots_of_run(source, start, end)
    }
    for root in initialised | settled:
        verdicts = outcomes.verdicts_by_repeated_root.get(root) or list(
            filter(None, [outcomes.verdict_of(root)])
        )
        if flaw := verdict_flaw(verdicts, initialised=root in initialised):
            yield f"{outcomes.place_of(root)} {flaw}"


def replacement_flaws(outcomes: Outcomes, has_record: Callable[[Root], bool]) -> Iterator[str]:
    """Yield what is wrong with copies and dead letters; at the end, each lost record has one of them."""
    owed = {outcomes.place_of(root): root for root in outcomes.loss_verdict_by_root}
    for place, root in owed.items():
        if flaw := replacement_flaw(
            outcomes.loss_verdict_by_root[root],
            outcomes.replacements_by_root[place],
            has_record=has_record(root),
        ):
            yield f"{place} {flaw}"
    for place in outcomes.replacements_by_root.keys() - owed.keys():
        yield f"{place} {replacement_flaw('', outcomes.replacements_by_root[place])}"
