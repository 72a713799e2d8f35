"""The store in topics of Kafka: what becomes of rows, and who fences whom at which moment."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from acker.config.topics import parse
from acker.errors import (
    Aborted,
    ConfigError,
    LogError,
    NotAuthorized,
    RecordRefused,
    StoreFenced,
    TopicError,
    TrackingError,
    Unreachable,
    UsageError,
)
from acker.kafka.port import Outgoing, Record, TopicInfo
from spout.exactly_once.kafka_store import LINGER_MS, TRIES_MAX, KafkaStore, store_settings
from spout.exactly_once.sink_records import PART_BYTES
from spout.exactly_once.store import LastBatch, StoreGrant
from tests.support.exact_batches import key_of
from tests.support.memory.clients import FailingByPlan, NoFaults
from tests.support.memory.cluster import MemoryCluster, MemoryLog
from tests.support.worlds.kafka_stores import PLACE, SINK, TOPICS, KafkaStoreWorld

BROKEN_TEXT: Final = pa.array([b"whole", b"\xff"], pa.binary()).view(pa.string())
"""A column of texts as Arrow has it, of which the second is no UTF-8."""


def words(*names: str) -> pa.Table:
    return pa.table({"word": list(names)})


def written(rows: pa.Table, **options: Any) -> list[Record]:
    """Return the records of rows that are written by a new store."""
    world = KafkaStoreWorld()
    store = world.store(**options)
    store.open("g", 1)
    store.commit(key_of(), rows, b"1")
    return world.records()


def test_a_row_is_an_object_of_its_columns_and_its_key_says_where_it_is() -> None:
    records = written(pa.table({"word": ["abc", "21", None], "count": [1, 2, 3]}), key="word")
    # by Kafka's own hashes of the keys; the row without a key is in the partition of its run
    partitions = {record.key: record.partition for record in records}
    assert partitions == {b"abc": 479470107 % 3, b"21": (-973932308 & 0x7FFFFFFF) % 3, None: 0}
    values = {record.key: json.loads(record.value or b"") for record in records}
    assert values[b"abc"] == {"word": "abc", "count": 1}
    assert values[None] == {"word": None, "count": 3}


def test_headers_time_and_topic_are_in_the_record_and_not_in_its_value() -> None:
    headers = [[{"key": "a", "value": b"\x00"}, {"key": "a", "value": None}], None]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.table(
        {
            "word": ["hawk", "dove"],
            "headers": pa.array(headers, kind),
            "at": pa.array([datetime(2026, 1, 1, 0, 0, 0, 1999, UTC), None], pa.timestamp("us", "UTC")),
        }
    )
    hawk, dove = sorted(
        written(rows, headers="headers", timestamp="at"), key=lambda r: r.value or b"", reverse=True
    )
    assert (hawk.value, hawk.headers) == (b'{"word":"hawk"}', (("a", b"\x00"), ("a", None)))
    assert hawk.timestamp_ms == 1_767_225_600_001
    assert (dove.value, dove.headers, dove.timestamp_ms) == (b'{"word":"dove"}', (), 1_000)


@pytest.mark.parametrize("time_ms", [123, -1, -1_001, 1, 253_402_300_799_999, 2**63 - 1])
def test_a_time_may_be_a_number_of_milliseconds(time_ms: int) -> None:
    [record] = written(pa.table({"word": ["hawk"], "at": [time_ms]}), timestamp="at")
    assert record.timestamp_ms == time_ms


@pytest.mark.parametrize(("time_us", "time_ms"), [(-1, -1), (-1_000, -1), (-1_001, -2), (1_999, 1)])
def test_a_time_of_microseconds_is_rounded_down_also_before_1970(time_us: int, time_ms: int) -> None:
    times = pa.array([time_us], pa.int64()).cast(pa.timestamp("us", "America/New_York"))
    [record] = written(pa.table({"word": ["hawk"], "at": times}), timestamp="at")
    assert record.timestamp_ms == time_ms


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("us", "America/New_York")],
)
def test_the_time_for_which_a_client_writes_the_present_one_is_refused(kind: pa.DataType) -> None:
    """D3225: also where it is far back in the batch, and where microseconds follow."""
    times = [1_000_000] * 9_000 + ([0] if kind == pa.int64() else [999])
    rows = pa.table({"word": ["hawk"] * len(times), "at": pa.array(times, pa.int64()).cast(kind)})
    with pytest.raises(UsageError, match=r"^row 9000 of the batch has in at the first millisecond of 1970"):
        written(rows, timestamp="at")


@pytest.mark.parametrize(
    ("values", "json_text"),
    [
        ([b"\xff"], '"/w=="'),
        ([Decimal("1.10")], '"1.10"'),
        ([float("nan")], '"NaN"'),
        ([[1.5, float("-inf")]], '[1.5,"-Infinity"]'),
        ([datetime(2026, 1, 1, tzinfo=UTC)], '"2026-01-01T00:00:00+00:00"'),
        ([{"a": None, "b": [True]}], '{"a":null,"b":[true]}'),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), '{"k":1}'),
        (pa.array([[[("k", [])]]], pa.list_(pa.map_(pa.string(), pa.list_(pa.int64())))), '[{"k":[]}]'),
        (["ä\U0001f985\u2028"], '"ä\U0001f985\u2028"'),
        ([(1 << 63) - 1], "9223372036854775807"),
    ],
    ids=["bytes", "decimal", "NaN", "infinity", "time", "struct", "map", "maps in a list", "text", "number"],
)
def test_json_has_a_form_for_every_value(values: Any, json_text: str) -> None:
    [record] = written(pa.table({"v": values}))
    assert (record.value or b"").decode() == f'{{"v":{json_text}}}'


def test_values_are_of_an_avro_schema_as_sparks_to_avro_writes_them() -> None:
    schema = {
        "type": "record",
        "name": "Word",
        "fields": [{"name": "word", "type": "string"}, {"name": "count", "type": ["null", "long"]}],
    }
    [record] = written(
        pa.table(
            {"word": ["hawk"], "count": [None]},
        ),
        value=schema,
    )
    assert record.value == b"\x08hawk\x00"
    read = fastavro.schemaless_reader(io.BytesIO(record.value or b""), schema, None)
    assert read == {"word": "hawk", "count": None}


def test_a_column_of_bytes_is_the_value_as_it_is() -> None:
    rows = pa.table({"key": ["k", "k"], "v": pa.array([b"\x00\xff", None], pa.binary())})
    assert [record.value for record in written(rows, value="v", key="key")] == [b"\x00\xff", None]


@pytest.mark.parametrize(
    ("rows", "options", "why"),
    [
        (words("a"), {"key": "name"}, "no column name, which is to be the key"),
        (words("a"), {"value": "word"}, r"is the value .* type string, and not binary; cast it"),
        (words("a"), {"value": "bytes"}, "no column bytes, which is to be the value"),
        (pa.table({"n": [1]}), {"key": "n"}, r"type int64; cast it, by col\('n'\)"),
        (words("a"), {"headers": "word"}, "give array<struct<key string, value binary>>"),
        (words("a"), {"timestamp": "word"}, "give a timestamp, or milliseconds"),
        (pa.table({"n": [1]}), {"topic_column": "n"}, "the topic of each record, has the type int64"),
        (pa.table({"t": ["_ack_sink"]}), {"topic_column": "t"}, "_ack_sink is an ack topic"),
        (pa.table([[1], [2]], names=["n", "n"]), {"key": "n"}, "2 columns of the rows are called n"),
        (words("a"), {"value": {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}},
         "has no field word, so the column would be lost"),
        (pa.table({"n": [0] * 9_000 + [None]}),
         {"value": {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}},
         "row 9000 of the batch"),
        (pa.table({"v": BROKEN_TEXT}), {}, "row 1 of the batch has in v, which is a string"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_written_are_refused_and_the_writer_goes_on(
    rows: pa.Table, options: Mapping[str, Any], why: str
) -> None:
    world = KafkaStoreWorld()
    store = world.store(**options)
    store.open("g", 1)
    with pytest.raises(UsageError, match=why):
        store.commit(key_of(), rows, b"1")
    assert world.records() == []
    assert world.store().open("g", 1) == StoreGrant(2, None)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "record", "name": "R"}, "none of a record"),
        ({"type": "record", "fields": []}, "cannot be read"),
        ({"type": "no such type"}, "cannot be read"),
        ({"type": "string"}, "none of a record"),
    ],
)
def test_a_schema_that_is_none_is_refused_at_once(schema: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        KafkaStore(TOPICS, "words", value=schema)


@pytest.mark.parametrize("topic", [*TOPICS.ack_topics.names(), "lines.g.replay", "others.h.dlq"])
def test_rows_go_into_no_topic_that_windhover_writes(topic: str) -> None:
    with pytest.raises(UsageError, match="give another topic"):
        KafkaStore(TOPICS, topic)


def test_rows_go_to_the_topics_that_they_name() -> None:
    world = KafkaStoreWorld()
    store = world.store(topic_column="topic")
    store.open("g", 1)
    rows = pa.table({"word": ["the", "flies", "hawk"], "topic": [None, "verbs", "words"]})
    store.commit(key_of(), rows, b"1")
    assert sorted(value["word"] for value in world.values()) == ["hawk", "the"]
    assert world.values("verbs") == [{"word": "flies"}]


def test_rows_of_several_topics_have_what_their_columns_have_in_the_order_of_the_rows() -> None:
    """Of each topic and partition; keys have the partition that they have in a batch of one topic."""
    world = KafkaStoreWorld()
    options = {"topic_column": "topic", "key": "key", "value": "v", "timestamp": "at", "headers": "headers"}
    store = world.store(**options)
    store.open("g", 1)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.table(
        {
            "topic": ["words", "verbs", None, "words"] * 3_000,
            "key": ["abc", "a", "abc", None] * 3_000,
            "v": pa.array([b"%d" % number for number in range(12_000)]),
            "at": range(1, 12_001),
            "headers": pa.array([[("n", b"%d" % number)] for number in range(12_000)], kind),
        }
    )
    store.commit(key_of(), rows, b"1")
    verbs, all_words = world.records("verbs"), world.records()
    assert [int(record.value or b"") for record in verbs] == list(range(1, 12_000, 4))
    keyed = [record for record in all_words if record.key is not None]
    assert {record.partition for record in keyed} == {479470107 % 3}
    assert [int(record.value or b"") for record in keyed] == list(range(0, 12_000, 2))
    assert len(all_words) == 9_000
    for record in [*verbs, *all_words]:
        number = int(record.value or b"")
        assert (record.timestamp_ms, record.headers) == (number + 1, (("n", record.value),))
        assert record.key == [b"abc", b"a", b"abc", None][number % 4]


def test_a_topic_whose_name_is_no_text_is_named_as_one_that_is_missing() -> None:
    world = KafkaStoreWorld()
    store = world.store(topic_column="t")
    store.open("g", 1)
    with pytest.raises(TopicError, match=r"there is no topic \\xff; no topic can have that name"):
        store.commit(key_of(), pa.table({"t": [b"words", b"\xff"], "n": [1, 2]}), b"1")
    assert world.records() == []


def test_rows_without_a_key_go_on_in_the_next_partition_and_each_batch_begins_in_another() -> None:
    """A run of 1,000 in each, also where the rows are encoded in several parts."""
    world = KafkaStoreWorld()
    store = world.store(value="v")
    store.open("g", 1)
    for batch in range(2):
        rows = pa.table({"v": pa.array([b"%d" % number for number in range(9_500)])})
        store.commit(key_of(batch=batch), rows, b"1")
    partitions_by_value: dict[int, list[int]] = {}
    for record in world.records():
        partitions_by_value.setdefault(int(record.value or b""), []).append(record.partition)
    assert partitions_by_value == {
        number: sorted([number // 1_000 % 3, (number // 1_000 + 1) % 3]) for number in range(9_500)
    }


def test_a_topic_that_is_missing_is_named_and_nothing_is_written() -> None:
    world = KafkaStoreWorld()
    store = world.store(topic_column="topic")
    store.open("g", 1)
    with pytest.raises(TopicError, match="there is no topic nouns; create it"):
        store.commit(key_of(), pa.table({"word": ["a", "b"], "topic": ["words", "nouns"]}), b"1")
    assert world.records() == []
    store.commit(key_of(batch=1), pa.table({"word": ["a"], "topic": ["words"]}), b"2")
    assert world.values() == [{"word": "a"}]


def test_a_topic_in_which_no_transaction_can_end_is_refused_by_name() -> None:
    """Kafka says that the first transaction is committed: nobody ever reads it, and the next one waits."""
    narrow = KafkaStoreWorld(**{"max.message.bytes": "77"})
    with pytest.raises(TopicError, match=r"topic words has max\.message\.bytes=77.* its mark has 78 bytes"):
        narrow.store().open("g", 1)
    world = KafkaStoreWorld(**{"max.message.bytes": "78"})
    world.cluster.configure("verbs", "max.message.bytes", "70")
    store = world.store(topic_column="t")
    store.open("g", 1)
    with pytest.raises(TopicError, match=r"topic verbs has max\.message\.bytes=70.*row 1 of the batch"):
        store.commit(key_of(), pa.table({"t": ["words", "verbs"]}), b"1")
    # the next start looks again, and so does the next batch of this one
    world.cluster.configure("verbs", "max.message.bytes", "1000")
    store.commit(key_of(), pa.table({"t": ["verbs"]}), b"1")
    assert len(world.records("verbs")) == 1


def test_whoever_may_not_read_the_settings_of_a_topic_may_write_rows_into_it() -> None:
    class Hidden(MemoryLog):
        def topics(self, names: Iterable[str], *, settings: bool = False) -> Mapping[str, TopicInfo]:
            if settings:
                raise NotAuthorized("no right DescribeConfigs")
            return super().topics(names)

    world = KafkaStoreWorld()
    store = world.store(log=Hidden(world.cluster, NoFaults()))
    store.open("g", 1)
    store.commit(key_of(), words("hawk"), b"1")
    assert world.values() == [{"word": "hawk"}]


def test_a_right_that_is_missing_for_one_topic_hides_no_other() -> None:
    """The role of a query may write into `_ack_sink`, and not read its settings."""

    class HiddenSink(MemoryLog):
        def topics(self, names: Iterable[str], *, settings: bool = False) -> Mapping[str, TopicInfo]:
            names = list(names)
            if settings and SINK in names:
                raise NotAuthorized("no right DescribeConfigs")
            return super().topics(names, settings=settings)

    world = KafkaStoreWorld(**{"max.message.bytes": "77"})
    with pytest.raises(TopicError, match=r"topic words has max\.message\.bytes=77"):
        world.store(log=HiddenSink(world.cluster, NoFaults())).open("g", 1)


@pytest.mark.parametrize(
    ("missing", "cure"), [(SINK, "run `windhover topics create`"), ("words", "create it")]
)
def test_a_missing_topic_is_named_before_a_writer_is_fenced(missing: str, cure: str) -> None:
    world = KafkaStoreWorld()
    store = world.store()
    store.open("g", 1)
    asking = world.store(log=_LackingLog(world.cluster, missing))
    with pytest.raises(TopicError, match=f"there is no topic {missing}; {cure}"):
        asking.open("g", 1)
    store.commit(key_of(), words("still"), b"1")
    assert world.values() == [{"word": "still"}]


class _LackingLog(MemoryLog):
    """A view that sees all topics but one."""

    def __init__(self, cluster: MemoryCluster, missing: str) -> None:
        super().__init__(cluster, NoFaults())
        self._missing = missing

    def topics(self, names: Iterable[str], *, settings: bool = False) -> Mapping[str, Any]:
        return super().topics([name for name in names if name != self._missing])


class _Pausing(NoFaults):
    """Does something before a call of an operation, once."""

    def __init__(self, operation: str, deed: Callable[[], object]) -> None:
        self._operation, self._deed = operation, deed
        self._is_done = False

    def before(self, operation: str) -> None:
        if operation == self._operation and not self._is_done:
            self._is_done = True
            self._deed()


@pytest.mark.parametrize("operation", ["starts", "ends", "commit"])
def test_of_two_starts_that_open_at_once_the_one_that_fenced_first_gets_nothing(operation: str) -> None:
    """It sleeps after its fence; the other one opens meanwhile, and commits."""
    world = KafkaStoreWorld()
    quick = world.store()

    def opens_and_commits() -> None:
        assert quick.open("g", 1) == StoreGrant(1, None)
        quick.commit(key_of(1), words("quick"), b"quick")

    slow = world.store(faults=_Pausing(operation, opens_and_commits))
    with pytest.raises(StoreFenced, match="a later start has opened the store of group g; no epoch"):
        slow.open("g", 1)
    with pytest.raises(StoreFenced):
        slow.commit(key_of(1), words("slow"), b"slow")
    assert world.values() == [{"word": "quick"}]
    assert world.store().open("g", 1) == StoreGrant(2, LastBatch(key_of(1), b"quick"))


def test_a_writer_is_fenced_between_its_rows_and_its_commit() -> None:
    world = KafkaStoreWorld()
    later = world.store()
    store = world.store(faults=_Once(lambda: later.open("g", 1)))
    store.open("g", 1)
    with pytest.raises(StoreFenced, match=r"group g; nothing of batch 0 is written\. Let one query"):
        store.commit(key_of(), words("late"), b"1")
    assert world.records() == []


class _Once(NoFaults):
    """Does something before the second commit."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self._deed = deed
        self._commits = 0

    def before(self, operation: str) -> None:
        self._commits += operation == "commit"
        if self._commits == 2:
            self._commits += 1
            self._deed()


