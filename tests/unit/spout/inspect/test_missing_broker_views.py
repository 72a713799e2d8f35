"""A broker is missing: every view names it first, and advises nothing that would harm a living query.

A fake cluster shows what a real one shows then: no sign of life of a query that lives, groups that have just
got another coordinator and no member yet, and a State that nobody can write.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from acker.config.topics import Topics
from acker.kafka.port import Log, MissingBroker, broker_names
from spout.cli import check as cli_check
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from spout.inspect.overview import Overview, missing_broker_texts, missing_processes
from spout.inspect.readings import ACKER_STANDS, NO_ACKER_WORKS, OLD_MS, Reading, why_state_is_old
from spout.ui.attention import Attention, problems
from spout.ui.machinery import machinery_of
from tests.support.worlds import planning

GONE = MissingBroker(3, replicas=21)

HARMFUL = ("`windhover release", "`windhover acker run", "`windhover replay run", "start it, or give")
"""Parts of advice that is wrong while nobody knows who lives."""

VIEWS = (
    "status",
    "status -o json",
    "machinery",
    "machinery -o json",
    "check",
    "check -o json",
    "roots",
    "inspect sentences/0@2",
    "inspect sentences/1@0",
    "failures",
    "latency",
)

BROKERS = {
    "one": [GONE],
    "one that led": [MissingBroker(3, replicas=21, leaderless=2)],
    "one that is silent": [MissingBroker(3, replicas=21, is_silent=True)],
    "two": [MissingBroker(2, replicas=1), GONE],
}


def silent_world() -> planning.World:
    """Return a world with an open root, whose processes have given no sign of life for long."""
    world = planning.world_with_one_open()
    world.kill_acker()
    world.stop_replays()
    world.cluster.now_ms += 2 * OLD_MS
    return world


def let_see(monkeypatch: pytest.MonkeyPatch, world: planning.World) -> None:
    """Let the commands see a world's cluster, at its time."""

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield world.topics, world.cluster.log()

    for module in (cli_inspect, cli_check):
        monkeypatch.setattr(module, "opened", opened)
        monkeypatch.setattr(module, "wall_ms", lambda: world.now_ms)


@pytest.mark.parametrize("brokers", BROKERS.values(), ids=BROKERS.keys())
@pytest.mark.parametrize("command", VIEWS)
def test_every_view_names_the_missing_broker_first_and_advises_no_harm(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    brokers: list[MissingBroker],
) -> None:
    """D1001: they said that no query lives, and advised to release what it had open."""
    world = silent_world()
    world.cluster.missing = brokers
    let_see(monkeypatch, world)
    cli.run(command.split())
    printed = capsys.readouterr()

    text = printed.out + printed.err
    assert not [advice for advice in HARMFUL if advice in text], text
    first_lines = printed.err.splitlines() or printed.out.splitlines()
    if command == "check -o json":
        first_lines = [line for line in first_lines if '"text"' in line]
    assert str(brokers[0]) in first_lines[0]
    assert broker_names(brokers) in text


@pytest.mark.parametrize("command", VIEWS)
def test_with_all_brokers_the_views_say_who_is_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """D1002: the same cluster with all its brokers: what shows no sign of life is gone."""
    world = silent_world()
    let_see(monkeypatch, world)
    cli.run(command.split())
    printed = capsys.readouterr()
    assert "is missing" not in printed.out + printed.err


def test_that_somebody_lives_is_known_although_a_broker_is_missing() -> None:
    """D1003: what gives signs of life is not called unknown."""
    world = planning.world_with_one_open()
    world.cluster.missing = [GONE]
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        snapshot = overview.snapshot(world.now_ms)
    (first, *_) = snapshot.partitions
    assert first.ackers == Reading(1)
    assert first.replay_workers == Reading(1)
    assert first.query_lives == Reading(True)
    assert first.pending == Reading(1, as_of_ms=first.pending.as_of_ms)


def test_nobody_is_said_to_be_gone_while_a_broker_is_missing() -> None:
    """D1001: in the values, too, so that the page and programs cannot say it."""
    world = silent_world()
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        sound = overview.snapshot(world.now_ms)
        world.cluster.missing = [GONE]
        snapshot = overview.snapshot(world.now_ms)
    assert len(missing_processes(sound.rows(), world.topics)) == 3
    assert missing_processes(snapshot.rows(), world.topics) == []
    (first, *_) = snapshot.partitions
    for process in (first.query_lives, first.ackers, first.replay_workers):
        assert process.value is None
        assert process.unknown.startswith("broker 3 is missing now")
    owners = machinery_of(snapshot).owners
    assert {owner.query_lives.value for owner in owners} == {None}


def test_the_page_flags_a_missing_broker_at_once_before_all_else() -> None:
    """D1004: it said that nothing needs anybody, beside 27 unknown values."""
    world = silent_world()
    world.cluster.missing = [GONE]
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        snapshot = overview.snapshot(world.now_ms)
    flags = Attention(world.topics).check(snapshot)
    assert [flag.text for flag in flags] == missing_broker_texts([GONE])
    assert next(iter(problems(snapshot, world.topics))).text == str(GONE)


def test_an_old_state_is_explained_by_who_lives() -> None:
    """D1005: status said that no acker works on it while three did."""
    assert why_state_is_old(Reading(0), "") == NO_ACKER_WORKS
    assert why_state_is_old(Reading(3), "") == ACKER_STANDS
    assert why_state_is_old(Reading(unknown="its group is being shared out"), "") == NO_ACKER_WORKS
    assert why_state_is_old(Reading(3), "broker 3 is missing").startswith("broker 3 is missing")


def test_a_missing_broker_is_described_by_what_it_holds() -> None:
    """D1001: with what has no leader, and what nobody can know."""
    (broker, unknown) = missing_broker_texts([MissingBroker(3, replicas=21, leaderless=2)])
    assert broker == (
        "broker 3 is missing, the other brokers do not see it: it has a copy of 21 partitions of ours, and 2"
        " of them have no leader now; start it, or mend its network"
    )
    assert "release no group" in unknown
    assert missing_broker_texts([]) == []
    assert broker_names([]) == ""
