"""Kafka's client settings, passed through verbatim.

They may hold secrets, so they never show themselves. Settings that would switch a guarantee off,
or that Windhover must set itself, are refused with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from acker.config.kafka_bounds import SERVERS, contradictions
from acker.config.problems import Problem
from acker.redaction import HIDDEN, SecretValues, setting_secrets

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"

_GROUPS: Final = "each part has a group of its own: acker.group, acker.replay_group, inputs.<name>.group"
_OFFSETS: Final = "offsets are committed only after their verdicts are durable"
_DURABLE: Final = (
    "a record that was sent must be durable, in order and once: acks=all and idempotence are fixed"
)
_IN_TURN: Final = "with more than one request under way a refused record may be taken for written; it is 1"
_VISIBLE: Final = "each reader's isolation is part of the protocol"
_RANGES: Final = "a member gets the same partition numbers of several topics: the classic protocol and ranges"
_SKIP: Final = "a position below the log start must be an error, never a silent jump; see on_data_loss"

REFUSED: Final[Mapping[str, str]] = {
    "group.id": _GROUPS,
    "group.instance.id": "two processes with one file would take each other's place",
    "transactional.id": "there is one for each acker partition, so that a new owner fences the old one",
    "enable.auto.commit": _OFFSETS,
    "auto.commit.enable": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "isolation.level": _VISIBLE,
    "auto.offset.reset": _SKIP,
    "enable.partition.eof": "ends of partitions are how a reader knows that it has read everything",
    "acks": _DURABLE,
    "request.required.acks": _DURABLE,
    "enable.idempotence": _DURABLE,
    "max.in.flight": _IN_TURN,
    "max.in.flight.requests.per.connection": _IN_TURN,
    "retries": _DURABLE,
    "message.send.max.retries": _DURABLE,
    "delivery.report.only.error": "a flush waits for the report of every record",
    "allow.auto.create.topics": "a topic made by accident loses data; use `windhover topics create`",
    "client.id": "each part names its own clients, so that members of a group differ",
    "group.protocol": _RANGES,
    "partition.assignment.strategy": _RANGES,
}
"""Settings that may not be given, each with the reason."""

_REMOVE: Final = "remove it"
_PEM: Final = "give certificates as PEM: ssl.ca.location, ssl.certificate.location and ssl.key.location"
OF_JAVA: Final[Mapping[str, str]] = {
    "sasl.jaas.config": "set sasl.username and sasl.password, and remove it",
    "sasl.login.callback.handler.class": "give oauth_cb, a function that returns a token, and remove it",
    "sasl.client.callback.handler.class": "give oauth_cb, a function that returns a token, and remove it",
    "ssl.truststore.location": _PEM,
    "ssl.truststore.password": _PEM,
    "ssl.truststore.type": _PEM,
    "ssl.truststore.certificates": "set ssl.ca.pem instead",
    "ssl.keystore.type": "ssl.keystore.location takes PKCS#12; remove it",
    "ssl.keystore.key": "set ssl.key.pem instead",
    "ssl.keystore.certificate.chain": "set ssl.certificate.pem instead",
    "ssl.protocol": "it takes the newest protocol that both sides know; remove it",
    "ssl.enabled.protocols": "it takes the newest protocol that both sides know; remove it",
    "key.serializer": _REMOVE,
    "value.serializer": _REMOVE,
    "key.deserializer": _REMOVE,
    "value.deserializer": _REMOVE,
    "max.request.size": "set message.max.bytes instead",
    "fetch.max.wait.ms": "set fetch.wait.max.ms instead",
    "buffer.memory": "set queue.buffering.max.kbytes instead",
    "max.block.ms": "inputs.<name>.unreachable says how long a query waits; remove it",
    "default.api.timeout.ms": "acker.limits.operation says how long an answer is waited for; remove it",
    "interceptor.classes": _REMOVE,
    "metric.reporters": _REMOVE,
}
"""Settings that only Java's client has, each with what to write."""

_MECHANISMS: Final = ("sasl.mechanism", "sasl.mechanisms")
LACKING: Final[Mapping[str, str]] = {
    "GSSAPI": "is Kerberos, which the wheel of confluent-kafka lacks; use SCRAM-SHA-512 or OAUTHBEARER, or"
    " build confluent-kafka with libsasl2: see docs/operate/logins.md",
    "AWS_MSK_IAM": "is a mechanism of Java's client; set OAUTHBEARER, and a token of AWS by oauth_cb: see"
    " docs/operate/logins.md",
}
"""Mechanisms of SASL that no client here has."""

TOKEN_FUNCTION: Final = "oauth_cb"
"""The one function among the settings: it is named, as module:function, and imported by each client."""

_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

_COUNTED: Final = (".ms", ".bytes", ".kbytes", ".messages", ".size")
"""Settings that end so are numbers. Of any text librdkafka reads the digits it begins with: 15s as 15 ms."""
# librdkafka reads 010 as 8, as C does
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]*)")
_FRACTION: Final = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]+)?")
_WHOLE_WITH_POINT: Final = re.compile(r"(?<=[0-9])\.0+(?=\s*$)")
_FRACTIONS: Final = ("linger.ms", "queue.buffering.max.ms")

_WORD: Final = re.compile(
    r"gssapi|oauthbearer|oidc|plain|plaintext|sasl_plaintext|sasl_ssl|scram-sha-(256|512)|ssl|snappy|lz4|zstd|gzip"
    r"|none",
    re.IGNORECASE,
)
"""Values that are words of Kafka's: a message of librdkafka may have them."""

_QUOTED_VALUE: Final = re.compile(r'value "[^"]*"')


