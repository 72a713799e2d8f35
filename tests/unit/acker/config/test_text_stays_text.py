"""topics.yaml: text is never read as a number, nor a variable's value as YAML."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from acker.config.topics import Topics, parse
from acker.config.yaml_text import VariableText, read_yaml
from acker.errors import ConfigError
from spout.builder.flux import load_topology
from spout.doctor.redaction import Redactor, redacted_topics

# what YAML 1.1 reads as something else: octal, underscores, base 60, booleans, hex, binary, infinity, a date
TEXTS = [
    "0123", "010", "1_000", "12:30", "1:2:3", "yes", "No", "on", "OFF", "y", "true", "False", "+49151", "-7",
    "0x1f", "0o17", "0b101", "1e3", "1.50", "15000.0", ".inf", ".nan", "null", "~", "2026-07-01",
    "2026-07-01 12:00:00", "=", "1,000", "٣",
]  # fmt: skip


def read(text: str, **environ: str) -> Topics:
    return parse(text, file="topics.yaml", environ=environ)


def refusal(text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as refused:
        read(text, **environ)
    return str(refused.value)


@pytest.mark.parametrize("quotes", ["", '"', "'"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_variable_below_kafka_reaches_the_client_as_it_is(text: str, quotes: str) -> None:
    """D1701."""
    topics = read(f"kafka:\n  sasl.password: {quotes}${{SECRET}}{quotes}\n", SECRET=text)

    assert topics.kafka["sasl.password"] == text
    assert type(topics.kafka["sasl.password"]) is str


@pytest.mark.parametrize("text", [text for text in TEXTS if text != "="])
def test_a_plain_value_below_kafka_stays_as_written(text: str) -> None:
    """D1702."""
    assert read(f"kafka:\n  sasl.password: {text}\n").kafka["sasl.password"] == text
    merged = f"kafka:\n  <<:\n    sasl.password: {text}\n"
    assert read(merged).kafka["sasl.password"] == text


@pytest.mark.parametrize("text", TEXTS)
def test_a_variable_is_text_where_text_is_wanted(text: str) -> None:
    """D1703."""
    topics = read(
        'inputs: {s: {id: 1, group: g, retry: {causes: [{operator: "${BOLT}", then: drop}]}}}', BOLT=text
    )

    assert [rule.operator for rule in topics.inputs["s"].retry.causes] == [text]


@pytest.mark.parametrize("quotes", ["", '"'])
@pytest.mark.parametrize(
    "text", ["010", "1_0", "0x1f", "12:30", "+0x1", "1e3", "7.0", "ten", "", " 7", "٣", "9" * 30]
)
def test_a_variable_that_is_no_decimal_number_is_refused_by_name(text: str, quotes: str) -> None:
    """D1704. It is never another number: an input's id is for life."""
    said = refusal(f"inputs:\n  s:\n    group: g\n    id: {quotes}${{ID}}{quotes}\n", ID=text)

    assert said.startswith("topics.yaml:4: inputs.s.id")
    assert "is the text of ${ID}, and no decimal number; give a whole number, 1 to 16383" in said


@pytest.mark.parametrize("quotes", ["", '"'])
def test_a_variable_is_a_number_where_a_number_is_wanted(quotes: str) -> None:
    """D1705. Quoted or not, alone or as a part of the value."""

    def of(name: str) -> str:
        return f"{quotes}${{{name}}}{quotes}"

    text = f"""
    acker:
      partitions: {of("N:-8")}
      replication_factor: {of("COPIES")}
      limits:
        refold_bytes: {of("BYTES")}
    inputs:
      s:
        id: {quotes}1${{ID}}{quotes}
        group: g
        partitions: {of("NONE:-")}
        bolt_timeout: {of("ZERO")}
        retry:
          jitter: {of("JITTER")}
          multiplier: {of("TIMES")}
          count_abandoned: {of("COUNTS")}
    """
    topics = read(text, COPIES="-1", BYTES="1000", ID="0", ZERO="0", JITTER="0.5", TIMES="3", COUNTS="true")

    assert (topics.acker.partitions, topics.acker.replication_factor) == (8, -1)
    assert topics.acker.limits.refold_bytes == 1000
    source = topics.inputs["s"]
    assert (source.id, source.partitions, source.bolt_timeout_ms) == (10, None, 0)
    assert (source.retry.jitter, source.retry.multiplier, source.retry.count_abandoned) == (0.5, 3.0, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("partitions", "010"), ("partitions", "0x10"), ("partitions", "1_0"), ("partitions", "12:30"),
        ("max_spout_pending", "1_000_000"), ("timeout", "12:30"), ("retry", "{count_abandoned: yes}"),
        ("retry", "{count_abandoned: on}"), ("retry", "{jitter: 0_1.5}"), ("ackers", "0b1"), ("ackers", "01"),
        ("partitions", "!!int 010"), ("retry", "{count_abandoned: !!bool yes}"),
    ],
)  # fmt: skip
def test_a_number_of_yaml_1_1_is_refused(key: str, value: str) -> None:
    """D1706. It is not read as what somebody may not have meant."""
    said = refusal(f"inputs: {{s: {{id: 1, group: g, {key}: {value}}}}}")

    assert said.startswith(f"topics.yaml:1: inputs.s.{key}")


