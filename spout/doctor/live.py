"""What a broker says, judged: login, features, rights, topics, clocks, users of our groups; pure.

Each fact is a `Reading`: a value, or the reason why it is unknown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from acker.clock_watch import SKEW_MS_MAX
from acker.clocks import difference_text
from acker.config.topics import Topics
from acker.kafka.port import MissingBroker, Operation, Resource, Right
from acker.provisioning.roles import Role, rights, rights_text
from acker.provisioning.topic_specs import Finding, Level
from spout.doctor.codes import (
    ADD_REPLICAS,
    CLOCKS,
    GROUPS,
    LOGIN,
    REACHABLE,
    REPLICAS,
    REQUESTS,
    RETENTION,
    RIGHTS,
    SIZES,
    TOPICS,
    UNDER_REPLICATED,
    CheckCode,
    CheckResult,
)
from spout.inspect.readings import Reading
from spout.inspect.tables import span

REQUESTS_NEEDED: Final[Mapping[str, int]] = {
    "AddOffsetsToTxn": 0,  # transactions
    "DeleteRecords": 0,  # ackers shorten their logs
    "DescribeConfigs": 0,
    "EndTxn": 0,
    "InitProducerId": 1,
    "ListOffsets": 2,  # the last stable offset
    "Metadata": 10,  # ids of topics: one that was made anew is another
    "OffsetFetch": 7,  # offsets without those of open transactions
    "TxnOffsetCommit": 3,  # refused for a member that the group has put out
}
"""By kind of request the version that the broker must answer; Kafka 2.8 answers all of them."""

_TOPIC_CODES: Final = (TOPICS, RETENTION, REPLICAS, SIZES)
_ALL_CODES: Final = (REACHABLE, LOGIN, REQUESTS, RIGHTS, *_TOPIC_CODES, CLOCKS, GROUPS)
"""What is judged of a broker, in the order of the results where it does not answer."""

_CODES_BY_SETTING: Final[Mapping[str, CheckCode]] = {
    "retention.ms": RETENTION,
    "retention.bytes": RETENTION,
    "min.insync.replicas": REPLICAS,
    "max.message.bytes": SIZES,
}


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the broker lets us do.

    Attributes:
        everything: whether we may do everything, as on a broker without access control.
        operations: what we may do with each resource, by its kind and name; unknown: no answer.
    """

    everything: bool
    operations: Mapping[tuple[Resource, str], Reading[frozenset[Operation]]]


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What a broker says.

    Attributes:
        cluster: its id and how many brokers it has, as a text.
        is_refused: whether it, or its certificate, was refused; then `cluster` is unknown.
        versions: of each kind of request the highest version that it answers.
        findings: topics.yaml compared with its topics.
        skews: of each clock by how many ms it is ahead of ours.
        members: of each group of an input the consumers that are in it.
        missing: the brokers that have copies of our topics, and are not there.
        copies: of each topic with a partition that lacks copies in sync, how many it has there
            and should have; of several partitions the one with the fewest.
    """

    file: str
    bootstrap: str
    cluster: Reading[str]
    is_refused: bool
    versions: Reading[Mapping[str, int]]
    allowed: Reading[Allowed]
    findings: Reading[Sequence[Finding]]
    skews: Mapping[str, Reading[int]]
    members: Mapping[str, Reading[Sequence[str]]]
    missing: Sequence[MissingBroker] = ()
    copies: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def judge_live(facts: BrokerFacts, topics: Topics, role: Role | None) -> Iterator[CheckResult]:
    """Judge what a broker answers, check by check. A right that our user lacks for `role` is a failure.

    Without a role (None) the rights of each role are judged, and one that is missing is a warning.
    """
    if facts.cluster.unknown:
        code = LOGIN if facts.is_refused else REACHABLE
        if facts.is_refused:  # a broker that refuses the login was reached
            yield REACHABLE.ok(facts.bootstrap, "answers")
        # the first port, behind a host or a bracket; a host of IPv6 without brackets has none: ::1
        port_match = re.search(r"(?:\]|(?:^|[/,])[^:/,]*):(\d+)(?:,|$)", facts.bootstrap)
        port = port_match[1] if port_match else 9092  # Kafka's default port
        cure = code.cure.format(bootstrap=facts.bootstrap, port=port)
        yield code.failed(facts.bootstrap, facts.cluster.unknown, cure=cure)
        # without an answer nothing else can be judged
        for other_code in _ALL_CODES:
            if other_code not in (REACHABLE, code):
                yield other_code.unknown(facts.bootstrap, f"{code.code} failed")
        return
    for broker in facts.missing:  # first, since other failures may follow from it
        cure = UNDER_REPLICATED.format(bootstrap=facts.bootstrap)
        yield REACHABLE.failed(f"broker {broker.number}", str(broker), cure=cure)
    yield REACHABLE.ok(facts.bootstrap, facts.cluster.value or "answers")
    yield LOGIN.ok(facts.bootstrap, "accepted")
    yield _judge_versions(facts)
    yield from _judge_rights(facts, topics, role)
    yield from _judge_topics(facts)
    for clock, skew in facts.skews.items():
        yield _judge_clock(clock, skew)
    for group, members in facts.members.items():
        yield _judge_group(facts.bootstrap, group, members)


def judge_unasked(bootstrap: str, reason: str) -> Iterator[CheckResult]:
    """Yield that nothing is known of a broker, since no client could be made to ask it."""
    yield from (code.unknown(bootstrap, reason) for code in _ALL_CODES)


def _judge_versions(facts: BrokerFacts) -> CheckResult:
    """Judge whether the broker answers each kind of request in the version that we need."""
    if facts.versions.value is None:
        return REQUESTS.unknown(facts.bootstrap, facts.versions.unknown)
    highest_versions = facts.versions.value
    lacking = []
    for name, version_needed in REQUESTS_NEEDED.items():
        if name not in highest_versions:
            lacking.append(f"no {name}")
        elif highest_versions[name] < version_needed:
            lacking.append(f"{name} up to version {highest_versions[name]} of {version_needed}")
    if not lacking:
        text = f"answers all {len(REQUESTS_NEEDED)} kinds that are needed"
        return REQUESTS.ok(facts.bootstrap, text)
    cure = REQUESTS.cure.format(bootstrap=facts.bootstrap)
    return REQUESTS.failed(facts.bootstrap, f"answers {', '.join(lacking)}", cure=cure)


def _judge_rights(facts: BrokerFacts, topics: Topics, role: Role | None) -> Iterator[CheckResult]:
    """Judge the rights of our user as a role; None: as each role, and a lack is a warning."""
    allowed = facts.allowed.value
    if allowed is None:
        yield RIGHTS.unknown(facts.bootstrap, facts.allowed.unknown)
        return
    if allowed.everything:
        yield RIGHTS.ok(facts.bootstrap, "this user may do everything")
        return
    judged_roles = list(Role) if role is None else [role]
    # each process has a user of its own: without --role nobody says which one this is
    result_of_missing = RIGHTS.warning if role is None else RIGHTS.failed
    for judged_role in judged_roles:
        subject = f"role {judged_role}"
        missing, unknown = missing_rights(allowed, rights(topics, judged_role))
        if missing:
            text = f"this user lacks {'; '.join(rights_text(missing))}"
            cure = RIGHTS.cure.format(file=shlex.quote(facts.file), role=judged_role)
            yield result_of_missing(subject, text, cure=cure)
        else:
            yield RIGHTS.ok(subject, "this user has the rights to topics and groups")
        for reason, doubtful in unknown.items():
            yield RIGHTS.unknown(subject, f"{'; '.join(rights_text(doubtful))}: {reason}")


def missing_rights(allowed: Allowed, needed: Iterable[Right]) -> tuple[list[Right], dict[str, list[Right]]]:
    """Return the needed rights that are missing, and by reason those of which nothing is known."""
    missing: list[Right] = []
    unknown: dict[str, list[Right]] = {}
    not_answered: Reading[frozenset[Operation]] = Reading(
        unknown="Kafka answers no question about transactional ids"
    )
    for right in needed:
        operations = allowed.operations.get((right.resource, right.name), not_answered)
        if operations.value is None:
            unknown.setdefault(operations.unknown, []).append(right)
        elif right.operation not in operations.value:
            missing.append(right)
    return missing, unknown


def _judge_topics(facts: BrokerFacts) -> Iterator[CheckResult]:
    """Judge the settings and copies of all topics; each code without a fault is OK."""
    yield from _judge_replicas(facts)
    if facts.findings.value is None:
        for code in _TOPIC_CODES:
            yield code.unknown(facts.bootstrap, facts.findings.unknown)
        return
    # _judge_replicas has reported them already
    codes_with_faults = {REPLICAS} if facts.copies else set[CheckCode]()
    for finding in _joined_findings(facts.findings.value):
        result = _judge_finding(facts, finding)
        codes_with_faults.add(result.code)
        yield result
    for code in _TOPIC_CODES:
        if code not in codes_with_faults:
            yield code.ok(facts.bootstrap, "no topic has a fault")


def _judge_finding(facts: BrokerFacts, finding: Finding) -> CheckResult:
    """Judge one fault of a topic: of a setting (``name=value``), of its copies, or another one."""
    code = _CODES_BY_SETTING.get(finding.setting.partition("=")[0], TOPICS)
    expected = code.expected
    if finding.setting:
        expected = finding.setting
        # TOPICS' own cure makes topics, and no command of it changes a setting
        template = code.cure if code is not TOPICS else RETENTION.cure
        cure = template.format(
            bootstrap=facts.bootstrap,
            topic=shlex.quote(finding.topic),
            setting=shlex.quote(finding.setting),
        )
    elif finding.replicas:
        expected = f"{finding.replicas} copies, made as {TOPICS.docs} says"
        cure = ADD_REPLICAS.format(bootstrap=facts.bootstrap)
    else:
        cure = TOPICS.cure.format(file=shlex.quote(facts.file))
    result_of_level = code.failed if finding.level is Level.ERROR else code.warning
    return result_of_level(f"topic {finding.topic}", finding.text, expected=expected, cure=cure)


def _judge_replicas(facts: BrokerFacts) -> Iterator[CheckResult]:
    """Warn of topics with copies that are not in sync; topics that lack as many share a result."""
    topics_by_copies: dict[tuple[int, int], list[str]] = {}
    for topic, copies in facts.copies.items():
        topics_by_copies.setdefault(copies, []).append(topic)
    for (in_sync, expected), topics in sorted(topics_by_copies.items()):
        effect = "one more broker that stops may stop all writes"
        if in_sync == 0:
            effect = "nothing is written or read"
        yield REPLICAS.warning(
            f"topic {', '.join(sorted(topics))}",
            f"{in_sync} of {expected} copies are in sync: {effect}",
            expected=f"{expected} copies in sync",
            cure=UNDER_REPLICATED.format(bootstrap=facts.bootstrap),
        )


def _joined_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Join findings with the same text into one that names all their topics.

    A finding about a setting is joined with none of another topic, since its cure names the topic.
    """
    findings_by_key: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        topic_of_setting = finding.topic if finding.setting else ""
        key = (finding.level.name, finding.text, finding.setting, topic_of_setting)
        findings_by_key.setdefault(key, []).append(finding)
    joined = []
    for shared in findings_by_key.values():
        topics = ", ".join(finding.topic for finding in shared)
        joined.append(replace(shared[0], topic=topics))
    return joined


