"""The stack of an exception, from the bolt that raised it to the views of its dead letter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acker.config.topics import Topics
from acker.kafka.port import Log, Outgoing, Record, TopicPartition
from acker.wire.stacks import STACK, STACK_BYTES_MAX
from replay.policy.disposition import DeadReason
from replay.records.dead_letter import Death, LetterTopic, build_dead_letter
from replay.records.due import Due
from replay.records.letters import Letter, parse_letter
from spout.cli import dlq as cli_dlq
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from spout.planning.journal import BEGINNING
from spout.questions.letters import details_of
from tests.support.page_server import client_of
from tests.support.worlds.letters_world import LettersWorld
from tests.support.worlds.planning import World, batch, yaml_of

LETTERS = "sentences.g.dlq"


def parse_number(text: str) -> int:
    return int(text)


def raised_by(text: str) -> BaseException:
    try:
        parse_number(text)
    except ValueError as error:
        return error
    raise AssertionError(text)


def dead(world: World, errors: dict[int, BaseException], *, restarted: bool = False) -> None:
    """Let records die by errors; `restarted`: by another worker than that which took them over."""
    world.start_replays()
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    world.publish_raised(BEGINNING, end, errors)
    world.run(2_000 if not restarted else 300)
    if restarted:
        world.stop_replays()
        world.kill_acker()
        world.start_acker()
        world.start_replays()
        world.run(10_000)


@pytest.fixture
def world() -> Iterator[World]:
    made = World(
        yaml_of(retry="{attempts: 1}", dead_letter="{max_ratio: 1, max_consecutive: 1000}", timeout="4s")
    )
    with shown_world(made):
        yield made


@contextmanager
def shown_world(made: World) -> Iterator[None]:
    """Let the commands read a world."""
    with pytest.MonkeyPatch.context() as monkeypatch:

        @contextmanager
        def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
            yield made.topics, made.cluster.log()

        for module in (cli, cli_dlq, cli_inspect):
            monkeypatch.setattr(module, "opened", opened)
        for module in (cli_dlq, cli_inspect):
            monkeypatch.setattr(module, "wall_ms", lambda: made.now_ms)
        yield


def stack_of(place: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert cli.run(["dlq", "show", place, "-o", "json"]) == 0
    [letter] = json.loads(capsys.readouterr().out)
    return str(letter["stack"])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_dead_letter_has_the_stack_of_the_exception(
    world: World, restarted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """D1401: also after acker and replay worker were replaced."""
    dead(world, {2: raised_by("a"), 3: raised_by("b")}, restarted=restarted)
    for place in ("sentences/0@2", "sentences/0@3"):
        stack = stack_of(place, capsys)
        assert "in parse_number" in stack
        assert "return int(text)" in stack
        assert stack.splitlines()[-1].startswith("ValueError: invalid literal")


COPIES = "sentences.g.replay"
REFUSALS = {
    # the record is dated behind what the replay topic takes
    "REFUSED": {"message.timestamp.after.max.ms": "3600000"},
    # the copy has the record's payload, and headers of ours besides
    "TOO_LARGE": {"max.message.bytes": "2500"},
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("reason", REFUSALS)
def test_a_letter_whose_copy_is_refused_when_it_is_due_has_the_stack_of_the_failure(
    reason: str, restarted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """D1408: a replay was decided, and its copy is refused later, maybe by another worker."""
    made = World(yaml_of(retry="{attempts: 5, initial: 5s, jitter: 0}", timeout="4s"))
    made.cluster.delete_topic(COPIES)
    made.cluster.create_topic(COPIES, 2, settings=REFUSALS[reason])
    made.start_replays()
    producer = made.log.producer()
    dated_ms = made.now_ms + 86_400_000
    producer.send(Outgoing("sentences", 0, b"x" * 2_400, timestamp_ms=dated_ms))
    producer.flush(1_000)
    end = batch(made.ready(), BEGINNING, made)
    made.publish_raised(BEGINNING, end, {0: raised_by("a")})
    made.run(300)
    if restarted:
        made.stop_replays()
        made.start_replays()
    made.run(30_000)
    [letter] = [parse_letter(record) for record in letter_partitions(made)]
    assert isinstance(letter, Letter)
    assert letter.dead == reason
    with shown_world(made):
        stack = stack_of("sentences/0@0", capsys)
    assert "in parse_number" in stack
    assert stack.splitlines()[-1].startswith("ValueError: invalid literal")


def letter_partitions(world: World) -> list[Record]:
    with closing(world.cluster.log().reader(committed=True)) as reader:
        reader.assign({TopicPartition(LETTERS, number): 0 for number in range(2)})
        return list(reader.poll(100, 100))


def test_each_view_of_a_dead_letter_shows_its_stack(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """D1402"""
    dead(world, {2: raised_by("a")})
    for command in ("dlq show sentences/0@2", "inspect sentences/0@2"):
        assert cli.run(command.split()) == 0
        shown = capsys.readouterr().out
        assert "stack    " in shown
        assert "in parse_number" in shown
    client, jobs = client_of(world)
    with closing(jobs), client:
        for path in (f"/letter/{LETTERS}/0@0", "/record/sentences/0@2"):
            assert "in parse_number" in client.get(path).text, path


def test_an_explicit_fail_and_a_timeout_have_no_stack(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """D1401"""
    world.start_replays()
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, fail=[2], skip=[3])
    world.run(15_000)
    for place in ("sentences/0@2", "sentences/0@3"):
        assert stack_of(place, capsys) == ""


def test_a_long_stack_is_cut_and_the_payload_is_whole(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """D1403"""
    dead(world, {2: raised_by("x" * 100_000)})
    stack = stack_of("sentences/0@2", capsys)
    assert 0 < len(stack.encode()) <= STACK_BYTES_MAX
    assert stack.startswith("Traceback")


def test_a_letter_shows_no_stack_that_its_record_came_with() -> None:
    """D1401: a record that was a dead letter before has the headers of that one, too."""
    former = Record("sentences", 0, 2, b"k", b"v", ((STACK, b"of the former letter"),), 1)
    letter = build_dead_letter(DUE, Death(DeadReason.ATTEMPTS), former, LetterTopic(LETTERS, 1, 10_000), 1)
    assert details(letter)["stack"] == ""
    again = replace(DUE, stack="of this one")
    letter = build_dead_letter(again, Death(DeadReason.ATTEMPTS), former, LetterTopic(LETTERS, 1, 10_000), 1)
    assert details(letter)["stack"] == "of this one"


def test_a_letter_that_is_too_large_keeps_its_payload_and_loses_its_stack() -> None:
    """D1403"""
    due = replace(DUE, stack="x" * 3_000)
    record = Record("sentences", 0, 2, b"k", b"v" * 2_000, (), 1)
    letter = build_dead_letter(due, Death(DeadReason.ATTEMPTS), record, LetterTopic(LETTERS, 1, 4_000), 1)
    assert letter.value == record.value
    assert details(letter)["stack"] == ""


DUE = Due(
    source=65_536,
    position=2,
    due_ms=0,
    dead="ATTEMPTS",
    group="g",
    topic="sentences",
    topic_id="",
    origin="sentences/0@2",
    attempt=1,
    abandoned=0,
    first_emitted_ms=0,
    history=(),
)


def details(letter: Outgoing) -> dict[str, Any]:
    world = LettersWorld()
    world.put(letter)
    (shown,) = details_of(world.log, world.topics, [f"{LETTERS}/0@0"])
    return shown
