"""The roles of people who run commands, played as `tests.support.worlds.plays` plays the others.

Their installation has a past, and no process runs in it, so its open roots stay open.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial

import pytest

from acker.config.topics import Topics
from acker.errors import UsageError
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, Outgoing, TopicPartition
from acker.wire.events import Init, SourceRun
from replay.handling.letter_handling import Order, RateLimit
from replay.handling.redrive import Redrive
from replay.handling.repair import Unreadable, find_unreadable, pass_over
from replay.handling.resume import resume
from replay.records.dead_letter import DEAD
from replay.records.due import Pause, due_codec, pause_key
from replay.records.headers import location
from replay.records.letters import Filter, LetterAction
from spout.inspect.dead_letters import (
    carry_out,
    filters_of_inputs,
    inputs_named,
)
from spout.inspect.overview import Overview, missing_members
from spout.inspect.story import ANNOUNCED, PENDING
from spout.inspect.trail import EvidenceReader
from spout.picture.database import Picture
from spout.picture.loader import PictureLoader
from spout.questions.letters import details_of, letters_read
from spout.questions.open_roots import root_picture
from tests.support.waiting import settled
from tests.support.worlds.plays import TIMEOUT_MS, Stagehand, now_ms

FAR = 1 << 40
"""An offset at which there is nothing, which may be passed over."""

LATER = 1_000_000
"""An offset that was announced, and that no acker has read yet."""


class NotRead(Exception):
    """Values of `status` are unknown; the message has the reasons."""


def furnish(stagehand: Stagehand) -> None:
    """Add to a past an Init that is newer than its State, and a letter that nobody handles."""
    let_die(stagehand)
    found = stagehand.input
    announced = (SourceRun(stagehand.source, LATER, LATER + 1),)
    topic_id = stagehand.id_of(found.topic)
    stagehand.write(
        stagehand.names.init, Init(found.group, "s", 1, 0, 2, 0, 1, found.topic, topic_id, announced)
    )


def let_die(stagehand: Stagehand) -> str:
    """Write a dead letter and return its place."""
    topic = stagehand.input.dead_letter.topic
    placed = _transact(stagehand, Outgoing(topic, 0, b"line", headers=((DEAD, b"ATTEMPTS"),)))
    return location(topic, 0, placed[topic])


def _transact(stagehand: Stagehand, *records: Outgoing) -> dict[str, int]:
    """Write a record to each of some topics in one transaction, and wait until everybody sees it.

    Behind each is the transaction's marker: an offset without a record.

    Returns:
        The offset by topic.
    """
    placed: dict[str, int] = {}
    with closing(stagehand.log.transactions("stagehand")) as transactions:
        transactions.init(TIMEOUT_MS)
        transactions.begin()
        for record in records:
            transactions.send(record, partial(placed.__setitem__, record.topic))
        transactions.commit(TIMEOUT_MS)
    # transactions of others may be under way, too
    settled(stagehand.log, [TopicPartition(record.topic, 0) for record in records])
    return placed


def play_observer(topics: Topics, stagehand: Stagehand) -> None:
    """Look at everything: `status`, `roots`, `inspect`, `dlq list`, `show` and `stats`, `sql`."""
    with closing(KafkaLog(topics.kafka)) as log:
        _look_at_inputs(log, topics)
        _inspect(log, topics, stagehand)
        _look_at_letters(log, topics)
        _make_picture(log, topics)


def _make_picture(log: Log, topics: Topics) -> None:
    with closing(Picture(has_payloads=False)) as picture:
        with closing(PictureLoader(log, topics, picture, now_ms)) as loader:
            loader.read(now_ms())
        reasons = [why for (why,) in picture.connection.execute("SELECT why FROM unknown")]
    refused = [why for why in reasons if "the right to" in why]
    if refused:
        raise NotRead("; ".join(refused))


def _look_at_inputs(log: Log, topics: Topics) -> None:
    with closing(Overview(log, topics)) as overview:
        (row,) = overview.snapshot(now_ms()).rows()
    if row["unknown"]:
        raise NotRead("; ".join(row["unknown"].values()))
    if row["lag"] is None or not row["pending"] or not row["dead_letters"]:
        raise AssertionError(f"not all was read: {row}")


def _inspect(log: Log, topics: Topics, stagehand: Stagehand) -> None:
    """Look for what is open, for what was only announced, by key, and at offsets without a record."""
    found, trail = stagehand.input, EvidenceReader(log, topics)
    for place, state in ((_open_root(log, topics), PENDING), (location(found.name, 0, LATER), ANNOUNCED)):
        (here,) = trail.records_at(place)
        emission = trail.read_evidence(here).emissions[0]
        if emission.state != state:
            raise AssertionError(f"{place} is {emission.state} instead of {state}")
    if trail.with_key(found, b"no such key", 0, 1)[0]:
        raise AssertionError("a record has a key that was never written")
    topics_of = (found.topic, found.replay_topic, found.dead_letter.topic)
    placed = _transact(stagehand, *(Outgoing(topic, 0, b"line") for topic in topics_of))
    (hole,) = trail.records_at(location(found.topic, 0, placed[found.topic] + 1))
    trail.read_evidence(hole)
    for topic in topics_of[1:]:
        with pytest.raises(UsageError, match="there is no copy or dead letter"):
            trail.records_at(location(topic, 0, placed[topic] + 1))


def _open_root(log: Log, topics: Topics) -> str:
    with root_picture(log, topics, tuple(topics.inputs.values())) as picture:
        found = picture.open_roots(older_than_ms=0, limit=1, now_ms=now_ms())
    return str(found.rows[0]["root"])


def _look_at_letters(log: Log, topics: Topics) -> None:
    meant = filters_of_inputs(inputs_named(topics, ()), (), Filter(handled=True))
    with letters_read(log, topics, meant) as letters:
        places = [row["letter"] for row in letters.rows()]
    if len(details_of(log, topics, places)) < len(places):
        raise AssertionError("not every letter was shown")


def play_keeper(topics: Topics, stagehand: Stagehand) -> None:
    """Look at letters, drop one, and let another be emitted again."""
    with closing(KafkaLog(topics.kafka)) as log:
        for action in (LetterAction.DROPPED, LetterAction.REPLAYED):
            letter = let_die(stagehand)
            _look_at_letters(log, topics)
            _handle(log, topics, letter, action)


def _handle(log: Log, topics: Topics, letter: str, action: LetterAction) -> None:
    wanted = Filter()
    redrive = Redrive(
        log,
        topics,
        filters_of_inputs(inputs_named(topics, ()), [letter], wanted),
        Order(action, wanted, "kim", "no use", f"of {letter}"),
        RateLimit(None, now_ms()),
    )
    outcome = carry_out(redrive, clock=now_ms, sleep_ms=lambda _: None, progress=lambda _: None)
    if outcome.handled_count != 1:
        raise AssertionError(f"{letter} was not {action.lower()}: {outcome}")


def play_mend(topics: Topics, stagehand: Stagehand) -> None:
    """Repair the ack topics, and let a paused input go on; no replay worker runs."""
    names, lines = topics.ack_topics, topics.input("lines")
    pause = due_codec().encode(Pause(lines.id, now_ms(), "too many"))
    _transact(stagehand, Outgoing(names.due, 0, pause, pause_key(lines.id)))
    with closing(KafkaLog(topics.kafka)) as log:
        list(find_unreadable(log, topics))
        marked = (names.init, names.ack, names.fail, names.verdict, names.state, names.due)
        for name in marked:
            nothing = Unreadable(TopicPartition(name, 0), FAR, 0, "", "nothing", is_marked=False)
            pass_over(log, [nothing], "there is nothing", "kim")
        if not resume(log, topics, lines.id):
            raise AssertionError("the input was not paused")
        (absent,) = missing_members(log, topics, topics.acker.replay_group)
        if "unknown" in absent:
            raise NotRead(absent)
