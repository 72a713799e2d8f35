"""The Kestrel view on the in-memory log, with a real acker and a real replay worker behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.request import urlopen

import pytest

from acker.errors import DataLoss, SessionSuperseded, TupleError, Unreachable, UsageError
from acker.kafka.port import Outgoing, TopicPartition
from spout.local.embedded import free_port
from spout.standalone.client import Client
from spout.standalone.items import Item, Items
from spout.standalone.kafka_spout import KafkaSpout
from spout.standalone.queues import Settleable
from tests.support.worlds.kestrel_world import YAML, KestrelWorld
from tests.support.worlds.planning import FlushesLeft

TWO_INPUTS = YAML + "  orders: {id: 2, group: g, partitions: 1, timeout: 4s}\n"


def opened(world: KestrelWorld, client: Client, count: int, input_name: str | None = None) -> Items:
    """Open items that will be there: the first attempt makes the spout plan them."""
    items = client.open(count, input_name)
    for _ in range(30):
        if items:
            return items
        world.run(100)
        items = client.open(count, input_name)
    raise AssertionError("nothing came")


def next_of(world: KestrelWorld, spout_: KafkaSpout) -> Item:
    """Return the next tuple, which will be there."""
    for _ in range(30):
        found = spout_.next_tuple()
        if found is not None:
            return found
        world.run(100)
    raise AssertionError("no tuple came")


def values(items: Items | list[Item]) -> list[int]:
    """Return what the producer wrote."""
    return [int(item["value"]) for item in items]


def world_of(records: int, text: str = YAML) -> tuple[KestrelWorld, KafkaSpout]:
    """Make a world with records in the first partition, and a spout."""
    world = KestrelWorld(text)
    world.produce(records)
    return world, world.spout()


def test_confirmed_records_are_acked_and_committed() -> None:
    """S154: the whole way: planned when asked for, opened, confirmed, published, settled, committed."""
    world, spout_ = world_of(5)
    world.run(1_000)
    assert world.inits() == []
    client = spout_.client("a")
    items = opened(world, client, 10)
    assert values(items) == [0, 1, 2, 3, 4]
    assert items.column("value") == [b"0", b"1", b"2", b"3", b"4"]
    assert not spout_.client("b").open(10)
    assert client.confirm(items, wait_ms=0) == 5
    assert world.latest.durable_number == 1
    assert client.confirm(items) == 0
    world.run(4_000)
    group = spout_.status().group
    assert (group.acked, group.pending, group.late, world.committed()) == (5, 0, 0, 5)
    assert len(world.latest.queues.records) == 0


def test_an_item_is_a_tuple_that_knows_its_root() -> None:
    world, spout_ = world_of(3)
    items = opened(world, spout_.client(), 3)
    found = items[1]
    assert (found["value"], found["offset"], found.message_id.attempt) == (b"1", 1, 1)
    assert found.message_id.origin == "sentences/0@1"
    assert items[-1] == list(items)[2]
    assert values(items[:2]) == [0, 1]


def test_an_aborted_record_comes_first_and_is_the_same_emission() -> None:
    """S155: to the head at once; nothing is told to the ackers."""
    world, spout_ = world_of(6)
    client, other = spout_.client("a"), spout_.client("b")
    items = opened(world, client, 4)
    assert client.abort([items[2], items[1]]) == 2
    again = opened(world, other, 2)
    assert values(again) == [1, 2]
    assert again[0].message_id == items[1].message_id
    assert client.confirm(items) == 2
    assert other.confirm(again) == 2
    world.run(500)
    assert spout_.status().group.acked == 4
    assert [sum(run.end - run.start for run in init.runs) for init in world.inits()]
    assert world.lost("FAILED") == 0


def test_a_failed_record_comes_back_with_its_back_off_as_another_attempt() -> None:
    """S155, S73: N's option, after a delay: a FAILED verdict, and a copy on the replay topic."""
    world, spout_ = world_of(2)
    world.start_replays()
    client = spout_.client("a")
    items = opened(world, client, 2)
    assert client.fail(items[0], ValueError("no such word")) == 1
    assert client.fail(items[0]) == 0
    assert client.confirm(items) == 1
    world.run(400)
    assert world.lost("FAILED") == 1
    assert not client.open(1)
    copy = opened(world, client, 1)[0]
    assert (copy["value"], copy.message_id.attempt, copy.message_id.origin) == (b"0", 2, "sentences/0@0")
    cause = dict(world.records("sentences.g.replay")[0].headers)
    assert cause["windhover.cause"] == b"ValueError: no such word"
    assert cause["windhover.operator"] == b"a"