def _judge_clock(clock: str, skew: Reading[int]) -> CheckResult:
    """Judge by how many ms a clock, such as "clock of the brokers", is ahead of this machine's."""
    if skew.value is None:
        return CLOCKS.unknown(clock, skew.unknown)
    our_clock = "this machine's: ages and due times are wrong by as much"
    return judge_skew(CLOCKS, clock, skew.value, our_clock)


def judge_skew(code: CheckCode, clock: str, ahead_ms: int, other_clock: str, cure: str = "") -> CheckResult:
    """Judge by how much a clock is ahead of another one, at least; below 0: behind it."""
    if abs(ahead_ms) <= SKEW_MS_MAX:
        return code.ok(clock, f"differs by {span(abs(ahead_ms))} at least")
    return code.failed(clock, f"{difference_text(ahead_ms)} {other_clock}", cure=cure)


def _judge_group(bootstrap: str, group: str, members: Reading[Sequence[str]]) -> CheckResult:
    """Judge whether a group has members that are not ours."""
    if members.value is None:
        return GROUPS.unknown(f"group {group}", members.unknown)
    if not members.value:
        return GROUPS.ok(f"group {group}", "no other consumer")
    names = ", ".join(members.value)
    text = f"{names}: it commits offsets of its own; stop it, or give it another group"
    cure = GROUPS.cure.format(bootstrap=bootstrap, group=shlex.quote(group))
    return GROUPS.failed(f"group {group}", text, cure=cure)
