"""What the clients share: deadlines, retries, what their threads report, and which error is which of ours."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from acker.clocks import wrong_clock_text
from acker.config.kafka_settings import TOKEN_FUNCTION
from acker.errors import (
    Aborted,
    ConfigError,
    Fenced,
    LogError,
    NotAuthenticated,
    NotAuthorized,
    OutOfRange,
    PartitionStands,
    RecordRefused,
    TopicError,
    Unreachable,
    WindhoverError,
)
from acker.kafka.client import (
    FENCE,
    LEADERS_S,
    LIBRDKAFKA,
    MARKERS_S,
    NO_SUCH_TOPIC,
    NOT_IN_LOG,
    OUTAGE_AGAIN_MS,
    OUTAGE_OVER_MS,
    PROPAGATION_MS,
    RECORD_REFUSED,
    RETRY_PAUSE_S,
    SILENCE,
    THROTTLED_LOGGED_EVERY_S,
    TRANSIENT,
    UNAUTHENTICATED,
    UNAUTHORIZED,
    WAIT_MS_MAX,
    Background,
    Deadline,
    KafkaClient,
    Outage,
    Refused,
    SettingsHidden,
    Throttling,
    Troubled,
    Use,
    by_topic,
    trouble_text,
)
from acker.kafka.port import Operation, Resource, Right, TopicPartition
from tests.support.steady_clock import SteadyClock, client_lines

A, B, OTHER = TopicPartition("lines", 0), TopicPartition("lines", 1), TopicPartition("words", 0)
USE = Use(Operation.READ, topic="lines")
LOADING = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "not yet")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
LOST = KafkaError(KafkaError._TRANSPORT, "connection refused")
NOT_LET_IN = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
HOUR_MS = 3_600_000


def client_of(clock: SteadyClock, timeout_ms: int = 30_000, **settings: str) -> KafkaClient:
    """Return a client whose pauses move the clock."""

    def sleep(seconds: float) -> None:
        clock.now_s += seconds

    return KafkaClient({"bootstrap.servers": "kafka:9092", **settings}, "test", timeout_ms, clock, sleep)


# settings ---------------------------------------------------------------------------------------------------


def test_a_line_of_librdkafka_shows_no_secret_of_any_client_and_is_one_line() -> None:
    hidden = SettingsHidden()
    secrets = [{"sasl.password": "hunter2"}, {"ssl.key.password": "hunter3"}, {"sasl.password": "hunter2"}]
    for settings in secrets:
        hidden.add(settings)
    record = logging.LogRecord("x", logging.WARNING, "", 0, "%s then\nhunter3, of %d", ("hunter2", 7), None)
    assert hidden.filter(record)
    assert "hunter" not in record.getMessage()
    assert "\n" not in record.getMessage()
    assert "of 7" in record.getMessage()


def test_a_client_gets_the_users_settings_except_those_that_must_be_ours() -> None:
    client = client_of(SteadyClock(), **{"client.id": "user", "reconnect.backoff.ms": "7", "linger.ms": "9"})
    background = Background(client.clock)
    made: dict[str, Any] = client.make_client(
        dict, {"linger.ms": 5, "batch.size": 10}, {"acks": "all"}, background
    )
    assert made["client.id"] == "test"
    assert (made["linger.ms"], made["reconnect.backoff.ms"]) == ("9", "7")
    assert (made["batch.size"], made["acks"]) == (10, "all")
    assert made["error_cb"] is background
    assert made["throttle_cb"] is client.throttling
    assert made["allow.auto.create.topics"] is False
    assert made["socket.timeout.ms"] == 10_000
    assert TOKEN_FUNCTION not in made


def test_a_setting_that_librdkafka_does_not_accept_is_an_error_of_the_configuration() -> None:
    def refuse(_settings: dict[str, Any]) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, 'No such configuration property: "nothing"'))

    client = client_of(SteadyClock())
    with pytest.raises(ConfigError, match=r"topics\.yaml: kafka: No such configuration property"):
        client.make_client(refuse, {}, {}, Background(client.clock))


def token(config: str) -> tuple[str, float]:
    """Return a token of the user's."""
    return f"of {config}", 4e9