def test_an_open_transaction_of_another_group_hides_no_batch() -> None:
    """Both groups have one partition of `_ack_sink`, and the other's transaction began before ours."""
    world = KafkaStoreWorld()
    store = world.store()
    store.open("g", 1)
    of_another = world.cluster.log().transactions("another")
    of_another.init(1_000)
    of_another.begin()
    of_another.send(Outgoing(*PLACE, b"?", b"state/another"))
    store.commit(key_of(), words("hawk"), b"hidden")

    with pytest.raises(Unreachable, match="another group's transaction is open there"):
        world.store().open("g", 1)
    of_another.abort(1_000)
    assert world.store().open("g", 1) == StoreGrant(2, LastBatch(key_of(), b"hidden"))


def test_a_transaction_that_is_aborted_is_begun_again() -> None:
    world = KafkaStoreWorld()
    plan = [False, *[True] * (TRIES_MAX - 1)]
    store = world.store(faults=FailingByPlan("commit", Aborted("the coordinator has moved"), plan))
    store.open("g", 1)
    store.commit(key_of(), words("hawk"), b"1")
    assert world.values() == [{"word": "hawk"}]
    assert world.store().open("g", 1).last_batch == LastBatch(key_of(), b"1")


def test_a_transaction_that_is_always_aborted_writes_nothing() -> None:
    world = KafkaStoreWorld()
    faults = FailingByPlan("commit", Aborted("refused"), [False, *[True] * TRIES_MAX])
    store = world.store(faults=faults)
    store.open("g", 1)
    with pytest.raises(Aborted):
        store.commit(key_of(), words("hawk"), b"1")
    assert faults.failures == TRIES_MAX
    assert world.records() == []
    store.commit(key_of(batch=1), words("dove"), b"2")
    assert world.values() == [{"word": "dove"}]