def test_a_completion_counts_from_the_first_emission_through_all_attempts() -> None:
    """A record that is acked at its second attempt took from its first emission on, back-off included."""
    world, spout_ = world_of(1)
    world.start_replays()
    client = spout_.client("a")
    [item] = opened(world, client, 1)
    emitted_ms = world.now_ms
    world.run(2_000)
    assert client.fail(item, ValueError("no such word")) == 1
    world.run(400)
    [copy] = opened(world, client, 1)
    copied_ms = world.now_ms
    assert copied_ms - emitted_ms > 2_400
    assert client.confirm([copy]) == 1
    world.run(1_000)
    assert world.acker is not None
    tally = world.acker.status().verdicts.inputs[1]
    assert (tally.verdicts["FAILED"], tally.verdicts["ACKED"]) == (1, 1)
    assert copied_ms - emitted_ms <= tally.took_total_ms <= world.now_ms - emitted_ms + 500


def test_a_client_has_no_more_open_than_it_may() -> None:
    """S156: no more is given until one closes; to confirm more than are open closes none."""
    world, spout_ = world_of(6)
    client = spout_.client("a", max_open=3)
    items = opened(world, client, 10)
    assert len(items) == client.open_count() == 3
    assert not client.open(1)
    assert client.confirm_oldest(4) == 0
    assert client.open_count() == 3
    assert client.confirm(items[1]) == 1
    assert values(opened(world, client, 10)) == [3]
    assert client.confirm_oldest(2) == 2
    world.run(500)
    assert spout_.status().group.acked == 3
    assert not items[0].is_open


def test_a_client_that_waits_requests_no_more_than_it_may_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would time out, and nobody had them. When it has settled an item, it requests one more."""
    world, spout_ = world_of(4)
    client, other = spout_.client("a", max_open=2), spout_.client("b")
    items = opened(world, client, 2)
    assert len(opened(world, other, 9)) == 2
    world.run(1_500)
    world.produce(100)
    monkeypatch.setattr(world.latest.guard, "wait", lambda _: world.run(100))
    assert not client.open(50, wait_ms=500)
    assert spout_.status().group.emitted == 4

    def settle_and_wait(_: float) -> None:
        client.confirm(items[0])
        world.run(100)

    monkeypatch.setattr(world.latest.guard, "wait", settle_and_wait)
    assert len(client.open(50, wait_ms=1_000)) == 1
    assert world.latest.queues.by_name["sentences"].requested_count == 0


def test_clients_are_woken_when_open_items_are_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits with as many open as it may have can open others then."""
    world, spout_ = world_of(2)
    client = spout_.client("a", max_open=2)
    assert len(opened(world, client, 2)) == 2
    world.run(1_500)
    open_when_woken: list[int] = []
    monkeypatch.setattr(world.latest.guard, "notify_all", lambda: open_when_woken.append(client.open_count()))
    world.run(4_000)
    assert open_when_woken[:1] == [0]


def test_what_a_client_does_not_settle_in_its_time_is_put_back() -> None:
    """S157: three opened, two confirmed: after 500 ms the second is there again, and for nobody before."""
    world, spout_ = world_of(3)
    client = spout_.client("a", auto_abort_ms=500)
    items = opened(world, client, 3)
    assert client.confirm([items[0], items[2]]) == 2
    world.run(400)
    assert not spout_.client("b").open(1)
    world.run(100)
    assert client.confirm(items[1]) == 0
    assert values(client.open(3)) == [1]


