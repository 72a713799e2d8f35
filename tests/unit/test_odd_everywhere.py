"""Each kind of odd record in each topic that anybody reads, and every reader of it.

A service may end at a record of an unknown version alone, which it names, and goes on when `topics repair`
has marked it. No command and no page ends at any.
"""

from __future__ import annotations

from typing import Final

import pytest

from acker.errors import UnknownVersion
from acker.kafka.port import Outgoing, TopicPartition, UnreadableName
from acker.service.state_notes import DEADLINES_HEADER, LATE_HEADER, RESTORED_HEADER
from spout.cli import main as cli
from spout.planning.journal import BEGINNING
from tests.support.odd_records import NO_UTF8, ODD_RECORDS, OddRecord, append_odd, cut_golden, cut_short
from tests.support.raw_records import RawRecord
from tests.support.worlds.odd_world import (
    ALWAYS_FAILS,
    LETTERS,
    REPLAY,
    SOURCE,
    TOPICS,
    UNEXPECTED_EXIT,
    OddWorld,
)

TWIN: Final = "twin_with_a_bad_name"
"""The newest sound record of the topic once more, with a header whose name is no UTF-8."""

KINDS: Final = (*(odd.kind for odd in ODD_RECORDS), TWIN)
BEFORE: Final = [b"a1", b"a2"]
BEHIND: Final = [b"b1", b"b2"]
AFTER_RESTART: Final = [b"c1", b"c2"]
UNKNOWN_VERSION: Final = "value_garbage"
STOPS_AT_UNKNOWN_VERSION: Final = frozenset({"_ack_verdict", "_ack_due"})
"""What they say cannot be had from anywhere else, so readers stop rather than guess."""

COMMANDS: Final = (
    "status", "roots", "machinery", "failures", "latency", "check", "inspect sentences/0@0",
    "inspect --key k --from 1h", "dlq list --all", "dlq list --key k", "dlq stats --all", "dlq redrives",
    "dlq show sentences/0@1", "dlq drop --input sentences --why no", "topics repair",
    "sql SELECT*FROM(letters)",
    "offsets reset sentences --to earliest", "acker free sentences", "replay resume sentences",
)  # fmt: skip
PATHS: Final = (
    "/", "/partition/sentences/0", "/machinery", "/failures", "/letters", "/letters?all=on", "/latency",
    "/redrives", "/record/sentences/0@0", "/record/sentences/0@3", "/redrives/new?input=sentences",
    "/metrics",
)  # fmt: skip


def odd_of(world: OddWorld, kind: str, topic: str) -> OddRecord:
    """Return the odd record of a kind; a twin is made of what the topic has."""
    if kind != TWIN:
        return next(odd for odd in ODD_RECORDS if odd.kind == kind)
    last = world.last_record(topic)
    headers = (*(last.headers if last else ()), (UnreadableName.of(NO_UTF8), b"1"))
    raw = RawRecord(last.value if last else b"v", last.key if last else b"k")
    return OddRecord(TWIN, raw, headers)


