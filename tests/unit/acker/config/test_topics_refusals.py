"""topics.yaml: each thing that is refused, with file, line, key path, value and cure in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from acker.config.kafka_settings import REFUSED
from acker.config.topics import parse
from acker.config.yaml_text import DEPTH_MAX, FILE_BYTES_MAX
from acker.errors import ConfigError
from acker.wire.verdict import Verdict


def refusal(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse(text, file="conf/topics.yaml", environ=environ)
    return str(refused.value).split("\n")


def one_input(keys: str) -> str:
    return f"inputs: {{sentences: {{{keys}}}}}"


KEYS = [
    # (keys of the input, key path, value shown, cure)
    ("group: g", "id", "", "give a whole number, 1 to 16383"),
    ("id: 1", "group", "", "give 1 to 255 printable characters"),
    ("id: 0, group: g", "id", "0", "give a whole number, 1 to 16383"),
    ("id: 16384, group: g", "id", "16384", "give a whole number, 1 to 16383"),
    ("id: one, group: g", "id", "'one'", "give a whole number, 1 to 16383"),
    ('id: "1", group: g', "id", "'1'", "give a whole number, 1 to 16383"),
    ("id: 1.0, group: g", "id", "1.0", "give a whole number"),
    ("id: true, group: g", "id", "True", "give a whole number"),
    ("id: null, group: g", "id", "None", "give a whole number"),
    ("id: 1, group: ''", "group", "''", "give 1 to 255 printable"),
    ("id: 1, group: 7", "group", "7", "give 1 to 255 printable"),
    ("id: 1, group: g, timeot: 30s", "timeot", "", "did you mean `timeout`?"),
    ("id: 1, group: g, name: x", "name", "", "the keys here are"),
    ('id: 1, group: g, "(name)": x', "(name)", "", "the keys here are"),
    ("id: 1, group: g, timeout_ms: 5", "timeout_ms", "", "did you mean `timeout`?"),
    ("id: 1, group: g, timeout: 30", "timeout", "30", "give a duration, 500ms to 30d"),
    ("id: 1, group: g, timeout: true", "timeout", "True", "give a duration"),
    ("id: 1, group: g, timeout: 499ms", "timeout", "'499ms'", "give a duration, 500ms"),
    ("id: 1, group: g, timeout: 31d", "timeout", "'31d'", "500ms to 30d, or 0 for never"),
    ("id: 1, group: g, timeout: soon", "timeout", "'soon'", "give a duration"),
    ("id: 1, group: g, topic: a/b", "topic", "'a/b'", "give 1 to 249 letters"),
    ("id: 1, group: g, topic: ..", "topic", "'..'", "give 1 to 249 letters"),
    (f"id: 1, group: g, topic: {'t' * 250}", "topic", "'ttt", "give 1 to 249 letters"),
    ("id: 1, group: g, partitions: 0", "partitions", "0", "give a whole number, 1 to 65536"),
    ("id: 1, group: g, partitions: 65537", "partitions", "65537", "1 to 65536"),
    ("id: 1, group: g, bolt_timeout: 5", "bolt_timeout", "5", "give a duration, 500ms to 30d, or 0"),
    ("id: 1, group: g, bolt_timeout: 20ms", "bolt_timeout", "'20ms'", "give a duration, 500ms to 30d"),
    ("id: 1, group: g, max_spout_pending: 0", "max_spout_pending", "0", "1 to 100000000"),
    ("id: 1, group: g, start: never", "start", "'never'", "give committed, earliest"),
    ("id: 1, group: g, start: 2026-07-01T00:00:00", "start", "'2026-07-01T00:00:00'", "has no offset"),
    ("id: 1, group: g, start: 2026", "start", "2026", "or a time such as 2026-07-01T00:00:00Z"),
    ("id: 1, group: g, start: -1", "start", "-1", "or a time such as"),
    ("id: 1, group: g, on_data_loss: ignore", "on_data_loss", "'ignore'", "give fail or skip"),
    ("id: 1, group: g, ackers: 2", "ackers", "2", "give 0 or 1"),
    ("id: 1, group: g, ordering: keys", "ordering", "'keys'", "give none, key or partition"),
    ("id: 1, group: g, ackers: 0, ordering: key", "ordering", "'key'", "needs tracking, and ackers is 0"),
    ("id: 1, group: g, ordering: key, max_held: 0", "max_held", "0", "1 to 100000"),
    ("id: 1, group: g, ordering: key, hold: 1ms", "hold", "'1ms'", "10ms to 1h"),
    ("id: 1, group: g, retry: 5", "retry", "5", "keys with values"),
    ("id: 1, group: g, retry: {attempts: 0}", "retry.attempts", "0", "1 to 1000000"),
    ("id: 1, group: g, retry: {max: 10m, initial: 11m}", "retry.max", "'10m'", "initial to 7d"),
    ("id: 1, group: g, retry: {initial: 10m}", "retry.max", "'5m'", "is below initial, 10m"),
    ("id: 1, group: g, retry: {multiplier: 0.5}", "retry.multiplier", "0.5", "1 to 100"),
    ("id: 1, group: g, retry: {multiplier: .nan}", "retry.multiplier", "nan", "1 to 100"),
    ("id: 1, group: g, retry: {jitter: 1.1}", "retry.jitter", "1.1", "0 to 1"),
    ("id: 1, group: g, retry: {max_abandoned: -1}", "retry.max_abandoned", "-1", "0 to 1000000"),
    ("id: 1, group: g, retry: {delays: [1s, 2s, 3s], attempts: 3}", "retry.delays", "['1s', '2s', '3s']",
     "has 3 waits, and 3 attempts leave room for 2"),
    ("id: 1, group: g, retry: {delays: []}", "retry.delays", "[]", "give a list of durations"),
    ("id: 1, group: g, retry: {delays: 5s}", "retry.delays", "'5s'", "must be a list"),
    ("id: 1, group: g, retry: {delays: [1s, 8d]}", "retry.delays.1", "'8d'", "0 to 7d"),
    ("id: 1, group: g, retry: {delays: [1]}", "retry.delays.0", "1", "has no unit"),
    ("id: 1, group: g, retry: {delays: [1s], max: 5m}", "retry", "", "delays beside max; give the list or"),
    ("id: 1, group: g, retry: {time_limit: 60}", "retry.time_limit", "60", "0 to 365d"),
    ("id: 1, group: g, retry: {count_timed_out: false}", "retry.count_timed_out", "False", "set time_limit"),
    ("id: 1, group: g, retry: {count_abandoned: 1}", "retry.count_abandoned", "1", "give true or false"),
    ("id: 1, group: g, retry: {causes: {error: A}}", "retry.causes", "", "must be a list"),
    ("id: 1, group: g, retry: {causes: [A]}", "retry.causes.0", "'A'", "must be a section"),
    ("id: 1, group: g, retry: {causes: [{then: drop}]}", "retry.causes.0", "", "give error, operator, or"),
    ("id: 1, group: g, retry: {causes: [{error: A}]}", "retry.causes.0.then", "", "give retry, dead_"),
    ("id: 1, group: g, retry: {causes: [{error: A, then: bury}]}", "retry.causes.0.then", "'bury'",
     "give retry, dead_letter or drop"),
    ("id: 1, group: g, retry: {causes: [{error: a.B, then: drop}]}", "retry.causes.0.error", "'a.B'",
     "give the name of a class"),
    ("id: 1, group: g, retry: {causes: [{error: TIMED_OUT, then: drop}]}", "retry.causes.0.error",
     "'TIMED_OUT'", "count_timed_out and time_limit decide"),
    ("id: 1, group: g, retry: {causes: [{error: ABANDONED, then: drop}]}", "retry.causes.0.error",
     "'ABANDONED'", "count_abandoned and max_abandoned decide"),
    ("id: 1, group: g, retry: {causes: [{error: ABSENT, operator: b, then: drop}]}", "retry.causes.0.error",
     "'ABSENT'", "never replayed; remove the rule"),
    ("id: 1, group: g, retry: {causes: [{error: HELD, then: drop}]}", "retry.causes.0.error",
     "'HELD'", "hold decides"),
    ("id: 1, group: g, retry: {causes: [{error: FAILED, then: drop}]}", "retry.causes.0.error",
     "'FAILED'", "Exception for any"),
    ("id: 1, group: g, retry: {causes: [{operator: ' ', then: drop}]}", "retry.causes.0.operator", "' '",
     "give the name of a bolt"),
    ("id: 1, group: g, retry: {causes: [{eror: A, error: A, then: drop}]}", "retry.causes.0.eror", "",
     "did you mean `error`?"),
    ("id: 1, group: g, retry: {causes: [{error: A, then: drop}, {error: A, then: retry}]}", "retry.causes",
     "[{", "decides in rule 1 what rule 0 decides already; remove one"),
    ("id: 1, group: g, dead_letter: {max_ratio: 2}", "dead_letter.max_ratio", "2", "0 to 1"),
    ("id: 1, group: g, dead_letter: {max_consecutive: 0}", "dead_letter.max_consecutive", "0", "1 to"),
    ("id: 1, group: g, dead_letter: {topc: x}", "dead_letter.topc", "", "did you mean `topic`?"),
    ("id: 1, group: windhover-acker", "group", "'windhover-acker'", "give another"),
    ("id: 1, group: g, topic: _ack_ack", "topic", "'_ack_ack'", "another acker.topic_prefix"),
    ("id: 1, group: g, replay_topic: sentences", "replay_topic", "'sentences'", "only holds copies"),
    ("id: 1, group: g, replay_topic: _ack_due", "replay_topic", "'_ack_due'", "give another topic"),
    (
        "id: 1, group: g, dead_letter: {topic: sentences}",
        "dead_letter.topic", "'sentences'", "a topic that no input reads",
    ),
    (
        "id: 1, group: g, dead_letter: {topic: sentences.g.replay}",
        "dead_letter.topic", "'sentences.g.replay'", "give another topic",
    ),
    (
        "id: 1, group: g, dead_letter: {topic: sentences_g_replay}",
        "dead_letter.topic", "'sentences_g_replay'", "dots and underscores",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "path", "value", "cure"), KEYS, ids=[keys[:50] for keys, *_ in KEYS])
def test_a_wrong_key_of_an_input_is_refused_with_path_value_and_cure(
    keys: str, path: str, value: str, cure: str
) -> None:
    """P33: a list of waits that is longer than the attempts leave room for is one of them."""
    line, *more = refusal(one_input(keys))

    assert more == []
    shown = f" = {value}" if value else ""
    assert line.startswith(f"conf/topics.yaml:1: inputs.sentences.{path}{shown}")
    assert cure in line


@pytest.mark.parametrize("verdict", sorted(set(Verdict) - {Verdict.ACKED}))
def test_a_rule_names_no_verdict(verdict: Verdict) -> None:
    """They stand beside classes of exceptions in lists of losses; what is acked stands in none."""
    rule = f"{{error: {verdict}, then: drop}}"
    (line,) = refusal(one_input(f"id: 1, group: g, retry: {{causes: [{rule}]}}"))

    assert line.startswith(f"conf/topics.yaml:1: inputs.sentences.retry.causes.0.error = '{verdict}': is ")


def test_a_group_that_cannot_stand_in_a_topic_name_asks_for_names() -> None:
    lines = refusal(one_input("id: 1, group: a b"))

    assert [line.split(": ")[1] for line in lines] == [
        "inputs.sentences.dead_letter.topic = 'sentences.a b.dlq'",
        "inputs.sentences.replay_topic = 'sentences.a b.replay'",
    ]


TOGETHER = [
    # (two inputs, key path of the later one, what it says)
    ("a: {id: 1, group: g}", "b: {id: 1, group: h}", "inputs.b.id = 1", "is the id of a already; give an id"),
    ("a: {id: 1, group: g, topic: t}",
     "b: {id: 2, group: g, topic: t, replay_topic: r, dead_letter: {topic: d}}",
     "inputs.b.topic = 't'", "is read by group g as input a already"),
    ("a: {id: 1, group: g, replay_topic: r}", "b: {id: 2, group: g, replay_topic: r}",
     "inputs.b.replay_topic = 'r'", "is the replay topic of a already; give each input its own"),
    ("a: {id: 1, group: g, dead_letter: {topic: d}}", "b: {id: 2, group: g, dead_letter: {topic: d}}",
     "inputs.b.dead_letter.topic = 'd'", "is the dead-letter topic of a already; give each input its own"),
    ("a: {id: 1, group: g}", "b: {id: 2, group: g, replay_topic: a}",
     "inputs.b.replay_topic = 'a'", "is the topic that a reads; give one that only holds copies"),
    ("a: {id: 1, group: g}", "b: {id: 2, group: g, dead_letter: {topic: a.g.replay}}",
     "inputs.b.dead_letter.topic = 'a.g.replay'", "is the replay topic of a; give another topic"),
    ("a: {id: 1, group: g, topic: t, partitions: 4}", "b: {id: 2, group: h, topic: t, partitions: 8}",
     "inputs.b.partitions = 8", "differs from inputs.a.partitions of the same topic; give 4"),
    ("a.b: {id: 1, group: g}", "a_b: {id: 2, group: h}",
     "inputs.a_b.topic = 'a_b'", "differs from a.b only in dots and underscores, which Kafka refuses"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "later", "path", "says"), TOGETHER, ids=[path for *_, path, _ in TOGETHER])
def test_two_inputs_that_cannot_be_together_are_refused_at_the_later(
    first: str, later: str, path: str, says: str
) -> None:
    line, *more = refusal(f"inputs:\n  {first}\n  {later}\n")

    assert more == []
    assert line.startswith(f"conf/topics.yaml:3: {path}: ")
    assert says in line


def test_dead_letters_that_go_round_in_a_circle_are_refused() -> None:
    """P37"""
    lines = refusal("""
