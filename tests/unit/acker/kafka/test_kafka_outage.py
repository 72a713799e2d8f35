"""A broker that does not answer: what the log says of it, and how long a question waits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    ClusterMetadata,
)

from acker.errors import Unreachable
from acker.kafka.client import OUTAGE_OVER_MS, SINGLE_TRY_S, WAIT_MS_MAX, Background, KafkaClient, Outage, Use
from acker.kafka.cluster import PROGRESS_PAUSE_MS, KafkaLog, _Silence
from acker.kafka.port import Operation, TopicPartition
from tests.support.steady_clock import SteadyClock, client_lines

SETTINGS = {"bootstrap.servers": "127.0.0.1:1"}
SILENT = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
USE = Use(Operation.DESCRIBE, group="g")


@dataclass
class Asked:
    """A question that takes as long as it may, until the broker is back."""

    clock: SteadyClock
    back_s: float
    waits: list[float] = field(default_factory=list)

    def __call__(self, patience_s: float) -> str:
        self.waits.append(patience_s)
        if self.clock.now_s >= self.back_s:
            return "answer"
        self.clock.now_s += patience_s
        raise SILENT


def unhurried(_seconds: float) -> None:
    """Wait not at all between two attempts."""


def test_the_first_line_comes_within_five_seconds_then_one_a_minute_and_one_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SteadyClock()
    outage = Outage(clock, "b:9092")
    begun_s = clock.now_s
    while clock.now_s < begun_s + 80:
        clock.now_s += WAIT_MS_MAX / 1000
        outage.record_wait("committing", (clock.now_s - begun_s) * 1000, "timed out")
        if clock.now_s < begun_s + 5:
            assert client_lines(caplog) == ["the broker does not answer"]
    outage.record_answer()
    assert client_lines(caplog) == ["the broker does not answer"] * 2
    clock.now_s += OUTAGE_OVER_MS / 1000
    outage.record_answer()
    outage.record_answer()

    assert client_lines(caplog) == ["the broker does not answer"] * 2 + ["the broker answers again"]
    first, last = vars(caplog.records[0]), vars(caplog.records[-1])
    assert (first["waits"], first["error"], first["kafka"]) == ("committing", "timed out", "b:9092")
    assert (first["seconds"], last["seconds"]) == (3.0, 81.0)
    assert first["since"] == last["since"]


def test_a_slow_answer_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    clock = SteadyClock()
    outage = Outage(clock, "b:9092")

    outage.record_wait("committing", WAIT_MS_MAX - 1, "timed out")
    clock.now_s += 60
    outage.record_answer()

    assert client_lines(caplog) == []


def test_whoever_waits_for_the_broker_says_so(caplog: pytest.LogCaptureFixture) -> None:
    clock = SteadyClock()
    client = KafkaClient(SETTINGS, "test", 30_000, clock, unhurried)
    asked, deadline = Asked(clock, clock.now_s + 7), client.deadline()

    found = client.retry("asking", deadline, lambda: asked(deadline.next_wait_s), Background(clock), USE)

    assert found == "answer"
    assert asked.waits == [WAIT_MS_MAX / 1000] * 4
    assert client_lines(caplog) == ["the broker does not answer"]


@pytest.mark.parametrize("back_s", [0.5, 9.0, 14.0, 22.0])
def test_a_question_is_answered_five_seconds_after_it_can_be_at_the_latest(back_s: float) -> None:
    """A client that asks a dead leader waits out its patience; that doubled up to half a minute."""
    clock = SteadyClock()
    log = KafkaLog(SETTINGS, clock=clock, sleep=unhurried)
    begun_s = clock.now_s
    asked = Asked(clock, begun_s + back_s)

    assert log._ask_until_answered("asking", asked, USE) == "answer"
    assert clock.now_s - begun_s <= back_s + 5


def test_a_question_is_given_up_at_its_deadline() -> None:
    clock = SteadyClock()
    asked = Asked(clock, clock.now_s + 31)

    with pytest.raises(Unreachable):
        KafkaLog(SETTINGS, clock=clock, sleep=unhurried)._ask_until_answered("asking", asked, USE)
    assert sum(asked.waits) == pytest.approx(30, abs=0.2)


def leaderless(clock: SteadyClock, until_s: float) -> Callable[[float], str]:
    """A question that is refused at once while a partition has no leader."""

    def ask(_patience_s: float) -> str:
        clock.now_s += 0.01
        if clock.now_s < until_s:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "no leader"))
        return "answer"

    return ask


def test_questions_of_a_command_wait_together_no_longer_than_one_of_them_would() -> None:
    """With one silent broker of three `status` took two minutes."""
    clock = SteadyClock()
    log = KafkaLog(SETTINGS, clock=clock, sleep=unhurried)
    begun_s, silent = clock.now_s, Asked(clock, math.inf)

    log.share_deadline()
    for _ in range(20):
        with pytest.raises(Unreachable):
            log._ask_until_answered("asking", silent, USE)
    assert clock.now_s - begun_s == pytest.approx(30, abs=1)
    with pytest.raises(Unreachable, match=r"not asked, since Kafka at .* without an answer for 30000 ms"):
        log._ask_until_answered("asking", silent, USE)

    log.share_deadline()
    assert log._ask_until_answered("asking", Asked(clock, 0), USE) == "answer"


def test_who_shares_a_deadline_with_a_silent_broker_is_answered_by_the_others() -> None:
    """Also where what the silent one had has no leader any more, which is said at once, again and again."""
    clock = SteadyClock()

    def sleep(seconds: float) -> None:
        clock.now_s += seconds

    log = KafkaLog(SETTINGS, clock=clock, sleep=sleep)
    begun_s = clock.now_s
    log.share_deadline()
    for _ in range(100):
        with pytest.raises(Unreachable, match=r"no answer from Kafka at 127\.0\.0\.1:1 "):
            log._ask_until_answered("asking", leaderless(clock, math.inf), USE)
        assert log._ask_until_answered("asking", Asked(clock, 0), USE) == "answer"
    assert clock.now_s - begun_s < 25


@pytest.mark.parametrize("is_view", [True, False], ids=["view", "service"])
def test_once_a_broker_is_known_to_be_silent_a_view_asks_each_question_once(is_view: bool) -> None:
    """D1008: a snapshot waited 12 s, 3 s for each question that met it again. A service waits as ever."""
    clock = SteadyClock()
    log = KafkaLog(SETTINGS, clock=clock, sleep=unhurried)
    error = KafkaError(KafkaError._TIMED_OUT, "silent")
    log._silence_by_broker[2] = _Silence(error, clock.now_s + 1_000, 2)
    if is_view:
        log.share_deadline()
    begun_s, silent = clock.now_s, Asked(clock, math.inf)
    with pytest.raises(Unreachable, match="no answer from Kafka"):
        log._ask_until_answered("asking", silent, USE, by_one_broker=True)
    assert clock.now_s - begun_s == pytest.approx(SINGLE_TRY_S if is_view else 30, abs=0.2)
    assert log._ask_until_answered("asking", Asked(clock, 0), USE, by_one_broker=True) == "answer"


def test_what_any_broker_can_answer_is_asked_on_while_one_is_silent() -> None:
    """D1008: else nobody would know that it is missing, and what it hides would be called gone."""
    clock = SteadyClock()
    log = KafkaLog(SETTINGS, clock=clock, sleep=unhurried)
    error = KafkaError(KafkaError._TIMED_OUT, "silent")
    log._silence_by_broker[2] = _Silence(error, clock.now_s + 1_000, 2)
    log.share_deadline()
    assert log._ask_until_answered("asking", Asked(clock, clock.now_s + 11), USE) == "answer"


def test_a_silence_that_is_over_leaves_a_view_its_whole_time() -> None:
    """D1008: the broker may be back, or missed by the others, which then lead in its place."""
    clock = SteadyClock()
    log = KafkaLog(SETTINGS, clock=clock, sleep=unhurried)
    error = KafkaError(KafkaError._TIMED_OUT, "silent")
    log._silence_by_broker[2] = _Silence(error, clock.now_s - 1, 2)
    log.share_deadline()
    assert (
        log._ask_until_answered("asking", Asked(clock, clock.now_s + 11), USE, by_one_broker=True) == "answer"
    )


def test_an_election_fits_into_a_shared_deadline() -> None:
    """A broker is missed after nine seconds, and others lead two seconds later."""
    clock = SteadyClock()
    log = KafkaLog(SETTINGS, clock=clock, sleep=unhurried)
    log.share_deadline()

    assert log._ask_until_answered("asking", Asked(clock, clock.now_s + 11), USE) == "answer"
    assert log._ask_until_answered("asking", leaderless(clock, clock.now_s + 5), USE) == "answer"


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR])
def test_a_client_that_asks_in_the_wrong_place_is_given_up(code: int) -> None:
    """It goes on asking the coordinator of another time, for good."""
    log, clients = KafkaLog(SETTINGS, clock=SteadyClock(), sleep=unhurried), []

    def ask(_patience_s: float) -> str:
        clients.append(log._admin_client())
        if len(clients) == 1:
            raise KafkaException(KafkaError(code, "moved"))
        return "answer"

    assert log._ask_until_answered("asking", ask, USE) == "answer"
    assert clients[0] is not clients[1]


def test_a_read_of_minutes_says_each_minute_how_far_it_has_come(caplog: pytest.LogCaptureFixture) -> None:
    """D901: a start that reads a long log looks like one that hangs; short reads in between are silent."""
    clock = SteadyClock()
    log = KafkaLog(SETTINGS, clock=clock)
    place = TopicPartition("_ack_state", 3)
    for offset in range(0, 1_300, 10):
        log.log_progress(place, offset, 5_000)
        clock.now_s += 1
    read = [vars(record) for record in caplog.records if record.getMessage() == "a long read goes on"]
    assert [(line["waited_s"], line["offset"]) for line in read] == [(60, 600), (120, 1_200)]
    assert (read[0]["partition"], read[0]["end"]) == ("_ack_state/3", 5_000)
    caplog.clear()
    for _ in range(10):
        clock.now_s += PROGRESS_PAUSE_MS / 1000 + 1
        log.log_progress(place, 0, 5_000)
    assert not caplog.records


class Deaf(Consumer):
    """A client whose questions nobody answers."""

    def list_topics(self, *_: object) -> ClusterMetadata:
        raise SILENT


class Hearing(Consumer):
    """A client whose questions are answered."""

    def list_topics(self, *_: object) -> ClusterMetadata:
        return ClusterMetadata()


DOWN_TEXTS = [f"{numbers} brokers are down" for numbers in ("2/2", "1/1", "0/2", "1/2", "0/0")]
"""The numbers are counted anew by another thread of librdkafka, before or after the text is made."""


@pytest.mark.parametrize("text", DOWN_TEXTS)
def test_who_waits_when_all_brokers_are_said_to_be_down_asks_whatever_the_numbers_are(text: str) -> None:
    """D2407: "0/2" was passed over, and a reader waited for a killed broker without end."""
    clock = SteadyClock()
    client = KafkaClient(SETTINGS, "test", operation_timeout_ms=10_000, clock=clock)
    background = Background(clock)
    background(KafkaError(KafkaError._ALL_BROKERS_DOWN, text))
    deaf = Deaf({**SETTINGS, "group.id": "g", "log_level": 0})
    clock.now_s += 9
    client.require_answers(deaf, "", "reading", background)
    clock.now_s += 1
    with pytest.raises(Unreachable, match="reading: no answer from Kafka"):
        client.require_answers(deaf, "", "reading", background)


@pytest.mark.parametrize("text", DOWN_TEXTS)
def test_connections_that_brokers_close_are_no_warning(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """D2402: they do it with idle ones; whoever waits asks, and is content with the answer."""
    clock = SteadyClock()
    client = KafkaClient(SETTINGS, "test", operation_timeout_ms=10_000, clock=clock)
    background = Background(clock)
    background(KafkaError(KafkaError._ALL_BROKERS_DOWN, text))
    clock.now_s += 60
    client.require_answers(Hearing({**SETTINGS, "group.id": "g", "log_level": 0}), "", "reading", background)
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
    assert background.silent_ms() == 0
    assert background.newest_error is None
