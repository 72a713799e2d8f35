"""Finds which settings of topics a cluster refuses, and says what is lost without each.

Hosted clusters refuse settings when a topic is made: by a policy (``create.topic.policy.class.name``,
``POLICY_VIOLATION``), or since they do not have the setting (``INVALID_CONFIG``). The answer seldom says
which one. So each is tried alone, by requests that make nothing (``validate_only``):

1. Try all topics as they must be. If none is refused, nothing more is asked.
2. Try each refused topic without settings. If it is refused then too, its settings are not the reason.
3. Try it with one setting after the other. These are the refused ones.
4. Leave out a refused setting whose value the cluster's default is: the topic is the same without it.
5. Refuse the rest by name. If nothing is left, try the topic once more, without what was left out.

Before that, what somebody can do without (``--without``) is left out of all topics, unless a topic would lose
what must not be lost.

A setting that is not refused stays, even where it is the default: a default may be changed later.

Only a `TrialCluster` is asked for anything; the rest is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Protocol

from acker.errors import TopicError, UsageError
from acker.provisioning.topic_specs import MUST_BE, TopicSpec
from acker.untrusted import Untrusted

PAGE: Final = "docs/operate/topics-by-hand.md"
"""It has the settings of all topics, for who makes them by hand."""

LOST_WITHOUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup.policy": (
            "the cluster's policy holds: if it is another one, it removes records that open roots, waiting"
            " copies or a restart need, and `windhover topics check` refuses the topic"
        ),
        "max.message.bytes": (
            "the cluster's limit holds: if it is lower, the topic refuses the copy of a large record, or its"
            " dead letter; below 1,000,000 bytes it also refuses a full record of an ack topic, and the"
            " process that writes it ends"
        ),
        "message.timestamp.after.max.ms": (
            "if the cluster limits it, the topic refuses the copy of a record that is dated ahead, and the"
            " record becomes a dead letter"
        ),
        "message.timestamp.before.max.ms": (
            "if the cluster limits it, the topic refuses the copy of an old record, and the record becomes a"
            " dead letter"
        ),
        "message.timestamp.difference.max.ms": (
            "if the cluster limits it, the topic refuses the copy of an old record, and the record becomes a"
            " dead letter"
        ),
        "message.timestamp.type": (
            "the cluster's type holds. CreateTime in an ack topic: a process whose clock is wrong writes"
            " wrong times, and is refused if the cluster limits them. LogAppendTime in a topic of copies: a"
            " bolt sees the time of the copy in place of the record's"
        ),
        "min.cleanable.dirty.ratio": (
            "nothing is lost: the broker compacts less often, so an acker that starts reads more"
        ),
        "min.insync.replicas": (
            "the cluster's number holds: with 1, a write counts that only one broker has, and is lost with"
            " its disk"
        ),
        "retention.bytes": (
            "the cluster's limit holds: if there is one, it deletes records that open roots or waiting copies"
            " need, and dead letters that nobody has read"
        ),
        "retention.ms": (
            "the cluster's time holds (Kafka's is 7 days): older records that open roots or waiting copies"
            " need, and dead letters that nobody has read, are deleted"
        ),
        "segment.bytes": ("nothing is lost: the broker compacts later, so an acker that starts reads more"),
        "unclean.leader.election.enable": (
            "the cluster's choice holds: with true, acknowledged records can vanish with a broker"
        ),
    }
)
"""Of each setting with which topics are made what happens without it."""

_BROKER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "log.cleanup.policy": "cleanup.policy",
        "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
        "log.message.timestamp.difference.max.ms": "message.timestamp.difference.max.ms",
        "log.message.timestamp.type": "message.timestamp.type",
        "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
        "message.max.bytes": "max.message.bytes",
        "min.insync.replicas": "min.insync.replicas",
        "log.retention.bytes": "retention.bytes",
        "log.segment.bytes": "segment.bytes",
        "unclean.leader.election.enable": "unclean.leader.election.enable",
    }
)
"""Of a broker's setting the topic's whose default it is. Source: Kafka's ServerTopicConfigSynonyms."""

_RETENTION_MS: Final = (
    ("log.retention.ms", 1),
    ("log.retention.minutes", 60_000),
    ("log.retention.hours", 3_600_000),
)
"""A broker's settings for how long records stay, with their units in ms; the first that is set holds."""


class TrialCluster(Protocol):
    """What is asked of a cluster before topics are made there."""

    def refusals(self, specs: Iterable[TopicSpec]) -> Mapping[str, str]:
        """Try to make topics without making them; return by refused topic the broker's words."""

    def setting_defaults(self) -> Mapping[str, str] | None:
        """Return what topics get where nothing is set; None: the cluster does not say it."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A setting that a topic is made without.

    `is_wished`: somebody can do without it; else the cluster refuses it, and has this value anyway.
    """

    topic: str
    setting: str
    value: str
    is_wished: bool = False


