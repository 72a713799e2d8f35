"""The public names, loaded when they are first used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest

import spout


@pytest.mark.parametrize("name", spout.__all__)
def test_no_module_hides_a_public_name(name: str) -> None:
    """Importing a module of the same name would set it on the package, in front of what is loaded later."""
    import_module(spout._HOME[name])
    assert not isinstance(getattr(spout, name), ModuleType)
    with pytest.raises(ModuleNotFoundError):
        import_module(f"spout.{name}")


def test_the_public_names_are_listed_before_they_are_loaded() -> None:
    """By `dir`, and so by what completes names."""
    assert dir(spout) == sorted(spout.__all__)


def test_a_misspelt_name_is_told_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'BasicBot'; did you mean 'BasicBolt'\?$"):
        spout.BasicBot  # type: ignore[attr-defined]  # noqa: B018 - on purpose
    with pytest.raises(AttributeError, match=r"no attribute 'zzz'$"):
        spout.zzz  # type: ignore[attr-defined]  # noqa: B018 - on purpose
    assert not hasattr(spout, "__wrapped__")