def test_a_function_for_tokens_is_asked_before_there_is_a_client() -> None:
    settings = {TOKEN_FUNCTION: f"{__name__}:token", "sasl.oauthbearer.config": "scope=x"}
    client = client_of(SteadyClock(), **settings)
    made: dict[str, Any] = client.make_client(dict, {}, {}, Background(client.clock))
    assert made[TOKEN_FUNCTION]("scope=y") == ("of scope=x", 4e9), "the first one is there already"
    assert made[TOKEN_FUNCTION]("scope=y") == ("of scope=y", 4e9)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"bootstrap.servers": "a:1"}, "a:1"),
        ({"metadata.broker.list": "b:1"}, "b:1"),
        ({"bootstrap.servers": "", "metadata.broker.list": "b:1"}, "b:1"),
        ({}, "?"),
    ],
)
def test_messages_name_the_brokers_by_whichever_setting_has_them(settings: dict[str, str], name: str) -> None:
    assert KafkaClient(settings, "test", 1, SteadyClock()).bootstrap == name


# texts ------------------------------------------------------------------------------------------------------


def test_a_right_is_named_by_what_the_request_used() -> None:
    whole = Use(Operation.WRITE, topic="t", group="g", transactional_id="i")
    assert whole.right(KafkaError.TOPIC_AUTHORIZATION_FAILED) == Right(Operation.WRITE, Resource.TOPIC, "t")
    assert whole.right(KafkaError.GROUP_AUTHORIZATION_FAILED) == Right(Operation.WRITE, Resource.GROUP, "g")
    by_id = Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, "i")
    assert whole.right(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED) == by_id
    no_producer_id = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert whole.right(no_producer_id) == Right(Operation.WRITE, Resource.TOPIC, "t")
    assert Use(Operation.READ, topic="t").right(no_producer_id) is None
    assert Use(Operation.READ, group="g").right(KafkaError.TOPIC_AUTHORIZATION_FAILED) is None


def test_partitions_are_grouped_by_topic_in_order() -> None:
    places = [OTHER, B, A]
    assert list(by_topic(iter(places)).items()) == [("lines", [A, B]), ("words", [OTHER])]
    assert by_topic([]) == {}


def metadata(leader: int, *replicas: int) -> Any:
    """Return metadata of partition 0 of `lines`; broker 1 is there."""
    partitions = {0: SimpleNamespace(leader=leader, replicas=replicas)}
    brokers = {1: SimpleNamespace(host="kafka-1", port=9092)}
    return SimpleNamespace(topics={"lines": SimpleNamespace(partitions=partitions)}, brokers=brokers)


@pytest.mark.parametrize(
    ("place", "leader", "replicas", "error", "text"),
    [
        (A, -1, [2], "X", "has no leader: its replicas are on broker 2"),
        (A, 2, [3, 2], "", "has no leader: its replicas are on brokers 2, 3"),
        (A, 1, [1], "", ""),
        (A, 1, [1], "X", "has no answer from its leader, kafka-1:9092 (X)"),
        (B, 1, [1], "", ""),
        (B, 1, [1], "X", "is not there (X)"),
    ],
)
def test_a_trouble_says_who_should_have_answered_or_where_the_replicas_are(
    place: TopicPartition, leader: int, replicas: list[int], error: str, text: str
) -> None:
    assert trouble_text(metadata(leader, *replicas), place, error) == text


class Asker:
    """A client that knows who leads, until it gets no answer any more."""

    def __init__(self, **leaders: dict[int, int] | None) -> None:
        self.leaders = leaders
        self.asked: list[tuple[str, float]] = []

    def list_topics(self, topic: str, timeout_s: float) -> Any:
        self.asked.append((topic, timeout_s))
        leaders = self.leaders[topic]
        if leaders is None:
            raise KafkaException(LOST)
        partitions = {
            number: SimpleNamespace(leader=leader, replicas=[leader, 9]) for number, leader in leaders.items()
        }
        error = None if leaders else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(
            topics={topic: SimpleNamespace(partitions=partitions, error=error)},
            brokers={1: SimpleNamespace(host="kafka-1", port=9092)},
        )


