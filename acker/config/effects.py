"""Names for each key of topics.yaml what a change of it asks: which running processes must start
again.

What docs/reference/topics.md, docs/operate/restarts.md and `windhover explain` say of a change,
and the lines of ``windhover validate OLD NEW``, are written from this table. A key without an entry
fails a test, so whoever adds a key decides this as well.

A process reads the file when it starts. Only a replay worker takes a newer file while it runs, on
SIGHUP (`replay.worker.service.ReplayService.take_topics`, which refuses what it cannot change).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Process(StrEnum):
    """A kind of process that reads topics.yaml.

    `QUERY` is every reader of an input, also a `KafkaSpout`.
    """

    QUERY = "query"
    ACKER = "acker"
    REPLAY = "replay worker"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change of one key asks.

    Attributes:
        start: the processes that must start again.
        reload: those that take the change on SIGHUP; a start is as good.
        also: what else an operator does, as a sentence without its full stop; empty: nothing.
        why_refused: why the key is not changed while the input or the topics are in use, and what to do
            instead; empty: it may be changed.
    """

    start: tuple[Process, ...] = ()
    reload: tuple[Process, ...] = ()
    also: str = ""
    why_refused: str = ""

    def text(self) -> str:
        """Return in one line which processes must start again after a change, and what else to do.

        ``windhover validate OLD NEW`` prints it.

        >>> Effect(start=(Process.QUERY,), reload=(Process.REPLAY,), also="run X").text()
        'query, replay worker (SIGHUP); run X'
        """
        if self.why_refused:
            return f"never: {self.why_refused}"
        names = [str(process) for process in self.start]
        names += [f"{process} (SIGHUP)" for process in self.reload]
        processes = ", ".join(names) or "nobody"
        return f"{processes}; {self.also}" if self.also else processes

    def sentences(self) -> list[str]:
        """Return the same as `text` in sentences, as docs/reference/topics.md has it.

        >>> Effect(start=(Process.QUERY,), reload=(Process.REPLAY,), also="run X").sentences()
        ['Restart the query.', 'SIGHUP is enough for the replay workers.', 'Run X.']
        """
        if self.why_refused:
            return ["Do not change it in use.", _sentence(self.why_refused)]
        sentences = []
        if self.start:
            sentences.append(f"Restart {_named(self.start)}.")
        if self.reload:
            sentences.append(f"SIGHUP is enough for {_named(self.reload)}.")
        if not sentences:
            sentences.append("No process needs a restart.")
        if self.also:
            sentences.append(_sentence(self.also))
        return sentences


_IN_A_SENTENCE: Final = {
    Process.QUERY: "the query",
    Process.ACKER: "the ackers",
    Process.REPLAY: "the replay workers",
    Process.PAGE: "the page",
}


def _named(processes: tuple[Process, ...]) -> str:
    *names, last_name = (_IN_A_SENTENCE[process] for process in processes)
    return f"{', '.join(names)} and {last_name}" if names else last_name


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


_ALL: Final = tuple(Process)

_CREATE: Final = "run `windhover topics create` first"
_CHECK: Final = "run `windhover topics check`: topics may have to keep records for longer"

_OF_QUERY: Final = Effect(start=(Process.QUERY,))
_SHOWN: Final = Effect(start=(Process.QUERY, Process.PAGE))
_OF_ACKER: Final = Effect(start=(Process.ACKER,))
_OF_REPLAY: Final = Effect(reload=(Process.REPLAY,))
_OF_REPLAY_START: Final = Effect(start=(Process.REPLAY,))
_OF_SCHEDULE: Final = Effect(reload=(Process.REPLAY,), also=_CHECK)

