"""Lost roots of a stranger are dropped by an operator, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acker.config.topics import Topics
from acker.errors import Disagreement
from acker.identity import source_of
from acker.kafka.port import Log, Outgoing
from acker.wire.clusters import CLUSTER
from acker.wire.verdict import Verdict
from replay.handling.dropping import TOMBSTONES_PER_TRANSACTION, Dropping
from replay.records.due import PROGRESS_KEY
from spout.cli import main as cli
from tests.support.worlds.replay_world import INPUT_ID, LIMITS, Emission, World, topics

NO_INPUT = 9


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a world in which three roots of strangers wait in two partitions, and one of the input's own."""
    world = World()
    worker = world.worker()
    world.lose(world.emit(b"a"), world.emit(b"b"), group="stranger", reason=Verdict.ABANDONED)
    world.lose(world.emit(b"c", partition=1), group="other", verdict_partition=1)
    root = world.emit(b"d")
    world.lose(Emission(source_of(NO_INPUT, 0), *root[1:]), group="g")
    world.lose(world.emit(b"own"))
    world.settle(worker)
    assert worker.status().waiting == 5
    worker.close()

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield topics(), world.cluster.log()

    monkeypatch.setattr(cli, "opened", opened)
    return world


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = cli.run(["replay", "drop", *arguments])
    return code, "".join(capsys.readouterr())


def waiting(world: World) -> dict[str, int]:
    """Let a new worker take over; return what it puts aside, by input."""
    worker = world.worker()
    world.settle(worker, until_ms=world.now_ms + 60_000)
    aside = dict(worker.status().aside_by_input)
    worker.close()
    return aside


def test_it_is_shown_first_and_dropped_alone(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """O1813: `status` counted it for ever."""
    code, shown = run(capsys, "sentences")
    assert code == 0
    assert "_ack_due/0: 2 of group stranger, topic sentences" in shown
    assert "_ack_due/1: 1 of group other, topic sentences" in shown
    assert "nothing was changed" in shown
    assert waiting(world) == {"sentences": 3, f"id {NO_INPUT}": 1}

    code, shown = run(capsys, "sentences", "--execute", "--why", "a test of yesterday")
    assert (code, "3 roots are dropped" in shown) == (0, True)
    assert waiting(world) == {f"id {NO_INPUT}": 1}
    assert [copy.value for copy in world.copies()] == [b"own"]
    assert "no root waits there" in run(capsys, "sentences")[1]
    tombstones = [record for record in world.records("_ack_due") if dict(record.headers).get("windhover.why")]
    assert len(tombstones) == 3
    assert {dict(record.headers)["windhover.why"] for record in tombstones} == {b"a test of yesterday"}


def test_those_of_one_group_and_those_of_an_id_that_no_input_has(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """O1813: the others go on waiting."""
    run(capsys, "sentences", "--group", "other", "--execute", "--why", "x")
    assert waiting(world) == {"sentences": 2, f"id {NO_INPUT}": 1}
    run(capsys, "--id", str(NO_INPUT), "--execute", "--why", "x")
    assert waiting(world) == {"sentences": 2}


def test_an_inputs_own_roots_are_never_dropped(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """O1813: neither by the name of its group nor by its id."""
    assert "no root waits there" in run(capsys, "sentences", "--group", "g", "--execute", "--why", "x")[1]
    code, printed = run(capsys, "--id", "1", "--execute", "--why", "x")
    assert (code, "id 1 is of input sentences" in printed) == (2, True)
    assert waiting(world) == {"sentences": 3, f"id {NO_INPUT}": 1}
    assert [copy.value for copy in world.copies()] == [b"own"]


@pytest.mark.parametrize(
    "arguments", [(), ("sentences", "--id", "9"), ("sentences", "--execute"), ("nothing",)]
)
def test_a_wrong_call_changes_nothing(
    world: World, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert run(capsys, *arguments)[0] == 2
    assert waiting(world) == {"sentences": 3, f"id {NO_INPUT}": 1}


def test_a_worker_that_lives_is_fenced_and_goes_on(world: World) -> None:
    """It could fire a root just now that is dropped."""
    worker = world.worker()
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert Dropping(world.cluster.log(), topics(), 1).drop("why", "kim") == 3
    world.lose(world.emit(b"later"))
    world.settle(worker, until_ms=world.now_ms + LIMITS.input_retry_ms + 5_000)
    assert [copy.value for copy in world.copies()] == [b"own", b"later"]
    assert dict(worker.status().aside_by_input) == {f"id {NO_INPUT}": 1}


def test_more_than_one_transaction_may_hold_are_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TOMBSTONES_PER_TRANSACTION > 1
    monkeypatch.setattr("replay.handling.dropping.TOMBSTONES_PER_TRANSACTION", 1)
    assert Dropping(world.cluster.log(), topics(), 1).drop("why", "kim") == 3
    assert waiting(world) == {f"id {NO_INPUT}": 1}


def test_what_was_aborted_neither_waits_nor_is_gone(world: World) -> None:
    """A worker was killed when it had written an entry, or the tombstone of one."""
    waiting_records = [record for record in world.records("_ack_due", 0) if record.key != PROGRESS_KEY]
    writer = world.cluster.log().transactions("somebody")
    writer.init(0)
    writer.begin()
    for record in waiting_records:
        writer.send(Outgoing("_ack_due", 0, None, record.key))
        writer.send(Outgoing("_ack_due", 1, record.value, record.key))
    writer.abort(0)
    found = Dropping(world.cluster.log(), topics(), INPUT_ID).find()
    assert [line for roots in found for line in roots.lines()] == [
        "_ack_due/0: 2 of group stranger, topic sentences",
        "_ack_due/1: 1 of group other, topic sentences",
    ]


def test_roots_of_another_cluster_are_not_dropped(world: World) -> None:
    """They may be other records; the topic was mirrored."""
    record = next(record for record in world.records("_ack_due", 1) if record.key != PROGRESS_KEY)
    producer = world.cluster.log().producer()
    producer.send(Outgoing("_ack_due", 1, record.value, record.key, ((CLUSTER, b"elsewhere"),)))
    producer.flush(0)
    with pytest.raises(Disagreement, match="written in cluster elsewhere"):
        Dropping(world.cluster.log(), topics(), INPUT_ID).drop("why", "kim")