def test_what_a_client_had_open_others_get_when_it_is_closed_or_forgotten() -> None:
    """S159, P45: oldest first; what it had confirmed stays confirmed, and what others have open is theirs."""
    world, spout_ = world_of(6)
    other = spout_.client("other")
    with spout_.client("a") as client:
        items = opened(world, client, 4)
        client.confirm(items[1])
        world.run(200)
        held = other.open(1)
    assert client.close() == 0
    with pytest.raises(UsageError, match="client 'a' is closed"):
        client.confirm(items[0])
    forgotten = spout_.client("a")
    assert values(forgotten.open(2)) == [0, 2]
    del forgotten
    assert values(other.open(9)) == [0, 2, 3, 5]
    assert values(held) == [4]


def test_a_killed_process_loses_nothing_and_repeats_nothing_that_was_published() -> None:
    """S160, S159, P22: what was open comes again, oldest first, and confirmed ones do not."""
    world, spout_ = world_of(6)
    world.start_replays()
    client = spout_.client("a")
    items = opened(world, client, 4)
    client.confirm(items[1], wait_ms=0)
    killed = world.latest
    killed.publishes = False
    client.confirm(items[3])
    world.kill_spout()
    later = world.spout()
    again = later.client("a")
    seen: list[Item] = []
    for _ in range(30):
        seen += again.open(10)
        world.run(100)
    copies = [item for item in seen if item.message_id.attempt > 1]
    assert values(copies) == [0, 2, 3]
    assert sorted(values(seen)) == [0, 2, 3, 4, 5]
    with pytest.raises(SessionSuperseded, match="took group g"):
        killed.round()


def test_to_peek_at_the_next_record_changes_nothing() -> None:
    """S161: it is not opened, and cannot be settled."""
    world, spout_ = world_of(2)
    client = spout_.client("a")
    client.abort(opened(world, client, 1))
    seen = client.peek()
    assert seen is not None
    assert values([seen]) == [0]
    assert client.open_count() == 0
    for settle in (client.confirm, client.abort, client.fail):
        for what in (seen, [seen]):
            with pytest.raises(TupleError, match=r"only peeked at.*open it first"):
                settle(what)
    with pytest.raises(TupleError, match="only peeked at"):
        client.split(seen, 2)
    assert values(client.open(1)) == [0]


def test_several_inputs_have_items_and_limits_of_their_own() -> None:
    """S162: what one input has open does not count for the other; a name is asked for."""
    world = KestrelWorld(TWO_INPUTS)
    world.produce(3)
    world.produce(3, topic="orders")
    spout_ = world.spout("sentences", "orders")
    client = spout_.client("a", max_open=2)
    assert len(opened(world, client, 5, "sentences")) == 2
    assert not client.open(5, "sentences")
    assert len(opened(world, client, 5, "orders")) == 2
    assert (client.open_count("sentences"), client.open_count("orders")) == (2, 2)
    with pytest.raises(UsageError, match="sentences, orders"):
        client.open(1)
    assert spout_.status().open == {"sentences": {"a": 2}, "orders": {"a": 2}}


def test_another_clients_item_is_refused_and_stays_open() -> None:
    """S163: by name, and nothing is published."""
    world, spout_ = world_of(2)
    first = spout_.client("a")
    items = opened(world, first, 2)
    first.abort(items[1])
    with pytest.raises(TupleError, match="client 'b' settled what 'a' has open"):
        spout_.client("b").confirm(items)
    other = spout_.client("c")
    own = other.open(1)
    with pytest.raises(TupleError, match="'c' settled what 'a' has open"):
        other.confirm([own[0], items[0]])
    assert own[0].is_open
    with pytest.raises(UsageError, match="no item"):
        other.confirm([b"0"])  # type: ignore[list-item]  # what a user may do
    world.run(200)
    assert spout_.status().group.acked == 0


def test_an_item_of_a_spout_that_was_closed_counts_nothing() -> None:
    """S163: who reconnects under the same name, and settles what it had before, acks nothing new by it."""
    world, before = world_of(6)
    client = before.client("w")
    old = opened(world, client, 3)
    part, *_ = client.split(old[2], 2)
    before.close()
    after = world.spout()
    again = after.client("w")
    new = opened(world, again, 3)
    assert [item.serial for item in new] == [item.serial for item in old]
    stranger = after.client("x")
    late: list[Settleable] = [old, old[0], part, [old[0], part]]
    for settle in (again.confirm, again.abort, again.fail, stranger.confirm):
        for what in late:
            assert settle(what) == 0
    assert [again.confirm(each) for each in again.split(old[1], 2)] == [0, 0]
    assert again.confirm([old[0], new[0]]) == 1
    assert [item.is_open for item in old] == [False] * 3
    assert [item.is_open for item in new] == [False, True, True]
    world.run(500)
    status = after.status()
    assert (status.group.acked, again.open_count(), status.late) == (1, 2, 0)
    assert world.lost("FAILED") == 0


