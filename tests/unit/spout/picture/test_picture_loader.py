"""The picture: what the topics say becomes rows, and what nobody can read becomes a row of `unknown`."""

from __future__ import annotations

import sqlite3
import tracemalloc
from contextlib import closing

import numpy as np
import pytest

from acker.config.topics import Topics, parse
from acker.errors import Unreachable
from acker.identity import position_at, source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.causes import HELD
from acker.wire.events import Lost, SourceRun, Verdicts, pack_positions
from acker.wire.verdict import Verdict
from replay.handling.letter_handling import Order, RateLimit
from replay.handling.redrive import Redrive
from replay.records.due import PROGRESS_KEY, Pause, Progress, due_codec, pause_key
from replay.records.letters import Filter, LetterAction
from spout.picture.database import Picture, Row, Value
from spout.picture.loader import PictureLoader, PicturePart
from spout.picture.reading import PIECE_RECORDS, Limits
from spout.planning.journal import BEGINNING
from tests.support.pictures import picture_of, rows_of, since, values_of
from tests.support.worlds import planning
from tests.support.worlds.replay_world import COPIES, INPUT_ID, LETTERS, TOPIC, NoBroker, World, topics

TWICE = topics(attempts=2, waits="initial: 0s")
ONCE = topics(attempts=1)
BEGAN_MS = 1_000_000
SOURCE = source_of(INPUT_ID, 0)


@pytest.fixture
def world() -> World:
    made = World()
    made.cluster.now_ms = made.now_ms
    for topic in ("_ack_init", "_ack_state", "_ack_quarantine"):
        made.cluster.create_topic(topic, 2)
    return made


def of(world: World, of_topics: Topics = TWICE) -> Picture:
    return picture_of(world.cluster.log(), of_topics, world.now_ms)


def die(world: World, *values: bytes) -> None:
    """Let records become dead letters at their first failure."""
    worker = world.worker(of=ONCE)
    world.lose(*(world.emit(value, key=b"k%d" % number) for number, value in enumerate(values)))
    world.settle(worker)
    worker.close()


def why_unknown(picture: Picture, what: str) -> list[str]:
    return [row["why"] for row in rows_of(picture, "unknown") if row["what"] == what]


# --- verdicts and failures


def test_neighbours_with_one_verdict_are_one_row_however_many_they_are(world: World) -> None:
    """A million records, acked in 30 batches, are thirty rows."""
    for number in range(30):
        world.ack(SOURCE, number * 40_000, (number + 1) * 40_000)
    rows = rows_of(of(world), "verdicts", "input", "topic", "partition", "offset", "end_offset")
    assert len(rows) == 30
    place = {"input": "sentences", "topic": TOPIC, "partition": 0}
    assert rows[1] == {**place, "offset": 40_000, "end_offset": 80_000}


def test_lost_roots_have_their_cause_and_each_of_the_five_verdicts_is_there(world: World) -> None:
    world.lose(*(world.emit(b"%d" % number) for number in range(3)), error="NoOrder(OrderError)")
    world.lose(world.emit(b"d"), error="")
    world.lose(world.emit(b"e"), reason=Verdict.TIMED_OUT)
    world.lose(world.emit(b"f"), reason=Verdict.ABANDONED)
    world.lose(world.emit(b"g"), error=HELD)
    world.verdict(Verdicts((SourceRun(SOURCE, 10, 12),), (SourceRun(SOURCE, 12, 20),), ()), 1)
    made = of(world)
    verdicts = "SELECT verdict, sum(end_offset - offset) FROM verdicts GROUP BY verdict ORDER BY verdict"
    assert values_of(made, verdicts) == [
        ("ABANDONED", 1), ("ABSENT", 8), ("ACKED", 2), ("FAILED", 5), ("TIMED_OUT", 1),
    ]  # fmt: skip
    failures = "SELECT offset, end_offset, operator, error, is_blocked, age_ms FROM failures ORDER BY offset"
    assert values_of(made, failures) == [
        (0, 3, "split", "NoOrder(OrderError)", 0, 200),
        (3, 4, "split", "FailTuple", 0, 200),
        (4, 5, "", "", 0, 200),
        (5, 6, "", "", 0, 200),
        (6, 7, "split", HELD, 1, 200),
    ]
    (row,) = values_of(made, "SELECT emitted_at, decided_at FROM failures WHERE offset = 3")
    assert row == ("1970-01-01 00:16:39.750", "1970-01-01 00:16:40.000")