@dataclass(frozen=True, slots=True)
class _Refused:
    """A setting of a topic that the cluster refuses, with its words."""

    topic: str
    name: str
    value: str
    words: str


def require_settings(names: Iterable[str]) -> None:
    """Raise `UsageError` where a name is none of a setting with which topics are made."""
    for name in names:
        if name in LOST_WITHOUT:
            continue
        near = get_close_matches(name, LOST_WITHOUT, n=1)
        hint = f"did you mean {near[0]}?" if near else f"they are {', '.join(sorted(LOST_WITHOUT))}"
        raise UsageError(f"--without {Untrusted(name)}: no topic is made with such a setting; {hint}")


def without_settings(
    specs: Sequence[TopicSpec], names: Collection[str], cluster: TrialCluster
) -> tuple[list[TopicSpec], list[LeftOut]]:
    """Return topics without the settings `names`, which somebody can do without, and what was left out.

    Nothing is made yet.

    Raises:
        TopicError: without one of them a topic would lose what must not be lost, since the cluster's default
            is another value, or unknown.
    """
    if not names:
        return list(specs), []
    defaults = cluster.setting_defaults() or {}
    harmful: list[str] = []
    kept_specs: list[TopicSpec] = []
    left_out: list[LeftOut] = []
    for spec in specs:
        kept_settings = {name: value for name, value in spec.settings.items() if name not in names}
        kept_specs.append(replace(spec, settings=kept_settings))
        for name in sorted(spec.settings.keys() & set(names)):
            value = spec.settings[name]
            why = MUST_BE.get((spec.role, name))  # None: nothing is lost by another value
            if why is not None and defaults.get(name) != value:
                default = Untrusted(defaults.get(name, "unknown"))
                harmful.append(f"{spec.name}: {name} must be {value}, and the default is {default}: {why}")
            left_out.append(LeftOut(spec.name, name, value, is_wished=True))
    if harmful:
        raise TopicError("\n".join([*harmful, "nothing was made: without these settings no topic can be"]))
    return kept_specs, left_out


def leave_out_refused(
    specs: Sequence[TopicSpec], cluster: TrialCluster
) -> tuple[list[TopicSpec], list[LeftOut]]:
    """Return topics without the settings that a cluster refuses, and what was left out.

    The steps are those of this module; nothing is made.

    Raises:
        TopicError: it refuses a setting that is not its default, or a topic for another reason.
    """
    # 1. all topics as they must be; the broker's words are by topic
    refusals = cluster.refusals(specs)
    if not refusals:
        return list(specs), []
    # 2. and 3. which settings of the refused ones are the reason
    refused = _find_refused_settings([spec for spec in specs if spec.name in refusals], cluster)
    # 4. a setting that the topic would have anyway can be left out; where nobody says, it would not
    defaults = cluster.setting_defaults()
    default_values = defaults or {}
    unavoidable = [setting for setting in refused if default_values.get(setting.name) != setting.value]
    if unavoidable:
        raise TopicError("\n".join(_refusal_lines(unavoidable, defaults)))
    left_out_settings = {(setting.topic, setting.name) for setting in refused}
    accepted: list[TopicSpec] = []
    for spec in specs:
        kept_settings = {
            name: value for name, value in spec.settings.items() if (spec.name, name) not in left_out_settings
        }
        accepted.append(replace(spec, settings=kept_settings))
    # 5. each setting that stays is taken alone, but a policy may refuse several together
    refusals = cluster.refusals(accepted)
    if refusals:
        refused_specs = [spec for spec in accepted if spec.name in refusals]
        lines = [_together_line(spec, refusals[spec.name]) for spec in refused_specs]
        raise TopicError("\n".join(lines))
    return accepted, [LeftOut(setting.topic, setting.name, setting.value) for setting in refused]


def _find_refused_settings(specs: Sequence[TopicSpec], cluster: TrialCluster) -> list[_Refused]:
    """Try each setting of refused topics alone, and return those that are refused; nothing is made.

    Raises `TopicError`: a topic is refused even without any setting.
    """
    refusals = cluster.refusals(replace(spec, settings={}) for spec in specs)
    if refusals:
        lines = [
            f"{topic}: the cluster refuses this topic, whatever its settings are: {Untrusted(words)}"
            for topic, words in refusals.items()
        ]
        raise TopicError("\n".join(lines))
    refused: list[_Refused] = []
    names = dict.fromkeys(name for spec in specs for name in spec.settings)  # each once, in order
    for name in names:
        # one request for all topics that have the setting
        value_by_topic = {spec.name: spec.settings[name] for spec in specs if name in spec.settings}
        trials = [
            replace(spec, settings={name: value_by_topic[spec.name]})
            for spec in specs
            if spec.name in value_by_topic
        ]
        for topic, words in cluster.refusals(trials).items():
            refused.append(_Refused(topic, name, value_by_topic[topic], words))
    return refused