def test_an_item_of_another_spout_that_is_open_is_refused_and_stays_open() -> None:
    """S163: clients of the same name in two spouts of one process are two clients."""
    world = KestrelWorld(YAML + "  orders: {id: 2, group: h, partitions: 1, timeout: 4s}\n")
    world.produce(3)
    world.produce(3, topic="orders")
    first, second = world.spout("sentences"), world.spout("orders")
    mine, other = first.client("w"), second.client("w")
    own, foreign = opened(world, mine, 3), opened(world, other, 3)
    (part, _), rest = other.split(foreign[2], 2), foreign[:2]
    refused: list[Settleable] = [foreign, foreign[0], part, [own[0], rest[0]], [own[0], part]]
    for settle in (mine.confirm, mine.abort, mine.fail):
        for what in refused:
            with pytest.raises(TupleError, match=r"'w' settled what 'w' of another spout has open.* hand"):
                settle(what)
    for act in (lambda: mine.split(foreign[0], 2), lambda: first.ack(foreign[0])):
        with pytest.raises(TupleError, match="another spout"):
            act()
    assert all(item.is_open for item in [*own, *foreign])
    assert other.confirm(rest) == 2
    world.run(500)
    assert (first.status().group.acked, mine.open_count()) == (0, 3)
    assert (second.status().group.acked, other.open_count()) == (2, 1)


def test_items_are_confirmed_all_or_none_when_parts_of_one_are_open() -> None:
    """S166: what stands before the refused one is neither gone nor acked, and can be settled afterwards."""
    world, spout_ = world_of(4)
    client = spout_.client("a")
    items = opened(world, client, 4)
    parts = client.split(items[1], 2)
    attempts: list[Callable[[], int]] = [
        lambda: client.confirm_oldest(3),
        lambda: client.confirm(list(items)),
        lambda: client.confirm([items[0], parts[0], items[1]]),
    ]
    for attempt in attempts:
        with pytest.raises(TupleError, match="parts are open"):
            attempt()
        assert all(item.is_open for item in items)
        assert client.open_count() == 4
    assert client.confirm_oldest(1) == 1
    assert client.confirm([*parts, items[1], items[2]]) == 2
    assert client.confirm_oldest(1) == 1
    world.run(500)
    assert (spout_.status().group.acked, client.open_total()) == (4, 0)


def test_what_is_no_item_is_refused_with_what_to_hand_over() -> None:
    """Nothing is settled by it, whatever stands before it in a list."""
    world, spout_ = world_of(2)
    client = spout_.client("a")
    items = opened(world, client, 2)
    message_id = items[0].message_id
    wrongs = (None, 3, "abc", b"x", message_id, message_id.root, [items[0], None], [items[0], message_id])
    for verb in ("confirm", "abort", "fail"):
        for wrong in (*wrongs, [items]):
            with pytest.raises(UsageError, match=rf"^{verb}: .* is no item.*`open` returned") as found:
                getattr(client, verb)(wrong)
            assert len(str(found.value)) < 250
    for several in (None, message_id, items, [items[0]]):
        with pytest.raises(UsageError, match=r"^split: .* is no item.*one item"):
            client.split(several, 2)  # type: ignore[arg-type]  # what a user may do
    assert client.open_count() == 2
    assert client.confirm(item for item in items) == 2


