"""Where a log can be read again behind damage, found by trials of a client that has single batches only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import NotAuthorized, Unreachable
from acker.kafka.client import DAMAGE
from acker.kafka.damage import NAMELESS, NAMELESS_STEP_MAX, SILENT_MS, first_behind_damage
from acker.kafka.port import TopicPartition
from tests.support.fake_consumer import SILENT_DAMAGE, Batch, FakeKafka, batch, message

PLACE, OTHER = TopicPartition("words", 3), TopicPartition("lines", 3)
NAMED = sorted(DAMAGE.keys() - NAMELESS)
NAMELESS_KINDS = [*sorted(NAMELESS), SILENT_DAMAGE]
EVERY_DAMAGE = pytest.mark.parametrize("damage", NAMED + NAMELESS_KINDS)


def found_from(kafka: FakeKafka, position: int) -> int:
    """Return what is found from a position on; every client that was made for it is closed."""
    first = first_behind_damage(kafka.client(), PLACE, position)
    assert kafka.consumers
    assert all(consumer.is_closed for consumer in kafka.consumers)
    return first


@EVERY_DAMAGE
@pytest.mark.parametrize("size", [1, 2, 65, 300])
@pytest.mark.parametrize("within", [0.0, 0.5, 1.0])
def test_the_end_of_one_batch_is_found_from_wherever_the_reader_stands_in_it(
    damage: int, size: int, within: float
) -> None:
    kafka = FakeKafka(
        logs={PLACE: [batch(0, 100), batch(100, 100 + size, damage=damage), batch(100 + size, 2_000)]}
    )
    assert found_from(kafka, 100 + int((size - 1) * within)) == 100 + size
    trials = sum(len(consumer.calls) for consumer in kafka.consumers)
    if damage in NAMED:
        assert trials <= 3 * size.bit_length() + 6


@EVERY_DAMAGE
@pytest.mark.parametrize("size", [1, 7, 70])
def test_damage_at_the_end_of_a_log_goes_to_its_end(damage: int, size: int) -> None:
    kafka = FakeKafka(logs={PLACE: [batch(0, 10), batch(10, 10 + size, damage=damage)]})
    assert found_from(kafka, 10) == 10 + size


@pytest.mark.parametrize("damage", NAMED)
@pytest.mark.parametrize("following", NAMED + NAMELESS_KINDS)
def test_damaged_batches_one_behind_the_other_are_passed_over_together(damage: int, following: int) -> None:
    batches = [batch(0, 20, damage=damage), batch(20, 25, damage=following), batch(25, 30)]
    assert found_from(FakeKafka(logs={PLACE: batches}), 0) == 25


@pytest.mark.parametrize("damage", NAMED)
def test_a_sound_batch_between_two_damaged_ones_is_found_however_short_it_is(damage: int) -> None:
    batches = [batch(0, 1_000, damage=damage), batch(1_000, 1_001), batch(1_001, 9_000, damage=damage)]
    assert found_from(FakeKafka(logs={PLACE: batches}), 0) == 1_000


@pytest.mark.parametrize("damage", NAMELESS_KINDS)
def test_where_events_name_no_batch_steps_are_short_enough_for_a_sound_one(damage: int) -> None:
    """Two damaged batches look like one."""
    sound = batch(1_000, 1_000 + NAMELESS_STEP_MAX)
    batches = [batch(0, 1_000, damage=damage), sound, batch(sound.next, 9_000, damage=damage)]
    assert found_from(FakeKafka(logs={PLACE: batches}), 0) == 1_000


def test_what_can_be_read_by_now_is_no_damage() -> None:
    kafka = FakeKafka(logs={PLACE: [batch(0, 9), Batch(9, 12)]})
    for position in (0, 8, 9, 12):
        assert found_from(kafka, position) == position


def test_a_trial_that_brings_nothing_waits_three_seconds_and_asks_whether_anybody_answers() -> None:
    kafka = FakeKafka(logs={PLACE: [batch(0, 1, damage=SILENT_DAMAGE), batch(1, 3)]})
    begun_s = kafka.clock.now_s
    assert found_from(kafka, 0) == 1
    assert kafka.clock.now_s - begun_s == pytest.approx(SILENT_MS / 1_000)


def test_a_broker_that_answers_nothing_is_no_damage() -> None:
    """Else a network that is down would cost records."""
    kafka = FakeKafka(logs={PLACE: [batch(0, 1)]}, silent=True)
    with pytest.raises(Unreachable, match=r"looking behind a damaged batch of words/3: no answer .* 3000 ms"):
        first_behind_damage(kafka.client(), PLACE, 0)
    assert kafka.last.is_closed


def test_a_refusal_is_no_damage_either() -> None:
    kafka = FakeKafka(
        logs={PLACE: [batch(0, 1)]}, errors={PLACE: KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)}
    )
    with pytest.raises(NotAuthorized, match="words/3: the right to Read on Topic words is missing"):
        first_behind_damage(kafka.client(), PLACE, 0)
    assert kafka.last.is_closed


def test_what_comes_of_another_topic_is_no_answer() -> None:
    """The client's own reports come by the same way."""
    kafka = FakeKafka(logs={PLACE: [batch(0, 2, damage=SILENT_DAMAGE), batch(2, 3)]})
    client = kafka.client()
    fetched = kafka.fetched

    def with_another(place: TopicPartition, position: int, *, is_one_batch: bool) -> Iterator[Message]:
        yield message(OTHER, position)
        yield from fetched(place, position, is_one_batch=is_one_batch)

    kafka.fetched = with_another  # type: ignore[method-assign]
    assert first_behind_damage(client, PLACE, 0) == 2


LOGS = st.lists(st.tuples(st.integers(1, 40), st.sampled_from([None, *NAMED])), min_size=1, max_size=6)


@given(LOGS, st.integers(0, 300))
def test_the_first_readable_offset_is_found_in_every_log_of_named_damage(
    parts: list[tuple[int, int | None]], position: int
) -> None:
    batches: list[Batch] = []
    for size, damage in parts:
        start = batches[-1].next if batches else 0
        batches.append(batch(start, start + size, damage=damage))
    kafka = FakeKafka(logs={PLACE: batches})
    expected = position
    for one_batch in batches:
        if one_batch.damage is not None and one_batch.start <= expected < one_batch.next:
            expected = one_batch.next
    assert found_from(kafka, position) == expected
