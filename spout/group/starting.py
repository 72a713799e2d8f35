"""The first offset of a source for a group, and the check that nobody else moved the group's commits.

Source: docs/design/protocol.md, section 5.1 ("Start of a group without history here");
docs/design/conformance.md, P15.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from acker.config.settings import AckTopics
from acker.errors import Disagreement
from acker.identity import input_id_of, offset_of
from acker.kafka.port import Bound, OffsetAnswers, TopicPartition
from acker.ledger.sessions import CLAIMED
from acker.listing import first_of
from acker.units import second_text
from acker.untrusted import Untrusted
from acker.wire.checks import AHEAD
from acker.wire.clusters import is_of_another
from acker.wire.events import SourceRun
from spout.group.announce import PlannerContext
from spout.group.sources import PlannerSpec, SourceSpec
from spout.group.strangers import END_IT, NAMED_MAX, MovedCommit, moved_cure, strangers_now
from spout.planning.journal import Journal
from spout.planning.session import Answers, SessionName, SourceHistory

COMMITTED_BY = "windhover"
"""The metadata of every offset that a spout commits begins so; other tools leave another."""


def commit_mark(topics: AckTopics) -> str:
    """Return the metadata of every offset that the spouts of an installation commit.

    It has the `acker.topic_prefix`, so that two installations that read in one group are noticed.
    """
    return f"{COMMITTED_BY} {topics.prefix}".rstrip()


def is_own_mark(text: str, mark: str) -> bool:
    """Return whether the metadata of a commit is ours; `mark` is of our installation.

    Older versions wrote no prefix.
    """
    return text in (mark, COMMITTED_BY)


def prefix_in_mark(text: str) -> str | None:
    """Return the `acker.topic_prefix` in the metadata of a commit; None: no spout made it."""
    program, _, prefix = text.partition(" ")
    return prefix if program == COMMITTED_BY else None


WRITERS_WAIT_MS: Final = 300_000
"""A producer keeps a record for so long that it cannot write, by librdkafka's default; its time is older by
that when it is in the log."""


class Begun(NamedTuple):
    """What a group has begun to read.

    Attributes:
        sources: those of which it has a history.
        left_out: those that it left out, since they had no leader, each with the wall time at
            which, ms.
    """

    sources: Collection[int]
    left_out: Mapping[int, int]


def _start_of(source_spec: SourceSpec, planner_spec: PlannerSpec, begun: Begun) -> str | int:
    """Return where a group begins to read a source, as its input or the query says.

    That is ``earliest``, ``latest``, another word for the group's commit, or a time, ms since 1970.
    For a source that was left out and was to begin at ``latest`` it is a time: nobody knows where
    it ended then.
    """
    start = planner_spec.start if planner_spec.start is not None else source_spec.input.start
    if start != "latest" or source_spec.source not in begun.left_out:
        return start
    # a record that came since may be older than that, by as long as its producer could not write it
    left_out_ms = begun.left_out[source_spec.source]
    return max(0, left_out_ms - WRITERS_WAIT_MS)


def starting_offsets(context: PlannerContext, specs: Iterable[SourceSpec], begun: Begun) -> dict[int, int]:
    """Return by source the first offset of each source without history; `specs` are these sources.

    Sources of which nobody knows it now are missing.

    A replay topic begins at 0: every copy in it is for this group only. Those below the commit of a
    spout are settled, though the ackers, under a new `acker.topic_prefix`, do not know of it. A new
    partition of a topic that the group has read begins at 0, too: where the log begins above it by
    now, planning decides about what is lost. One that was left out when the group began is no new
    one: it begins as the others did.
    """
    first_offsets: dict[int, int] = {}
    specs = list(specs)  # gone through twice
    # 1. What needs no start: replay topics, and new partitions.
    specs_by_start: dict[str | int, list[SourceSpec]] = {}
    begun_input_ids = set(map(input_id_of, begun.sources))
    replay_places = [spec.place for spec in specs if spec.is_replay]
    settled_below = _committed_by_spouts(context, replay_places)
    for spec in specs:
        # the group has read the topic, so the partition was added to it since
        is_added = spec.input.id in begun_input_ids and spec.source not in begun.left_out
        if spec.is_replay:
            # nobody knows the commit of a partition in trouble: it comes later
            if spec.place not in context.troubles:
                first_offsets[spec.source] = settled_below.get(spec.place, 0)
        elif is_added:
            first_offsets[spec.source] = 0
        else:
            start = _start_of(spec, context.spec, begun)
            specs_by_start.setdefault(start, []).append(spec)
    # 2. The others, those of one start in one question.
    for start, specs_of_start in specs_by_start.items():
        places = [spec.place for spec in specs_of_start]
        answers = _ask_first_offsets(context, start, places)
        context.troubles.record_answers(answers)
        for spec in specs_of_start:
            if spec.place in answers.offsets:
                first_offsets[spec.source] = answers.offsets[spec.place]
    return first_offsets


def _committed_by_spouts(
    context: PlannerContext, places: list[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Return the committed offsets that a spout wrote, by partition, and that are in the log.

    One that is behind the end says nothing: the log was cut.
    """
    log, group = context.log, context.spec.group
    metadata = log.commit_metadata(group, places)
    ours = [place for place, text in metadata.items() if prefix_in_mark(text) is not None]
    commits = log.committed(group, ours)
    answers = log.bounds(Bound.END, ours)
    context.troubles.record_answers(answers)
    ends = answers.offsets
    return {place: offset for place, offset in commits.items() if place in ends and offset <= ends[place]}


