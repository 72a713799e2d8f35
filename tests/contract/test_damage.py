"""What the port promises of a damaged batch: it is named, and it hides nothing but itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

import pytest

from acker.errors import Damaged
from acker.kafka.port import Outgoing, Picker, Reader, Record, TopicPartition
from tests.contract.clusters import Cluster, read_until, values
from tests.support.damage import Damage
from tests.support.raw_records import Codec
from tests.support.waiting import eventually

BATCH_RECORDS = 10
KINDS = [
    *((Damage.VALUE, codec) for codec in Codec),
    *((Damage.PACKED, codec) for codec in Codec if codec is not Codec.NONE),
    (Damage.CHECKSUM, Codec.NONE),
    (Damage.CODEC, Codec.LZ4),
    (Damage.MAGIC, Codec.NONE),
]
"""Those of which the client says something."""


def numbered(batch: int) -> list[bytes]:
    return [b"record %d of batch %d" % (number, batch) for number in range(BATCH_RECORDS)]


def write_batches(
    cluster: Cluster, place: TopicPartition, count: int, codec: Codec = Codec.NONE
) -> list[range]:
    return [cluster.write_batch(place, numbered(batch), codec) for batch in range(count)]


def read_to_damage(poll: Callable[[], Iterable[Record]]) -> tuple[list[Record], Damaged]:
    """Poll until a damaged batch is reported; return the records that came before, and the report."""
    found: list[Record] = []
    reported: list[Damaged] = []

    def is_reported() -> bool:
        try:
            found.extend(poll())
        except Damaged as error:
            reported.append(error)
        return bool(reported)

    eventually(is_reported)
    return found, reported[0]


def polls(reader: Reader) -> Callable[[], Iterable[Record]]:
    return lambda: reader.poll(100)


def picks(picker: Picker, place: TopicPartition) -> Callable[[], Iterable[Record]]:
    return lambda: picker.pick(100, {place: range(1_000)}).records


@pytest.mark.sample(5)
@pytest.mark.parametrize(("damage", "codec"), KINDS, ids=lambda each: each.name.lower())
def test_a_damaged_batch_is_reported_with_its_place_and_can_be_passed_over(
    cluster: Cluster, damage: Damage, codec: Codec
) -> None:
    """O301: what lies before it comes first, and what lies behind it after `pass_over`; nothing of it."""
    place = TopicPartition(cluster.topic(), 0)
    batches = write_batches(cluster, place, 5, codec)
    cluster.damage(place, batches[2], damage)
    reader = cluster.reader({place: 0})
    before, error = read_to_damage(polls(reader))
    assert values(before) == [value for batch in (0, 1) for value in numbered(batch)]
    assert (error.topic, error.partition, error.first) == (*place, 20)
    # the log in memory does not unpack, so it knows one word for both
    words = ["is damaged", "cannot be handled"] if damage is Damage.PACKED else ["is damaged"]
    assert any(f"{place.topic}/0@20: a batch there {what}" in str(error) for what in words)
    assert damage not in (Damage.VALUE, Damage.CHECKSUM) or "checksum" in str(error)
    assert reader.position(place) == 20
    passed = reader.pass_over(place)
    assert passed[:4] == (*place, 20, 30)
    behind = read_until(reader, {place: 50})
    assert values(behind) == [value for batch in (3, 4) for value in numbered(batch)]


@pytest.mark.parametrize("at", [0, 4], ids=["first", "last"])
@pytest.mark.parametrize("damage", [Damage.VALUE, Damage.PACKED], ids=lambda each: each.name.lower())
def test_the_first_and_the_last_batch_of_a_partition_are_passed_over(
    cluster: Cluster, damage: Damage, at: int
) -> None:
    """O302: up to the end of the log, where nothing follows; what is written later is read."""
    place = TopicPartition(cluster.topic(), 0)
    batches = write_batches(cluster, place, 5, Codec.LZ4)
    cluster.damage(place, batches[at], damage)
    reader = cluster.reader({place: 0})
    before, _ = read_to_damage(polls(reader))
    assert len(before) == at * BATCH_RECORDS
    assert reader.pass_over(place)[2:4] == (batches[at].start, batches[at].stop)
    cluster.write(Outgoing(*place, b"later"))
    behind = read_until(reader, {place: 51})
    assert values(behind) == [*(value for batch in range(at + 1, 5) for value in numbered(batch)), b"later"]


def test_a_reader_that_begins_within_a_damaged_batch_passes_over_the_rest_of_it(cluster: Cluster) -> None:
    """O303: the offsets that are left out begin where the reader stood, not where the batch does."""
    place = TopicPartition(cluster.topic(), 0)
    batches = write_batches(cluster, place, 3)
    cluster.damage(place, batches[1], Damage.VALUE)
    reader = cluster.reader({place: 15})
    before, error = read_to_damage(polls(reader))
    assert (before, error.first) == ([], 15)
    assert reader.pass_over(place)[2:4] == (15, 20)
    assert values(read_until(reader, {place: 30})) == numbered(2)


def test_damaged_batches_side_by_side_are_passed_over_together_and_others_apart(cluster: Cluster) -> None:
    """O304: what is sound between two of them is read."""
    place = TopicPartition(cluster.topic(), 0)
    batches = write_batches(cluster, place, 6)
    for number in (1, 2, 4):
        cluster.damage(place, batches[number], Damage.VALUE)
    reader = cluster.reader({place: 0})
    found: list[bytes | None] = []
    passed: list[tuple[int, int]] = []
    for _ in range(2):
        before, _ = read_to_damage(polls(reader))
        found += values(before)
        run = reader.pass_over(place)
        passed.append((run.start, run.end))
    found += values(read_until(reader, {place: 60}))
    assert passed == [(10, 30), (40, 50)]
    assert found == [value for batch in (0, 3, 5) for value in numbered(batch)]


def test_other_partitions_are_read_on_while_one_stands_at_a_damaged_batch(cluster: Cluster) -> None:
    """O305: the report comes once while there are records, and again when there is nothing else."""
    topic = cluster.topic(2)
    spoilt, sound = TopicPartition(topic, 0), TopicPartition(topic, 1)
    [batch] = write_batches(cluster, spoilt, 1)
    cluster.damage(spoilt, batch, Damage.VALUE)
    reader = cluster.reader({spoilt: 0, sound: 0})
    _, first = read_to_damage(polls(reader))
    write_batches(cluster, sound, 3)
    found, again = read_to_damage(polls(reader))
    assert (str(again), len(found)) == (str(first), 30)
    assert (reader.position(spoilt), reader.position(sound)) == (0, 30)
    reader.assign({spoilt: 10, sound: 30})
    write_batches(cluster, spoilt, 1)
    assert values(read_until(reader, {spoilt: 20, sound: 30})) == numbered(0)


def test_an_assignment_that_names_a_damaged_place_again_tries_it_again(cluster: Cluster) -> None:
    """O306: so whoever holds something up for it sees by and by that it can be read."""
    place = TopicPartition(cluster.topic(), 0)
    [batch] = write_batches(cluster, place, 1)
    cluster.damage(place, batch, Damage.VALUE)
    reader = cluster.reader({place: 0})
    read_to_damage(polls(reader))
    reader.assign({place: 0})
    _, again = read_to_damage(polls(reader))
    assert again.first == 0
    cluster.mend(place, batch, Damage.VALUE)
    reader.assign({place: 0})
    assert values(read_until(reader, {place: 10})) == numbered(0)


def test_a_picker_reports_a_damaged_batch_and_goes_on_behind_it(cluster: Cluster) -> None:
    """O307: of what it is to pick, only that is missing which lies in the batch."""
    place = TopicPartition(cluster.topic(), 0)
    batches = write_batches(cluster, place, 3, Codec.GZIP)
    cluster.damage(place, batches[1], Damage.VALUE)
    picker = cluster.picker({place: 5})
    before, error = read_to_damage(picks(picker, place))
    assert (values(before), error.first) == (numbered(0)[5:], 10)
    assert picker.pass_over(place)[2:4] == (10, 20)
    found: list[Record] = []

    def is_read() -> bool:
        found.extend(picks(picker, place)())
        return picker.position(place) >= 30

    eventually(is_read)
    assert values(found) == numbered(2)


def test_damage_in_an_aborted_transaction_is_passed_over_like_other_damage(cluster: Cluster) -> None:
    """O308: its checksum is looked at before anybody knows that its records do not count."""
    place = TopicPartition(cluster.topic(), 0)
    owner = cluster.owner()
    cluster.write(Outgoing(*place, b"before"))
    owner.begin()
    for number in range(3):
        owner.send(Outgoing(*place, b"undone %d" % number))
    owner.flush(20_000)
    owner.abort(20_000)
    cluster.settled([place])
    cluster.write(Outgoing(*place, b"behind"))
    cluster.damage(place, range(1, 4), Damage.VALUE)
    with closing(cluster.log.reader(committed=True)) as reader:
        reader.assign({place: 0})
        before, error = read_to_damage(polls(reader))
        assert (values(before), error.first) == ([b"before"], 1)
        assert reader.pass_over(place).start == 1
        assert values(read_until(reader, {place: 6})) == [b"behind"]
