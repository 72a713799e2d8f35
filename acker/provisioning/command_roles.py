"""Under which role each command of `windhover` works, as data: the page and the tests are made of it.

A command that is not here has no role, and a test fails: whoever adds one says who may run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from acker.provisioning.roles import Role

COMMAND_ROLES: Final[Mapping[str, Role | None]] = MappingProxyType(
    {
        "acker free": Role.ACKER,
        "acker run": Role.ACKER,
        "acls": None,
        "check": Role.OBSERVER,
        "demo": None,
        "dlq cancel": Role.KEEPER,
        "dlq drop": Role.KEEPER,
        "dlq list": Role.OBSERVER,
        "dlq redrives": Role.KEEPER,
        "dlq replay": Role.KEEPER,
        "dlq show": Role.OBSERVER,
        "dlq stats": Role.OBSERVER,
        "doctor": Role.OBSERVER,
        "explain": None,
        "failures": Role.OBSERVER,
        "inspect": Role.OBSERVER,
        "latency": Role.OBSERVER,
        "machinery": Role.OBSERVER,
        "offsets reset": Role.OPERATOR,
        "picture": Role.OBSERVER,
        "release": Role.OPERATOR,
        "replay drop": Role.OPERATOR,
        "replay resume": Role.OPERATOR,
        "replay run": Role.REPLAY,
        "roots": Role.OBSERVER,
        "size": None,
        "sql": Role.OBSERVER,
        "status": Role.OBSERVER,
        "submit": Role.SPOUT,
        "topics check": Role.OPERATOR,
        "topics create": Role.OPERATOR,
        "topics repair": Role.OPERATOR,
        "ui": Role.OBSERVER,
        "up": None,
        "validate": None,
    }
)
"""The least role with which a command works; None: it asks no broker, or starts one of its own."""