class KafkaSettings(Mapping[str, str]):
    """Client settings by name. Only names are ever printed."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"KafkaSettings({', '.join(self._values)}; values hidden)"


def kafka_settings(data: Mapping[str, object]) -> tuple[KafkaSettings, list[Problem]]:
    """Return those settings of a section ``kafka`` that are acceptable, and what is wrong with the others."""
    values: dict[str, str] = {}
    problems: list[Problem] = []
    for name, value in data.items():
        wrong = _wrong_setting(name, value)
        if wrong:
            problems.append(Problem(("kafka", name), wrong))
        else:
            values[name] = _value_for_client(name, value)
    if not problems:
        problems += [*contradictions(values), *_login_problems(values)]
    if not values.keys() & set(SERVERS):
        values["bootstrap.servers"] = BOOTSTRAP_DEFAULT
    return KafkaSettings(values), problems


def _wrong_setting(name: str, value: object) -> str:
    """Return what is wrong with one client setting, in words that follow its name.

    Empty: nothing is wrong.
    """
    # 1. what may not be set at all, and what is no setting
    if name in REFUSED:
        return f"may not be set: {REFUSED[name]}; remove it"
    if name == TOKEN_FUNCTION:
        is_named = isinstance(value, str) and _FUNCTION.fullmatch(value) is not None
        return "" if is_named else "names no function that returns a token; write module:function"
    if name.endswith("_cb") or name in ("on_commit", "on_delivery", "logger"):
        return "is a function of the client library, not a setting; remove it"
    if not isinstance(value, str | int | float):
        return "must be text, a number or true/false; write one dotted setting to a line"
    if name in SERVERS and not str(value).strip():
        return "is empty; give host:port, several separated by commas"
    if name in SERVERS and "@" in str(value):
        return (
            "has a login, which Kafka's addresses do not; set sasl.username and sasl.password, and remove it"
        )
    # 2. what other clients or tools call so
    dotted = name.removeprefix("kafka.").replace("_", ".")
    if dotted != name:
        return f"is not a setting of librdkafka; did you mean `{dotted}`?"
    if dotted in OF_JAVA:
        return f"is a setting of Java's client, which librdkafka does not have; {OF_JAVA[dotted]}"
    if name in _MECHANISMS and str(value).strip().upper() in LACKING:
        return LACKING[str(value).strip().upper()]
    # 3. values
    number_pattern = _FRACTION if name in _FRACTIONS else _WHOLE
    is_counted = name.endswith(_COUNTED)
    if is_counted and number_pattern.fullmatch(_value_for_client(name, value).strip()) is None:
        return "is no number without a unit, such as 15000"
    return ""


def _login_problems(values: Mapping[str, str]) -> Iterator[Problem]:
    """Yield what is wrong with a login by token: no setting gives a token, or no setting wants
    one.
    """
    mechanism_key = next((name for name in _MECHANISMS if name in values), "")
    is_by_token = values.get(mechanism_key, "").strip().upper() == "OAUTHBEARER"
    if is_by_token and not any(_gives_token(name, value) for name, value in values.items()):
        text = (
            "is a login by token, and nothing here gives one; set oauth_cb to a function (module:function),"
            " or sasl.oauthbearer.method: oidc with its settings: see docs/operate/logins.md"
        )
        yield Problem(("kafka", mechanism_key), text)
    if TOKEN_FUNCTION in values and not is_by_token:
        text = "gives tokens, which only sasl.mechanism: OAUTHBEARER asks for; set that, or remove it"
        yield Problem(("kafka", TOKEN_FUNCTION), text)


def _gives_token(name: str, value: str) -> bool:
    """Return whether a setting says where the client gets its tokens from."""
    if name == "sasl.oauthbearer.method":
        return value.strip().lower() == "oidc"
    if name == "enable.sasl.oauthbearer.unsecure.jwt":
        return value.strip().lower() in ("true", "t", "1")
    return name in (TOKEN_FUNCTION, "sasl.oauthbearer.metadata.authentication.type")


def _value_for_client(name: str, value: object) -> str:
    """Return a value as librdkafka gets it: as it stands, but 15000.0 as the whole number that it is."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return _WHOLE_WITH_POINT.sub("", text) if name.endswith(_COUNTED) else text


def missing_files(settings: Mapping[str, str]) -> list[str]:
    """Return the names of those settings that name a file or folder which is not on this machine."""
    missing: list[str] = []
    for name, value in settings.items():
        path = Path(value)
        # librdkafka takes "probe" for a search of its own
        if name.endswith(".location") and str(path) != "probe" and not path.exists():
            missing.append(name)
    return missing


def hide_values(text: str, settings: Mapping[str, str]) -> str:
    """Return a text of librdkafka without those settings that may be secrets, and without parts of them."""
    return SecretValues(dict.fromkeys(setting_secrets(settings), HIDDEN)).hide(text)


def refused_setting(message: str, settings: Mapping[str, str]) -> str:
    """Return in one line which client setting librdkafka refuses, without the values that it
    quotes.

    `message` is librdkafka's. Values of settings may be secrets.
    """
    hidden_values: dict[str, str] = {}
    for name, value in settings.items():
        # addresses, and words such as `sasl_ssl`, are no secrets, and the message may need them
        if name not in SERVERS and not _WORD.fullmatch(value):
            hidden_values[value] = HIDDEN
    without_values = SecretValues(hidden_values).hide(_QUOTED_VALUE.sub("value", message))
    text = hide_values(without_values, settings)
    return f"topics.yaml: kafka: {' '.join(text.split())}; correct the setting, or remove it"