def test_a_tuple_may_be_acked_or_failed_itself_and_what_is_neither_is_refused() -> None:
    """The tuple stands for its message id; anything else would be unknown for ever, so it is an error."""
    world, spout_ = world_of(3)
    first, second, third = [next_of(world, spout_) for _ in range(3)]
    for wrong in (None, [1], "sentences/0@0", first.message_id.origin, 7, (1, 2)):
        for verb in ("ack", "fail"):
            with pytest.raises(UsageError, match=rf"^{verb}: .* is no message id.*\.message_id"):
                getattr(spout_, verb)(wrong)
    assert [spout_.ack(first), spout_.ack(first), spout_.ack(first.message_id)] == [True, False, False]
    assert [spout_.fail(second, "no"), spout_.fail(second), spout_.ack(second)] == [True, False, False]
    assert spout_.ack(third.message_id)
    world.run(500)
    assert (spout_.status().group.acked, world.lost("FAILED")) == (2, 1)


def test_a_tuple_of_a_spout_that_was_closed_is_unknown() -> None:
    """S58: acked late, it is no error, and nothing is acked."""
    world, before = world_of(2)
    old = next_of(world, before)
    before.close()
    after = world.spout()
    new = next_of(world, after)
    assert (after.ack(old), after.fail(old), after.ack(old.message_id)) == (False, False, False)
    assert new.is_open


def test_a_record_that_nobody_confirms_is_a_dead_letter_once() -> None:
    """S164, S59: it times out with its client, is taken away, and after the last attempt is a dead letter."""
    world, spout_ = world_of(1, YAML + "    retry: {attempts: 1}\n")
    world.start_replays()
    client = spout_.client("slow")
    items = opened(world, client, 1)
    world.run(5_500)
    assert world.lost("TIMED_OUT") == 1
    assert client.open_count() == 0
    assert client.confirm(items) == 0
    assert client.confirm(items[0]) == 0
    world.run(1_000)
    assert len(world.records("sentences.g.dlq")) == 1
    assert spout_.status().late == 1
    late = [fields["roots"] for event, fields in world.reports if event == "settled_after_the_timeout"]
    assert late == [["sentences/0@0 TIMED_OUT"]]
    assert len(world.latest.queues.records) == 0
    assert world.committed() == 1


WORKING: list[tuple[str, Callable[[Client, Items], Settleable]]] = [
    ("all of an open", lambda _, items: items),
    ("an item", lambda _, items: items[0]),
    ("a list", lambda _, items: [items[0], items[0]]),
    ("a part", lambda client, items: client.split(items[0], 2)[1]),
    ("a tuple's iterator", lambda _, items: iter([items[0]])),
]


@pytest.mark.parametrize("what", [what for _, what in WORKING], ids=[name for name, _ in WORKING])
def test_work_that_goes_on_longer_than_the_timeout_can_say_so(
    what: Callable[[Client, Items], Settleable],
) -> None:
    """D701: three times the timeout, and it is acked at its first emission."""
    world, spout_ = world_of(1)
    world.start_replays()
    client = spout_.client("slow")
    items = opened(world, client, 1)
    working = what(client, items)
    for _ in range(12):
        world.run(1_000)
        assert client.reset_timeout(working if not isinstance(working, Iterator) else iter([items[0]])) == 1
    assert client.abort(items) == 1
    assert client.confirm(opened(world, client, 1)) == 1
    world.run(1_000)
    assert (world.lost("TIMED_OUT"), spout_.status().group.acked, spout_.status().late) == (0, 1, 0)


def work_through(world: KestrelWorld, client: Client, at_once: int, *, resets: bool) -> int:
    """Do ten jobs of one second each; return how many runs that takes, with those that are done again."""
    runs = done = 0
    while done < 10:
        items = list(opened(world, client, min(at_once, 10 - done)))
        while items:
            world.run(1_000)
            runs += 1
            done += client.confirm(items.pop(0))
            if resets and items:
                client.reset_timeout(items)
    return runs


@pytest.mark.parametrize(
    ("at_once", "resets", "runs"),
    [(1, False, range(10, 11)), (10, True, range(10, 11)), (10, False, range(12, 21))],
)
def test_jobs_that_are_opened_together_take_their_time_together(
    at_once: int, resets: bool, runs: range
) -> None:
    """D2406: one by one, or with a sign of work behind each job, ten jobs are ten runs."""
    world, spout_ = world_of(10)
    world.start_replays()
    assert work_through(world, spout_.client("slow"), at_once, resets=resets) in runs


