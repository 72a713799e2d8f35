"""The name under which Windhover is installed, and its installed version.

The distribution has another name than the command and the packages: the `windhover` of PyPI is
another project.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Final

DISTRIBUTION: Final = "windhover-kafka"
"""The name in `pyproject.toml`, as `pip list` shows it."""

_SEPARATORS: Final = re.compile(r"[-_.]+")


def installed_version() -> str:
    """Return the version of the installed Windhover.

    Empty: it is a checkout on the path, which nobody has installed.

    >>> installed_version().count(".")
    2
    """
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return ""


def wheel_name(version_text: str) -> str:
    """Return the name of the file in which `uv build` puts a version.

    >>> wheel_name("0.1.0")
    'windhover_kafka-0.1.0-py3-none-any.whl'
    """
    return f"{DISTRIBUTION.replace('-', '_')}-{version_text}-py3-none-any.whl"


def is_windhover(distribution_name: str) -> bool:
    """Return whether a distribution is this project, however its name is spelled (PEP 503).

    >>> is_windhover("Windhover_Kafka"), is_windhover("windhover")
    (True, False)
    """
    return _SEPARATORS.sub("-", distribution_name).lower() == DISTRIBUTION
