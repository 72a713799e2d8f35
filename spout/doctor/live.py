"""What a broker says, judged: login, features, rights, topics, clocks, and who uses our groups; pure.

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
    ADD_COPIES,
    CLOCKS,
    COPIES,
    GROUPS,
    LOGIN,
    REACHABLE,
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
"""Of each kind of request the version that must be answered; the highest ones came with Kafka 2.8."""

_BY_SETTING: Final[Mapping[str, CheckCode]] = {
    "retention.ms": RETENTION,
    "retention.bytes": RETENTION,
    "min.insync.replicas": COPIES,
    "max.message.bytes": SIZES,
}


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the broker lets us do.

    Attributes:
        everything: whether it lets us do all there is, as where nobody restricts anything.
        of: the operations on each topic and group; unknown where it cannot be asked.
    """

    everything: bool
    of: Mapping[tuple[Resource, str], Reading[frozenset[Operation]]]


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
        copies: of each topic with a partition that lacks copies in sync, how many it has there and should
            have; of several partitions the one with the fewest.
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
    """Judge what a broker says; `role` is whose user we are: a right that it lacks is then an error."""
    if facts.cluster.unknown:
        code = LOGIN if facts.is_refused else REACHABLE
        if facts.is_refused:
            yield REACHABLE.ok(facts.bootstrap, "answers")
        port = re.search(r":(\d+)(?:,|$)", facts.bootstrap)
        cure = code.cure.format(bootstrap=facts.bootstrap, port=port[1] if port else 9092)
        yield code.failed(facts.bootstrap, facts.cluster.unknown, cure=cure)
        others = (LOGIN, REQUESTS, RIGHTS, TOPICS, RETENTION, COPIES, SIZES, CLOCKS, GROUPS)
        reason = f"{code.code} failed"
        yield from (other.unknown(facts.bootstrap, reason) for other in others if other is not code)
        return
    for broker in facts.missing:  # first, since other results may come of it
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
    codes = (REACHABLE, LOGIN, REQUESTS, RIGHTS, TOPICS, RETENTION, COPIES, SIZES, CLOCKS, GROUPS)
    yield from (code.unknown(bootstrap, reason) for code in codes)


def _judge_versions(facts: BrokerFacts) -> CheckResult:
    if facts.versions.value is None:
        return REQUESTS.unknown(facts.bootstrap, facts.versions.unknown)
    found = facts.versions.value
    lacking = [
        f"{name} up to version {found[name]} of {needed}" if name in found else f"no {name}"
        for name, needed in REQUESTS_NEEDED.items()
        if found.get(name, -1) < needed
    ]
    if not lacking:
        return REQUESTS.ok(facts.bootstrap, f"answers all {len(REQUESTS_NEEDED)} kinds that are needed")
    cure = REQUESTS.cure.format(bootstrap=facts.bootstrap)
    return REQUESTS.failed(facts.bootstrap, f"answers {', '.join(lacking)}", cure=cure)


def _judge_rights(facts: BrokerFacts, topics: Topics, role: Role | None) -> Iterator[CheckResult]:
    allowed = facts.allowed.value
    if allowed is None:
        yield RIGHTS.unknown(facts.bootstrap, facts.allowed.unknown)
        return
    if allowed.everything:
        yield RIGHTS.ok(facts.bootstrap, "this user may do everything")
        return
    for each in list(Role) if role is None else [role]:
        missing, unknown = missing_rights(allowed, rights(topics, each))
        if missing:
            text = f"this user lacks {'; '.join(rights_text(missing))}"
            cure = RIGHTS.cure.format(file=shlex.quote(facts.file), role=each)
            # Each process has a user of its own: without --role nobody says which one this is.
            judge = RIGHTS.warning if role is None else RIGHTS.failed
            yield judge(f"role {each}", text, cure=cure)
        else:
            yield RIGHTS.ok(f"role {each}", "this user has the rights to topics and groups")
        for reason, doubtful in unknown.items():
            yield RIGHTS.unknown(f"role {each}", f"{'; '.join(rights_text(doubtful))}: {reason}")