def test_partitions_without_a_leader_are_named_as_far_as_anybody_answers() -> None:
    client = client_of(SteadyClock())
    asker: Any = Asker(lines={0: 1, 1: -1}, words={0: 5})
    assert client.leaderless_troubles(asker, [OTHER, A, B]) == {
        B: "has no leader: its replicas are on brokers -1, 9",
        OTHER: "has no leader: its replicas are on brokers 5, 9",
    }
    assert asker.asked == [("lines", LEADERS_S), ("words", LEADERS_S)]
    deaf: Any = Asker(lines=None, words={0: 5})
    assert client.leaderless_troubles(deaf, [OTHER, A, B]) == {}
    assert deaf.asked == [("lines", LEADERS_S)], "the others are not asked about"


def test_a_topic_has_as_many_partitions_as_its_metadata_and_is_an_error_without_any() -> None:
    clock = SteadyClock()
    client = client_of(clock)
    asker: Any = Asker(lines={0: 1, 1: 1}, none={})
    assert client.partition_count(asker, "lines", Background(clock)) == 2
    begun_s = clock.now_s
    with pytest.raises(TopicError, match="looking for none: there is no such topic"):
        client.partition_count(asker, "none", Background(clock))
    assert clock.now_s - begun_s == pytest.approx(PROPAGATION_MS / 1000, abs=2 * RETRY_PAUSE_S)


def refusals(codes: frozenset[int], raised: type[WindhoverError]) -> list[Any]:
    return [pytest.param(code, raised, id=f"{KafkaError(code).name()}") for code in sorted(codes)]


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        *refusals(UNAUTHORIZED, NotAuthorized),
        *refusals(UNAUTHENTICATED, NotAuthenticated),
        *refusals(FENCE, Fenced),
        *refusals(RECORD_REFUSED, RecordRefused),
        *refusals(SILENCE | TRANSIENT, Unreachable),
        *refusals(NO_SUCH_TOPIC, TopicError),
        *refusals(NOT_IN_LOG, OutOfRange),
        *refusals(frozenset({KafkaError.INVALID_CONFIG, KafkaError._FATAL}), LogError),
    ],
)
def test_each_error_is_the_one_of_its_class(code: int, raised: type[WindhoverError]) -> None:
    client = client_of(SteadyClock())
    error = client.error(KafkaError(code, "the text"), "doing it", 500)
    assert type(error) is raised
    assert str(error).startswith("doing it")
    assert "the text" in str(error)


@pytest.mark.parametrize("code", [*sorted(FENCE), *sorted(RECORD_REFUSED)[:1], *sorted(UNAUTHORIZED)])
def test_why_a_transaction_must_be_undone_goes_before_that_it_must(code: int) -> None:
    client = client_of(SteadyClock())
    must = KafkaError(code, "text", txn_requires_abort=True)
    assert type(client.error(must, "x")) is type(client.error(KafkaError(code, "text"), "x"))
    for other in (KafkaError._STATE, KafkaError._TIMED_OUT, KafkaError.UNKNOWN_TOPIC_OR_PART):
        assert type(client.error(KafkaError(other, "text", txn_requires_abort=True), "x")) is Aborted


def test_silence_says_for_how_long_and_what_the_threads_have_seen() -> None:
    clock = SteadyClock()
    client = client_of(clock)
    silent = KafkaError(KafkaError._TIMED_OUT, "no answer")
    assert "within" not in str(client.error(silent, "x"))
    assert "no answer from Kafka at kafka:9092 within 500 ms (_TIMED_OUT: no answer); start it" in str(
        client.error(silent, "x", 500)
    )
    background = Background(clock)
    background(LOST)
    assert "(_TIMED_OUT: no answer; _TRANSPORT: connection refused)" in str(
        client.error(silent, "x", 500, background)
    )
    background(NOT_LET_IN)
    background(LOST)
    assert type(client.error(silent, "x", 500, background)) is NotAuthenticated, "whatever came last"