inputs:
  a: {id: 1, group: g, dead_letter: {topic: b}}
  b: {id: 2, group: h, dead_letter: {topic: a}}
""")

    assert [line.split(" = ")[0].split(": ")[1] for line in lines] == [
        "inputs.a.dead_letter.topic",
        "inputs.b.dead_letter.topic",
    ]


SECTIONS = [
    ("acker: {partitions: 0}", "acker.partitions = 0", "give a whole number, 1 to 1024"),
    ("acker: {partitions: 1025}", "acker.partitions = 1025", "give a whole number, 1 to 1024"),
    ("acker: {replication_factor: 0}", "acker.replication_factor = 0", "keeps no copy; give -1, or"),
    ("acker: {topic_prefix: a/}", "acker.topic_prefix = 'a/'", "give 0 to 100 letters"),
    ("acker: {verdict_retention: 30m}", "acker.verdict_retention = '30m'", "give a duration, 1h to 365d"),
    ("acker: {verdict_retention: 7}", "acker.verdict_retention = 7", "has no unit"),
    ("acker: {group: x, replay_group: x}", "acker.replay_group = 'x'", "give the replay workers their own"),
    ("acker: {limits: {lane: 5}}", "acker.limits.lane", "the keys here are"),
    ("acker: {limits: {max_open_roots: 5}}", "acker.limits.max_open_roots", "the keys here are"),
    ("acker: {limits: {refold_bytes: -5}}", "acker.limits.refold_bytes = -5", "is too low; give a whole"),
    ("acker: {limits: {pace: 50}}", "acker.limits.pace = 50", "has no unit"),
    ("acker: {limits: {pace_ms: 50}}", "acker.limits.pace_ms", "did you mean `pace`?"),
    ("acker: {limits: {operation: 11m}}", "acker.limits.operation = '11m'", "give a duration, 1s to 10m"),
    ("acker: {limits: 5}", "acker.limits = 5", "must be a section"),
    ("replay: {limits: {waiting_max: 0}}", "replay.limits.waiting_max = 0", "give a whole number, 1 to"),
    ("replay: {limits: {waiting_min: 1}}", "replay.limits.waiting_min", "did you mean `waiting_max`?"),
    ("replay: {limit: {}}", "replay.limit", "did you mean `limits`?"),
    ("replay: 5", "replay", "must be a section"),
    ("acker: [1]", "acker", "must be a section"),
    ("inputs: [a]", "inputs", "must be a section"),
    ("inputs: {a: 5}", "inputs.a", "must be a section"),
    ("inputs: {a b: {id: 1, group: g}}", "inputs.a b", "is no name of an input"),
    ("imputs: {}", "imputs", "did you mean `inputs`?"),
    ("hello", "", "must be a section"),
    ("kafka: {bootstrap.servers: ''}", "kafka.bootstrap.servers", "give host:port"),
    ("kafka: {sasl.password: [hunter2]}", "kafka.sasl.password", "must be text, a number or true/false"),
    ("kafka: {sasl: {password: hunter2}}", "kafka.sasl", "write one dotted setting to a line"),
    ("kafka: {stats_cb: hunter2}", "kafka.stats_cb", "is a function of the client library"),
    ("kafka: {on_delivery: hunter2}", "kafka.on_delivery", "is a function of the client library"),
    ("kafka: {session.timeout.ms: 15s hunter2}", "kafka.session.timeout.ms", "without a unit, such as 15000"),
    ("kafka: {socket.timeout.ms: 1e4}", "kafka.socket.timeout.ms", "is no number without a unit"),
    ("kafka: {retry.backoff.ms: 1.5}", "kafka.retry.backoff.ms", "is no number without a unit"),
    ("kafka: {fetch.max.bytes: true}", "kafka.fetch.max.bytes", "is no number without a unit"),
    ("kafka: {batch.size: 1MB}", "kafka.batch.size", "is no number without a unit"),
    ("kafka: {linger.ms: 5ms}", "kafka.linger.ms", "is no number without a unit"),
    ("kafka: {sasl_password: hunter2}", "kafka.sasl_password", "did you mean `sasl.password`?"),
    ("kafka: {kafka.sasl.password: hunter2}", "kafka.kafka.sasl.password", "did you mean `sasl.password`?"),
    ("sasl.password: hunter2", "sasl.password", "the keys here are acker, inputs, kafka, replay"),
    ("kafka: hunter2", "kafka", "must be a section"),
    ("kafka: {a: 1, a: hunter2}", "kafka.a", "stands twice, again in line 1; remove one"),
    ("kafka: {a: !!python/name:hunter2 x}", "kafka.a", "leave the ! out"),
    ("kafka: {a: !!binary aHVudGVyMg==}", "kafka.a", "leave the ! out"),
    ("kafka: {? [hunter2] : x}", "kafka", "has a key that is not text"),
    (
        "kafka: {a: '${HUNTER2}'}",
        "kafka.a",
        "needs the variable HUNTER2; set it, or write ${HUNTER2:-",
    ),
    ("kafka: {a: 'hunter2${'}", "kafka.a", "write ${NAME}, ${NAME:-default}, or $${ for ${"),
    ("kafka: {a: *hunter2}", "", "is not YAML at line 1, column 12"),
    ("kafka: {a: 'hunter2", "", "is not YAML at line 1"),
    ("kafka: {a: b: hunter2}", "", "is not YAML at line 1"),
    ("kafka: {a: \x01hunter2}", "", "is not YAML text"),
    ("a: 1\n---\nb: 2", "", "is not YAML at line 2"),
]


@pytest.mark.parametrize(("text", "path", "says"), SECTIONS, ids=[text[:40] for text, *_ in SECTIONS])
def test_a_wrong_section_is_refused_and_no_secret_shows(text: str, path: str, says: str) -> None:
    line, *more = refusal(text)

    assert more == []
    assert line.startswith("conf/topics.yaml:")
    assert path in line
    assert says in line
    assert "hunter2" not in line


@pytest.mark.parametrize("setting", sorted(REFUSED))
def test_a_kafka_setting_that_would_switch_a_guarantee_off_is_refused_with_the_reason(setting: str) -> None:
    """S145"""
    (line,) = refusal(f"kafka: {{{setting}: hunter2}}")

    assert line == f"conf/topics.yaml:1: kafka.{setting}: may not be set: {REFUSED[setting]}; remove it"


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    lines = refusal("""
kafka:
  acks: 1
