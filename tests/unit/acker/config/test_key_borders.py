"""What a key of topics.yaml takes at both ends of its range, and which setting a refusal is about."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from acker.config.effects import Effect, Process
from acker.config.kafka_bounds import RANGES, needs_trial
from acker.config.settings import Input
from acker.config.topics import parse
from acker.errors import ConfigError
from acker.units import TIME_MS_MAX

SERVERS = ("bootstrap.servers", "metadata.broker.list")


def kafka_refusal(text: str) -> str:
    """Return why a section ``kafka`` is refused; empty: it is taken."""
    try:
        parse(f"kafka: {{{text}}}", file="topics.yaml", environ={})
    except ConfigError as error:
        return str(error)
    return ""


def input_refusal(text: str) -> str:
    """Return why an input with these keys is refused; empty: it is taken."""
    section = f"inputs: {{orders: {{id: 1, topic: orders, group: g, partitions: 1, {text}}}}}"
    try:
        parse(section, file="topics.yaml", environ={})
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize(
    ("value", "says"), [("", "is empty"), ("  ", "is empty"), ("kim:x@b:9092", "a login")]
)
def test_brokers_that_are_empty_or_have_a_login_are_refused_by_name(name: str, value: str, says: str) -> None:
    refusal = kafka_refusal(f"{name}: '{value}'")
    assert name in refusal
    assert says in refusal


@pytest.mark.parametrize("value", ["", "  ", "kim@example.org"])
def test_what_brokers_may_not_be_any_other_setting_may_be(value: str) -> None:
    assert kafka_refusal(f"sasl.password: '{value}', client.rack: '{value}'") == ""


@pytest.mark.parametrize(
    "token_setting",
    [
        "oauth_cb: 'os:getcwd'",
        "sasl.oauthbearer.method: OIDC",
        "enable.sasl.oauthbearer.unsecure.jwt: true",
        "sasl.oauthbearer.metadata.authentication.type: azure_imds",
    ],
)
def test_a_login_by_token_needs_one_setting_that_gives_it(token_setting: str) -> None:
    login = "sasl.mechanism: OAUTHBEARER, security.protocol: SASL_SSL"
    assert "nothing here gives one" in kafka_refusal(login)
    assert "nothing here gives one" in kafka_refusal(f"{login}, sasl.oauthbearer.scope: all")
    assert "nothing here gives one" not in kafka_refusal(f"{login}, {token_setting}")


@pytest.mark.parametrize("name", sorted(RANGES))
def test_a_number_within_its_range_needs_no_client_to_be_tried(name: str) -> None:
    lowest, highest = RANGES[name]
    tries = {value: needs_trial({name: str(value)}) for value in (lowest - 1, lowest, highest, highest + 1)}
    assert list(tries.values()) == [True, False, False, True]


def input_that_starts_at(start_ms: int) -> Input:
    """Return an input; a number of ms is for Python alone, a file has a time or a word."""
    return Input(name="orders", id=1, topic="orders", group="g", partitions=1, start=start_ms)


@pytest.mark.parametrize("start_ms", [0, 1, TIME_MS_MAX])
def test_a_group_starts_at_any_time_since_1970(start_ms: int) -> None:
    assert input_that_starts_at(start_ms).start == start_ms


@pytest.mark.parametrize("start_ms", [-2, -1, TIME_MS_MAX + 1])
def test_a_group_starts_at_no_other_time(start_ms: int) -> None:
    with pytest.raises(ValidationError, match="is no time in ms since 1970"):
        input_that_starts_at(start_ms)


@pytest.mark.parametrize(("length", "is_taken"), [(1, True), (255, True), (256, True), (257, False)])
def test_an_operator_of_a_rule_has_at_most_256_characters(length: int, is_taken: bool) -> None:
    rule = f"{{operator: {'s' * length}, then: drop}}"
    assert (input_refusal(f"retry: {{causes: [{rule}]}}") == "") is is_taken


@pytest.mark.parametrize(
    ("waits", "attempts", "is_taken"), [(1, 2, True), (2, 2, False), (2, 3, True), (1, 3, True)]
)
def test_there_is_at_most_one_wait_between_two_attempts(waits: int, attempts: int, is_taken: bool) -> None:
    delays = ", ".join(["1s"] * waits)
    assert (input_refusal(f"retry: {{attempts: {attempts}, delays: [{delays}]}}") == "") is is_taken


def test_an_attempt_that_is_refused_refuses_no_list_of_waits_besides() -> None:
    refusal = input_refusal(f"retry: {{attempts: -1, delays: [{', '.join(['1s'] * 1000)}]}}")
    assert "attempts" in refusal
    assert "leave room" not in refusal


def test_what_is_never_changed_says_so_in_place_of_who_restarts() -> None:
    assert Effect(why_refused="make an input of a new name").text() == "never: make an input of a new name"
    assert Effect(start=(Process.QUERY,)).text() == "query"
    assert Effect().text() == "nobody"