def _refusal_lines(refused: Sequence[_Refused], defaults: Mapping[str, str] | None) -> list[str]:
    """Return a line for each setting and value that is refused and needed, and what to do.

    `defaults` None: the cluster does not say them.
    """
    # by name and value of a setting
    refused_by_setting: dict[tuple[str, str], list[_Refused]] = {}
    for setting in refused:
        refused_by_setting.setdefault((setting.name, setting.value), []).append(setting)
    lines = []
    for (name, value), refused_of_topics in refused_by_setting.items():
        if defaults is None:
            default_text = "the cluster does not say what its default is"
        else:
            default_text = f"its default is {Untrusted(defaults.get(name, 'unknown'))}"
        loss_text = LOST_WITHOUT.get(name, "the cluster's default holds")
        topics_text = ", ".join(setting.topic for setting in refused_of_topics)
        words = Untrusted(refused_of_topics[0].words)  # those for the first topic are enough
        lines.append(
            f"{topics_text}: the cluster refuses {name}={value} ({words}), and {default_text}."
            f" Without it {loss_text}"
        )
    lines.append(
        "they were not made: let the cluster allow these settings, or give --without with each that"
        f" you can do without, or make the topics by hand, as {PAGE} has them; then run"
        " `windhover topics check`"
    )
    return lines


def _together_line(spec: TopicSpec, words: str) -> str:
    """Return the line for a topic of which the cluster refuses only all settings together."""
    settings = ", ".join(f"{name}={value}" for name, value in spec.settings.items())
    return (
        f"{spec.name}: the cluster takes each of its settings alone, but not together ({settings}):"
        f" {Untrusted(words)}; make it by hand, as {PAGE} has it"
    )


def left_out_lines(left_out: Iterable[LeftOut]) -> list[str]:
    """Return a line for each setting and value that topics were made without."""
    # by name, value, and whether somebody wished it
    topics_by_setting: dict[tuple[str, str, bool], list[str]] = {}
    for omitted in left_out:
        setting_key = omitted.setting, omitted.value, omitted.is_wished
        topics_by_setting.setdefault(setting_key, []).append(omitted.topic)
    lines: list[str] = []
    for (setting, value, is_wished), topics in topics_by_setting.items():
        why = "the cluster refuses this setting, and has the value by default"
        if is_wished:
            why = f"as --without says; {LOST_WITHOUT[setting]}"
        lines.append(f"left out {setting}={value} of {', '.join(topics)}: {why}")
    return lines


def defaults_of_brokers(brokers: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the settings that topics get from brokers, as far as all brokers agree.

    >>> defaults_of_brokers([{"log.retention.hours": "168", "min.insync.replicas": "1"}])
    {'min.insync.replicas': '1', 'retention.ms': '604800000'}
    """
    defaults_of_each = [_defaults_of(broker) for broker in brokers]
    if not defaults_of_each:
        return {}

    def is_agreed(name: str, value: str) -> bool:
        """Return whether all brokers have this value by default."""
        return all(defaults.get(name) == value for defaults in defaults_of_each)

    first_defaults = defaults_of_each[0]
    return {name: value for name, value in first_defaults.items() if is_agreed(name, value)}


def _defaults_of(broker: Mapping[str, str]) -> dict[str, str]:
    """Return a broker's settings by the names that topics have for them; retention in ms."""
    defaults = {setting: broker[name] for name, setting in _BROKER_NAMES.items() if name in broker}
    for name, unit_ms in _RETENTION_MS:
        if name in broker:
            number = int(broker[name])
            # a negative number of any unit is no limit, which a topic writes as -1
            defaults["retention.ms"] = str(number * unit_ms if number >= 0 else -1)
            break  # of the three only the first that is set holds
    return defaults


def defaults_of_topics(topics: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return what topics that are there have by default; where two differ, nothing.

    `topics` has the settings of each topic that were not set for it.
    """
    values_by_name: dict[str, set[str]] = {}
    for settings in topics:
        for name, value in settings.items():
            values_by_name.setdefault(name, set()).add(value)
    defaults: dict[str, str] = {}
    for name, values in values_by_name.items():
        if len(values) == 1:
            defaults[name] = values.pop()  # the only one
    return defaults
