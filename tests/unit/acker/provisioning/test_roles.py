"""What each role must be allowed: one table of data, and everything that is made of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from confluent_kafka import KafkaError

from acker.config.topics import parse
from acker.kafka.client import Use
from acker.kafka.port import Operation, Resource, Right
from acker.provisioning.command_roles import COMMAND_ROLES
from acker.provisioning.roles import NEEDS, Role, commands, rights, rights_text
from spout.cli import main as cli

PROJECT = Path(__file__).resolve().parents[4]
PAGE = "docs/operate/security.md"
HEADING = "## Rights"
TOPICS = parse(
    """
acker: {topic_prefix: p-}
inputs:
  a: {id: 1, group: g}
  b: {id: 2, group: h, ackers: 0}
""",
    file="topics.yaml",
    environ={},
)


def table() -> list[str]:
    """Return the table of rights as the page has it."""
    rows = [f"| {r.role} | {r.names} | {', '.join(r.operations)} | {r.why} |" for r in NEEDS]
    return ["| role | of | rights | what for |", "|---|---|---|---|", *rows]


def names(role: Role, group: str | None = None) -> set[str]:
    return {right.name for right in rights(TOPICS, role, group)}


def test_the_page_lists_every_right_that_a_role_needs() -> None:
    page = (PROJECT / PAGE).read_text(encoding="utf-8")
    section = page.partition(HEADING)[2].split("\n## ", 1)[0]

    told = [line for line in section.splitlines() if line.startswith("| ")]

    assert told == [row for row in table() if not row.startswith("|--")]


def test_every_right_stands_once_however_many_rules_ask_for_it() -> None:
    for role in Role:
        found = rights(TOPICS, role)
        assert len(found) == len(set(found)) > 0


def test_the_prefix_of_the_installation_stands_before_topics_groups_and_transactional_ids() -> None:
    found = rights(TOPICS, Role.ACKER)

    assert Right(Operation.READ, Resource.GROUP, "p-windhover-acker") in found
    assert Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, "p-windhover-acker-0") in found
    assert {right.name for right in found if right.resource is Resource.TOPIC} == {
        f"p-_ack_{name}" for name in ("init", "ack", "fail", "verdict", "state", "quarantine")
    }


def test_an_input_that_is_not_tracked_has_neither_copies_nor_dead_letters() -> None:
    assert {"a", "b", "a.g.replay"} <= names(Role.SPOUT)
    assert not {"b.h.replay", "b.h.dlq"} & (names(Role.REPLAY) | names(Role.OPERATOR))


def test_who_needs_nothing_of_an_input_that_is_not_tracked_gets_nothing_of_it() -> None:
    for role in (Role.REPLAY, Role.OBSERVER, Role.KEEPER):
        assert "a.g.dlq" in names(role)
        assert not {"b", "h"} & names(role)


def test_a_spout_of_one_group_gets_nothing_of_another() -> None:
    assert {"a", "g"} <= names(Role.SPOUT, "g")
    assert not {"b", "h"} & names(Role.SPOUT, "g")


def test_a_spout_that_tracks_nothing_reads_and_commits() -> None:
    assert rights(TOPICS, Role.SPOUT, "h") == [
        Right(Operation.READ, Resource.GROUP, "h"),
        Right(Operation.READ, Resource.TOPIC, "b"),
    ]


def test_nobody_but_the_ackers_deletes_and_nobody_but_the_operator_creates() -> None:
    may = {
        operation: {role for role in Role for right in rights(TOPICS, role) if right.operation is operation}
        for operation in Operation
    }

    assert may[Operation.DELETE] == {Role.ACKER}
    assert may[Operation.CREATE] == may[Operation.ALTER] == {Role.OPERATOR}


def test_who_looks_changes_nothing() -> None:
    looks = {Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}

    assert {right.operation for right in rights(TOPICS, Role.OBSERVER)} <= looks
    groups = [right for right in rights(TOPICS, Role.OBSERVER) if right.resource is Resource.GROUP]
    assert {right.operation for right in groups} == {Operation.DESCRIBE}


def test_who_handles_letters_gets_only_the_transactional_ids_of_their_topics() -> None:
    ids = [right for right in rights(TOPICS, Role.KEEPER) if right.resource is Resource.TRANSACTIONAL_ID]

    letters = "p-windhover-replay-letters-a.g.dlq"
    assert ids == [Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, letters)]


def test_the_commands_grant_exactly_the_rights() -> None:
    granted = set()
    for line in commands(rights(TOPICS, Role.REPLAY), "User:my x", "kafka:9092"):
        words = shlex.split(line)
        assert words[:6] == [
            "kafka-acls.sh", "--bootstrap-server", "kafka:9092", "--add", "--allow-principal", "User:my x",
        ]  # fmt: skip
        assert "--resource-pattern-type" not in words, "each resource is granted by its whole name"
        (option,) = {"--topic", "--group", "--transactional-id"} & set(words)
        resource = Resource(option.removeprefix("--").title().replace("-Id", "Id"))
        names = [words[at + 1] for at, word in enumerate(words) if word == option]
        operations = [words[at + 1] for at, word in enumerate(words) if word == "--operation"]
        granted |= {Right(Operation(operation), resource, name) for operation in operations for name in names}

    assert granted == set(rights(TOPICS, Role.REPLAY))


def test_rights_for_people_have_a_line_for_each_resource() -> None:
    lines = list(rights_text(rights(TOPICS, Role.ACKER)))

    assert "Topic p-_ack_verdict: Delete, Read, Write" in lines
    (ids,) = (line for line in lines if line.startswith("TransactionalId"))
    assert ids.startswith("TransactionalId p-windhover-acker-0, p-windhover-acker-1")
    assert ids.endswith(": Write")


def test_the_command_prints_them_and_never_a_setting_but_the_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text(
        "kafka: {bootstrap.servers: 'kafka:9092', sasl.password: hunter2}\ninputs: {a: {id: 1, group: g}}\n"
    )

    assert cli.run(["acls", str(file)]) == 0
    assert "acker:\n  Group windhover-acker: Read\n" in capsys.readouterr().out
    assert cli.run(["acls", str(file), "--role", "spout", "--principal", "User:x"]) == 0
    told = capsys.readouterr().out
    assert "--bootstrap-server kafka:9092 --add --allow-principal User:x --operation Read --topic a\n" in told
    assert "hunter2" not in told


@pytest.mark.parametrize(
    ("option", "says"),
    [(("--role", "boss"), "the roles are operator, acker"), (("--group", "x"), "groups are")],
)
def test_a_role_or_group_that_there_is_not_ends_with_2(
    option: tuple[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["acls", str(PROJECT / "topics.yaml"), *option]) == 2
    assert says in capsys.readouterr().err


def test_a_refusal_names_the_resource_that_the_code_speaks_of() -> None:
    use = Use(Operation.READ, topic="t", group="g")

    assert use.right(KafkaError.GROUP_AUTHORIZATION_FAILED) == Right(Operation.READ, Resource.GROUP, "g")
    assert use.right(KafkaError.TOPIC_AUTHORIZATION_FAILED) == Right(Operation.READ, Resource.TOPIC, "t")
    assert use.right(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED) is None
    assert use.right(KafkaError.CLUSTER_AUTHORIZATION_FAILED) is None
    write = Use(Operation.WRITE, topic="t")
    assert write.right(KafkaError.CLUSTER_AUTHORIZATION_FAILED) == Right(Operation.WRITE, Resource.TOPIC, "t")


def covers(right: Right, other: Right) -> bool:
    """Return whether who has a right may use the resource of another one."""
    return (right.resource, right.name) == (other.resource, other.name)


@pytest.mark.parametrize("option", ["group", "replay_group"])
@pytest.mark.parametrize(("ours", "others"), [("a", "a-b"), ("a", "ab"), ("a", "a-1"), ("a-", "a")])
def test_rights_of_one_installation_cover_no_transactional_id_of_another_one(
    option: str, ours: str, others: str
) -> None:
    """D2803: whoever may use an id can fence out its owner."""

    def ids(name: str) -> list[Right]:
        text = f"acker: {{{option}: {name}, partitions: 12}}\ninputs: {{x: {{id: 1, group: g}}}}"
        topics = parse(text, file="topics.yaml", environ={})
        named = [right for role in (Role.ACKER, Role.REPLAY, Role.OPERATOR) for right in rights(topics, role)]
        return [
            right
            for right in named
            if right.resource is Resource.TRANSACTIONAL_ID and right.name.startswith(name)
        ]

    assert ids(ours)
    assert not [(one, other) for one in ids(ours) for other in ids(others) if covers(one, other)]


def leaves(command: Any, names: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the commands below one, by the words that people type."""
    below = getattr(command, "commands", {})
    if not below:
        yield " ".join(names)
    for name, part in below.items():
        yield from leaves(part, (*names, name))


def test_every_command_has_a_role_or_needs_none() -> None:
    """D2801"""
    assert set(leaves(typer.main.get_command(cli.app))) == set(COMMAND_ROLES)


def test_the_page_names_the_role_of_every_command() -> None:
    """D2801"""
    page = (PROJECT / PAGE).read_text(encoding="utf-8")
    section = page.partition("## Who runs which command")[2].split("\n## ", 1)[0]
    shown = {
        tuple(cell.strip() for cell in line.strip("| ").split("|"))
        for line in section.splitlines()
        if line.startswith("| ") and not line.startswith(("| role |", "|--"))
    }
    wanted = {
        (str(role), ", ".join(f"`{name}`" for name, of in sorted(COMMAND_ROLES.items()) if of is role))
        for role in Role
        if role in COMMAND_ROLES.values()
    }
    assert shown == wanted
