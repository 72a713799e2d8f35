"""The rules of docs/design/protocol.md, section 3: one checker for each, which watches the logs from outside.

A checker knows nothing of what any process keeps in memory: only what was written, in which order, and what
really happened to each record (``tests.simulation.truth.truth``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulation.checkers.exactly_once_checker import ExactlyOnce
from tests.simulation.checkers.loss_checkers import (
    CrashCostsNoReplay,
    FailureHasAName,
    HonestDeadlines,
    Limits,
    PutBack,
)
from tests.simulation.checkers.order_checker import InOrder
from tests.simulation.checkers.verdict_checkers import (
    EmittedOnce,
    FailBeatsZero,
    NoEarlyCompletion,
    NoLoss,
    NothingBlocks,
    OneVerdict,
)
from tests.simulation.truth.checker import Checker

CHECKERS: Final[tuple[Callable[[], Checker], ...]] = (
    EmittedOnce, OneVerdict, NoEarlyCompletion, FailBeatsZero, NoLoss, NothingBlocks,
    CrashCostsNoReplay, HonestDeadlines, PutBack, Limits, FailureHasAName,
    InOrder, ExactlyOnce,
)  # fmt: skip
"""In the order of the rules."""


def checkers() -> list[Checker]:
    """Make one of each."""
    return [each() for each in CHECKERS]
