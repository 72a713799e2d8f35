"""For which hosts a server answers; pure.

A page of a stranger may give its own name our address as soon as somebody's browser has loaded it (DNS
rebinding). The browser then takes our answers for those of the stranger's site and lets his script read them.
But it says as Host what it believes in, the stranger's name. So a server answers only for hosts that no
stranger can give another meaning:

- this machine: ``localhost``, the addresses of loopback, and the name that the machine has;
- the address at which the connection arrived: a probe or a scraper that was given an address in numbers;
- what the process listens on by its options, and what ``--allow-host`` names.

Hosts are compared in one form: small letters, no port, no dot at the end, addresses as `ipaddress` writes
them. A target in absolute form has a host, too, and both must be allowed.

Source: RFC 9112, sections 3.2 and 3.2.2; RFC 9110, section 7.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Self

from acker.errors import UsageError
from acker.redaction import cut
from acker.untrusted import Untrusted

OPTION: Final = "--allow-host"

MISDIRECTED: Final = 421
"""The status of an answer to a request for another host (Misdirected Request)."""

PORT_MAX: Final = 65_535

_LOCALHOST: Final = "localhost"

_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)(?:%[\w.~-]+)?\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>\d{0,5}))?",
    re.ASCII,
)

_ABSOLUTE: Final = re.compile(r"https?://(?P<authority>[^/?#]*)(?P<path>.*)", re.IGNORECASE | re.DOTALL)


def host_of(authority: str) -> str | None:
    """Return the host of a Host header or of a target, in its one form; None: it is none.

    >>> [host_of(text) for text in ("LocalHost.:8095", "[0:0::1]:80", "[::ffff:10.0.0.5]", "a@b", "")]
    ['localhost', '::1', '10.0.0.5', None, None]
    """
    match = _AUTHORITY.fullmatch(authority.strip(" \t"))
    if match is None or int(match["port"] or 0) > PORT_MAX:
        return None
    if match["six"] is not None:
        address = _address(match["six"]) if ":" in match["six"] else None
        return None if address is None else str(address)
    name = match["name"].lower().removesuffix(".")
    address = _address(name)
    return name or None if address is None else str(address)


def path_of_target(target: str) -> str:
    """Return the path of a request's target without its query; one in absolute form has a host before it.

    >>> path_of_target("http://localhost:8095/failures"), path_of_target("/failures")
    ('/failures', '/failures')
    """
    match = _ABSOLUTE.fullmatch(target)
    return target if match is None else match["path"] or "/"


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Further hosts that a server answers for, beside loopback and the address where a connection arrives.

    Attributes:
        names: the hosts, each in its one form.
    """

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, listens_on: str, machine: str, named: Iterable[str] = ()) -> Self:
        """Return what is allowed beside what a process listens on.

        Args:
            listens_on: the address or name of ``--host`` or ``--metrics-port``.
            machine: its own name; of ``acker-1.example`` the part before the first dot is one, too, since no
                stranger has names without a dot.
            named: what ``--allow-host`` names.

        Raises:
            UsageError: something named is no host.
        """
        own = [listens_on, machine, machine.partition(".")[0]]
        own_hosts = {host for host in map(_host_of_option, own) if host is not None}
        return cls(frozenset(own_hosts | {_named_host(text) for text in named}))

    def refusal(self, host_headers: Sequence[str], target: str, arrived_at: str) -> str:
        """Return why a request is refused; empty: it is answered.

        The text names no host that is allowed: a stranger's script might read it.

        Args:
            host_headers: the values of all its Host headers.
            target: what its first line asks for, without the query.
            arrived_at: the address of this machine at which the connection arrived.
        """
        authorities = list(host_headers)
        if not target.startswith("/") and target != "*":
            match = _ABSOLUTE.fullmatch(target)
            authorities.append("" if match is None else match["authority"])
        if not authorities:
            return f"The request names no host: send the header Host, with one that {OPTION} allows."
        for authority in authorities:
            host = host_of(authority)
            if host is None or not self._is_allowed(host, arrived_at):
                wrong = Untrusted(cut(authority))
                return f"No answer for the host '{wrong}': start the process with {OPTION} to allow it."
        return ""

    def _is_allowed(self, host: str, arrived_at: str) -> bool:
        if host == _LOCALHOST or host in self.names:
            return True
        address = _address(host)
        return address is not None and (address.is_loopback or address == _address(arrived_at))


def is_loopback(listens_on: str) -> bool:
    """Return whether only this machine can reach an address that a process listens on."""
    host = _host_of_option(listens_on)
    address = _address(host or "")
    return host == _LOCALHOST or (address is not None and address.is_loopback)


def _named_host(text: str) -> str:
    """Return the host that an option names; raise UsageError if it is none, or has more than a host."""
    host = _host_of_option(text)
    if host is None:
        raise UsageError(
            f"{OPTION} {Untrusted(cut(text)) or 'without a value'}: it is no host; give a name or an address"
            " without scheme, port and path, such as page.example.com. There is no sign for all of them"
        )
    return host


def _host_of_option(text: str) -> str | None:
    """Return the host of an option, in its one form; an address of IP 6 may have brackets."""
    bare = text.strip().removeprefix("[").removesuffix("]")
    if _address(bare) is not None:
        return str(_address(bare))
    if ":" in bare:
        return None
    try:
        # what browsers send of a name that is not of ASCII
        return host_of(bare if bare.isascii() else bare.encode("idna").decode("ascii"))
    except UnicodeError:
        return None


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address; one of IP 4 within IP 6 is that of IP 4, and a zone is left out."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