EFFECTS: Final[Mapping[str, Effect]] = {
    "kafka": Effect(start=_ALL, also="they stay on the same cluster: another one has other offsets"),
    "acker.partitions": Effect(
        why_refused="a root's partition is computed from it; drain all groups, then begin under another"
        " acker.topic_prefix"
    ),
    "acker.topic_prefix": Effect(
        start=_ALL,
        also="drain all groups first, since what is open or waits under the former prefix stays there; then"
        " run `windhover topics create`",
    ),
    # An acker fences the former owner of a partition by a transactional id, which begins with the
    # group. So ackers of two groups do not fence one another, and both would own the partition:
    # the last acker of the former group ends before the first of the new one starts.
    "acker.group": Effect(
        start=(Process.ACKER, Process.PAGE), also="end all ackers before the first one starts again"
    ),
    "acker.replay_group": Effect(
        start=(Process.ACKER, Process.REPLAY, Process.PAGE),
        also="end all replay workers before the first one starts again",
    ),
    "acker.replication_factor": Effect(
        also="it counts only for topics that are made from now on; give others their copies with"
        " `kafka-reassign-partitions`, as `windhover topics check` says"
    ),
    "acker.verdict_retention": _OF_ACKER,
    "acker.limits.pace": _OF_ACKER,
    "acker.limits.operation": _OF_ACKER,
    "acker.limits.unreachable": _OF_ACKER,
    "acker.limits.step": _OF_ACKER,
    "acker.limits.stop": _OF_ACKER,
    "acker.limits.refold_bytes": _OF_ACKER,
    "acker.limits.retention_interval": _OF_ACKER,
    # the limit of a step is at least four times this, and a running worker keeps the limit of its
    # start
    "replay.limits.operation_timeout": Effect(
        reload=(Process.REPLAY,), also="if four times this value is more than step, restart the worker"
    ),
    "replay.limits.unreachable": _OF_REPLAY,
    "replay.limits.step": _OF_REPLAY_START,
    "replay.limits.stop": _OF_REPLAY_START,
    "replay.limits.waiting_max": _OF_REPLAY,
    "replay.limits.waiting_bytes_max": _OF_REPLAY,
    "replay.limits.fetch_bytes_max": _OF_REPLAY,
    "replay.limits.input_retry": _OF_REPLAY,
    "replay.limits.breaker_window": _OF_REPLAY,
    "replay.limits.breaker_dead_min": _OF_REPLAY,
    "replay.limits.breaker_settled_min": _OF_REPLAY,
    "inputs.<name>.id": Effect(
        why_refused="another id is another input, and lost records that wait under the former id would not"
        " be emitted again; give the former id back, or add a new input and remove this one when nothing of"
        " it is pending"
    ),
    "inputs.<name>.group": Effect(
        why_refused="ackers keep the input's id for its group; add a new input with an id of its own, and"
        " remove this one when nothing of it is pending"
    ),
    "inputs.<name>.topic": Effect(
        why_refused="the group's history is of the former topic; add a new input with an id of its own, and"
        " remove this one when nothing of it is pending"
    ),
    "inputs.<name>.partitions": Effect(
        also="it counts only when the topic is made; give a topic that exists more partitions with"
        " `kafka-topics --alter`, then run `windhover topics create`"
    ),
    "inputs.<name>.timeout": Effect(start=(Process.QUERY, Process.PAGE), also=_CHECK),
    "inputs.<name>.held_timeout": Effect(start=(Process.QUERY,), also=_CHECK),
    "inputs.<name>.bolt_timeout": _OF_QUERY,
    "inputs.<name>.max_spout_pending": _SHOWN,
    "inputs.<name>.start": Effect(
        start=(Process.QUERY,),
        also="it counts only if the group has no history; else `windhover offsets reset` moves the group",
    ),
    "inputs.<name>.unreachable": _OF_QUERY,
    "inputs.<name>.on_data_loss": Effect(start=(Process.QUERY,), reload=(Process.REPLAY,)),
    "inputs.<name>.ackers": Effect(
        start=(Process.QUERY, Process.PAGE),
        reload=(Process.REPLAY,),
        also="before 0, wait until `windhover status` shows nothing pending and no replays due; before 1, run"
        " `windhover topics create`",
    ),
    # A query that runs goes on, and is ended by whoever started it. No process has to start again:
    # the page and the commands read the file anew.
    "inputs.<name>.stopped": Effect(
        also="after you set it, end the query of the input; after you remove it, start the query"
    ),
    "inputs.<name>.ordering": Effect(start=(Process.QUERY, Process.PAGE), reload=(Process.REPLAY,)),
    "inputs.<name>.max_held": _OF_QUERY,
    "inputs.<name>.hold": _OF_REPLAY,
    "inputs.<name>.retry.attempts": _OF_SCHEDULE,
    "inputs.<name>.retry.initial": _OF_SCHEDULE,
    "inputs.<name>.retry.multiplier": _OF_SCHEDULE,
    "inputs.<name>.retry.max": _OF_SCHEDULE,
    "inputs.<name>.retry.delays": _OF_SCHEDULE,
    "inputs.<name>.retry.jitter": _OF_SCHEDULE,
    "inputs.<name>.retry.time_limit": _OF_SCHEDULE,
    "inputs.<name>.retry.count_timed_out": _OF_SCHEDULE,
    "inputs.<name>.retry.count_abandoned": _OF_SCHEDULE,
    "inputs.<name>.retry.max_abandoned": _OF_SCHEDULE,
    "inputs.<name>.retry.causes": _OF_SCHEDULE,
    "inputs.<name>.replay_topic": Effect(
        why_refused="copies of the former topic would not be emitted; give the former name back"
    ),
    "inputs.<name>.dead_letter.topic": Effect(
        start=(Process.PAGE,),
        reload=(Process.REPLAY,),
        also=f"handle the letters of the former topic, since `windhover dlq` reads the new one; {_CREATE}",
    ),
    "inputs.<name>.dead_letter.max_ratio": _OF_REPLAY,
    "inputs.<name>.dead_letter.max_consecutive": _OF_REPLAY,
}
"""By the key as docs/reference/topics.md writes it.

A key in a rule of ``causes`` has the list's effect.
"""

ADDED: Final = Effect(
    start=(Process.PAGE,), reload=(Process.REPLAY,), also=f"{_CREATE}; then start its query"
)
"""What a new input asks."""

REMOVED: Final = Effect(
    start=(Process.PAGE,),
    reload=(Process.REPLAY,),
    also="before that, wait until `windhover status` shows nothing pending and no replays due, and end its"
    " query; never use its id again",
)

RENAMED: Final = Effect(
    start=(Process.QUERY, Process.ACKER, Process.PAGE),
    reload=(Process.REPLAY,),
    also="see docs/operate/rename-an-input.md",
)
"""What another name with the same id asks: ackers have the name only in labels of metrics and in spans."""


def effect_of(key: str) -> Effect:
    """Return the effect of a key.

    Of ``inputs.<name>.retry.causes[].error`` it is that of the list.
    """
    return EFFECTS[key.partition("[]")[0]]
