"""What uv.lock installs on a machine, and whether each package has a wheel there."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

LOCK: Final = Path(__file__).resolve().parents[2] / "uv.lock"
GLIBC_MINOR_MAX: Final = 36
"""Debian 12 has glibc 2.36; a wheel that needs a later one counts as none."""

MACOS: Final = (14, 0)

Package = dict[str, Any]


@dataclass(frozen=True)
class Machine:
    """A Python on a system and a processor, as markers and tags of wheels name them."""

    python: tuple[int, int]
    system: str
    processor: str

    @cached_property
    def environment(self) -> dict[str, str]:
        """What the markers of a dependency are judged by."""
        version = ".".join(map(str, self.python))
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{version}.0",
            "os_name": "posix",
            "platform_machine": self.processor,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux" if self.system == "linux" else "Darwin",
            "platform_version": "",
            "python_full_version": f"{version}.0",
            "python_version": version,
            "sys_platform": self.system,
        }

    @cached_property
    def tags(self) -> frozenset[Tag]:
        """Which wheels can be installed."""
        if self.system == "linux":
            minors = range(5, GLIBC_MINOR_MAX + 1)
            platforms = [f"manylinux_2_{minor}_{self.processor}" for minor in minors]
            platforms += [f"manylinux{year}_{self.processor}" for year in (1, 2010, 2014)]
            platforms.append(f"linux_{self.processor}")
        else:
            platforms = list(mac_platforms(MACOS, self.processor))
        interpreter = "cp" + "".join(map(str, self.python))
        return frozenset(
            [
                *cpython_tags(self.python, platforms=platforms),
                *compatible_tags(self.python, interpreter, platforms),
            ]
        )

    def takes(self, wheel: str) -> bool:
        """Whether a wheel can be installed, by the name of its file."""
        _name, _version, _build, tags = parse_wheel_filename(wheel)
        return not tags.isdisjoint(self.tags)

    def __str__(self) -> str:
        return f"{self.system}-{self.processor}-{self.python[0]}.{self.python[1]}"


@cache
def locked() -> tuple[Package, ...]:
    """Return the packages of the lock."""
    return tuple(tomllib.loads(LOCK.read_text(encoding="utf-8"))["package"])


def installed_on(machine: Machine, extras: Sequence[str] = (), groups: Sequence[str] = ()) -> list[Package]:
    """Return the packages that a machine gets for the project, its extras and its groups; not the project."""
    [project] = [package for package in locked() if package["source"] == {"editable": "."}]
    packages: dict[tuple[str, str], Package] = {}
    seen = set[tuple[str, str, str]]()
    due = [(project, extra) for extra in ("", *extras)]
    due += [(project, f"group {group}") for group in groups]
    while due:
        package, part = due.pop()
        key = (package["name"], package["version"])
        if (*key, part) in seen:
            continue
        seen.add((*key, part))
        packages[key] = package
        for dependency in _dependencies(package, part):
            if "marker" in dependency and not Marker(dependency["marker"]).evaluate(machine.environment):
                continue
            target = _package_of(dependency)
            due += [(target, extra) for extra in ("", *dependency.get("extra", ()))]
    del packages[project["name"], project["version"]]
    return [packages[key] for key in sorted(packages)]


def without_wheel(machine: Machine, packages: Sequence[Package]) -> list[str]:
    """Return the names of those packages that have no wheel for a machine."""
    return [package["name"] for package in packages if not any(map(machine.takes, wheels_of(package)))]


def wheels_of(package: Package) -> Iterator[str]:
    """Yield the names of the files of a package's wheels."""
    for wheel in package.get("wheels", ()):
        yield wheel["url"].rpartition("/")[2]


def _dependencies(package: Package, part: str) -> Sequence[dict[str, Any]]:
    """Return what a package needs itself, for one of its extras, or for one of the project's groups."""
    if part.startswith("group "):
        groups: dict[str, Any] = package["dev-dependencies"]
        return list(groups[part.removeprefix("group ")])
    if part:
        extras: dict[str, Any] = package.get("optional-dependencies", {})
        return list(extras.get(part, ()))
    return list(package.get("dependencies", ()))


def _package_of(dependency: dict[str, Any]) -> Package:
    """Return the locked package that a dependency is; it names a version where there are several."""
    [package] = [
        package
        for package in locked()
        if package["name"] == dependency["name"]
        and dependency.get("version", package["version"]) == package["version"]
    ]
    return package
