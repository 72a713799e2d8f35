"""A process with all its descendants, to be stopped or killed together: a driver, its JVM, its workers."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Member(NamedTuple):
    """A process, told by when it was started from a later one with its number."""

    pid: int
    started: int


def family_of(pid: int) -> list[Member]:
    """List a process and its descendants as they are now, parents first; empty when it is gone."""
    members: dict[int, Member] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := _stat(int(entry.name))) is not None:
            member, parent = found
            members[member.pid] = member
            children[parent].append(member.pid)
    order = [pid] if pid in members else []
    for each in order:
        order += children[each]  # the list grows while it is walked: breadth first
    return [members[each] for each in order]


def signal_all(members: list[Member], number: int) -> None:
    """Send a signal to those of a family that are still there."""
    for member in members:
        if is_there(member):
            with suppress(ProcessLookupError):
                os.kill(member.pid, number)


def is_stopped(pid: int) -> bool:
    """Tell whether a process is stopped by a signal; False where it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] == "T"


def is_there(member: Member) -> bool:
    """Tell whether a process is still there, and no other one with its number."""
    found = _stat(member.pid)
    return found is not None and found[0] == member


def _stat(pid: int) -> tuple[Member, int] | None:
    """Return a process and its parent's number; None when it is gone, or dead and not yet waited for."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name, in parentheses, may hold anything; state, parent and the others follow the last one
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else (Member(pid, int(fields[19])), int(fields[1]))
