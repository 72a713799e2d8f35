"""What a machine lacks: a reason to skip at home, and a failure in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def lacking(reason: str) -> NoReturn:
    """Skip a test for what this machine lacks; CI has to have it, so there it fails."""
    if os.environ.get("CI", "").lower() in {"1", "true", "yes"}:
        pytest.fail(reason)
    pytest.skip(reason)
