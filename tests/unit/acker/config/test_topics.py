"""topics.yaml as values: what a right file means."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from acker.config.topics import AckTopics, DeadLetter, Input, Retry, Topics, load_topics, parse
from acker.errors import ConfigError, UsageError
from acker.units import TIME_MS_MAX

PROJECT = Path(__file__).resolve().parents[4]

SHORTEST = """
inputs:
  sentences: {id: 1, group: word-count}
"""


def read(text: str, **environ: str) -> Topics:
    return parse(text, file="topics.yaml", environ=environ)


def test_everything_but_id_and_group_has_the_default_that_the_design_gives() -> None:
    topics = read(SHORTEST)

    assert dict(topics.kafka) == {"bootstrap.servers": "127.0.0.1:9092"}
    assert topics.acker.partitions == 4
    assert topics.acker.verdict_retention_ms == 7 * 86_400_000
    assert (topics.acker.group, topics.acker.replay_group) == ("windhover-acker", "windhover-replay")
    assert topics.inputs["sentences"] == Input(
        name="sentences",
        id=1,
        group="word-count",
        topic="sentences",
        partitions=None,
        timeout_ms=30_000,
        bolt_timeout_ms=0,
        max_spout_pending=1_000_000,
        start="committed",
        on_data_loss="fail",
        ackers=1,
        retry=Retry(
            attempts=10, initial_ms=1000, multiplier=2.0, max_ms=300_000, jitter=0.2, max_abandoned=5
        ),
        replay_topic="sentences.word-count.replay",
        dead_letter=DeadLetter(topic="sentences.word-count.dlq", max_ratio=0.1, max_consecutive=1000),
    )


def test_the_file_of_the_project_is_right_and_says_the_defaults_but_where_a_demo_has_to_be_quick() -> None:
    topics = load_topics(PROJECT / "topics.yaml", {"KAFKA_BOOTSTRAP": "kafka:9092"})

    assert topics.kafka["bootstrap.servers"] == "kafka:9092"
    shortest = read(SHORTEST).inputs["sentences"]
    quick = shortest.retry.model_copy(update={"attempts": 5, "initial_ms": 500})
    assert topics.inputs["sentences"] == shortest.model_copy(
        update={"partitions": 4, "timeout_ms": 5_000, "retry": quick}
    )


def test_a_prefix_stands_before_ack_topics_and_their_groups() -> None:
    topics = read("acker: {topic_prefix: eu-}")

    assert topics.ack_topics == AckTopics.with_prefix("eu-")
    assert topics.ack_topics.names() == (
        "eu-_ack_init", "eu-_ack_ack", "eu-_ack_fail", "eu-_ack_verdict", "eu-_ack_state", "eu-_ack_due",
        "eu-_ack_quarantine", "eu-_ack_sink",
    )  # fmt: skip
    assert (topics.acker.group, topics.acker.replay_group) == ("eu-windhover-acker", "eu-windhover-replay")


def test_kafka_settings_pass_verbatim_as_text() -> None:
    topics = read("kafka: {queued.min.messages: 5, socket.keepalive.enable: true, linger.ms: 0.5, x: a b}")

    assert dict(topics.kafka) == {
        "queued.min.messages": "5",
        "socket.keepalive.enable": "true",
        "linger.ms": "0.5",
        "x": "a b",
        "bootstrap.servers": "127.0.0.1:9092",
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${NAME}", "from-environ"),
        ("${NAME:-other}", "from-environ"),
        ("${UNSET:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY}x", "x"),
        ("a-${NAME}-${UNSET:-}b", "a-from-environ-b"),
        ("$${NAME}", "${NAME}"),
        ("$NAME costs 5$", "$NAME costs 5$"),
    ],
)
def test_a_variable_of_the_environment_stands_for_its_value(value: str, expected: str) -> None:
    topics = read(f'kafka: {{sasl.password: "{value}"}}', NAME="from-environ", EMPTY="")

    assert topics.kafka["sasl.password"] == expected


def test_a_variable_in_a_plain_scalar_is_read_as_what_it_holds() -> None:
    assert read("acker:\n  partitions: ${N:-8}\n").acker.partitions == 8


def test_what_a_variable_holds_is_never_yaml() -> None:
    topics = read('kafka: {sasl.password: "${NAME}"}', NAME='x", acks: "0"}\n- &a [*a]')

    assert topics.kafka["sasl.password"] == 'x", acks: "0"}\n- &a [*a]'
    assert "acks" not in topics.kafka


def test_numbers_of_kafka_settings_are_written_as_librdkafka_reads_them() -> None:
    topics = read("kafka: {session.timeout.ms: 15000.0, linger.ms: '0.5', socket.timeout.ms: ' 6000 '}")

    assert [topics.kafka[name] for name in ("session.timeout.ms", "linger.ms")] == ["15000", "0.5"]
    assert int(topics.kafka["socket.timeout.ms"]) == 6000


@pytest.mark.parametrize("start", [-1, TIME_MS_MAX + 1])
def test_a_start_in_milliseconds_is_a_time_that_python_can_show(start: int) -> None:
    """To Kafka -1 is the end of a partition."""
    with pytest.raises(ValueError, match="is no time in ms since 1970"):
        Input(name="a", id=1, group="g", start=start)


def test_a_start_time_is_kept_in_milliseconds() -> None:
    topics = read("inputs: {a: {id: 1, group: g, start: 2026-07-01T00:00:00Z}}")

    assert topics.inputs["a"].start == 1_782_864_000_000


def test_a_timeout_of_zero_means_never_and_needs_no_unit() -> None:
    """S41"""
    assert read("inputs: {a: {id: 1, group: g, timeout: 0}}").inputs["a"].timeout_ms == 0


def test_ackers_zero_turns_tracking_off() -> None:
    """S53, S148"""
    assert not read("inputs: {a: {id: 1, group: g, ackers: 0}}").inputs["a"].tracked


def test_an_anchor_can_be_shared_and_merged() -> None:
    topics = read("""