def test_a_record_that_a_topic_refuses_is_named_and_nothing_is_written() -> None:
    world = KafkaStoreWorld(**{"max.message.bytes": "300"})
    store = world.store()
    store.open("g", 1)
    with pytest.raises(RecordRefused, match=r"2 rows for words: raise max\.message\.bytes there"):
        store.commit(key_of(), words("fits", "x" * 300), b"1")
    assert world.records() == []
    store.commit(key_of(batch=1), words("fits"), b"2")
    assert world.values() == [{"word": "fits"}]


def test_a_transaction_that_took_too_long_names_the_setting() -> None:
    world = KafkaStoreWorld()
    faults = _Once(lambda: world.store().open("g", 1))
    times_s = iter([0.0, 1.0, 60.0])
    store = world.store(faults=faults, clock=lambda: next(times_s))
    store.open("g", 1)
    with pytest.raises(StoreFenced, match=r"took 59,000 ms, and may take 59,000: raise `kafka\.trans"):
        store.commit(key_of(), words("late"), b"1")


def test_a_broker_that_takes_no_transaction_so_long_names_both_settings() -> None:
    refused = LogError("refused by b: INVALID_TRANSACTION_TIMEOUT: larger than the maximum")
    store = KafkaStoreWorld().store(faults=FailingByPlan("init", refused, [True]))
    with pytest.raises(ConfigError, match=r"kafka\.transaction\.timeout\.ms.*transaction\.max\.timeout\.ms"):
        store.open("g", 1)


