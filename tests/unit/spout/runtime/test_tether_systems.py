"""Where the kernel cannot tether a process, nothing is started, and one line says why."""

from __future__ import annotations

import sys

import pytest

from acker.errors import UsageError
from spout.runtime import tether


def test_another_system_is_refused_with_the_way_out() -> None:
    """It was an `AttributeError` in the log of a child that had ended."""
    with pytest.raises(UsageError, match=r"only Linux ensures, not darwin: run it in a container") as refused:
        tether.require_linux("darwin")
    assert "\n" not in str(refused.value)
    tether.require_linux(sys.platform)
