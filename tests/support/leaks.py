"""Looks for a secret in what others may see: as it is, or inside something that is written in base64."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from pathlib import Path

SHOWN = 200
"""Characters around a find that are shown."""


def leaks(secret: str, texts: Iterable[str]) -> list[str]:
    """Return the text around each place where a secret occurs."""
    forms = {secret, *_inside_base64(secret)}
    found = ((text, text.find(form)) for text in texts for form in forms)
    return [text[max(0, at - SHOWN) : at + SHOWN] for text, at in found if at >= 0]


def processes() -> Iterator[str]:
    """Yield what `ps` shows of each process of this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended meanwhile


def _inside_base64(secret: str) -> Iterator[str]:
    """Yield how a secret looks inside a longer text in base64; that depends on how many bytes precede it."""
    for before in range(3):
        raw = b"\0" * before + secret.encode()
        whole = base64.b64encode(raw[: len(raw) // 3 * 3]).decode()
        yield whole[4:] if before else whole