def _ask_first_offsets(
    context: PlannerContext, start: str | int, places: list[TopicPartition]
) -> OffsetAnswers:
    """Ask the broker for the first offsets of partitions, for a start as `_start_of` returns it.

    Where the group's commits say it, a partition without a commit begins at the start of its log.
    """
    log = context.log
    if isinstance(start, int):  # a time
        return log.bounds(start, places)
    if start in ("latest", "earliest"):
        return log.bounds(Bound.STABLE_END if start == "latest" else Bound.START, places)
    committed = log.committed(context.spec.group, places)  # known without the partition's leader
    earliest = log.bounds(Bound.START, [place for place in places if place not in committed])
    return OffsetAnswers({**earliest.offsets, **committed}, earliest.troubles)


class Reached(NamedTuple):
    """How far a group has come.

    Attributes:
        emitted_to: by source, the offset up to which it has emitted.
        at_ms: when it was so, the wall time of its last batch; None: it is unknown.
    """

    emitted_to: Mapping[int, int]
    at_ms: int | None = None


def check_commits(
    context: PlannerContext,
    specs: Iterable[SourceSpec],
    reached: Reached,
    now_ms: int,
    *,
    other_prefix_passes: bool = False,
) -> None:
    """Raise `Disagreement` if somebody moved the committed offsets of sources; `specs` are these.

    It names what moved, from and to, when that was, who is in the group now, and what puts it
    right.

    `other_prefix_passes`: whether a commit under another `acker.topic_prefix` is no move. A
    checkpoint alone does not show whose it is: it may be our own, of before a change of the prefix.
    """
    log, group, mark = context.log, context.spec.group, commit_mark(context.spec.topics)
    specs_by_place = {spec.place: spec for spec in specs}
    metadata = log.commit_metadata(group, specs_by_place)
    places: list[TopicPartition] = []
    for place, text in sorted(metadata.items()):
        may_be_ours = other_prefix_passes and prefix_in_mark(text) is not None
        if not may_be_ours and not is_own_mark(text, mark):
            places.append(place)
    if not places:
        return
    their_offsets = log.committed(group, places)
    moved_commits: list[MovedCommit] = []
    for place in places:
        emitted_to = reached.emitted_to.get(specs_by_place[place].source)
        their_prefix = prefix_in_mark(metadata[place])
        moved_commits.append(MovedCommit(place, emitted_to, their_offsets.get(place), their_prefix))
    moved_text = first_of([str(commit) for commit in moved_commits], NAMED_MAX, "; ")
    # it was moved between the group's last batch, where that is known, and now
    since_text = "" if reached.at_ms is None else f"after {second_text(reached.at_ms)}, and "
    members = strangers_now(log, group)
    stranger_hint = f" In the group is now {members}: first {END_IT}." if members else ""
    first_moved = moved_commits[0]
    mover = "something else than Windhover"
    if first_moved.prefix is not None:
        mover = "another installation of Windhover"
    cure = moved_cure(group, specs_by_place[first_moved.place].input.name, first_moved)
    raise Disagreement(
        f"committed offsets of group {group} were moved by {mover}: {moved_text}"
        f" (Windhover has emitted up to the first, and committed what was settled of it). It was"
        f" {since_text}seen at {second_text(now_ms)}.{stranger_hint} What is done stays done; {cure}"
    )


def check_topic(spec: SourceSpec, history: SourceHistory) -> None:
    """Raise `Disagreement` if Kafka has another id for a topic than the ackers."""
    if history.topic_id != spec.topic_id:
        raise re_created(spec, history.topic_id)


def check_cluster(journal: Journal, cluster_id: str) -> None:
    """Raise `Disagreement` if the checkpoint is of another cluster than this one, `cluster_id`."""
    if is_of_another(journal.cluster, cluster_id):
        raise Disagreement(
            f"the checkpoint is of cluster {Untrusted(journal.cluster)}, and this is cluster"
            f" {cluster_id}, where its offsets are those of other records: go on in the former cluster,"
            " or start the query with a fresh checkpoint, as docs/operate/failover.md says"
        )