def test_a_reset_is_of_what_is_open_alone() -> None:
    """D702: others time out as they would; what was settled, was put back or has timed out counts 0."""
    world, spout_ = world_of(4)
    client, other = spout_.client("slow"), spout_.client("other")
    items = opened(world, client, 4)
    client.confirm(items[0])
    client.abort(items[1])
    assert (client.reset_timeout(items[0]), client.reset_timeout(items[1])) == (0, 0)
    for _ in range(6):
        world.run(1_000)
        assert client.reset_timeout(items[2]) == 1
    assert client.reset_timeout(items[3]) == 0, "it has timed out"
    assert world.lost("TIMED_OUT") == 2
    assert client.reset_timeout(items) == 1
    with pytest.raises(TupleError, match="'slow' has open"):
        other.reset_timeout(items[2])
    with pytest.raises(UsageError, match="is no item"):
        client.reset_timeout("sentences/0@2")  # type: ignore[arg-type]


def test_a_tuple_of_storms_manner_is_worked_on_too() -> None:
    """D701: as `OutputCollector.resetTimeout`, by the tuple, its root or its message id."""
    world, spout_ = world_of(1)
    tuple_ = next_of(world, spout_)
    for _ in range(4):
        world.run(1_000)
        assert spout_.reset_timeout(tuple_) is True
        world.run(1_000)
        assert spout_.reset_timeout(tuple_.message_id) is True
    assert spout_.ack(tuple_) is True
    assert spout_.reset_timeout(tuple_) is False


def test_a_reset_lets_the_time_until_items_are_put_back_begin_anew() -> None:
    """D703: `auto_abort_ms` is for clients that hang, not for those that work on."""
    world, spout_ = world_of(2)
    client = spout_.client("a", auto_abort_ms=500)
    items = opened(world, client, 2)
    for _ in range(8):
        world.run(400)
        assert client.reset_timeout(items[0]) == 1
    assert client.open_count() == 2
    world.run(700)
    assert client.open_count() == 0


def test_a_reset_holds_by_the_sessions_clock_of_now() -> None:
    """D704: nothing was planned since the item was opened, so the last batch's clock is old."""
    world, spout_ = world_of(1)
    client = spout_.client("slow")
    items = opened(world, client, 1)
    world.run(3_900)
    assert client.reset_timeout(items) == 1
    world.run(3_500)
    assert (client.open_count(), world.lost("TIMED_OUT")) == (1, 0)
    world.run(1_500)
    assert (client.open_count(), world.lost("TIMED_OUT")) == (0, 1)


def test_every_way_to_settle_too_late_is_counted_once() -> None:
    """S164: as a whole, alone or in parts, confirmed or failed."""
    world, spout_ = world_of(3)
    client = spout_.client("slow")
    items, alone, split = (opened(world, client, 1) for _ in range(3))
    parts = client.split(split[0], 2)
    world.run(5_500)
    assert [client.fail(items), client.fail(alone[0]), client.confirm(parts[0])] == [0, 0, 0]
    assert [client.fail(items), client.fail(alone[0]), client.confirm(parts[1])] == [0, 0, 0]
    assert spout_.status().late == 3


def test_to_abort_after_the_topic_was_deleted_does_not_make_it_again() -> None:
    """S165: the item is put back here, and nothing is written to the topic."""
    world, spout_ = world_of(2)
    client = spout_.client("a")
    items = opened(world, client, 2)
    world.cluster.delete_topic("sentences")
    assert client.abort(items) == 2
    assert "sentences" not in world.log.topics(["sentences"])


def test_a_record_of_two_parts_is_acked_with_the_second() -> None:
    """S166: the trees of both are one root's; a failed part fails it."""
    world, spout_ = world_of(2)
    client = spout_.client("a")
    items = opened(world, client, 2)
    first, second = client.split(items[0], 2)
    other, _ = client.split(items[1], 2)
    assert client.confirm(first) == 0
    assert client.fail(other, "half of it is wrong") == 1
    with pytest.raises(TupleError, match="parts"):
        client.confirm(items)
    world.run(500)
    assert spout_.status().group.acked == 0
    assert client.confirm(second) == 1
    world.run(500)
    assert (spout_.status().group.acked, world.lost("FAILED")) == (1, 1)