acker:
  partitions: 0
inputs:
  a:
    id: 1
    group: g
    timeout: 30
  b:
    id: 1
    gruop: h
    group: h
""")

    assert [line.split(":")[1] for line in lines] == ["3", "5", "10", "13"]
    # what the inputs say of each other is compared among those that are right alone
    assert "inputs.a.timeout" in lines[2]


def test_a_file_that_is_too_large_is_refused_before_it_is_read() -> None:
    (line,) = refusal("# " + "x" * FILE_BYTES_MAX)

    assert "is larger than 1,000,000 bytes" in line


def test_a_file_that_is_too_deep_is_refused() -> None:
    (line,) = refusal("a: " + "[" * 100_000)

    assert f"is nested deeper than {DEPTH_MAX} levels" in line


def test_aliases_that_unfold_to_too_much_are_refused() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))

    (line,) = refusal(bomb)

    assert "values when its aliases are unfolded" in line


def test_an_alias_that_contains_itself_is_refused() -> None:
    (line,) = refusal("a: &a [*a]")

    assert "is nested deeper" in line


@pytest.mark.parametrize(
    "tag",
    [
        '!!python/object/apply:os.mkdir ["{path}"]',
        '!!python/object/new:os.mkdir ["{path}"]',
        "!!python/name:os.system ''",
        "!!python/module:antigravity ''",
        "!!python/object/apply:eval [\"__import__('os').mkdir('{path}')\"]",
        '!ruby/object:Kernel {{a: "{path}"}}',
    ],
)
def test_a_tag_that_would_make_an_object_is_refused_and_nothing_is_executed(tag: str, tmp_path: Path) -> None:
    path = tmp_path / "made"
    evil = tag.format(path=path)

    for text in (f"kafka: {evil}", f"inputs: {{a: {{id: 1, group: {evil}}}}}", f"? {evil}\n: 1"):
        assert all(line.startswith("conf/topics.yaml:") for line in refusal(text))
    assert not path.exists()


def test_more_problems_than_anybody_reads_are_counted() -> None:
    lines = refusal("\n".join(f"k{n}: 1" for n in range(70)))

    assert len(lines) == 51
    assert lines[-1] == "conf/topics.yaml: and 20 more problems"
