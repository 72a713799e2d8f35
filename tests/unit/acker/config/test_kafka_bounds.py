"""Settings of Kafka's client that contradict each other, or ours: every kind of client, made as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acker.config.kafka_bounds import SESSION_MS, reconciled
from acker.config.kafka_settings import LACKING, OF_JAVA
from acker.config.topics import parse
from acker.errors import ConfigError
from acker.kafka import writer
from acker.kafka.client import CONNECTION_MS, SILENT_BROKER_MS, Background, KafkaClient
from acker.kafka.group import COORDINATOR_MS
from spout.cli import main as cli
from spout.doctor.client_kinds import KINDS, ClientKind, refused_by_clients


def settings(text: str) -> dict[str, str]:
    return dict(parse(f"kafka: {{{text}}}", file="topics.yaml", environ={}).kafka)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        settings(text)
    return str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "message.max.bytes: 104857600", "message.max.bytes: 1000000000", "message.max.bytes: 1000",
        "receive.message.max.bytes: 1512", "receive.message.max.bytes: 1000000",
        "receive.message.max.bytes: 2147483647", "session.timeout.ms: 600000", "session.timeout.ms: 3600000",
        "session.timeout.ms: 6000", "max.poll.interval.ms: 15000", "max.poll.interval.ms: 86400000",
        "socket.timeout.ms: 10", "socket.timeout.ms: 60200", "socket.timeout.ms: 300000",
        "linger.ms: 0", "linger.ms: 59999", "queue.buffering.max.ms: 1000",
        "reconnect.backoff.ms: 5000", "reconnect.backoff.max.ms: 10", "retry.backoff.ms: 1000",
        "fetch.max.bytes: 1000", "fetch.max.bytes: 2147483135", "message.timeout.ms: 1",
        "message.timeout.ms: 900000", "delivery.timeout.ms: 900000", "transaction.timeout.ms: 1000",
        "transaction.timeout.ms: 900000, socket.timeout.ms: 300000", "batch.size: 2147483647",
        "session.timeout.ms: 600000, max.poll.interval.ms: 600000", "message.timeout.ms: 0",
        "fetch.max.bytes: 200000000, receive.message.max.bytes: 200000512",
    ],
)  # fmt: skip
def test_settings_that_do_not_contradict_each_other_make_every_kind_of_client(text: str) -> None:
    """D1801. What of ours is in their way gives way."""
    assert refused_by_clients(settings(text)) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "max.poll.interval.ms: 10000",
            "max.poll.interval.ms: is below session.timeout.ms, 15000 where it is",
        ),
        (
            "max.poll.interval.ms: 50000, session.timeout.ms: 60000",
            "is below session.timeout.ms, 60000; give",
        ),
        (
            "fetch.max.bytes: 2000, receive.message.max.bytes: 2000",
            "is below fetch.max.bytes and 512 more; give 2512",
        ),
        ("fetch.max.bytes: 100", "fetch.max.bytes: is below 1000"),
        ("receive.message.max.bytes: 1000", "receive.message.max.bytes: is below 1512"),
        ("reconnect.backoff.ms: 50, reconnect.backoff.max.ms: 10", "is below reconnect.backoff.ms"),
        (
            "linger.ms: 400000",
            "linger.ms: is not below 60000, the time within which a record must be written",
        ),
        ("queue.buffering.max.ms: 900000", "queue.buffering.max.ms: is not below 60000"),
        ("linger.ms: 500, message.timeout.ms: 500", "linger.ms: is not below 500"),
    ],
)
def test_a_contradiction_of_the_users_own_settings_is_a_problem_of_the_file(text: str, says: str) -> None:
    """D1802. It names what the user wrote, at its line, for every command."""
    said = refusal(text)
    assert says in said
    assert said.startswith("topics.yaml:1: kafka.")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("mechanism", [*LACKING, "gssapi"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_mechanism_that_no_client_has_is_refused_with_another_way(name: str, mechanism: str) -> None:
    """D1803."""
    assert f"kafka.{name}: is " in refusal(f"{name}: {mechanism}")
    assert "OAUTHBEARER" in refusal(f"{name}: {mechanism}")


@pytest.mark.parametrize("name", OF_JAVA)
def test_a_name_of_javas_client_is_refused_with_what_to_write(name: str) -> None:
    """D1804."""
    assert f"kafka.{name}: is a setting of Java's client" in refusal(f"{name}: hunter2")
    assert "hunter2" not in refusal(f"{name}: hunter2")


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("bootstrap.sever: x", 2, 'No such configuration property: "bootstrap.sever"'),
        ("security.protocol: SASL", 2, "security.protocol"),
        ("security.protocol: SASL_SSL, sasl.mechanism: PLAIN", 2, "sasl.password must be set"),
        ("partitioner: hunter2", 2, "partitioner"),
        ("security.protocol: ssl, ssl.ca.location: /not/here.pem", 0, "warning: kafka.ssl.ca.location: "),
        ("socket.timeout.ms: 300000", 0, ""),
    ],
)  # fmt: skip
def test_validate_makes_each_kind_of_client_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: int, says: str
) -> None:
    """D1805. Without a broker, and without a file that only the machines that run have."""
    file = tmp_path / "topics.yaml"
    file.write_text(f"kafka: {{{text}}}\n")

    assert (cli.run(["validate", str(file)]) == 0) is (code == 0)
    printed = capsys.readouterr()
    assert says in printed.out + printed.err
    assert "hunter2" not in printed.out + printed.err


def test_a_transaction_is_no_longer_open_for_what_a_user_sets_for_sockets() -> None:
    """D1806. One that nobody ends holds back all readers until its timeout."""
    users = {"socket.timeout.ms": "300000", "message.timeout.ms": "900000"}
    forced: dict[str, Any] = {**writer.FORCED, "transactional.id": "t"}

    made = reconciled(writer.DEFAULTS, users, forced)

    assert "transaction.timeout.ms" not in made
    assert (made["socket.timeout.ms"], made["message.timeout.ms"]) == (60_100, 60_000)
    assert reconciled(writer.DEFAULTS, users, writer.FORCED)["socket.timeout.ms"] == "300000"


def test_what_contradicts_nothing_is_passed_on_as_it_is() -> None:
    users = {"socket.timeout.ms": "6000", "client.rack": "a"}
    assert reconciled(writer.DEFAULTS, users, writer.FORCED) == {**writer.DEFAULTS, **users, **writer.FORCED}


SILENCES_MS = {
    "socket.timeout.ms": SILENT_BROKER_MS,
    "socket.connection.setup.timeout.ms": CONNECTION_MS,
    "api.version.request.timeout.ms": CONNECTION_MS,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("users", [{}, {"socket.timeout.ms": "45000"}], ids=["default", "a user's"])
def test_each_kind_of_client_gives_a_silent_broker_up_soon(kind: ClientKind, users: dict[str, str]) -> None:
    """D1010. Else what is under way to it blocks its partition for a minute after another broker leads it."""
    connection = KafkaClient({"bootstrap.servers": "x:1", **users}, "c", 1000, lambda: 0.0)
    settings = connection.make_client(lambda made: made, kind.defaults, kind.forced, Background(lambda: 0.0))
    silent_ms = {name: int(settings[name]) for name in SILENCES_MS}
    of_kind = {"socket.timeout.ms": COORDINATOR_MS} if "session.timeout.ms" in kind.defaults else {}
    assert silent_ms == SILENCES_MS | of_kind | {name: int(value) for name, value in users.items()}


def test_a_member_asks_a_second_broker_for_its_coordinator_before_its_session_is_over() -> None:
    """D1011: a coordinator that waits for a silent broker says so after five seconds."""
    assert 5_000 + COORDINATOR_MS < SESSION_MS


@pytest.mark.parametrize("forced", [{}, {"transactional.id": "t"}], ids=["plain", "transactional"])
def test_a_producer_that_rests_learns_within_seconds_who_leads(forced: dict[str, str]) -> None:
    """D1012: its next record went to the silent broker, and waited ten seconds, when others led for long."""
    connection = KafkaClient({"bootstrap.servers": "x:1"}, "c", 1000, lambda: 0.0)
    forced = {**writer.FORCED, **forced}
    settings = connection.make_client(lambda made: made, writer.DEFAULTS, forced, Background(lambda: 0.0))
    assert settings["topic.metadata.refresh.interval.ms"] <= 3_000