def test_a_rewound_record_is_in_another_generation_at_the_same_offset(world: World) -> None:
    first, second = position_at(1, 5), position_at(2, 5)
    world.ack(SOURCE, first, first + 2)
    world.ack(SOURCE, second, second + 1)
    rows = values_of(of(world), "SELECT generation, offset, end_offset FROM verdicts")
    assert rows == [(1, 5, 7), (2, 5, 6)]


def lost_of(*lost_positions: int) -> Lost:
    """Roots that were lost together, by one cause."""
    packed = pack_positions(np.array(lost_positions, np.int64))
    cause = ("split", "ValueError(Exception)", "bad")
    return Lost(Verdict.FAILED, "counts", TOPIC, "", *cause, 1_000, 990_000, 1_200, SOURCE, packed)


def test_roots_that_were_lost_together_are_a_row_for_each_run_of_each_generation(world: World) -> None:
    both = [position_at(0, 5), position_at(0, 6), position_at(0, 9), position_at(2, 5)]
    acked = SourceRun(SOURCE, 20, 22), SourceRun(SOURCE, 30, 30), SourceRun(source_of(INPUT_ID, 1), 7, 8)
    world.verdict(Verdicts(acked, (), (lost_of(*both),)), 1)
    made = of(world)
    place = "partition, generation, offset, end_offset"
    lost_runs = [(0, 0, 5, 7), (0, 0, 9, 10), (0, 2, 5, 6)]
    assert values_of(made, f"SELECT {place} FROM failures") == lost_runs
    assert values_of(made, f"SELECT {place} FROM verdicts") == [(0, 0, 20, 22), (1, 0, 7, 8), *lost_runs]


def test_a_cause_is_converted_once_however_many_runs_of_roots_it_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.verdict(Verdicts((), (), (lost_of(*range(0, 2_000, 2)),)), 1)
    converted = Picture.converted
    tables: list[str] = []

    def counted(picture: Picture, table: str, row: Row) -> dict[str, Value]:
        tables.append(table)
        return converted(picture, table, row)

    monkeypatch.setattr(Picture, "converted", counted)
    made = of(world)
    assert values_of(made, "SELECT count(*) FROM failures") == [(1_000,)]
    assert sorted(tables) == ["failures", "verdicts", "waiting"]


def test_copies_are_named_by_their_place_on_the_replay_topic(world: World) -> None:
    world.ack(source_of(INPUT_ID, 1, replay=True), 3, 4)
    assert values_of(of(world), "SELECT topic, partition, offset FROM verdicts") == [(COPIES, 1, 3)]


def test_roots_of_an_input_that_topics_yaml_lacks_have_a_row_and_a_reason(world: World) -> None:
    world.ack(source_of(7, 2), 0, 9)
    made = of(world)
    assert values_of(made, "SELECT input, topic, partition, end_offset FROM verdicts") == [(None, None, 2, 9)]
    assert why_unknown(made, "inputs") == ["roots have the input id 7, and topics.yaml has no such input"]


# --- several inputs

TWO_INPUTS = """
acker: {partitions: 2}
inputs:
  sentences: {id: 1, group: g, partitions: 2, retry: {attempts: 1}}
  orders: {id: 2, group: h, partitions: 1, retry: {attempts: 1}}
"""


