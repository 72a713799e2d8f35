"""Items that are ready and that nobody opens: nobody works on them, so no timeout and no attempt is spent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spout.standalone.client import Client
from spout.standalone.items import Items
from spout.standalone.kafka_spout import KafkaSpout
from tests.support.worlds.kestrel_world import YAML, KestrelWorld

ONE_ATTEMPT = YAML + "    retry: {attempts: 1}\n"
TWO_ATTEMPTS = YAML + "    retry: {attempts: 2, initial: 100ms}\n"
TIMEOUT_MS = 4_000
"""As YAML has it."""
SILENT_MS = 5 * TIMEOUT_MS
RECORDS = 12
AT_ONCE = 4


def opened(world: KestrelWorld, client: Client, count: int) -> Items:
    """Open items that will be there."""
    for _ in range(30):
        items = client.open(count)
        if items:
            return items
        world.run(100)
    raise AssertionError("nothing came")


def world_with_ready_items(text: str = ONE_ATTEMPT) -> tuple[KestrelWorld, KafkaSpout, Client]:
    """Let a client work for a while, so that more is ready than it has opened."""
    world = KestrelWorld(text)
    world.start_replays()
    world.produce(RECORDS)
    spout_ = world.spout()
    client = spout_.client("worker")
    assert client.confirm(opened(world, client, AT_ONCE)) == AT_ONCE
    world.run(200)
    assert spout_.status().waiting["sentences"] >= AT_ONCE
    return world, spout_, client


def work_through(world: KestrelWorld, client: Client, count: int) -> list[int]:
    """Confirm so many items; return the attempts of their records."""
    attempts: list[int] = []
    while len(attempts) < count:
        items = opened(world, client, AT_ONCE)
        attempts += [item.message_id.attempt for item in items]
        assert client.confirm(items) == len(items)
    return attempts


SILENCES: list[Callable[[KafkaSpout, Client], object]] = [
    lambda _, __: None,
    lambda spout_, _: spout_.deactivate(),
    lambda _, client: client.close(),
    lambda _, client: client.peek(),
]


@pytest.mark.parametrize(
    "begin", SILENCES, ids=["does nothing", "deactivated", "closes", "looks without opening"]
)
def test_records_that_nobody_opened_wait_for_their_client(
    begin: Callable[[KafkaSpout, Client], object],
) -> None:
    """D705: they were dead letters after a pause of the client's longer than `timeout`."""
    world, spout_, client = world_with_ready_items()
    begin(spout_, client)
    world.run(SILENT_MS)
    assert (world.lost("TIMED_OUT"), world.records("sentences.g.dlq")) == (0, [])
    spout_.activate()
    attempts = work_through(world, spout_.client("next"), RECORDS - AT_ONCE)
    assert attempts == [1] * (RECORDS - AT_ONCE)
    world.run(1_000)
    group = spout_.status().group
    assert (group.acked, group.pending, world.committed()) == (RECORDS, 0, RECORDS)


def test_copies_that_nobody_opened_wait_too() -> None:
    """D705: a record that failed once waits with its second attempt, and is not lost by that."""
    world, spout_, client = world_with_ready_items(TWO_ATTEMPTS)
    items = opened(world, client, RECORDS)
    assert client.fail(items, "busy") == len(items)
    world.run(1_000)
    client.confirm(client.open(AT_ONCE))  # as many are made ready again
    world.run(200)
    assert spout_.status().waiting["sentences"] >= 1
    world.run(SILENT_MS)
    assert (world.lost("TIMED_OUT"), world.records("sentences.g.dlq")) == (0, [])


def test_an_item_that_was_opened_late_has_most_of_its_timeout_left() -> None:
    """D705: at any moment of the pause three quarters are left, as near as the rounds allow."""
    for silent_ms in range(SILENT_MS, SILENT_MS + TIMEOUT_MS, 900):
        world, _, client = world_with_ready_items()
        world.run(silent_ms)
        items = opened(world, client, AT_ONCE)
        world.run(TIMEOUT_MS // 2)
        assert world.lost("TIMED_OUT") == 0
        assert client.confirm(items) == AT_ONCE


@pytest.mark.parametrize("is_put_back", [False, True], ids=["is open", "was put back"])
def test_what_a_client_had_open_times_out_as_before(is_put_back: bool) -> None:
    """D706: else a client that puts a record back again and again would keep it for ever."""
    world, _, client = world_with_ready_items()
    items = opened(world, client, AT_ONCE)
    if is_put_back:
        assert client.abort([items[1], items[0]]) == 2
        assert client.abort(items) == AT_ONCE - 2
    world.run(TIMEOUT_MS + 1_500)
    assert world.lost("TIMED_OUT") == AT_ONCE
    world.run(SILENT_MS)
    assert world.lost("TIMED_OUT") == AT_ONCE


def test_an_input_without_a_timeout_asks_for_nothing() -> None:
    """D705: its roots have no timeout that could begin anew."""
    world, _, client = world_with_ready_items(ONE_ATTEMPT.replace("timeout: 4s", "timeout: 0"))
    world.run(SILENT_MS)
    assert work_through(world, client, RECORDS - AT_ONCE) == [1] * (RECORDS - AT_ONCE)