def check_journal(specs: Iterable[SourceSpec], journal: Journal, *, tracked: bool) -> None:
    """Raise `Disagreement` if a source has another topic than in the checkpoint, or that has another id."""
    for spec in specs:
        former_id = journal.topics.get(spec.place.topic, spec.topic_id)
        if former_id != spec.topic_id:
            raise re_created(spec, former_id, tracked=tracked)
        # a journal without topics is of an older version, which did not write them
        was_read = spec.source in journal.sources
        if was_read and journal.topics and spec.place.topic not in journal.topics:
            raise Disagreement(
                f"input {spec.input.name}, id {spec.input.id}, has topic {spec.place.topic} now, and by its"
                f" checkpoint it read {', '.join(sorted(journal.topics))}: name the former topic again,"
                " or make the new one another input, with an id of its own"
            )


def refused_by_acker(answers: Answers, name: SessionName, group: str) -> Disagreement:
    """Build the error for a `Take` that acker partitions refuse; it names the first of them."""
    partition, reason = next(iter(answers.refusals.items()))
    cure = "make topics.yaml agree with the ackers'"
    if AHEAD in reason:  # by this machine's clock the session would be one of the future
        cure = "set the clock of this machine"
    elif CLAIMED in reason:  # another group has the input's id
        cure += ", or free the id with `windhover acker free` where that group has no right to it"
    return Disagreement(
        f"acker partition {partition} refuses session {name} of group {group}: {Untrusted(reason)}; {cure}"
        " and start again"
    )


def clock_ahead(name: SessionName, spec: PlannerSpec, ahead_ms: int) -> Disagreement:
    """Build the error for a session whose clock is too far ahead for the ackers to take its ticks.

    `ahead_ms` is how far it is ahead of this machine's; `spec.way` how a user takes the group over.
    """
    return Disagreement(
        f"the clock of session {name} of group {spec.group} is {ahead_ms // 1_000} s ahead of this"
        " machine's, so that ackers take none of its ticks: a record in the ack topics had a wrong time, or"
        " the clock of a machine was wrong. Correct the clock if it is this machine's; else start the query"
        f" with {spec.way}, which goes on with a new session and replays what is open"
    )


def older_checkpoint(spec: SourceSpec, acked: SourceRun, way: str) -> Disagreement:
    """Build the error for a checkpoint that does not have all that its session did, as a restored backup.

    `acked` are positions that are ACKED although no batch of the checkpoint has emitted them.
    """
    first_offset = offset_of(acked.start)
    last_offset = offset_of(acked.end - 1)
    return Disagreement(
        f"the checkpoint is older than what its query did, as a restored backup is: of {spec} offsets"
        f" {first_offset} to {last_offset} are ACKED, and no batch of it has emitted them. From here Spark"
        " would use batch numbers twice, so that acks do not count and records time out; and its state lacks"
        " what was read since. Start the query with a fresh checkpoint, where its state needs older records"
        f" after `windhover offsets reset {spec.input.name} --to TIME --execute`; or go on from this one with"
        f" {way}, which replays what is open. If another driver has run from this checkpoint a moment ago,"
        " only start again"
    )


def log_was_cut(spec: SourceSpec, first_lost: int, read_to: int, end: int | None) -> Disagreement:
    """Build the error for a log that has lost records which its group has read.

    Args:
        spec: the source.
        first_lost: the first lost offset.
        read_to: the offset up to which the group has read the log.
        end: where the log ends now; None: nobody says.
    """
    name = spec.input.name
    group = spec.input.group
    has_grown = end is None or end > first_lost
    state = f"has other records from offset {first_lost} on" if has_grown else f"ends at {first_lost}"
    # nobody could say what waits behind what: the keys of lost records are in no log
    is_skippable = not spec.input.ordered
    other_cure = (
        f"; or set on_data_loss: skip, which goes on from offset {first_lost}" if is_skippable else ""
    )
    return Disagreement(
        f"{spec} {state}, and group {group} has read it to {read_to}: the log was cut, as by an unclean"
        f" leader election; run `windhover offsets reset` for input {name} to begin a new generation, then"
        f" start with a fresh checkpoint{other_cure}"
    )


def re_created(spec: SourceSpec, former_id: str, *, tracked: bool = True) -> Disagreement:
    """Build the error for a topic that has another id than `former_id`, by which its group knows it."""
    if tracked:
        cure = (
            f"run `windhover offsets reset` for input {spec.input.name} to begin a new generation,"
            " then start with a fresh checkpoint"
        )
    else:
        cure = "start the query, which is untracked, with a fresh checkpoint"
    return Disagreement(
        f"topic {spec.place.topic} was re-created: its id is {spec.topic_id}, group {spec.input.group} knows"
        f" {former_id}; {cure}"
    )
