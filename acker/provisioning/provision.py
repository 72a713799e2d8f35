"""`windhover topics create` and `windhover topics check`: compares topics.yaml with a broker.

Source: docs/design/protocol.md, sections 2, 4 and 5.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from acker.config.topics import Topics
from acker.errors import TopicError
from acker.kafka.port import TopicInfo
from acker.provisioning.admin import KafkaAdmin
from acker.provisioning.refused_settings import (
    LeftOut,
    leave_out_refused,
    left_out_lines,
    require_settings,
    without_settings,
)
from acker.provisioning.topic_specs import (
    Finding,
    Level,
    TopicSpec,
    missing_topic_finding,
    plan,
    refused_by_client,
    required_topics,
    topic_findings,
)
from acker.provisioning.topic_times import short_retention
from acker.provisioning.unpacking import large_batches


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What was found, and what was done. `created`, `grown`, `left_out` are empty for a mere check.

    Attributes:
        existing: topics that were there before.
        left_out: settings without which topics were made.
    """

    created: tuple[TopicSpec, ...]
    grown: tuple[TopicSpec, ...]
    existing: tuple[TopicSpec, ...]
    findings: tuple[Finding, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are no errors."""
        return tuple(finding for finding in self.findings if finding.level is Level.WARNING)

    def lines(self) -> list[str]:
        """Return lines for people: what was made, what was there, and warnings.

        A warning that several topics share is one line.
        """
        lines = [f"made {spec.name} ({spec.role}, {_partitions_text(spec)})" for spec in self.created]
        lines += left_out_lines(self.left_out)
        lines += [f"raised {spec.name} to {_partitions_text(spec)}" for spec in self.grown]
        if self.existing:
            lines.append(f"there: {', '.join(spec.name for spec in self.existing)}")
        topics_by_text: dict[str, list[str]] = {}
        for finding in self.warnings:
            topics_by_text.setdefault(finding.text, []).append(finding.topic)
        topic_count = len(self.created) + len(self.grown) + len(self.existing)
        for text, names in topics_by_text.items():
            concerns_all = len(names) == topic_count > 1
            topics_text = "every topic" if concerns_all else ", ".join(names)
            lines.append(f"warning: {topics_text}: {text}")
        return lines


def create_topics(topics: Topics, without: Collection[str] = ()) -> list[str]:
    """Make the topics of a file that are missing, as `create` does; return lines for people."""
    require_settings(without)
    return create(topics, KafkaAdmin(topics.kafka), without).lines()


def check_topics(topics: Topics) -> list[str]:
    """Compare topics.yaml with the broker's topics; return warnings, raise `TopicError` for the rest."""
    checked = check(topics, KafkaAdmin(topics.kafka))
    raise_errors(checked.findings)
    return checked.lines()


def check(topics: Topics, admin: KafkaAdmin) -> Provisioned:
    """Compare the topics that are needed with those that the broker has; nothing is made."""
    infos = admin.topics(topics_needed(topics))
    specs = required_topics(topics, infos)
    findings: list[Finding] = []
    for spec in specs:
        info = infos.get(spec.name)
        findings += [missing_topic_finding(spec)] if info is None else topic_findings(spec, info)
    findings += [*short_retention(topics, infos), *large_batches(topics, infos)]
    for spec in specs:
        findings += refused_by_client(spec, topics.kafka)
    existing = tuple(spec for spec in specs if spec.name in infos)
    return Provisioned(created=(), grown=(), existing=existing, findings=tuple(findings))


def create(topics: Topics, admin: KafkaAdmin, without: Collection[str] = ()) -> Provisioned:
    """Make the topics that are missing; what is there is left as it is, but a replay topic may grow.

    `without` names settings that are left out of the topics that are created (the option
    `--without`; see `without_settings`).

    1. Refuse, before anything is made, if a topic that is there would lose records, or if an ack topic is
       missing beside others that hold records: made anew and empty it would contradict them.
    2. Try what is missing, without making it: a setting that the cluster refuses is left out where it has the
       value anyway, else nothing is made.
    3. Make what is missing, each topic of copies behind its source: what the file does not say of that, the
       broker decides. Let replay topics grow with their sources.
    4. Compare again, refuse what is wrong with what was made, or is there since, and hand the warnings on.
    """
    # 1. refuse
    infos = admin.topics(topics_needed(topics))
    _refuse_losses(topics, infos, admin)
    # 2. and 3. Each round creates the topics whose source exists. What depends on them comes in the
    # next round: a topic of copies needs the settings of its source.
    topic_plan = plan(required_topics(topics, infos), infos)
    created: dict[str, TopicSpec] = {}
    left_out: list[LeftOut] = []
    specs_to_make = list(topic_plan.make)
    while specs_to_make:
        specs_to_make_now, left_out_now = _acceptable_now(specs_to_make, without, admin)
        admin.make(specs_to_make_now)
        created |= {spec.name: spec for spec in specs_to_make_now}
        left_out += left_out_now
        infos = admin.topics(topics_needed(topics))
        topic_plan = plan(required_topics(topics, infos), infos)
        # the broker that answers may not show yet what was made
        specs_to_make = [spec for spec in topic_plan.make if spec.name not in created]
    admin.grow(topic_plan.grow)  # the replay topics with fewer partitions than their sources
    # 4. compare again
    existing = tuple(spec for spec in topic_plan.existing if spec.name not in created)
    checked = check(topics, admin)
    # the broker that answers now may not have what is new yet
    grown_names = {spec.name for spec in topic_plan.grow}
    shown_topics = {spec.name for spec in checked.existing} - grown_names
    raise_errors(finding for finding in checked.findings if finding.topic in shown_topics)
    return Provisioned(
        created=tuple(created.values()),
        grown=topic_plan.grow,
        existing=existing,
        findings=checked.findings,
        left_out=tuple(left_out),
    )


def _refuse_losses(topics: Topics, infos: Mapping[str, TopicInfo], admin: KafkaAdmin) -> None:
    """Raise `TopicError` before anything is created (`create`, step 1).

    It is raised if a topic that exists has an error, if a topic is missing whose number of
    partitions nobody has set, or if an ack topic is missing while others have records.
    """
    specs = required_topics(topics, infos)
    errors: list[Finding] = []
    for spec in plan(specs, infos).existing:
        errors += topic_findings(spec, infos[spec.name])
    for spec in specs:
        # neither topics.yaml nor the cluster has its number of partitions, so it cannot be created
        # here
        if spec.partitions is None and spec.name not in infos:
            errors.append(missing_topic_finding(spec))
    errors += _missing_beside_records(topics, infos, admin)
    raise_errors(errors)


def _acceptable_now(
    specs_to_make: list[TopicSpec], without: Collection[str], admin: KafkaAdmin
) -> tuple[list[TopicSpec], list[LeftOut]]:
    """Return the topics that can be created now, and the settings that were left out of them.

    The topics have the settings that the cluster accepts. `without` has the names of settings
    that somebody can do without. A topic whose source topic is to be created, too, is left for
    the next round. But all are tried first, without creating them: if the cluster refuses one,
    `TopicError` is raised and nothing is created.
    """
    names_to_make = {spec.name for spec in specs_to_make}
    specs_after_without, left_out_by_wish = without_settings(specs_to_make, without, admin)
    specs_after_refusals, left_out_as_refused = leave_out_refused(specs_after_without, admin)
    ready = [spec for spec in specs_after_refusals if spec.source_topic not in names_to_make]
    ready_names = {spec.name for spec in ready}
    left_out = [*left_out_by_wish, *left_out_as_refused]
    return ready, [setting for setting in left_out if setting.topic in ready_names]


def raise_errors(findings: Iterable[Finding]) -> None:
    """Raise the errors among findings as one `TopicError`, a line for each."""
    lines = [f"{finding.topic}: {finding.text}" for finding in findings if finding.level is Level.ERROR]
    if lines:
        raise TopicError("\n".join(lines))


def topics_needed(topics: Topics) -> list[str]:
    """Return the names of all topics of a file, each once."""
    names = list(topics.ack_topics.names())
    for input in topics.inputs.values():
        names += input.topic_names() if input.tracked else (input.topic,)
    return list(dict.fromkeys(names))


def _missing_beside_records(
    topics: Topics, infos: Mapping[str, TopicInfo], admin: KafkaAdmin
) -> list[Finding]:
    """Return an error for each ack topic that is missing beside others that hold records.

    Without a missing one, or if all are missing, as in a new installation, there is none.
    """
    # these two contradict nothing: what nobody could read, and what a query keeps
    independent = (topics.ack_topics.quarantine, topics.ack_topics.sink)
    names = [name for name in topics.ack_topics.names() if name not in independent]
    missing_names = [name for name in names if name not in infos]
    if not missing_names or len(missing_names) == len(names):
        return []
    topics_with_records = admin.holding_records([infos[name] for name in names if name in infos])
    if not topics_with_records:
        return []
    text = (
        f"is gone while {', '.join(topics_with_records)} hold records: made anew it would contradict them,"
        " and open roots would be lost; restore it, or drain all groups and begin with another"
        " acker.topic_prefix"
    )
    return [Finding(name, Level.ERROR, text) for name in missing_names]


def _partitions_text(spec: TopicSpec) -> str:
    """Return how many partitions a topic is to have, as a text: ``1 partition``."""
    return f"{spec.partitions} partition{'' if spec.partitions == 1 else 's'}"