@pytest.mark.parametrize("wanted", [None, ["sentences"], ["orders"]])
def test_a_picture_is_about_the_inputs_that_are_wanted(world: World, wanted: list[str] | None) -> None:
    both = parse(TWO_INPUTS, file="topics.yaml", environ={})
    for topic in ("orders", "orders.h.replay", "orders.h.dlq"):
        world.cluster.create_topic(topic, 1)
    worker = world.worker(of=both)
    world.lose(world.emit(b"a"), world.emit(b"b"))
    order = world.emit(b"c", topic="orders")
    world.lose(order, source=source_of(2, 0), group="h")
    world.settle(worker)
    world.lose(world.emit(b"d"))
    world.lose(order, source=source_of(2, 0), group="h")
    made = picture_of(world.cluster.log(), both, world.now_ms, input_names=wanted)
    for table in ("inputs", "verdicts", "failures", "waiting", "letters", "partitions"):
        names = {row["input"] for row in rows_of(made, table)} - {None}
        assert names == set(wanted or ["sentences", "orders"]), table
    counts = dict(values_of(made, "SELECT input, count(*) FROM letters GROUP BY input"))
    assert counts == {name: {"sentences": 2, "orders": 1}[name] for name in wanted or both.inputs}
    assert why_unknown(made, "inputs") == []


# --- what waits


def test_a_root_that_waits_has_its_entry_and_one_that_nobody_accepted_has_none(world: World) -> None:
    late = topics(attempts=3, waits="initial: 60s")
    worker = world.worker(of=late)
    world.lose(world.emit(b"a"), world.emit(b"b"))
    world.settle(worker)
    worker.close()
    world.lose(world.emit(b"c"), error="KeyError")
    made = of(world, late)
    columns = "offset, attempt, due_at, error, entry IS NULL, lost_at"
    assert values_of(made, f"SELECT {columns} FROM waiting ORDER BY offset") == [
        (0, 1, "1970-01-01 00:17:40.000", "ValueError", 0, "1970-01-01 00:16:39.950"),
        (1, 1, "1970-01-01 00:17:40.000", "ValueError", 0, "1970-01-01 00:16:39.950"),
        (2, None, None, "KeyError", 1, "1970-01-01 00:16:40.000"),
    ]
    workers = "SELECT partition, due_roots, new_roots, lag FROM workers"
    assert values_of(made, workers) == [(0, 2, 1, 2), (1, 0, 0, 0)]


def test_a_root_that_waits_no_more_leaves_while_the_picture_follows(world: World) -> None:
    late = topics(attempts=3, waits="initial: 60s")
    worker = world.worker(of=late)
    picture = Picture(has_payloads=True)
    loader = PictureLoader(world.cluster.log(), late, picture, lambda: 0)
    world.lose(world.emit(b"a"), world.emit(b"b"))
    loader.read(world.now_ms)
    assert values_of(picture, "SELECT count(entry), count(*) FROM waiting") == [(0, 2)]
    world.settle(worker)
    loader.read(world.now_ms)
    assert values_of(picture, "SELECT count(entry), count(*) FROM waiting") == [(2, 2)]
    world.settle(worker, until_ms=world.now_ms + 61_000)
    loader.read(world.now_ms)
    assert rows_of(picture, "waiting") == []
    assert values_of(picture, "SELECT count(*) FROM failures") == [(1,)]
    loader.close()


WAITING = "SELECT offset, generation FROM waiting WHERE entry IS NULL ORDER BY generation, offset"


def lose_together(world: World, *lost_positions: int) -> None:
    """Write one record of verdicts, by which roots are lost by one cause."""
    packed = pack_positions(np.array(lost_positions, np.int64))
    cause = ("g", TOPIC, "", "split", "KeyError", "'x'", 0, BEGAN_MS, 200)
    world.verdict(Verdicts((), (), (Lost(Verdict.FAILED, *cause, SOURCE, packed),)), 1)


def accept(world: World, next_offset: int, skip: int) -> None:
    """Write up to where a replay worker has accepted the verdicts of partition 1."""
    progress = due_codec().encode(Progress(next_offset, skip))
    world.send_due(PROGRESS_KEY, progress, 1)