def missing_rights(allowed: Allowed, needed: Iterable[Right]) -> tuple[list[Right], dict[str, list[Right]]]:
    """Return the rights that are missing, and by reason those of which nothing is known."""
    missing: list[Right] = []
    unknown: dict[str, list[Right]] = {}
    nobody: Reading[frozenset[Operation]] = Reading(
        unknown="Kafka answers no question about transactional ids"
    )
    for right in needed:
        found = allowed.of.get((right.resource, right.name), nobody)
        if found.value is None:
            unknown.setdefault(found.unknown, []).append(right)
        elif right.operation not in found.value:
            missing.append(right)
    return missing, unknown


def _judge_topics(facts: BrokerFacts) -> Iterator[CheckResult]:
    codes = (TOPICS, RETENTION, COPIES, SIZES)
    yield from _judge_copies(facts)
    if facts.findings.value is None:
        yield from (code.unknown(facts.bootstrap, facts.findings.unknown) for code in codes)
        return
    seen = {COPIES} if facts.copies else set[CheckCode]()
    for found in _joined(facts.findings.value):
        code = _BY_SETTING.get(found.setting.partition("=")[0], TOPICS)
        seen.add(code)
        if found.setting:
            quoted = {"topic": shlex.quote(found.topic), "setting": shlex.quote(found.setting)}
            cure = code.cure if code is not TOPICS else RETENTION.cure
            cure = cure.format(bootstrap=facts.bootstrap, **quoted)
        elif found.copies:
            cure = ADD_COPIES.format(bootstrap=facts.bootstrap)
        else:
            cure = TOPICS.cure.format(file=shlex.quote(facts.file))
        judge = code.failed if found.level is Level.ERROR else code.warning
        copies = f"{found.copies} copies, made as {TOPICS.docs} says" if found.copies else ""
        expected = found.setting or copies or code.expected
        yield judge(f"topic {found.topic}", found.text, expected=expected, cure=cure)
    yield from (code.ok(facts.bootstrap, "no topic has a fault") for code in codes if code not in seen)


def _judge_copies(facts: BrokerFacts) -> Iterator[CheckResult]:
    """Judge whether all copies are in sync; topics that lack as many share a result."""
    topics_by_copies: dict[tuple[int, int], list[str]] = {}
    for topic, copies in facts.copies.items():
        topics_by_copies.setdefault(copies, []).append(topic)
    for (in_sync, expected), topics in sorted(topics_by_copies.items()):
        text = f"{in_sync} of {expected} copies are in sync: one more broker that stops may stop all writes"
        yield COPIES.warning(
            f"topic {', '.join(sorted(topics))}",
            text if in_sync else f"0 of {expected} copies are in sync: nothing is written or read",
            expected=f"{expected} copies in sync",
            cure=UNDER_REPLICATED.format(bootstrap=facts.bootstrap),
        )


def _joined(findings: Iterable[Finding]) -> list[Finding]:
    """Make one finding of those that several topics share; what a setting cures stays one for each topic."""
    named: dict[tuple[str, ...], list[Finding]] = {}
    for found in findings:
        alone = found.topic if found.setting else ""
        named.setdefault((found.level.name, found.text, found.setting, alone), []).append(found)
    return [replace(same[0], topic=", ".join(each.topic for each in same)) for same in named.values()]


def _judge_clock(clock: str, skew: Reading[int]) -> CheckResult:
    if skew.value is None:
        return CLOCKS.unknown(clock, skew.unknown)
    other = "this machine's: ages and due times are wrong by as much"
    return judge_skew(CLOCKS, clock, skew.value, other)


def judge_skew(code: CheckCode, clock: str, ahead_ms: int, other: str, cure: str = "") -> CheckResult:
    """Judge by how much a clock is ahead of another one at least; negative: behind it."""
    if abs(ahead_ms) <= SKEW_MS_MAX:
        return code.ok(clock, f"differs by {span(abs(ahead_ms))} at least")
    return code.failed(clock, f"{difference_text(ahead_ms)} {other}", cure=cure)


def _judge_group(bootstrap: str, group: str, members: Reading[Sequence[str]]) -> CheckResult:
    if members.value is None:
        return GROUPS.unknown(f"group {group}", members.unknown)
    if not members.value:
        return GROUPS.ok(f"group {group}", "no other consumer")
    text = f"{', '.join(members.value)}: it commits offsets of its own; stop it, or give it another group"
    cure = GROUPS.cure.format(bootstrap=bootstrap, group=shlex.quote(group))
    return GROUPS.failed(f"group {group}", text, cure=cure)