def look_by_every_command(
    world: OddWorld, topic: str, offsets: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Run each command, also for the odd records themselves where they have places of their own."""
    places = [f"{topic}/0@{offset}" for offset in offsets] if topic in (SOURCE.topic, REPLAY, LETTERS) else []
    own = [f"inspect {place}" for place in places]
    if topic == LETTERS:
        own += [f"dlq show {place}" for place in places]
    with world.commands():
        for command in (*COMMANDS, *own):
            exit_code = cli.run(command.split())
            printed = capsys.readouterr()
            assert "Traceback" not in printed.err, (command, printed.err)
            assert exit_code != UNEXPECTED_EXIT or command == "check", (command, printed.err)
    codes = world.pages([*PATHS, *(f"/record/{place}" for place in places)])
    assert {path: code for path, code in codes.items() if code >= 500} == {}


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("topic", TOPICS)
def test_no_service_ends_at_an_odd_record_and_its_neighbours_are_confirmed(topic: str, kind: str) -> None:
    """O120, O122: acker, replay worker and `KafkaSpout` read it as it comes, and at their next start."""
    world = OddWorld()
    world.write([ALWAYS_FAILS, *BEFORE])
    world.work(3)
    odd = odd_of(world, kind, topic)
    append_odd(world.cluster, TopicPartition(topic, 0), odd)
    world.write([ALWAYS_FAILS, *BEHIND])
    world.work(3)
    world.restart_all()
    world.write(AFTER_RESTART)
    world.work(6)

    is_emitted = topic in (SOURCE.topic, REPLAY)
    its_own = [odd.record.value] if is_emitted and odd.record.value != ALWAYS_FAILS else []
    wanted = [*BEFORE, *BEHIND, *AFTER_RESTART, *its_own]
    assert sorted(world.confirmed, key=repr) == sorted(wanted, key=repr)
    assert len(world.roots("acked")) == len(wanted)
    assert len(world.roots("lost")) == 2 * len(BEFORE) + (is_emitted and not its_own)
    stops = kind == UNKNOWN_VERSION and topic in STOPS_AT_UNKNOWN_VERSION
    assert bool(world.ended) == stops
    assert all(isinstance(ended.error, UnknownVersion) for ended in world.ended)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("topic", TOPICS)
def test_no_query_ends_at_an_odd_record_and_all_it_emits_is_acked(topic: str, kind: str) -> None:
    """O120: its planning process as well."""
    world = OddWorld()
    world.write(BEFORE)
    end = world.work_as_query(BEGINNING, 2)
    append_odd(world.cluster, TopicPartition(topic, 0), odd_of(world, kind, topic))
    world.write(BEHIND)
    end = world.work_as_query(end, 2)
    world.restart_all()
    world.write(AFTER_RESTART)
    world.work_as_query(end, 5)

    its_own = 1 if topic in (SOURCE.topic, REPLAY) else 0
    assert len(world.roots("acked")) == len(BEFORE + BEHIND + AFTER_RESTART) + its_own
    assert world.roots("lost") == set()


@pytest.mark.sample(5)
@pytest.mark.parametrize("topic", TOPICS)
def test_no_command_and_no_page_ends_at_odd_records(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    """O121: all kinds lie in the topic."""
    world = OddWorld()
    world.write([ALWAYS_FAILS, *BEFORE])
    world.work(3)
    offsets = [
        append_odd(world.cluster, TopicPartition(topic, 0), odd_of(world, kind, topic)) for kind in KINDS
    ]
    world.work(2)
    look_by_every_command(world, topic, offsets, capsys)


@pytest.mark.parametrize("topic", TOPICS)
def test_no_service_ends_at_a_record_of_ours_that_is_cut_short(topic: str) -> None:
    """O127: behind any byte; of each kind, and of the newest record that the topic has itself."""
    world = OddWorld()
    world.write([ALWAYS_FAILS, *BEFORE])
    world.work(3)
    last = world.last_record(topic)
    cut = cut_golden(topic) + (
        [] if last is None else cut_short("own", last.value or b"", b"k", last.headers)
    )
    for odd in cut:
        append_odd(world.cluster, TopicPartition(topic, 0), odd)
    world.restart_all()
    world.write([ALWAYS_FAILS, *BEHIND])
    world.work(6)

    emitted = cut if topic in (SOURCE.topic, REPLAY) else []
    wanted = [*BEFORE, *BEHIND, *(odd.record.value for odd in emitted)]
    assert sorted(world.confirmed, key=repr) == sorted(wanted, key=repr)
    assert len(world.roots("acked")) == len(wanted)
    assert world.ended == []


@pytest.mark.sample(5)
@pytest.mark.parametrize("topic", TOPICS)
def test_no_command_and_no_page_ends_at_records_that_are_cut_short(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """O127: all of them lie in the topic."""
    world = OddWorld()
    world.write([ALWAYS_FAILS, *BEFORE])
    world.work(3)
    offsets = [append_odd(world.cluster, TopicPartition(topic, 0), odd) for odd in cut_golden(topic)]
    world.work(2)
    look_by_every_command(world, topic, offsets[:: len(offsets) // 4], capsys)


@pytest.mark.parametrize("size", [0, 9, 11, -1])
def test_a_state_that_is_cut_short_stops_its_acker_by_name_until_it_is_marked(size: int) -> None:
    """O128: under its own key it is no stranger's; what lies before it may be all that counts."""
    world = OddWorld()
    world.write(BEFORE)
    world.work(3)
    last = world.last_record("_ack_state")
    assert last is not None
    assert last.value is not None
    cut = OddRecord("cut", RawRecord(last.value[:size], last.key), last.headers)
    offset = append_odd(world.cluster, TopicPartition("_ack_state", 0), cut)
    world.restart_all()
    world.write(BEHIND)
    world.work(6)
    [stopped] = world.ended
    assert (stopped.service, type(stopped.error).__name__) == ("acker", "Disagreement")
    assert f"_ack_state/0@{offset} cannot be read as State" in str(stopped.error)
    assert world.confirmed == [*BEFORE, *BEHIND]


@pytest.mark.parametrize("note", [RESTORED_HEADER, LATE_HEADER, DEADLINES_HEADER])
def test_no_acker_and_no_page_ends_at_notes_of_a_state_that_are_nested_deeper_than_python_reads(
    note: str,
) -> None:
    """O126: State itself is sound, as who wrote over its notes has copied it."""
    world = OddWorld()
    world.write(BEFORE)
    world.work(3)
    last = world.last_record("_ack_state")
    assert last is not None
    kept = tuple(header for header in last.headers if header[0] != note)
    forged = Outgoing("_ack_state", 0, last.value, last.key, (*kept, (note, b"[" * 100_000)))
    world.cluster.partition(TopicPartition("_ack_state", 0)).append(forged, world.cluster.now_ms)
    codes = world.pages(["/", "/machinery", "/metrics"])
    assert {path: code for path, code in codes.items() if code >= 500} == {}
    world.restart_all()
    world.write(BEHIND)
    world.work(6)
    assert world.confirmed == [*BEFORE, *BEHIND]
    assert world.ended == []