def test_of_roots_that_were_lost_together_those_that_are_accepted_leave_one_by_one(
    world: World,
) -> None:
    """A worker may have accepted a part of a record; the others wait, whatever their generation is."""
    picture = Picture(has_payloads=True)
    accept(world, 0, 0)
    with closing(PictureLoader(world.cluster.log(), TWICE, picture, lambda: 0)) as loader:
        lose_together(world, 5, 6, position_at(1, 2), position_at(1, 3))  # at offset 0, its marker at 1
        lose_together(world, 9)
        for progress, waiting in (
            ((0, 0), [(5, 0), (6, 0), (9, 0), (2, 1), (3, 1)]),
            ((0, 1), [(6, 0), (9, 0), (2, 1), (3, 1)]),
            ((0, 3), [(9, 0), (3, 1)]),
            ((2, 0), [(9, 0)]),
            ((3, 0), []),
        ):
            accept(world, *progress)
            loader.read(world.now_ms)
            assert values_of(picture, WAITING) == waiting, progress
            assert values_of(picture, "SELECT sum(end_offset - offset) FROM failures") == [(5,)]


def test_lost_roots_that_nobody_accepts_are_written_once_and_kept_in_the_database_alone(
    world: World,
) -> None:
    """Each was a row in memory, of most of a kilobyte, and each reading wrote all of them again."""
    accept(world, 0, 0)
    lose_together(world, *range(20_000))
    picture = Picture(has_payloads=False)
    log = world.cluster.log()
    parts = {PicturePart.ROOTS}
    with closing(PictureLoader(log, TWICE, picture, lambda: 0, parts=parts)) as loader:
        tracemalloc.start()
        try:
            loader.read(world.now_ms)
            kept_bytes, _peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert values_of(picture, "SELECT count(*) FROM waiting") == [(20_000,)]
        assert kept_bytes < 1 << 20  # eight bytes a root
        changes_before = picture.connection.total_changes
        loader.read(world.now_ms)
        assert picture.connection.total_changes == changes_before
        assert values_of(picture, "SELECT count(*) FROM waiting") == [(20_000,)]


def test_what_was_lost_while_nobody_knew_what_is_accepted_waits_once_that_is_known(
    world: World,
) -> None:
    """Where `_ack_due` could not be read at first, those roots were missing ever after."""
    lose_together(world, 5, 6)
    accept(world, 0, 1)
    world.cluster.lose_leader("_ack_due", 0)
    picture = Picture(has_payloads=True)
    with closing(PictureLoader(world.cluster.log(), TWICE, picture, lambda: 0)) as loader:
        loader.read(world.now_ms)
        assert values_of(picture, WAITING) == []
        assert why_unknown(picture, "waiting, workers")
        world.cluster.elect_leader("_ack_due", 0)
        loader.read(world.now_ms)
        assert values_of(picture, WAITING) == [(6, 0)]
        # what is accepted is unknown again, and is known again
        world.cluster.lose_leader("_ack_due", 0)
        loader.read(world.now_ms)
        assert values_of(picture, WAITING) == []
        world.cluster.elect_leader("_ack_due", 0)
        loader.read(world.now_ms)
        assert values_of(picture, WAITING) == [(6, 0)]


def test_an_input_whose_replays_are_paused_says_since_when_and_why(world: World) -> None:
    pause = due_codec().encode(Pause(INPUT_ID, BEGAN_MS, "too many die"))
    world.send_due(pause_key(INPUT_ID), pause)
    assert values_of(of(world), "SELECT paused_at, pause_why FROM inputs") == [
        ("1970-01-01 00:16:40.000", "too many die")
    ]


# --- dead letters


def test_a_letter_has_where_its_record_was_and_a_key_inside_its_payload_can_be_asked_for(
    world: World,
) -> None:
    die(world, b'{"customer": {"id": 17}}', b'{"customer": {"id": 18}}', b"no JSON", b"\xff", b"{}\0")
    made = of(world, ONCE)
    where = "WHERE payload_json ->> '$.customer.id' = 17"
    assert values_of(made, f"SELECT key, origin_topic, origin_offset FROM letters {where}") == [
        ("k0", TOPIC, 0)
    ]
    payloads = values_of(made, "SELECT payload, payload_json FROM letters ORDER BY origin_offset")
    assert payloads[2:] == [("no JSON", None), ("%FF", None), ("{}%00", None)]


