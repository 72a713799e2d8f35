"""A morning of one query, in memory: orders that are acked, fail, wait, die, and are handled by a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from acker.identity import source_of
from acker.kafka.port import Outgoing
from replay.handling.letter_handling import Order, RateLimit
from replay.handling.redrive import Redrive
from replay.records.letters import Filter, LetterAction
from spout.planning.journal import BEGINNING
from tests.support.worlds import planning

ORDERS: Final = "orders"
MINUTE_MS: Final = 60_000

TEXT: Final = """
acker: {partitions: 2}
inputs:
  orders:
    id: 1
    group: billing
    partitions: 1
    timeout: 2h
    retry: {attempts: 2, initial: 10m, max: 1h}
    dead_letter: {max_ratio: 1, max_consecutive: 1000}
"""

_COPIES: Final = source_of(1, 0, replay=True)


class OrdersWorld(planning.World):
    """The query `billing` with its acker and its replay worker."""

    def __init__(self) -> None:
        super().__init__(TEXT)
        self.start_replays()
        self.planner_of_query = self.ready()
        self.end = BEGINNING

    def leap(self, minutes: int) -> None:
        """Let time pass, of which the last second is stepped."""
        self.cluster.now_ms += minutes * MINUTE_MS
        self.run(1_000)

    def arrive(self, *customers: int) -> None:
        """Append an order for each customer, by its number."""
        producer = self.log.producer()
        for number, customer in enumerate(customers, start=self.order_count):
            payload = json.dumps({"order": number, "customer": {"id": customer}}).encode()
            producer.send(Outgoing(ORDERS, 0, payload, b"order-%d" % number))
        producer.flush(0)

    @property
    def order_count(self) -> int:
        """How many orders have arrived."""
        return len(self.records_of(ORDERS))

    def records_of(self, topic: str) -> Sequence[object]:
        """Return the committed records of a topic with one partition."""
        reader = self.log.reader(committed=True)
        reader.assign({planning.TopicPartition(topic, 0): 0})
        return reader.poll(0, 10_000)

    def work(
        self,
        *,
        fail: Sequence[int] = (),
        left_open: Sequence[int] = (),
        error: str = "ValueError",
        are_copies: bool = False,
    ) -> None:
        """Plan a batch and publish it; the offsets are of copies where `are_copies`."""
        start = self.end
        self.end = planning.batch(self.planner_of_query, start, self)
        source = _COPIES if are_copies else planning.source_of(1, 0)
        self.publish(start, self.end, fail=fail, skip=left_open, of=source, error=error)
        self.run(1_000)

    def drop_letters(self, error: str, why: str) -> None:
        """Give up all letters that died by an error."""
        meant = Filter(error=error)
        order = Order(LetterAction.DROPPED, meant, "kim", why, "c0ffee01")
        filters = [(self.topics.input(ORDERS), meant)]
        limit = RateLimit(None, self.now_ms)
        with closing(Redrive(self.cluster.log(), self.topics, filters, order, limit)) as redrive:
            while not redrive.is_done:
                redrive.step(self.now_ms)

    def leave_a_note_of_strangers(self) -> None:
        """Append a record to the dead-letter topic that is no letter."""
        producer = self.log.producer()
        producer.send(Outgoing(self.topics.input(ORDERS).dead_letter.topic, 0, b"hello"))
        producer.flush(0)


def morning() -> OrdersWorld:
    """Play the morning of 2027-01-15, from 08:00 on.

    08:00  ten orders come; 2, 3 and 5 fail at the bolt `split` by a ValueError
    08:10  they are emitted again; 2 and 3 fail again and die, 5 is acked
    09:00  six orders come; 11 and 12 fail by a TimeoutError
    09:10  they are emitted again; 11 fails again and dies
    09:30  somebody gives the letter of order 11 up
    10:00  four orders come; 16 fails and waits, 18 and 19 stay open
    10:01  a stranger writes to the topic of the dead letters
    """
    world = OrdersWorld()
    world.arrive(17, 4, 17, 17, 8, 9, 4, 17, 23, 8)
    world.work(fail=[2, 3, 5])
    world.leap(10)
    world.work(fail=[0, 1], are_copies=True)
    world.leap(49)
    world.arrive(17, 23, 4, 9, 17, 4)
    world.work(fail=[11, 12], error="TimeoutError")
    world.leap(10)
    world.work(fail=[4], error="TimeoutError", are_copies=True)
    world.leap(20)
    world.drop_letters("TimeoutError", "the supplier is gone")
    world.leap(30)
    world.arrive(4, 8, 17, 9)
    world.work(fail=[16], left_open=[18, 19])
    world.leave_a_note_of_strangers()
    world.leap(5)
    return world
