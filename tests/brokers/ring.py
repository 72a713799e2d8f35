"""Which tests run on another broker, and what a broker is excused for.

They are the contract of the port to Kafka, and a life without Spark: topics, records that are
confirmed, aborted and timed out, their replays, dead letters and redrives, a process that is killed,
a group that is reset and released.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.matrix.versions import Outcome, run_pytest
from tests.support.brokers import KFAKE
from tests.support.servers.kafka_releases import RELEASES, version_of

RING: Final = (
    "tests/contract",
    "tests/integration/kafka/test_kafka_spout_broker.py",
    "tests/integration/commands/test_operate_command.py",
    "tests/integration/commands/test_dlq_command.py",
)
"""What a broker has to pass before a page names it."""

_DAMAGE: Final = "tests/contract/test_damage.py"
_ENDS_PROCESSES: Final = "librdkafka 2.16 may end a process that reads a damaged batch"
LEFT_OUT: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        KFAKE: MappingProxyType({_DAMAGE: "it does not keep batches in files as Kafka does"}),
        "2.8": MappingProxyType({_DAMAGE: _ENDS_PROCESSES}),
    }
)
"""Files of the ring that cannot run on a kind of broker, each with the reason."""

MARKS: Final = "kafka and not slow"
"""The tests of the ring that ask for `broker`; the slow ones start brokers of their own."""

_TAKES_ALL: Final = "it takes records that Kafka refuses: without a key, or dated outside a topic's limits"
_WITH_APPEND_TIME: Final = "it keeps the writer's time in a topic of LogAppendTime"
_READING: Final = "tests/contract/test_reading.py::test"
_TRANSACTIONS: Final = "tests/contract/test_transactions.py::test"
_QUESTIONS: Final = "tests/contract/test_questions.py::test"
_COLUMNS: Final = "tests/contract/test_record_columns.py::test"
_A_REFUSED_RECORD: Final = f"{_TRANSACTIONS}_a_refused_record"
_BY_ITS_WORDS: Final = (
    f"{_A_REFUSED_RECORD}_is_named_by_the_brokers_words_and_the_others_are_taken_without_it"
)

KFAKE_LACKS: Mapping[str, str] = MappingProxyType(
    {
        f"{_READING}_a_topic_may_give_records_the_time_at_which_they_were_appended": _WITH_APPEND_TIME,
        f"{_READING}_a_refused_record_is_raised_by_flush_and_names_its_topic": _TAKES_ALL,
        f"{_COLUMNS}_a_record_that_is_refused_among_columns_fails_the_commit_and_leaves_nothing": _TAKES_ALL,
        f"{_A_REFUSED_RECORD}_aborts_the_whole_transaction": _TAKES_ALL,
        f"{_A_REFUSED_RECORD}_outside_a_transaction_is_named_too": _TAKES_ALL,
        **{
            f"{_BY_ITS_WORDS}[kafka-{in_transaction}-{record}]": _TAKES_ALL
            for in_transaction in (False, True)
            for record in ("no key", "dated ahead", "too old")
        },
        f"{_TRANSACTIONS}_a_refusal_leaves_no_gap_for_the_next_transaction": _TAKES_ALL,
        f"{_TRANSACTIONS}_a_flush_does_not_meet_what_a_refused_record_left_behind_either": _TAKES_ALL,
        f"{_TRANSACTIONS}_a_record_that_is_refused_again_is_told_again": _TAKES_ALL,
        f"{_QUESTIONS}_deleting_from_a_compacted_topic_is_an_error": "it deletes records of compacted topics",
        f"{_QUESTIONS}_deleting_passes_an_open_transaction": (
            "its last stable offset stays below the start when an open transaction is deleted"
        ),
        f"{_QUESTIONS}_a_text_that_is_too_long_is_an_error": "it takes any length of text with an offset",
    }
)
"""What kfake does otherwise than Kafka: by the test that falls there, why it does.

The test must fall: one that passes has to leave the table, and the page.
"""

_NO_BOUND: Final = "it lacks `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`"

OLD_KAFKA_LACKS: Mapping[str, str] = MappingProxyType(
    {
        f"{_READING}_a_record_has_the_time_that_was_written": _NO_BOUND,
        f"{_A_REFUSED_RECORD}_outside_a_transaction_is_named_too": _NO_BOUND,
        **{
            f"{_BY_ITS_WORDS}[kafka-{in_transaction}-{record}]": _NO_BOUND
            for in_transaction in (False, True)
            for record in ("dated ahead", "too old")
        },
    }
)
"""The same of Kafka 2.8, whose topics have fewer settings."""

_LACKS = {KFAKE: KFAKE_LACKS, "2.8": OLD_KAFKA_LACKS}
LACKS: Mapping[str, Mapping[str, str]] = MappingProxyType(_LACKS)
"""The same of each kind of broker that is excused for something."""


def lack_of(lacks: Mapping[str, str], node_id: str) -> str | None:
    """Return why a test falls on a broker: by its own name, or that of its function; None: it must not.

    Example::

        >>> lack_of({"test_x.py::test_y": "no clock"}, "test_x.py::test_y[kafka]")
        'no clock'
    """
    return lacks.get(node_id) or lacks.get(node_id.partition("[")[0])


def run_ring(kind: str, log: Path) -> Outcome:
    """Run the ring on a broker of a kind; its output goes into a file.

    The outcome's version is that of Kafka, or the kind's name where it has none.
    """
    arguments = ["--broker", kind, "-m", MARKS, *RING]
    for file in LEFT_OUT.get(kind, {}):
        arguments += ["--ignore", file]
    version = version_of(kind) if kind in RELEASES else kind
    return Outcome(version, *run_pytest(sys.executable, arguments, log))
