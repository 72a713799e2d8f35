"""Decides for which hosts a server answers, so that no other web site can read our pages; pure.

The attack (DNS rebinding): somebody opens a page of ``evil.example``, and then its owner gives
that name our address, 127.0.0.1. The browser takes our answers for those of ``evil.example``,
and lets the scripts of that page read them. But in the header Host the browser still sends
``evil.example``. So a server answers only for hosts that no stranger can point at us:

- this machine: ``localhost``, the addresses of loopback, and the machine's own name;
- the address at which the connection arrived, for a probe or a scraper that was given it in numbers;
- the host that the process listens on by its options, and those that ``--allow-host`` names.

Hosts are compared in their *one form*: small letters, no port, no dot at the end, addresses as
`ipaddress` writes them. The first line of a request may have a host too (``GET
http://localhost:8095/``, a target in absolute form); then both must be allowed.

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
"""The HTTP status for a request whose host is not allowed (Misdirected Request)."""

PORT_MAX: Final = 65_535

_LOCALHOST: Final = "localhost"

_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)(?:%[\w.~-]+)?\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>\d{0,5}))?",
    re.ASCII,
)

_ABSOLUTE: Final = re.compile(r"https?://(?P<authority>[^/?#]*)(?P<path>.*)", re.IGNORECASE | re.DOTALL)


def host_of(authority: str) -> str | None:
    """Return the host that a Host header or a target names, in its one form; None: that is no host.

    >>> [host_of(text) for text in ("LocalHost.:8095", "[0:0::1]:80", "[::ffff:10.0.0.5]", "a@b", "")]
    ['localhost', '::1', '10.0.0.5', None, None]
    """
    match = _AUTHORITY.fullmatch(authority.strip(" \t"))
    if match is None or int(match["port"] or 0) > PORT_MAX:
        return None
    ipv6_text = match["six"]
    if ipv6_text is not None:
        address = _address(ipv6_text) if ":" in ipv6_text else None
        return None if address is None else str(address)
    name = match["name"].lower().removesuffix(".")
    address = _address(name)
    if address is not None:
        return str(address)
    return name or None  # a single dot is no name


def split_address(address: str) -> tuple[str, int] | None:
    """Return host and port of ``HOST:PORT``; None: it is no such address.

    A host of IPv6 has brackets there, and is returned without them.

    >>> split_address("[::1]:9100"), split_address("::1:9100"), split_address("acker-1:9100")
    (('::1', 9100), None, ('acker-1', 9100))
    """
    host, _, port = address.rpartition(":")
    # five digits at most: Python reads no number of thousands of them
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= PORT_MAX
    # an address of IPv6 has colons, and needs brackets before a port; no other host has them
    has_brackets = host.startswith("[")
    is_host = host == host.strip() and _host_of_option(host) is not None
    if not is_host or not is_port or has_brackets != (":" in host):
        return None
    return host[1:-1] if has_brackets else host, int(port)


def path_of_target(target: str) -> str:
    """Return the path of a target, without the host that may be before it (absolute form).

    The target is one without its query.

    >>> path_of_target("http://localhost:8095/failures"), path_of_target("/failures")
    ('/failures', '/failures')
    """
    match = _ABSOLUTE.fullmatch(target)
    return target if match is None else match["path"] or "/"


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Hosts that a server answers for, beside loopback and the address where a connection arrives.

    Attributes:
        names: the hosts, each in its one form.
    """

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, listens_on: str, machine: str, named: Iterable[str] = ()) -> Self:
        """Return what is allowed beside what a process listens on.

        Args:
            listens_on: the address or name of ``--host`` or ``--metrics-port``.
            machine: the machine's name. Of ``acker-1.example`` the part before the first dot is
                allowed as well: nobody can register a name without a dot.
            named: the values of ``--allow-host``.

        Raises:
            UsageError: one of `named` is no host.
        """
        hosts = {_required_host(text) for text in named}
        for text in (listens_on, machine, machine.partition(".")[0]):
            own_host = _host_of_option(text)
            if own_host is not None:
                hosts.add(own_host)
        return cls(frozenset(hosts))

    def refusal(self, host_headers: Sequence[str], target: str, arrived_at: str) -> str:
        """Return why a request is refused; empty: it is answered.

        The text names no host that is allowed: a stranger's script might read it.

        Args:
            host_headers: the values of all its Host headers.
            target: what its first line asks for, without the query: a path, or ``*``, or a URL.
            arrived_at: the address of this machine at which the connection arrived.
        """
        # an authority is a host with or without a port; all that the request names have to be
        # allowed
        authorities = list(host_headers)
        is_absolute = not target.startswith("/") and target != "*"
        if is_absolute:
            match = _ABSOLUTE.fullmatch(target)
            authorities.append("" if match is None else match["authority"])
        if not authorities:
            return f"The request names no host: send the header Host, with one that {OPTION} allows."
        for authority in authorities:
            host = host_of(authority)
            if host is None or not self._is_allowed(host, arrived_at):
                refused = Untrusted(cut(authority))
                return f"No answer for the host '{refused}': start the process with {OPTION} to allow it."
        return ""

    def _is_allowed(self, host: str, arrived_at: str) -> bool:
        """Return whether a host, in its one form, is allowed at an address of this machine."""
        if host == _LOCALHOST or host in self.names:
            return True
        address = _address(host)
        return address is not None and (address.is_loopback or address == _address(arrived_at))


def is_loopback(listens_on: str) -> bool:
    """Return whether only this machine can reach an address that a process listens on."""
    host = _host_of_option(listens_on)
    if host == _LOCALHOST:
        return True
    address = _address(host or "")
    return address is not None and address.is_loopback


def _required_host(text: str) -> str:
    """Return the host that an option names, in its one form.

    Raises `UsageError`: the text is no host, or more than a host.
    """
    host = _host_of_option(text)
    if host is None:
        raise UsageError(
            f"{OPTION} {Untrusted(cut(text)) or 'without a value'}: it is no host; give a name"
            " or an address without scheme, port and path, such as page.example.com. It has no"
            " sign for all hosts"
        )
    return host


def _host_of_option(text: str) -> str | None:
    """Return the host that an option names, in its one form.

    None: the text is no host, or more than a host. An address of IP 6 may have brackets.
    """
    host_text = text.strip()
    if host_text.startswith("["):
        address = _address(host_text[1:-1])
        is_ipv6 = host_text.endswith("]") and ":" in host_text and address is not None
        return str(address) if is_ipv6 else None
    address = _address(host_text)
    if address is not None:
        return str(address)
    has_port_or_scheme = ":" in host_text
    if has_port_or_scheme:
        return None
    try:
        # browsers send ``bücher.example`` as ``xn--bcher-kva.example``
        sent_text = host_text if host_text.isascii() else host_text.encode("idna").decode("ascii")
    except UnicodeError:
        return None
    return host_of(sent_text)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Return a text as an IP address; None: it is no address.

    ``::ffff:10.0.0.5`` becomes 10.0.0.5, and ``fe80::1%eth0`` becomes fe80::1.
    """
    host, percent, zone = text.partition("%")
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if percent and (not zone or isinstance(address, IPv4Address)):  # only IPv6 has zones
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