def test_to_confirm_nothing_is_nothing() -> None:
    """P44: with nothing pending there is nothing to wait for, and no publication."""
    world, spout_ = world_of(1)
    client = spout_.client("a")
    assert client.confirm([], wait_ms=0) == 0
    assert client.confirm(client.open(1)) == 0
    assert world.latest.durable_number == 0


def test_the_first_word_on_an_item_counts() -> None:
    """P42: a second confirmation is silent; an abort or a fail behind a confirmation changes nothing."""
    world, spout_ = world_of(2)
    client = spout_.client("a")
    items = opened(world, client, 2)
    assert [client.confirm(items[0]), client.confirm(items[0])] == [1, 0]
    assert [client.abort(items[0]), client.fail(items[0])] == [0, 0]
    assert [client.abort(items[1]), client.confirm(items[1])] == [1, 0]
    world.run(500)
    assert (spout_.status().group.acked, world.lost("FAILED")) == (1, 0)


def test_tuple_by_tuple_in_storms_manner() -> None:
    """S119, S57, S58: one tuple a call, ack and fail by message id; what is unknown changes nothing."""
    world, spout_ = world_of(3)
    first, second = next_of(world, spout_), next_of(world, spout_)
    assert values([first, second]) == [0, 1]
    assert spout_.ack(first.message_id)
    assert not spout_.ack(first.message_id)
    assert not spout_.fail(first.message_id)
    assert spout_.fail(second.message_id.root, "no")
    assert not spout_.ack(second.message_id)
    world.run(500)
    assert (spout_.status().group.acked, world.lost("FAILED")) == (1, 1)


def test_a_deactivated_spout_emits_nothing_and_takes_acks() -> None:
    """S70, S140: no tuple until it is activated again; then it goes on where it was."""
    world, spout_ = world_of(3)
    first = next_of(world, spout_)
    world.run(200)
    spout_.deactivate()
    before = spout_.status()
    assert before.waiting["sentences"]
    world.produce(3)
    for _ in range(3):
        assert spout_.next_tuple() is None
        assert not spout_.client().open(9)
        world.run(200)
    assert spout_.status().group.emitted == before.group.emitted
    assert spout_.ack(first.message_id)
    world.run(500)
    assert spout_.status().group.acked == 1
    spout_.activate()
    assert values(opened(world, spout_.client("b"), 1)) == [1]


def test_tuples_come_of_each_input_in_turn() -> None:
    world = KestrelWorld(TWO_INPUTS)
    world.produce(3)
    world.produce(3, topic="orders")
    spout_ = world.spout()
    spout_.next_tuple()
    found = []
    for _ in range(4):
        world.run(300)
        found.append(next_of(world, spout_)["topic"])
    assert found == ["sentences", "orders"] * 2


def test_with_nobody_there_nothing_is_planned() -> None:
    """A record that is planned is pending: without a client it would only time out."""
    world, spout_ = world_of(50)
    client = spout_.client("a")
    assert len(opened(world, client, 5)) == 5
    world.run(3_000)
    waiting = spout_.status().waiting["sentences"]
    planned = spout_.status().group.emitted
    assert waiting <= 10
    world.produce(50)
    world.run(3_000)
    assert spout_.status().group.emitted == planned


def test_a_client_that_takes_its_time_is_no_batch_that_takes_too_long() -> None:
    """What clients want is planned at once, however long one of them held its records."""
    world, spout_ = world_of(1)
    slow, quick = spout_.client("slow"), spout_.client("quick")
    items = opened(world, slow, 1)
    world.run(3_000)
    slow.confirm(items)
    world.produce(60)
    world.run(500)
    assert not quick.open(60)
    world.run(100)
    assert len(quick.open(60)) == 60
    assert [event for event, _ in world.reports if event.startswith("batch_")] == []


def test_no_more_is_pending_than_may_be() -> None:
    """S65, P60: the input's limit holds for all clients together."""
    world = KestrelWorld(YAML.replace("200000", "3"))
    world.produce(10)
    spout_ = world.spout()
    first, second = spout_.client("a"), spout_.client("b")
    items = opened(world, first, 2)
    assert len(opened(world, second, 9)) == 1
    world.run(500)
    assert not second.open(9)
    first.confirm(items)
    assert len(opened(world, second, 9)) == 2