def test_partitions_that_stand_are_named_in_order() -> None:
    texts = {OTHER: "is silent", A: "has no leader"}
    error = client_of(SteadyClock()).partition_stands_error("reading", texts)
    assert type(error) is PartitionStands
    assert str(error).startswith("reading: lines/0 has no leader; words/0 is silent; start what is missing")


# clocks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead_ms", [None, 0, HOUR_MS, -HOUR_MS])
def test_a_refused_time_is_told_with_the_clock_that_is_wrong(ahead_ms: int | None) -> None:
    cause = KafkaError(KafkaError.INVALID_TIMESTAMP, "no")
    error = client_of(SteadyClock()).refused_time_error("writing", cause, ahead_ms)
    clock_text = wrong_clock_text(ahead_ms)
    assert error.reason.startswith("INVALID_TIMESTAMP: ")
    assert error.reason.endswith(f"; {clock_text}") if clock_text else ";" not in error.reason
    assert re.search(r"clock says 20\d\d-", str(error)) or ahead_ms == 0


class Newest:
    """An admin client that says when the newest record of each partition was written."""

    def __init__(self, *times: int | Exception) -> None:
        self.times = times

    def list_offsets(self, specs: Any, request_timeout: float) -> dict[Any, Future[Any]]:
        assert request_timeout == LEADERS_S
        answers: dict[Any, Future[Any]] = {}
        for part, time in zip(specs, self.times, strict=True):
            answers[part] = Future()
            if isinstance(time, Exception):
                answers[part].set_exception(time)
            else:
                answers[part].set_result(SimpleNamespace(timestamp=time))
        return answers