def test_what_cannot_be_read_grants_no_epoch() -> None:
    world = KafkaStoreWorld()
    producer = world.cluster.log().producer()
    producer.send(Outgoing(*PLACE, b"garbage", b"state/g"))
    producer.flush(1_000)
    with pytest.raises(TrackingError, match="cannot be read"):
        world.store().open("g", 1)


def test_two_installations_have_transactional_ids_of_their_own() -> None:
    def id_of(prefix: str, group: str) -> str:
        file = parse(f"acker: {{topic_prefix: '{prefix}'}}", file="topics.yaml", environ={})
        return file.ack_topics.sink_transactional_id(group)

    assert id_of("", "g") == "_ack_sink/g"
    alike = [("a", "g"), ("", "a_ack_sink/g"), ("a_ack_sink-", "g"), ("a", "_ack_sink-_ack_sink/g")]
    assert len({id_of(*names) for names in alike}) == len(alike)


def test_a_store_that_was_closed_is_opened_again() -> None:
    world = KafkaStoreWorld()
    store = world.store()
    store.open("g", 1)
    store.close()
    with pytest.raises(StoreFenced):
        store.commit(key_of(), words("hawk"), b"1")
    assert store.open("g", 1) == StoreGrant(2, None)


def test_a_start_that_dies_before_it_publishes_leaves_the_batch_to_the_next() -> None:
    world = KafkaStoreWorld()
    store = world.store()
    store.open("g", 1)
    store.commit(key_of(batch=4), words("hawk"), b"to be published")
    for epoch in (2, 3):
        grant = world.store().open("g", 1)
        assert grant == StoreGrant(epoch, LastBatch(key_of(batch=4), b"to be published"))