def test_markers_of_transactions_are_absent_and_hold_nothing_up() -> None:
    """S149, P6: positions without a record get their verdict, and the group is committed to the end."""
    world, spout_ = world_of(2)
    transactions = world.log.transactions("t")
    transactions.init(0)
    transactions.begin()
    transactions.send(Outgoing("sentences", 0, b"2"))
    transactions.commit(0)
    client = spout_.client("a")
    seen: list[int] = []
    for _ in range(10):
        items = client.open(10)
        seen += values(items)
        client.confirm(items)
        world.run(100)
    world.run(4_000)
    assert seen == [0, 1, 2]
    assert (spout_.status().group.absent, world.committed()) == (1, 4)


def test_records_that_left_the_log_stop_the_spout_by_name_or_are_skipped() -> None:
    """S150: `on_data_loss` decides, as it does for a query."""
    for policy in ("fail", "skip"):
        world = KestrelWorld(YAML + f"    on_data_loss: {policy}\n")
        world.produce(10)
        spout_ = world.spout()
        client = spout_.client("a")
        world.run(200)
        world.cluster.delete_before(TopicPartition("sentences", 0), 4)
        if policy == "fail":
            with pytest.raises(DataLoss, match="no longer holds offsets 0 to 3"):
                opened(world, client, 10)
        else:
            items = opened(world, client, 10)
            assert values(items) == [4, 5, 6, 7, 8, 9]
            client.confirm(items)
            world.run(4_000)
            assert spout_.status().group.lost_from_log == 4
            assert world.committed() == 10


def test_a_publication_that_is_not_durable_stops_the_spout() -> None:
    """Nothing is counted as confirmed for good that the broker does not have."""
    world = KestrelWorld()
    world.produce(2)
    faults = FlushesLeft()
    spout_ = world.spout(faults=faults)
    client = spout_.client("a")
    items = opened(world, client, 2)
    faults.left = 0
    with pytest.raises(Unreachable):
        client.confirm(items, wait_ms=0)
    assert world.latest.durable_number == 0


def test_what_cannot_be_is_refused_when_it_is_asked_for() -> None:
    world = KestrelWorld()
    with pytest.raises(UsageError, match="sentences"):
        KafkaSpout(world.topics, ())
    untracked = KestrelWorld(YAML + "    ackers: 0\n")
    with pytest.raises(UsageError, match="ackers: 0"):
        untracked.make_spout()
    spout_ = world.spout()
    with pytest.raises(UsageError, match="opened before"):
        spout_.open()
    client = spout_.client("a")
    with pytest.raises(UsageError, match="'a' already"):
        spout_.client("a")
    for wrong in ({"max_open": 0}, {"auto_abort_ms": 0}):
        with pytest.raises(UsageError, match="1 or more"):
            spout_.client("b", **wrong)
    with pytest.raises(UsageError, match="1 or more"):
        client.open(0)
    with pytest.raises(UsageError, match="1 part"):
        client.split(Items, 0)  # type: ignore[arg-type]  # refused before it is looked at


def test_a_client_that_waits_on_a_deactivated_spout_makes_it_plan_nothing() -> None:
    """S70: what would be planned for it would only time out."""
    _, spout_ = world_of(1)
    queues = spout_._engine.queues
    queues.by_name["sentences"].requested_count = 5
    assert queues.lacking_count_by_input(0) == {"sentences": 5}
    spout_.deactivate()
    assert queues.lacking_count_by_input(0) == {}


def test_a_spout_serves_its_roots_and_its_records_by_input() -> None:
    world, spout_ = world_of(5)
    client = spout_.client("client-0815")
    items = opened(world, client, 3)
    world.run(300)
    port = free_port()
    spout_.serve_metrics(f"127.0.0.1:{port}")
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'windhover_spout_open_records{group="g",input="sentences"} 3.0' in text
    assert "client-0815" not in text
    assert "windhover_build_info{" in text
    assert len(items) == 3