@pytest.mark.parametrize(
    ("times", "is_known"),
    [
        ((1_000_000,), True),
        ((9_000_000_000_000, 1_000_000), True),
        ((1_000_000, 9_000_000_000_000), True),
        ((0,), False),
        ((-1, 1_000_000), False),
        ((1_000_000, KafkaException(LOST)), False),
        ((TimeoutError(),), False),
        ((), False),
    ],
)
def test_the_brokers_clock_is_read_from_the_marker_of_the_aborted_transaction(
    times: tuple[Any, ...], is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic may hold records that are dated ahead; the marker is not."""
    clock = SteadyClock()
    client = client_of(clock)
    monkeypatch.setattr(KafkaClient, "make_client", lambda *_: Newest(*times))
    begun_s = clock.now_s
    ahead_ms = client.ahead_of_broker_ms([A, B][: len(times)])
    assert (ahead_ms is not None) is is_known
    if ahead_ms is not None:
        assert ahead_ms > 1_600_000_000_000, "this machine is decades ahead of that marker"
    assert clock.now_s - begun_s == (pytest.approx(MARKERS_S) if times else 0)


# deadlines and retries --------------------------------------------------------------------------------------


def test_a_deadline_tells_what_is_left_and_lets_no_call_wait_without_end() -> None:
    clock = SteadyClock()
    deadline = Deadline(clock, 10_000)
    assert (deadline.left_s, deadline.next_wait_s, deadline.elapsed_ms) == (10.0, WAIT_MS_MAX / 1000, 0.0)
    clock.now_s += 9.0
    assert (deadline.left_s, deadline.next_wait_s) == (1.0, 1.0)
    assert deadline.elapsed_ms == pytest.approx(9_000)
    clock.now_s += 0.9995
    assert deadline.next_wait_s == 0.001
    assert not deadline.is_over
    clock.now_s += 0.0005
    assert deadline.is_over
    clock.now_s += 5.0
    assert (deadline.left_s, deadline.next_wait_s) == (0.0, 0.001)
    assert deadline.elapsed_ms == pytest.approx(15_000)
    assert Deadline(clock, 0, wait_min_s=2.0).next_wait_s == 2.0


def failing(clock: SteadyClock, error: KafkaError, times: float, takes_s: float = 0.0) -> Callable[[], str]:
    """Return a call that fails so many times, and each time takes so long."""
    left = iter(range(int(times))) if times < 1e9 else iter(int, 1)

    def call() -> str:
        clock.now_s += takes_s
        if next(left, None) is not None:
            raise KafkaException(error)
        return "answer"

    return call


def test_a_call_is_tried_again_after_pauses_until_its_deadline() -> None:
    clock = SteadyClock()
    client = client_of(clock)
    begun_s = clock.now_s
    answer = client.retry("x", client.deadline(), failing(clock, LOADING, 10), Background(clock), USE)
    assert answer == "answer"
    assert clock.now_s - begun_s == pytest.approx(10 * RETRY_PAUSE_S)
    begun_s = clock.now_s
    with pytest.raises(Unreachable, match="x: no answer from Kafka at kafka:9092 within 120 ms"):
        client.retry("x", client.deadline(120), failing(clock, LOADING, 1e9), Background(clock), USE)
    assert clock.now_s - begun_s == pytest.approx(0.12), "the last pause is as long as what is left"


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, fatal=True),
        KafkaError(KafkaError._TIMED_OUT, txn_requires_abort=True),
        KafkaError(KafkaError.INVALID_CONFIG),
    ],
)
def test_what_will_not_pass_is_not_tried_again(error: KafkaError) -> None:
    clock = SteadyClock()
    client = client_of(clock)
    begun_s = clock.now_s
    with pytest.raises(WindhoverError):
        client.retry("x", client.deadline(), failing(clock, error, 1e9), Background(clock), USE)
    assert clock.now_s == begun_s


@pytest.mark.parametrize(
    "code", [KafkaError.INVALID_CONFIG, KafkaError._TIMED_OUT, KafkaError.NOT_CONTROLLER]
)
def test_what_the_client_calls_retriable_or_what_passes_is_tried_again(code: int) -> None:
    clock = SteadyClock()
    client = client_of(clock)
    error = KafkaError(code, retriable=code == KafkaError.INVALID_CONFIG)
    assert client.retry("x", client.deadline(), failing(clock, error, 3), Background(clock), USE) == "answer"


def test_an_error_that_knows_its_use_or_its_partitions_says_so() -> None:
    clock = SteadyClock()
    client = client_of(clock)
    no_right = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)

    def refuse() -> None:
        raise Refused(no_right, Use(Operation.DESCRIBE, group="g"))

    def trouble() -> None:
        raise Troubled(LOADING, lambda: {A: "has no leader"})

    with pytest.raises(NotAuthorized, match="the right to Describe on Group g is missing"):
        client.retry("x", client.deadline(), refuse, Background(clock), USE)
    with pytest.raises(PartitionStands, match="x: lines/0 has no leader"):
        client.retry("x", client.deadline(500), trouble, Background(clock), USE)


@pytest.mark.parametrize(
    ("attempts", "error", "says"),
    [
        ("trouble silence", PartitionStands, "x: lines/0 has no leader"),
        ("silence trouble silence", PartitionStands, "x: lines/0 has no leader"),
        ("trouble silence silence", Unreachable, "x: no answer from Kafka"),
        ("silence silence", Unreachable, "x: no answer from Kafka"),
        ("trouble no-right", NotAuthorized, "x"),
    ],
)
def test_a_last_attempt_without_an_answer_hides_no_trouble_of_the_one_before(
    attempts: str, error: type[Exception], says: str
) -> None:
    """O402: the deadline leaves the last attempt a moment; two of them without an answer are an outage."""
    clock = SteadyClock()
    client = client_of(clock)
    left = iter(attempts.split())
    deadline = client.deadline(len(attempts.split()) * 1_000 - 500)

    def ask() -> str:
        clock.now_s += 1.0
        match next(left):
            case "trouble":
                raise Troubled(LOADING, lambda: {A: "has no leader"})
            case "silence":
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            case _:
                raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    with pytest.raises(error, match=says):
        client.retry("x", deadline, ask, Background(clock), USE)


def test_calls_that_share_a_deadline_count_their_waits_once() -> None:
    """A wait of three attempts is as long as from the first to the last of them, whatever its pauses."""
    clock = SteadyClock()
    client = client_of(clock, timeout_ms=9_000)
    client.share_deadline()
    for waited_ms in (1_500, 3_000, 4_500):
        call = failing(clock, LOADING, 1e9, takes_s=0.45)
        with pytest.raises(Unreachable):
            client.retry("x", client.deadline(1_500), call, Background(clock), USE)
        assert client._shared_wait_ms == pytest.approx(waited_ms, abs=500 * waited_ms / 1_500)
    client._shared_wait_ms = 8_999.0
    assert (
        client.retry("x", client.deadline(), failing(clock, LOADING, 0), Background(clock), USE) == "answer"
    )
    client._shared_wait_ms = 9_000.0
    with pytest.raises(Unreachable, match="x: not asked, since Kafka at kafka:9092 left other questions"):
        client.retry("x", client.deadline(), failing(clock, LOADING, 0), Background(clock), USE)


def test_an_answer_ends_what_was_reported_before() -> None:
    clock = SteadyClock()
    client = client_of(clock)
    background = Background(clock)
    background(DOWN)
    background(NOT_LET_IN)
    client.outage.record_wait("x", WAIT_MS_MAX, "why")
    clock.now_s += OUTAGE_OVER_MS / 1000
    client.retry("x", client.deadline(), failing(clock, LOADING, 0), background, USE)
    assert background.silent_ms() == 0
    assert background.refusal is None
    client.outage.record_wait("x", WAIT_MS_MAX - 1, "why")
    assert client.outage._began_s is None, "it was over"


# what a client's threads report -----------------------------------------------------------------------------


def test_a_background_remembers_since_when_all_are_down_and_that_one_has_answered() -> None:
    clock = SteadyClock()
    background = Background(clock)
    assert background.silent_ms() == 0
    background(DOWN)
    clock.now_s += 2
    background(DOWN)
    clock.now_s += 1
    assert background.silent_ms() == pytest.approx(3_000), "since the first time"
    assert background.newest_error is None
    background(LOST)
    assert background.newest_error is LOST
    background.record_answer()
    assert background.silent_ms() == 0
    background(DOWN)
    clock.now_s += 1
    assert background.silent_ms() == pytest.approx(1_000)


def test_a_lost_connection_is_remembered_for_as_long_as_somebody_asks() -> None:
    clock = SteadyClock()
    background = Background(clock)
    assert not background.lost_connection_within(1e9)
    background(KafkaError(KafkaError._RESOLVE, "no such host"))
    assert not background.lost_connection_within(1e9)
    background(LOST)
    clock.now_s += 30
    assert not background.lost_connection_within(30)
    assert background.lost_connection_within(30.1)


def test_waiting_is_hopeless_only_where_nobody_was_ever_let_in() -> None:
    background = Background(SteadyClock())
    assert not background.is_hopeless
    background(LOST)
    assert not background.is_hopeless
    background(NOT_LET_IN)
    assert background.is_hopeless
    background.record_answer()
    assert not background.is_hopeless
    background(NOT_LET_IN)
    assert not background.is_hopeless, "it was let in once: the broker may change its mind"


@pytest.fixture
def librdkafka(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What is logged under the name of librdkafka, from DEBUG on."""
    caplog.set_level(logging.DEBUG, logger=LIBRDKAFKA)
    return caplog


def test_what_threads_report_is_logged_and_that_all_are_down_only_for_who_looks_closely(
    librdkafka: pytest.LogCaptureFixture,
) -> None:
    background = Background(SteadyClock())
    background(DOWN)
    background(LOST)
    assert [(record.levelname, record.getMessage()) for record in librdkafka.records] == [
        ("DEBUG", "kafka client: 1/1 brokers are down"),
        ("WARNING", "kafka client: connection refused"),
    ]


@pytest.mark.parametrize(("silent_ms", "asks"), [(0, False), (WAIT_MS_MAX - 1, False), (WAIT_MS_MAX, True)])
def test_who_waits_asks_after_three_seconds(silent_ms: int, asks: bool) -> None:
    clock = SteadyClock()
    client = client_of(clock)
    background = Background(clock)
    background(DOWN)
    clock.now_s += silent_ms / 1000
    asker: Any = Asker(lines={0: 1})
    client.require_answers(asker, "lines", "reading", background)
    assert asker.asked == ([("lines", 1.0)] if asks else [])
    assert (background.silent_ms() == 0) is (asks or not silent_ms)


def test_who_waits_where_nobody_answers_says_so_and_gives_up_at_his_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SteadyClock()
    client = client_of(clock, timeout_ms=8_000)
    background = Background(clock)
    background(DOWN)
    deaf: Any = Asker(lines=None)
    clock.now_s += 7.9
    client.require_answers(deaf, "lines", "reading", background)
    assert client_lines(caplog) == ["the broker does not answer"]
    assert vars(caplog.records[-1])["seconds"] == 7.9
    clock.now_s += 0.1
    with pytest.raises(Unreachable, match=r"reading: no answer from Kafka at kafka:9092 within 8000 ms"):
        client.require_answers(deaf, "lines", "reading", background)
    hasty = client_of(clock, timeout_ms=1_000)
    background = Background(clock)
    background(DOWN)
    clock.now_s += 1
    with pytest.raises(Unreachable, match="within 1000 ms"):
        hasty.require_answers(deaf, "lines", "reading", background)


# outages and quotas, the second time ------------------------------------------------------------------------


def test_a_second_outage_is_logged_as_the_first_one_was(caplog: pytest.LogCaptureFixture) -> None:
    clock = SteadyClock()
    outage = Outage(clock, "b:9092")
    for _ in range(2):
        caplog.clear()
        outage.record_wait("x", WAIT_MS_MAX, "why")
        clock.now_s += OUTAGE_AGAIN_MS / 1000 - 0.1
        outage.record_wait("x", 1, "why")
        assert client_lines(caplog) == ["the broker does not answer"]
        clock.now_s += 0.1
        outage.record_wait("x", 1, "why")
        assert client_lines(caplog) == ["the broker does not answer"] * 2
        assert vars(caplog.records[1])["seconds"] == pytest.approx(63.0)
        clock.now_s += OUTAGE_OVER_MS / 1000 - 0.1
        outage.record_answer()
        assert len(caplog.records) == 2, "somebody waited a moment ago"
        clock.now_s += 0.1
        outage.record_answer()
        assert client_lines(caplog)[2:] == ["the broker answers again"]
        assert vars(caplog.records[2])["seconds"] == pytest.approx(63.0)
        clock.now_s += 100


def test_a_quota_is_counted_by_the_minute_and_its_end_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SteadyClock()
    throttling = Throttling(clock, "b:9092")

    def throttle(seconds: float) -> None:
        answer: Any = SimpleNamespace(throttle_time=seconds, broker_name="b")
        throttling(answer)

    throttling.record_answer()
    for _ in range(2):
        caplog.clear()
        throttle(0.5)
        assert not throttling.is_recent
        throttle(0.4)
        assert client_lines(caplog) == []
        throttle(0.1)
        assert client_lines(caplog) == ["the broker throttles"]
        line = vars(caplog.records[0])
        assert (line["throttled_s"], line["answers"], line["kafka"]) == (1.0, 3, "b:9092")
        assert throttling.is_recent
        clock.now_s += THROTTLED_LOGGED_EVERY_S
        throttle(0.25)
        assert len(caplog.records) == 1, "little, in this minute"
        clock.now_s += THROTTLED_LOGGED_EVERY_S + 0.125
        throttling.record_answer()
        assert len(caplog.records) == 1
        clock.now_s += 0.125
        throttling.record_answer()
        throttling.record_answer()
        assert client_lines(caplog)[1:] == ["the broker throttles no more"]