inputs:
  a: &a {id: 1, group: g, retry: &often {attempts: 50, initial: 10ms}}
  b: {<<: *a, id: 2, timeout: 5s, retry: *often}
""")

    assert topics.inputs["b"].group == "g"
    assert topics.inputs["b"].retry == topics.inputs["a"].retry == Retry(attempts=50, initial_ms=10)


def test_two_groups_may_read_one_topic_as_two_inputs() -> None:
    topics = read("inputs: {a: {id: 1, group: g, topic: t}, b: {id: 2, group: h, topic: t}}")

    assert topics.inputs_of("h") == (topics.inputs["b"],)
    assert topics.inputs["a"].replay_topic == "t.g.replay"
    assert topics.inputs["b"].replay_topic == "t.h.replay"


def test_dead_letters_of_one_input_may_be_the_source_of_another() -> None:
    topics = read("inputs: {a: {id: 1, group: g}, b: {id: 2, group: h, topic: a.g.dlq}}")

    assert topics.inputs["b"].topic == topics.inputs["a"].dead_letter.topic


def test_an_input_is_found_by_name() -> None:
    topics = read(SHORTEST)

    assert topics.input("sentences") is topics.inputs["sentences"]
    with pytest.raises(UsageError, match=r"no input 'nothing'.*sentences"):
        topics.input("nothing")


def test_values_are_frozen() -> None:
    topics = read(SHORTEST)

    with pytest.raises(ValidationError, match="frozen"):
        topics.acker.partitions = 8  # type: ignore[misc]
    with pytest.raises(TypeError):
        topics.kafka["acks"] = "0"  # type: ignore[index]


def test_no_secret_shows_in_any_text_form_and_pickling_keeps_it() -> None:
    topics = read("kafka: {sasl.password: hunter2}")

    for text in (repr(topics), str(topics), repr(topics.kafka), str(topics.kafka), f"{topics.kafka}"):
        assert "hunter2" not in text
    assert pickle.loads(pickle.dumps(topics)).kafka["sasl.password"] == "hunter2"


def test_a_value_made_in_python_is_checked_like_a_file() -> None:
    with pytest.raises(ValidationError, match="acks") as refused:
        Topics(kafka={"acks": "0", "sasl.password": "hunter2"})
    assert "hunter2" not in str(refused.value)
    one, two = Input(name="a", id=1, group="g"), Input(name="b", id=1, group="g")
    with pytest.raises(ValidationError, match=r"inputs\.b\.id is the id of a already"):
        Topics(inputs={"a": one, "b": two})


def test_an_empty_file_is_an_installation_without_inputs() -> None:
    assert read("# nothing yet\n").inputs == {}


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_topics(tmp_path / "topics.yaml", {})


def test_a_file_that_is_not_utf8_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "topics.yaml"
    path.write_bytes(b"kafka: \xff\xfe")

    with pytest.raises(ConfigError, match=r"topics\.yaml: is not UTF-8 at byte 7"):
        load_topics(path, {})
