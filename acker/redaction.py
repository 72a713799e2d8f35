"""Cuts out of addresses, settings and messages what nobody else may read, before a person sees them; pure.

Nobody knows all places in which a program of others repeats an address:
librdkafka quotes settings, a driver its address, and Java's tools their
properties. So two things are looked for. What *looks like* a secret is found
by its form (`cut`): the password in an address, the values of its query, a
token behind ``Bearer``, a private key, a property whose name says it. What
*is* a secret, since a setting or a variable has it, is found wherever it
stands (`SecretValues`), also in parts: librdkafka quotes it from where it
stumbled.

Error texts, logs and the report of ``windhover doctor`` pass through here.
What a record holds does not: it is shown to whoever may read the record,
exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

HIDDEN: Final = "…"
"""What stands where something was cut out."""

SHORT: Final = 6
"""A number of fewer digits is no secret, and a text of fewer letters may be a part of a word."""

SECRET_NAME: Final = re.compile(
    r"passw|passphrase|secret|token|jaas|oauth|pem\b|credential|private|signature|\bsig\b|api.?key|access.?key"
    r"|auth|cookie|\bkey\b|keystore",
    re.IGNORECASE,
)
"""Names of settings, variables and properties whose values are never shown."""

_PEM: Final = re.compile(r"-----BEGIN [^-]{0,100}-----.*?(?:-----END [^-]{0,100}-----|\Z)", re.DOTALL)

_SCHEME: Final = r"((?<![a-z0-9+.\-])[a-z][a-z0-9+.\-]{0,30}://"

# Whoever writes a record writes an error's text as well. So no form may begin
# at each character and read on to the end: each begins where a word does, and
# reads so many characters at most.
_FORMS: Final = (
    # https://user:password@host
    (re.compile(_SCHEME + r")[^\s/\"'<>]{0,1000}@", re.I), rf"\1{HIDDEN}@"),
    # https://user:pass/word@host: what stands behind the colon is no port
    (
        re.compile(_SCHEME + r")[^\s/:\"'<>]{0,200}:(?!\d+[/?#\s])[^\s\"'<>]{0,1000}@", re.I),
        rf"\1{HIDDEN}@",
    ),
    # https://host:word/path: a port has digits, so somebody has left the host
    # out behind a password
    (re.compile(_SCHEME + r"[^\s/:@\[\"'<>]{1,200}:)(?!\d+\b)[^\s/@\"'<>]+", re.I), rf"\1{HIDDEN}"),
    # jdbc:oracle:thin:user/password@host
    (re.compile(r"(\bjdbc:\w{1,30}:\w{1,30}:)[^\s@/]{1,200}/[^\s@]{1,200}@", re.I), rf"\1{HIDDEN}@"),
    # user:password@host:9092, which is no form of Kafka's, but what people try
    (re.compile(r"(?<![\w/.@:\-])[\w.\-]{1,200}:[^\s/\"',;]{1,1000}@(?=[\w.\-])"), f"{HIDDEN}@"),
    # https://host/path?token=...&user=..., and ;password=... of JDBC
    (re.compile(r"(?<=[?&;])([\w.\-\[\]]{1,100}=)[^&;#\s\"'<>]+"), rf"\1{HIDDEN}"),
    (re.compile(r"\b(bearer|basic|digest)\s{1,4}[\w.~+/=\-]{6,}", re.I), rf"\1 {HIDDEN}"),
    (re.compile(r"(?<![\w\-])eyJ[\w\-]+\.[\w\-]+(?:\.[\w\-]*)?"), HIDDEN),
    # sasl.password=..., PASSWORD='...', and username="..." password="..." of JAAS
    (
        re.compile(
            r"((?:passw|passphrase|secret|token|jaas|credential|api_?key)[\w.\-]{0,100}[\"']?\s{0,3}=\s{0,3})"
            rf"(?!{HIDDEN})(\"[^\"]*\"|'[^']*'|[^\s,;}}\]]+)",
            re.I,
        ),
        rf"\1{HIDDEN}",
    ),
)
"""Forms of secrets, each with what stands in its place; a comment has an example."""

_VARIABLE: Final = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")

_PARTS: Final = re.compile(r"[\s=;,&?\"'<>{}\[\]()]+")
"""What separates the parts of a setting that holds several values."""


def cut(text: str) -> str:
    """Return a text with `HIDDEN` in place of each part that has the form of a secret.

    >>> cut("https://me:hunter2@repo.example/maven2?token=abc is not there")
    'https://…@repo.example/maven2?token=… is not there'
    """
    text = _PEM.sub(HIDDEN, text)
    for form, replacement in _FORMS:
        text = form.sub(replacement, text)
    return text


class SecretValues:
    """Secrets that are known, each with what is shown in its place."""

    def __init__(self, instead: Mapping[str, str]) -> None:
        """Prepare to hide secrets: `instead` leads from each to what is shown, such as ``${NAME}``."""
        self._shown_by_secret = {secret: shown for secret, shown in instead.items() if secret}
        # the longest first, since one may be a part of another
        secrets = sorted(self._shown_by_secret, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_pattern_of, secrets)) or r"(?!)")  # (?!) is nowhere

    def hide(self, text: str) -> str:
        """Return a text without these secrets, and without any part that has the form of one."""
        return cut(self._pattern.sub(lambda match: self._shown_by_secret[match[0]], text))

    def shown_for(self, value: str) -> str | None:
        """Return what is shown instead of a whole value; None: it is no secret."""
        return self._shown_by_secret.get(value)


def setting_secrets(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets of client settings: values whose name says that they are secrets.

    Also yield the lines and the parts of each. Those with fewer than `SHORT` characters are left out:
    they may be parts of words.
    """
    for name, value in settings.items():
        if value and SECRET_NAME.search(name):
            yield value
            yield from (line for line in value.splitlines() if len(line) >= SHORT)
            yield from (part for part in _PARTS.split(value) if len(part) >= SHORT)


def variable_secrets(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the variables that the text of a topics.yaml names, and their defaults.

    They are a mapping from each value to what is shown in its place, ``${NAME}``.
    A value is in it a second time as `repr` escapes it. Values that are no
    secret, such as ``true`` or ``8``, are left out.
    """
    shown_by_secret: dict[str, str] = {}
    for name, default in _VARIABLE.findall(text):
        for value in (environ.get(name, ""), default):
            # shorter than `SHORT` and a number or a truth value: it would be replaced in all texts
            is_no_secret = len(value) < SHORT and (value.isdigit() or value in ("true", "false"))
            if value and not is_no_secret:
                shown = f"${{{name}}}"
                quoted = repr(value)[1:-1]
                shown_by_secret |= {value: shown, quoted: shown}
    return shown_by_secret


def _pattern_of(secret: str) -> str:
    """Return the pattern of a secret; a short one must be a whole word, or texts would lose letters."""
    pattern = re.escape(secret)
    return pattern if len(secret) >= SHORT else rf"(?<!\w){pattern}(?!\w)"