def test_an_epoch_of_an_earlier_start_of_the_same_store_is_refused() -> None:
    world = KafkaStoreWorld()
    store = world.store()
    store.open("g", 1)
    store.open("g", 1)
    with pytest.raises(StoreFenced, match=r"epoch 2 is granted to this store .* has 1"):
        store.commit(key_of(1), words("late"), b"1")
    assert world.records() == []


class _Counting(NoFaults):
    """Counts the commits."""

    commits = 0

    def before(self, operation: str) -> None:
        self.commits += operation == "commit"


def test_a_batch_is_one_transaction() -> None:
    """Whatever it has: rows for several topics, and a publication of several parts."""
    world, faults = KafkaStoreWorld(), _Counting()
    store = world.store(faults=faults, topic_column="topic")
    store.open("g", 1)
    rows = pa.table({"word": ["a", "b"], "topic": ["words", "verbs"]})
    store.commit(key_of(), rows, bytes(2 * PART_BYTES))
    assert faults.commits == 2
    assert world.values() + world.values("verbs") == [{"word": "a"}, {"word": "b"}]


def test_rows_wait_for_others_unless_the_file_says_something_else() -> None:
    """No test sees the speed; this one that the setting is there, and is the user's."""
    assert store_settings(TOPICS) == {**TOPICS.kafka, "linger.ms": LINGER_MS}
    said = parse("{kafka: {linger.ms: 7}}", file="topics.yaml", environ={})
    assert store_settings(said)["linger.ms"] == said.kafka["linger.ms"] != LINGER_MS