def test_a_picture_without_payloads_has_neither_them_nor_headers(world: World) -> None:
    worker = world.worker(of=ONCE)
    world.lose(world.emit(b"secret", headers=(("h", b"hidden"),)))
    world.settle(worker)
    made = picture_of(world.cluster.log(), ONCE, world.now_ms, has_payloads=False)
    assert values_of(made, "SELECT payload, payload_json, headers FROM letters") == [(None, None, None)]
    dump = "\n".join(made.connection.iterdump())
    assert "secret" not in dump
    assert "hidden" not in dump


def test_a_redrive_says_who_began_it_and_marks_its_letters(world: World) -> None:
    die(world, b"a", b"b", b"c")
    log = world.cluster.log()
    meant = Filter(error="ValueError")
    order = Order(LetterAction.DROPPED, meant, "kim", "old ones", "r1")
    filters = [(ONCE.input("sentences"), meant)]
    redrive = Redrive(log, ONCE, filters, order, RateLimit(None, world.now_ms))
    with closing(redrive):
        while not redrive.is_done:
            redrive.step(world.now_ms)
    made = of(world, ONCE)
    columns = "input, redrive, action, state, begun_by, why, letters, handled"
    assert values_of(made, f"SELECT {columns} FROM redrives") == [
        ("sentences", "r1", "DROPPED", "DONE", "kim", "old ones", 3, 3)
    ]
    handled = "SELECT handled, handled_by, handled_why, redrive FROM letters"
    assert values_of(made, handled) == [("DROPPED", "kim", "old ones", "r1")] * 3


def test_letters_and_verdicts_from_before_a_time_are_left_out_and_what_waits_is_not(world: World) -> None:
    late = topics(attempts=3, waits="initial: 1h, max: 2h")
    worker = world.worker(of=late)
    world.lose(world.emit(b"a"))
    world.settle(worker)
    world.now_ms += 60_000
    world.cluster.now_ms = world.now_ms
    world.lose(world.emit(b"b"))
    made = picture_of(world.cluster.log(), late, world.now_ms, limits=since(BEGAN_MS + 1))
    assert values_of(made, "SELECT offset FROM failures") == [(1,)]
    assert values_of(made, "SELECT offset FROM waiting ORDER BY offset") == [(0,), (1,)]
    assert values_of(made, "SELECT since_at FROM picture") == [("1970-01-01 00:16:40.001",)]


# --- emissions, sessions, ackers


def test_open_settled_and_announced_roots_are_rows_of_emissions_with_their_session() -> None:
    world = planning.World()
    world.produce(10)
    planner = world.ready()
    end = planning.batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, skip=[3, 4], fail=[6])
    world.run(1_000)
    made = picture_of(world.log, world.topics, world.now_ms)
    runs = "SELECT state, offset, end_offset, consumer_group FROM emissions ORDER BY offset"
    assert values_of(made, runs) == [
        ("settled", 0, 3, "g"), ("open", 3, 5, "g"), ("settled", 5, 10, "g"),
    ]  # fmt: skip
    assert values_of(made, "SELECT sum(open_roots) FROM ackers") == [(2,)]
    failures = "SELECT offset, operator, error FROM failures"
    assert values_of(made, failures) == [(6, "split", "ValueError")]
    (session,) = rows_of(made, "sessions")
    assert (session["epoch"], session["session"], session["is_owner"]) == (end.epoch, end.session, 1)
    assert values_of(made, "SELECT DISTINCT epoch, session FROM emissions") == [(end.epoch, end.session)]

    world.kill_acker()
    world.produce(5)
    planning.batch(planner, end, world)
    later = picture_of(world.log, world.topics, world.now_ms)
    announced = "SELECT offset, end_offset FROM emissions WHERE state = 'announced'"
    assert values_of(later, announced) == [(10, 15)]


