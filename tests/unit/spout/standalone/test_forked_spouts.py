"""A spout and its clients in a process that was forked: each call says so, and nothing hangs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acker.errors import UsageError
from spout.runtime.child import Child
from spout.runtime.forks import Owner
from spout.standalone.client import Client
from spout.standalone.kafka_spout import KafkaSpout
from spout.streaming.application import OwnFolder
from tests.support.forking import in_a_fork
from tests.support.worlds.kestrel_world import KestrelWorld
from tests.support.worlds.quiet_spout import Quiet, engine_of

Use = Callable[[KafkaSpout, Client], object]

USES: dict[str, Use] = {
    "open": lambda _, client: client.open(1),
    "open, waiting": lambda _, client: client.open(1, wait_ms=60_000),
    "open_any": lambda _, client: client.open_any(1),
    "peek": lambda _, client: client.peek(),
    "confirm": lambda _, client: client.confirm([]),
    "confirm, waiting": lambda _, client: client.confirm([], wait_ms=60_000),
    "confirm_oldest": lambda _, client: client.confirm_oldest(1),
    "abort": lambda _, client: client.abort([]),
    "fail": lambda _, client: client.fail([]),
    "open_count": lambda _, client: client.open_count(),
    "open_total": lambda _, client: client.open_total(),
    "close a client": lambda _, client: client.close(),
    "leave a client": lambda _, client: client.__exit__(None, None, None),
    "open the spout": lambda spout, _: spout.open(),
    "next_tuple": lambda spout, _: spout.next_tuple(),
    "ack": lambda spout, _: spout.ack(None),  # type: ignore[arg-type]
    "fail a tuple": lambda spout, _: spout.fail(None),  # type: ignore[arg-type]
    "deactivate": lambda spout, _: spout.deactivate(),
    "activate": lambda spout, _: spout.activate(),
    "another client": lambda spout, _: spout.client("second"),
    "status": lambda spout, _: spout.status(),
    "serve_metrics": lambda spout, _: spout.serve_metrics(0),
    "close the spout": lambda spout, _: spout.close(),
    "leave the spout": lambda spout, _: spout.__exit__(None, None, None),
}


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[KafkaSpout, Client]]:
    """A spout with its threads, and a client."""
    spout = KafkaSpout(KestrelWorld().topics, "sentences", runner=engine_of(Quiet()))
    with spout, spout.client("worker") as client:
        yield spout, client


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_each_call_in_a_forked_child_says_what_to_do(opened: tuple[KafkaSpout, Client], use: Use) -> None:
    """O701: `confirm` returned 1 there, and confirmed nothing; `close` never returned."""
    said = in_a_fork(lambda: use(*opened))
    assert said.startswith("UsageError: "), said
    assert "was forked" in said
    assert "in the process that uses it" in said


def test_a_lock_that_was_held_at_the_fork_is_not_waited_for(opened: tuple[KafkaSpout, Client]) -> None:
    """O701: the thread that held it is not in the child, and would never open it."""
    _, client = opened
    with client._guard:
        said = in_a_fork(lambda: client.confirm([]))
    assert "was forked" in said


def test_the_parent_goes_on(opened: tuple[KafkaSpout, Client]) -> None:
    """O701: whatever a child does, or however it ends."""
    spout, client = opened
    in_a_fork(spout.close)
    assert (client.open_total(), spout.status().group.state) == (0, "running")


def leave_by(error: BaseException, spout: KafkaSpout, client: Client) -> None:
    """Leave the contexts by an error."""
    try:
        raise error
    except BaseException as raised:
        client.__exit__(type(raised), raised, None)
        spout.__exit__(type(raised), raised, None)
        raise


def test_an_error_that_ends_a_child_is_not_hidden(opened: tuple[KafkaSpout, Client]) -> None:
    """O701: a child leaves its parent's contexts too, by `SystemExit` for example."""
    assert in_a_fork(lambda: leave_by(SystemExit(3), *opened)) == "SystemExit: 3"


@pytest.mark.parametrize("number", [0, 1])
def test_what_has_threads_is_not_sent_to_another_process(
    opened: tuple[KafkaSpout, Client], number: int
) -> None:
    """O702: multiprocessing and Spark pickle; the error was "cannot pickle '_thread.lock' object"."""
    with pytest.raises(UsageError, match="cannot be sent to another process"):
        pickle.dumps(opened[number])


def test_a_folder_of_the_parent_stays_when_a_child_ends() -> None:
    """O703: a child that left its parent's context, or ended, removed it."""
    with OwnFolder("windhover-forks-") as folder:
        owner: Any = OwnFolder("windhover-forks-")
        in_a_fork(owner.cleanup)
        in_a_fork(owner._finalizer)
        assert Path(folder).is_dir()
        assert Path(owner.name).is_dir()
        owner.cleanup()


def test_a_child_does_not_end_the_processes_of_its_parent() -> None:
    """O703: nor does it remove their files."""
    with Child("driver", Path("none.yaml"), program=("-c", "import time; time.sleep(60)")) as process:
        assert in_a_fork(lambda: process.__exit__(None, None, None)) == "None"
        assert "belongs to process" in in_a_fork(process.stop)
        assert "belongs to process" in in_a_fork(process.kill)
        assert process.alive()
        assert process.log.exists()


def test_an_owner_knows_its_process() -> None:
    owner = Owner("this", "Do it there")
    owner.check()
    assert owner.is_here
    assert in_a_fork(owner.check).startswith("UsageError: this belongs to process ")
