"""Makes each kind of Kafka client once, without a broker, to see what librdkafka refuses.

A setting may be refused by one kind alone: a producer with transactions, a member of a group, a
task of Spark. Without this check it is noticed only when that part starts.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from acker.config.kafka_bounds import SERVERS
from acker.config.kafka_settings import TOKEN_FUNCTION, missing_files
from acker.errors import ConfigError
from acker.kafka import client, group, reader, writer
from acker.kafka.client import CHECKED, Background, KafkaClient
from acker.kafka.tokens import token_function
from spout.doctor.codes import CLIENT, CheckResult
from spout.streaming import consume


@dataclass(frozen=True, slots=True)
class ClientKind:
    """One kind of client: what makes it, and the settings that it has of its own."""

    make: Callable[[dict[str, Any]], Any]
    defaults: Mapping[str, Any]
    forced: Mapping[str, Any]


_WRITER: Final = {**writer.FORCED, **client.SILENT}
_READER: Final = {**reader.FORCED, **client.SILENT}
_MEMBER: Final = {**group.FORCED, **client.SILENT, "group.id": "windhover-validate"}

KINDS: Final[Mapping[str, ClientKind]] = {
    "producer": ClientKind(Producer, writer.DEFAULTS, _WRITER),
    "producer with transactions": ClientKind(
        Producer, writer.DEFAULTS, {**_WRITER, "transactional.id": "windhover-validate"}
    ),
    "reader": ClientKind(Consumer, reader.DEFAULTS, _READER),
    "reader of single batches": ClientKind(Consumer, {**reader.DEFAULTS, **reader.ONE_BATCH}, _READER),
    "member of a group": ClientKind(Consumer, group.DEFAULTS, _MEMBER),
    "task of Spark": ClientKind(Consumer, consume.SETTINGS, CHECKED),
    "task of Spark with small ranges": ClientKind(Consumer, consume.TOGETHER, {**consume.AT_ONCE, **CHECKED}),
    "admin client": ClientKind(AdminClient, {}, client.SILENT),
}
"""Every kind that differs in what librdkafka may refuse."""


def judge_clients(file: str, settings: Mapping[str, str]) -> Iterator[CheckResult]:
    """Judge whether clients can be made of the settings; nothing is asked of a broker."""
    cure = CLIENT.cure.format(file=shlex.quote(file))
    missing = missing_files(settings)
    problems = [f"kafka.{name}: {settings[name]} is not on this machine" for name in missing]
    try:
        problems += refused_by_clients(settings)
    except ConfigError as error:  # the function that gives tokens
        problems.append(str(error))
    if not problems:
        yield CLIENT.ok(file, "each kind of client takes them")
    for problem in problems:
        yield CLIENT.failed(file, problem, cure=cure)


def refused_by_clients(settings: Mapping[str, str]) -> list[str]:
    """Return a line for each reason why librdkafka refuses settings; none: it takes them.

    Settings that name missing files are left out: the machine that checks need not be one that
    runs.
    """
    # without an address no client looks for a broker
    left_out = {*SERVERS, *missing_files(settings)}
    tried = {name: value for name, value in settings.items() if name not in left_out}
    if TOKEN_FUNCTION in tried:
        # it is only imported: a client would wait a second for its first token
        token_function(tried.pop(TOKEN_FUNCTION))
    connection = KafkaClient(tried, "windhover-validate", 1000, time.monotonic)
    kinds_by_line: dict[str, list[str]] = {}
    for name, kind in KINDS.items():
        try:
            new_client = connection.make_client(
                kind.make, kind.defaults, kind.forced, Background(time.monotonic)
            )
        except ConfigError as error:
            kinds_by_line.setdefault(str(error), []).append(name)
        else:
            if kind.make is Consumer:
                new_client.close()
    return [
        line if len(names) == len(KINDS) else f"{line} (refused by: {', '.join(names)})"
        for line, names in kinds_by_line.items()
    ]
