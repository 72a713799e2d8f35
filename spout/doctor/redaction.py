"""Takes secrets out of a report: passwords, keys, tokens, variables, payloads; pure.

Of the section `kafka` and of log lines a report shows only what is listed here as harmless. The
secrets of topics.yaml are then replaced in every other text as well, since an error may quote
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from acker.config.topics import AS_WRITTEN
from acker.config.yaml_text import read_yaml
from acker.redaction import HIDDEN, SHORT, SecretValues, variable_secrets
from spout.inspect.tables import json_text

HARMLESS: Final = re.compile(
    r"bootstrap\.servers|metadata\.broker\.list|security\.protocol|client\.(id|rack)"
    r"|broker\.address\.family|compression\.(type|codec)|.*\.(ms|bytes|kbytes|messages)"
)
"""Client settings whose values are shown."""

SECRET: Final = re.compile(
    r"passw|secret|token|jaas|oauth|pem|credential|private|certificate|key\b|sasl|ssl",
    re.IGNORECASE,
)
"""Names whose values are never shown; nor is that of a client setting that is not harmless."""

SHOWN_FIELDS: Final = frozenset({
    "event", "level", "time", "logger", "topic", "partition", "offset", "input", "group",
    "session", "epoch", "root", "attempt", "repeated", "roots", "inputs",
})  # fmt: skip
"""Fields of a log line that hold no text of a user's record or exception."""

SHOWN_TEXTS: Final = frozenset({"error", "why", "detail"})
"""Fields that are shown of the events below."""

OF_KAFKA: Final = frozenset({
    "unreachable", "broker_unreachable", "not_committed", "not_reloaded", "aborted", "fenced",
    "lost", "partition_fenced", "transaction_aborted", "take_refused", "restored", "step_slow", "step_hung",
})  # fmt: skip
"""Events, without the first part of their names, whose texts are Kafka's and ours alone."""

LEFT_OUT: Final = "{} lines of other programs, or cut off, were left out: they may hold payloads"
"""The last line of a log from which lines are missing, with their number."""

_SETTING: Final = re.compile(
    r"((?:passw|secret|token|jaas|credential|sasl|ssl)[\w.\-]{0,100}[\"']?\s{0,3}[=:]\s{0,3})"
    r"(\"[^\"]*\"|'[^']*'|[^\s,;}\]]+)",
    re.I,
)
"""A setting with the name of a secret; behind a colon too: better too much is hidden."""


class _Names(Mapping[str, str]):
    """An environment in which each variable is its own name, ``${HOME}``: nothing secret shows."""

    def __getitem__(self, name: str) -> str:
        return f"${{{name}}}"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Redactor:
    """Hides the secrets and the variables of one topics.yaml, and what looks like a secret."""

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        """Prepare, with the text of topics.yaml and the environment in which it is read."""
        self._values = SecretValues(dict(_secrets(text, environ)))

    def text(self, text: str) -> str:
        return _SETTING.sub(rf"\1{HIDDEN}", self._values.hide(text))

    def value(self, value: Any) -> Any:
        """Return plain data without secrets: numbers too, where a variable holds the same one."""
        if isinstance(value, Mapping):
            shown_fields = {}
            for name, field in value.items():
                is_secret = bool(SECRET.search(str(name))) and bool(field)
                shown_fields[self.text(str(name))] = HIDDEN if is_secret else self.value(field)
            return shown_fields
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Iterable):
            return [self.value(element) for element in value]
        if value is None or isinstance(value, bool):
            return value
        shown = self._values.shown_for(str(value))
        return value if shown is None else shown


def _secrets(text: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each secret of a topics.yaml, and what is shown in its place."""
    yield from variable_secrets(text, environ).items()
    data = read_yaml(text, environ, AS_WRITTEN).data
    kafka = data.get("kafka") if isinstance(data, Mapping) else None
    for name, value in kafka.items() if isinstance(kafka, Mapping) else ():
        is_secret = bool(SECRET.search(name)) and not HARMLESS.fullmatch(name)
        if is_secret and isinstance(value, str) and value:
            yield value, HIDDEN
            # an error may quote one line of a key; a short line may be a word of other texts, too
            long_lines = [line for line in value.splitlines() if len(line) >= SHORT]
            yield from ((line, HIDDEN) for line in long_lines)


def redacted_topics(text: str, redactor: Redactor) -> Any:
    """Return the data of a topics.yaml, with variables by name and harmless settings of Kafka."""
    document = read_yaml(text, _Names())
    if not isinstance(document.data, Mapping):
        return {"unreadable": [redactor.text(str(problem)) for problem in document.problems]}
    other_sections = dict(document.data)
    kafka = other_sections.pop("kafka", None)
    shown_settings = {}
    for name, value in kafka.items() if isinstance(kafka, Mapping) else ():
        shown_settings[name] = redactor.value(value) if HARMLESS.fullmatch(name) else HIDDEN
    return {"kafka": shown_settings, **redactor.value(other_sections)}


def redacted_log(lines: Iterable[str], redactor: Redactor) -> Iterator[str]:
    """Yield our own log lines, with harmless fields alone; then how many lines were left out."""
    left_out_count = 0
    for line in lines:
        fields = _fields(line)
        if fields is None:
            left_out_count += 1
            continue
        is_of_kafka = str(fields["event"]).partition(".")[2] in OF_KAFKA
        shown_names = SHOWN_FIELDS | SHOWN_TEXTS if is_of_kafka else SHOWN_FIELDS
        shown_fields = {}
        for name, value in fields.items():
            shown_fields[name] = redactor.value(value) if name in shown_names else HIDDEN
        yield json_text(shown_fields)
    if left_out_count:
        yield LEFT_OUT.format(left_out_count)


def _fields(line: str) -> Mapping[str, Any] | None:
    """Return the fields of a line of ours; None: it is of another program, or cut off.

    Text before the JSON is ignored: systemd's journal puts time and host there.
    """
    try:
        fields = json.loads(line[line.find("{") :])
    except ValueError:
        return None
    if not isinstance(fields, Mapping):
        return None
    has_our_event = re.fullmatch(r"[a-z_]+\.[a-z_]+", str(fields.get("event", "")))
    return fields if has_our_event else None