def test_a_second_session_owns_the_group_and_the_first_one_stays_in_the_table() -> None:
    world = planning.World()
    world.produce(2)
    former = world.ready()
    planning.batch(former, BEGINNING, world)
    world.run(1_000)
    world.kill(former)
    world.run(12_000)
    world.ready()
    world.run(1_000)
    made = picture_of(world.log, world.topics, world.now_ms)
    owners = values_of(made, "SELECT epoch, is_owner FROM sessions ORDER BY epoch")
    assert [is_owner for _epoch, is_owner in owners] == [0, 1]
    assert values_of(made, "SELECT offset, end_offset, verdict FROM verdicts") == [(0, 2, "ABANDONED")]


# --- what is not known


@pytest.mark.parametrize(
    "missing", ["_ack_verdict", "_ack_due", "_ack_init", "_ack_state", LETTERS, COPIES, TOPIC]
)
def test_a_topic_that_is_missing_is_a_hole_and_the_rest_is_loaded(missing: str) -> None:
    world = World()
    world.cluster.now_ms = world.now_ms
    for topic in ("_ack_init", "_ack_state", "_ack_quarantine"):
        world.cluster.create_topic(topic, 2)
    die(world, b"a")
    world.lose(world.emit(b"b"))
    world.cluster.delete_topic(missing)
    made = of(world, ONCE)
    assert [row["why"] for row in rows_of(made, "unknown") if row["topic"] == missing]
    there = {
        "_ack_verdict": ("letters", 1), "_ack_due": ("failures", 2), LETTERS: ("failures", 2),
    }.get(missing, ("waiting", 1))  # fmt: skip
    table, count = there
    assert len(rows_of(made, table)) == count
    if missing == "_ack_due":
        assert rows_of(made, "waiting") == []
        assert {row["due_roots"] for row in rows_of(made, "workers")} == {None}, "unknown, and not 0"


def test_without_a_broker_the_inputs_are_known_and_every_other_table_has_a_hole(world: World) -> None:
    made = picture_of(world.cluster.log(NoBroker()), TWICE, world.now_ms)
    assert values_of(made, "SELECT input, id FROM inputs") == [("sentences", 1)]
    holes = ", ".join(row["what"] for row in rows_of(made, "unknown"))
    for table in ("verdicts", "failures", "waiting", "letters", "redrives", "emissions", "sessions",
                  "ackers", "workers", "partitions"):  # fmt: skip
        assert table in holes
    assert values_of(made, "SELECT has_payloads FROM picture") == [(1,)]


def test_a_log_that_was_cleaned_is_a_hole_from_offset_0_to_its_start(world: World) -> None:
    for number in range(4):
        world.lose(world.emit(b"%d" % number))
    place = TopicPartition("_ack_verdict", 0)
    world.cluster.log().delete_before({place: 4})
    made = of(world)
    holes = "SELECT partition, offset, end_offset, why FROM unknown WHERE topic = '_ack_verdict'"
    assert values_of(made, holes) == [(0, 0, 4, "its log begins at offset 4: earlier records were deleted")]
    assert values_of(made, "SELECT read_from, start_offset FROM partitions WHERE topic = '_ack_verdict'") == [
        (4, 4), (0, 0),
    ]  # fmt: skip


def test_what_is_deleted_before_a_picture_that_follows_has_read_it_is_a_hole(world: World) -> None:
    picture = Picture(has_payloads=True)
    loader = PictureLoader(world.cluster.log(), TWICE, picture, lambda: 0)
    world.lose(world.emit(b"a"))
    loader.read(world.now_ms)
    world.lose(world.emit(b"b"))
    world.lose(world.emit(b"c"))
    place = TopicPartition("_ack_verdict", 0)
    world.cluster.log().delete_before({place: 4})
    loader.read(world.now_ms)
    holes = "SELECT offset, end_offset FROM unknown WHERE what = 'verdicts, failures'"
    assert values_of(picture, holes) == [(2, 4)]
    assert values_of(picture, "SELECT offset FROM failures") == [(0,), (2,)]
    loader.read(world.now_ms)
    assert values_of(picture, holes) == [(2, 4)], "it stays a hole"
    loader.close()


