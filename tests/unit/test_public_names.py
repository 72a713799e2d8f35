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