TAGGED = [
    # (tag, texts that are its values, texts that are not)
    ("!!null", ("", "~", "null", "NULL"), ("12", "no", "0", "None")),
    ("!!bool", ("true", "False"), ("yes", "1", "", "~")),
    ("!!int", ("12", "-3"), ("foo", "010", "1.5", "", "~")),
    ("!!float", ("0.5", "1e3", ".inf", "7"), ("foo", "1_0.5", "", "~")),
    ("!!merge", ("<<",), ("foo", "12")),
    ("!!timestamp", (), ("2026-07-01",)),
    ("!!binary", (), ("aGk=",)),
    ("!mine", (), ("12", "")),
]


@pytest.mark.parametrize(("tag", "texts", "others"), TAGGED)
def test_a_tag_stands_only_before_a_value_of_it(
    tag: str, texts: tuple[str, ...], others: tuple[str, ...]
) -> None:
    """A text that is no value of its tag is refused as a value, in a variable, below kafka and as a key."""
    for text in texts:
        for value in (text, f"'{text}'"):
            assert read_yaml(f"a: {tag} {value}\n", {}).problems == []
    for text in others:
        for value in (text, f"'{text}'"):
            assert len(read_yaml(f"a: {tag} {value}\n", {}).problems) == 1
            assert "!" in refusal(f"kafka: {{sasl.password: {tag} {value}}}")
            assert len(read_yaml(f"{tag} {value}: {{b: 1}}\n", {}).problems) == 1
        if text:
            assert len(read_yaml(f"a: {tag} ${{V}}\n", {"V": text}).problems) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [("!!null ~", None), ("!!str 12", "12"), ("!!str ''", ""), ("!!int '12'", 12), ("!!float 7", 7.0)],
)
def test_a_tag_that_fits_is_obeyed(value: str, expected: object) -> None:
    assert read_yaml(f"a: {value}\n", {}).data == {"a": expected}
    assert read_yaml("!!merge <<: {b: 1}\n", {}).data == {"b": 1}


@pytest.mark.parametrize(("value", "expected"), [("10", 10), ("0", 0), ("1000000", 1_000_000)])
def test_a_decimal_number_is_a_number(value: str, expected: int) -> None:
    assert read(f"inputs: {{s: {{id: 1, group: g, retry: {{max_abandoned: {value}}}}}}}").inputs[
        "s"
    ].retry.max_abandoned == expected  # fmt: skip


@pytest.mark.parametrize("value", ["010", "0x10", "010.0"])
def test_a_count_of_kafka_that_c_reads_as_another_is_refused(value: str) -> None:
    """D1707. librdkafka reads numbers as C does: 010 as 8."""
    assert "is no number" in refusal(f"kafka: {{session.timeout.ms: {value}}}")
    assert "is no number" in refusal("kafka:\n  session.timeout.ms: ${MS}\n", MS=value)


BOLT = """
import spout

class Counts(spout.BasicBolt):
    output = "word string"

    def __init__(self, number: int, share: float = 0.5, on: bool = False, text: str = "", any=None):
        super().__init__()
        self.given = (number, share, on, text, any)

    def execute(self, tuple):
        pass
"""


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("['${N}', '${N}', '${T}', '${N}', '${N}']", (7, 7.0, True, "7", "7")),
        ("{number: '${N}', share: '${N}', on: '${T}', text: '${N}', any: '${N}'}", (7, 7.0, True, "7", "7")),
        ("[7, 0.5, true, yes, 0123]", (7, 0.5, True, "yes", "0123")),
    ],
)
def test_an_argument_of_a_bolt_is_what_its_constructor_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, given: tuple[object, ...]
) -> None:
    """D1708."""
    (tmp_path / "counting_bolts.py").write_text(BOLT)
    monkeypatch.syspath_prepend(str(tmp_path))
    environ = {"N": "7", "T": "true"}

    topology = load_topology(_topology(tmp_path, arguments), environ)

    made = topology.builder._bolts["b"].bolt  # what the builder was given
    assert made.given == given


def test_an_argument_that_is_no_number_is_refused_by_the_name_of_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1704, in a topology's file."""
    (tmp_path / "counting_bolts.py").write_text(BOLT)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"constructorArgs: is the text of \$\{N\}, and no decimal number"):
        load_topology(_topology(tmp_path, "['${N}']"), {"N": "010"})


def _topology(folder: Path, arguments: str) -> Path:
    (folder / "topics.yaml").write_text("inputs: {s: {id: 1, group: g}}\n")
    path = folder / "topology.yaml"
    path.write_text(
        f"""
name: t
spouts: [{{id: lines, inputs: [s]}}]
bolts: [{{id: b, className: "counting_bolts:Counts", constructorArgs: {arguments}}}]
streams: [{{from: lines, to: b, grouping: {{type: shuffle}}}}]
"""
    )
    return path


def test_a_password_of_digits_is_hidden_in_a_report() -> None:
    """D1709. It is text, as every other password."""
    text = "kafka: {sasl.password: 04711815}\nacker: {group: g04711815}"
    assert "04711815" not in str(redacted_topics(text, Redactor(text, {})))


def test_text_of_a_variable_is_copied_with_its_names() -> None:
    text = VariableText("7", ["N"])
    assert pickle.loads(pickle.dumps(text)).variables == ("N",)