def test_records_beyond_the_limit_of_a_reading_are_a_hole_and_the_next_reading_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spout.picture.reading.PIECE_RECORDS", 2)
    for number in range(5):
        world.lose(world.emit(b"%d" % number))
    picture = Picture(has_payloads=True)
    loader = PictureLoader(world.cluster.log(), TWICE, picture, lambda: 0, limits=Limits(records_max=4))
    loader.read(world.now_ms)
    counts = "SELECT count(*) FROM failures"
    assert values_of(picture, counts) == [(4,)]
    (hole,) = [row for row in rows_of(picture, "unknown") if row["topic"] == "_ack_verdict"]
    assert (hole["offset"], hole["end_offset"]) == (8, 10)
    assert "the limit of one reading" in hole["why"]
    loader.read(world.now_ms)
    assert values_of(picture, counts) == [(5,)]
    assert "_ack_verdict" not in [row["topic"] for row in rows_of(picture, "unknown")]
    loader.close()
    assert PIECE_RECORDS > 2


def test_a_reading_ends_when_its_time_is_over(world: World) -> None:
    world.lose(world.emit(b"a"))
    times_ms = iter(range(0, 10_000_000, 50_000))
    picture = Picture(has_payloads=True)
    loader = PictureLoader(
        world.cluster.log(), TWICE, picture, lambda: next(times_ms), limits=Limits(time_ms_max=1)
    )
    loader.read(world.now_ms)
    assert rows_of(picture, "failures") == []
    whys = [row["why"] for row in rows_of(picture, "unknown") if row["topic"] == "_ack_verdict"]
    assert whys == ["these records are not read: the time of one reading is over"]
    loader.close()


def test_a_picture_that_has_as_much_as_it_may_have_reads_no_more(world: World) -> None:
    world.lose(world.emit(b"a"))
    with closing(Picture(has_payloads=True)) as empty:
        limits = Limits(picture_bytes_max=empty.size_bytes)
    made = picture_of(world.cluster.log(), TWICE, world.now_ms, limits=limits)
    assert rows_of(made, "failures") == []
    (why,) = {row["why"] for row in rows_of(made, "unknown") if row["topic"] == "_ack_verdict"}
    assert why.startswith("these records are not read: the picture has as much as it may have")


@pytest.mark.parametrize("topic", ["_ack_verdict", "_ack_due", "_ack_init"])
@pytest.mark.parametrize("value", [b"", b"garbage", b"\xc3\x01" + b"\x07" * 8 + b"x", None])
def test_a_record_that_cannot_be_read_is_a_hole_beside_its_neighbours(
    world: World, topic: str, value: bytes | None
) -> None:
    world.lose(world.emit(b"a"))
    producer = world.cluster.log().producer()
    producer.send(Outgoing(topic, 1, value, b"strange key"))
    producer.flush(0)
    world.lose(world.emit(b"b"))
    made = of(world)
    assert values_of(made, "SELECT count(*) FROM failures") == [(2,)]
    holes = "SELECT partition, offset, end_offset FROM unknown WHERE topic = ? AND offset IS NOT NULL"
    is_tombstone = topic == "_ack_due" and value is None
    expected = [] if is_tombstone else [(1, 0, 1)]
    assert made.connection.execute(holes, [topic]).fetchall() == expected


def test_what_an_acker_could_not_apply_is_a_hole(world: World) -> None:
    producer = world.cluster.log().producer()
    headers = (("windhover.origin", b"_ack_ack/0@3"), ("windhover.why", b"a run leaves the block"))
    producer.send(Outgoing("_ack_quarantine", 0, b"x", headers=headers))
    producer.flush(0)
    assert why_unknown(of(world), "a quarantined record") == [
        "an acker could not apply it: a run leaves the block"
    ]


def test_a_time_that_no_calendar_has_and_a_number_of_more_than_64_bits_are_null(world: World) -> None:
    picture = Picture(has_payloads=True)
    strange = {"died_at": 1_790_000_000_000_000_000, "attempts": 1 << 70, "message": "\ud800"}
    picture.insert("letters", [strange])
    assert values_of(picture, "SELECT died_at, attempts, message FROM letters") == [(None, None, "?")]


