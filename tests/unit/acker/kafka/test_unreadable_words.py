"""Why offsets cannot be read: the error says what is true of them."""

from __future__ import annotations

import pytest

from acker.errors import TOO_LARGE, Damaged
from spout.planner.mailbox import damage_cure

CHECKSUM = "the checksum of a batch is wrong"
LARGE = f"{TOO_LARGE}a record of 200,000,000 bytes, more than the 100,000,000 that can be handled"


@pytest.mark.parametrize(("why", "is_disk"), [(CHECKSUM, True), (LARGE, False)])
def test_only_what_is_damaged_on_a_disk_is_called_so(why: str, *, is_disk: bool) -> None:
    """O1917: a record that is too large is whole, on every replica."""
    errors = [
        Damaged("lines", 0, 7, why),
        Damaged("lines", 0, 7, why).with_cure("do this"),
        Damaged("lines", 0, 7, why, damage_cure(7, 8, why)),
    ]
    for error in errors:
        text = str(error)
        assert text.startswith("lines/0@7: ")
        assert why in text
        assert ("damaged on its broker's disk" in text) is is_disk
        assert "replica" not in text or is_disk
        assert error.why == why