def test_a_column_that_a_table_lacks_is_refused(world: World) -> None:
    with pytest.raises(KeyError, match="surname"):
        Picture(has_payloads=True).insert("letters", [{"surname": "x"}])


def test_a_reading_that_raises_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = Picture(has_payloads=True)
    loader = PictureLoader(world.cluster.log(), TWICE, picture, lambda: 0)
    world.lose(world.emit(b"a"))
    with monkeypatch.context() as patched:
        patched.setattr(Picture, "describe", lambda *_arguments: picture.connection.execute("SELECT no"))
        with pytest.raises(sqlite3.OperationalError):
            loader.read(world.now_ms)
    assert rows_of(picture, "failures") == []
    loader.close()


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        # undoes the transaction by itself, as an error of the disk does
        ("INSERT OR ROLLBACK INTO ended VALUES (1), (1)", "UNIQUE constraint failed: ended.number"),
        # is an error of COMMIT, which leaves the transaction as it is
        ("INSERT INTO ending VALUES (2)", "FOREIGN KEY constraint failed"),
    ],
)
def test_an_error_that_ends_a_transaction_is_raised_and_the_next_one_begins(
    statement: str, error: str
) -> None:
    with closing(Picture(has_payloads=True)) as picture:
        execute = picture.connection.execute
        execute("PRAGMA foreign_keys = ON")
        execute("CREATE TABLE ended (number INTEGER PRIMARY KEY)")
        execute("CREATE TABLE ending (number REFERENCES ended DEFERRABLE INITIALLY DEFERRED)")

        def fail() -> None:
            with picture.transaction():
                execute("INSERT INTO ended VALUES (3)")
                execute(statement)

        with pytest.raises(sqlite3.IntegrityError, match=error):
            fail()
        with picture.transaction():
            execute("INSERT INTO ended VALUES (4)")
        assert values_of(picture, "SELECT number FROM ended") == [(4,)]
        assert values_of(picture, "SELECT number FROM ending") == []


def test_one_lost_record_may_have_many_positions_and_the_runs_between_them_are_not_lost(
    world: World,
) -> None:
    lost = Lost(
        reason=Verdict.FAILED, group="g", topic=TOPIC, topic_id="", operator="split", error="E", message="",
        emitted_at=0, emitted_wall=world.now_ms, decided_at=5, source=SOURCE,
        positions=pack_positions(np.array([1, 2, 3, 9, 11, 12])),
    )  # fmt: skip
    world.verdict(Verdicts((), (), (lost,)))
    assert values_of(of(world), "SELECT offset, end_offset FROM failures") == [(1, 4), (9, 10), (11, 13)]
    assert len(rows_of(of(world), "waiting")) == 6


def test_a_cluster_that_does_not_say_its_id_is_a_hole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was noted behind the holes' table, which so lacked it."""
    log = world.cluster.log()

    def refuse() -> str:
        raise Unreachable("id of the cluster: no broker answers")

    monkeypatch.setattr(log, "cluster_id", refuse)
    holes = rows_of(picture_of(log, TWICE, world.now_ms), "unknown", "what", "why")
    assert {"what": "picture.cluster", "why": "id of the cluster: no broker answers"} in holes


def test_records_that_do_not_come_are_not_said_to_be_behind_a_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.lose(world.emit(b"a"))
    log = world.cluster.log()
    open_reader = log.reader

    def silent_reader(**options: bool) -> object:
        reader = open_reader(**options)
        monkeypatch.setattr(reader, "poll", lambda *_: ())
        return reader

    monkeypatch.setattr(log, "reader", silent_reader)
    holes = rows_of(picture_of(log, TWICE, world.now_ms), "unknown", "topic", "why")
    (why,) = [hole["why"] for hole in holes if hole["topic"] == "_ack_verdict"]
    assert why == "these records are not read: nothing more of them came"
