"""Frees input ids that belong to the wrong group, and groups that nobody needs.

Ackers learn from takes which group has which input, and the first take of an
id decides: they cannot know which group has a right to it. So a take that
somebody wrote by mistake, or on purpose, keeps an id from its owner. What an
acker partition has learned so is a *claim*: this input id is that group's. Here
an operator names the group that has no right to an id, and its claims are
removed. This program becomes the owner of each acker partition in place of its
acker, which then restores the partition from what was written.

What was initialised under a freed id stays initialised, since a position is
initialised once. So the input goes on in a new generation. Open roots are
abandoned: nothing is lost.

Source: docs/design/protocol.md, section 4, "What one record can claim".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.errors import Aborted, Fenced, UsageError
from acker.identity import GENERATION_MAX, generation_of, input_id_of
from acker.kafka.port import Log
from acker.ledger.cohort import Session
from acker.ledger.sessions import FREE, SourceGeneration
from acker.service.core import PartitionCore
from acker.service.partition import PartitionAcker
from acker.service.restore import Restore
from acker.service.state import state_codec
from acker.service.state_notes import StateNotes
from acker.service.view import AckerView, ViewReader
from acker.wire.codec import wire_codec

TRIES: Final = 5
"""How often a partition is taken from its acker, which may take it back before we are done."""

IsToFree = Callable[[int, str], bool]
"""Called with an input id and the group that has it; returns whether that is to be freed."""


@dataclass(frozen=True, slots=True)
class Claim:
    """That an input id is a group's, as one acker partition has it, and what it has of the input.

    Attributes:
        partition: the number of the acker partition.
        topics: the topics that were named for it.
        sources: those of the input that takes have named.
        initialised: by source, the generation of the last position that was
            initialised.
        open_roots: those of the input that have no verdict.
        owner: the session that has the group; None: none ever took it there.
    """

    partition: int
    input_id: int
    group: str
    topics: tuple[str, ...]
    sources: tuple[int, ...]
    initialised: Mapping[int, int] = field(default_factory=dict)
    open_roots: int = 0
    owner: Session | None = None

    def __str__(self) -> str:
        """Return a sentence that an operator decides by."""
        initialised = "some of it initialised" if self.initialised else "nothing of it initialised"
        return (
            f"acker partition {self.partition}: input id {self.input_id} is of group {self.group}, topic"
            f" {', '.join(self.topics)}, {len(self.sources)} sources, {initialised},"
            f" {self.open_roots} roots open"
        )


def claims_of(view: AckerView, is_to_free: IsToFree) -> list[Claim]:
    """Return which input ids are to be freed in an acker partition, each as a `Claim`, ascending.

    A claim is what the acker partition has learned from takes: this input id is
    that group's. `is_to_free` decides, by input id and group.
    """
    # by input id, then by source
    generations_by_input: dict[int, dict[int, SourceGeneration]] = {}
    for source, source_generation in view.sources().items():
        input_id = input_id_of(source)
        if source_generation.group != FREE and is_to_free(input_id, source_generation.group):
            generations_by_input.setdefault(input_id, {})[source] = source_generation
    if not generations_by_input:
        return []
    open_counts = Counter[int]()  # by input id
    for open_range in view.open_ranges():
        # `at`: the indices of its open roots
        open_counts[input_id_of(open_range.source)] += len(open_range.at)
    claims: list[Claim] = []
    for input_id, sources in sorted(generations_by_input.items()):
        initialised: dict[int, int] = {}  # by source, a generation
        for source in sources:
            watermark = view.watermark(source)
            # 0: no position of it was ever initialised here
            if watermark:
                initialised[source] = generation_of(watermark)
        # one group has all sources of an input, so the first source shows it
        group = next(iter(sources.values())).group
        topics = {source_generation.topic for source_generation in sources.values()}
        claims.append(
            Claim(
                partition=view.partition,
                input_id=input_id,
                group=group,
                topics=tuple(sorted(topics)),
                sources=tuple(sorted(sources)),
                initialised=initialised,
                open_roots=open_counts[input_id],
                owner=view.owner(group),
            )
        )
    return claims


def next_generations(claims: Iterable[Claim]) -> dict[int, int]:
    """Return by source the generation in which a freed source goes on: the one after all that it
    used.

    `claims` say which input ids are freed. A source of which no position was
    initialised is missing. Raises `UsageError`: the last generation is used, so
    that none can follow.
    """
    generation_by_source: dict[int, int] = {}
    for claim in claims:
        for source, generation in claim.initialised.items():
            if generation >= GENERATION_MAX:
                raise UsageError(
                    f"of input id {claim.input_id} positions of the last generation, {GENERATION_MAX:,}, are"
                    " initialised, so that nothing can follow; give the input a new id in topics.yaml"
                )
            # acker partitions may have come to different generations: the highest counts
            generation_by_source[source] = max(generation + 1, generation_by_source.get(source, 0))
    return generation_by_source


def remove_claims(
    core: PartitionCore, claims: Iterable[Claim], generation_by_source: Mapping[int, int]
) -> None:
    """Free the input ids of some claims in an acker partition, and abandon the open roots of
    their sources.

    `core` is the acker partition. `generation_by_source` has the generations in which the
    sources go on, as `next_generations` returns them.
    """

    def session_time_ms(session: Session) -> int:
        """Return what the clock of a session shows; it is the time of the verdicts."""
        return core.sessions.clock(session).counted_ms

    for claim in claims:
        # before `free_sources`: an open root has a session only as long as a group has its source
        core.ledger.abandon_sources(set(claim.sources), session_time_ms)
        core.sessions.free_sources(claim.sources, generation_by_source)


def forget_groups(core: PartitionCore, names: Collection[str]) -> list[str]:
    """Remove from an acker partition those of the named groups that have no source any more.

    `core` is the acker partition. Their open roots are settled as ABANDONED.
    Returns the names of the removed groups, sorted.
    """
    used_groups = {source_generation.group for source_generation in core.sessions.sources.values()}
    unused_groups = sorted(core.sessions.groups.keys() & set(names) - used_groups)
    for group in unused_groups:
        # Marks say which of a session's records were applied. It may have marks and no open root,
        # or open roots and no mark.
        marked_sessions = core.ack_marks.latest.sessions(group) | core.fail_marks.sessions(group)
        sessions_with_roots = set(core.ledger.sessions(group))
        for session in marked_sessions | sessions_with_roots:
            decided_at_ms = core.sessions.clock(session).counted_ms
            core.ledger.abandon(session, decided_at_ms)
            core.ack_marks.forget(session)
            core.fail_marks.forget(session)
        core.sessions.forget_group(group)
    return unused_groups


@dataclass(frozen=True, slots=True)
class Freeing:
    """Works on the acker partitions of an installation, with the rights of an acker.

    Attributes:
        partitions: how many acker partitions there are.
        group: of the ackers; their transactional ids begin with it.
    """

    log: Log
    topics: AckTopics
    partitions: int
    group: str
    limits: AckerLimits

    def read_claims(self, is_to_free: IsToFree) -> list[Claim]:
        """Return what `free` would remove, of all acker partitions; change nothing.

        A claim is that an input id is a group's, as one acker partition has it. An
        acker partition that never wrote State has none.
        """
        reader = ViewReader(self.log, self.topics, self.partitions, self.limits)
        claims: list[Claim] = []
        for partition in range(self.partitions):
            view = reader.view(partition)
            if view is not None:
                claims += claims_of(view, is_to_free)
        return claims

    def free(self, is_to_free: IsToFree, claims: Iterable[Claim], groups: Collection[str]) -> int:
        """Free input ids in every acker partition, and forget those of `groups` that have no
        source any more.

        Returns how many acker partitions were changed. `is_to_free` decides which
        ids are freed, by input id and group. `claims` is what `read_claims`
        returned: they decide in which generations the freed sources go on. The call
        may be repeated.

        Raises:
            Fenced: an acker took a partition back, time and again.
            UsageError: something more was initialised meanwhile: read the claims again.
        """
        generation_by_source = next_generations(claims)
        changed_count = 0
        for partition in range(self.partitions):
            if self._free_with_retries(partition, is_to_free, generation_by_source, groups):
                changed_count += 1
        return changed_count

    def _free_with_retries(
        self,
        partition: int,
        is_to_free: IsToFree,
        generation_by_source: Mapping[int, int],
        groups: Collection[str],
    ) -> bool:
        """Free input ids and forget groups in an acker partition.

        Returns whether it had any of them. If the acker takes the partition back
        meanwhile, it is tried again, `TRIES` times in all; the last try raises
        `Fenced` or `Aborted`. `is_to_free` is true of the input ids to free, by id
        and group; `generation_by_source` has the generation in which a source goes
        on; `groups` are those to forget.
        """
        for _ in range(TRIES - 1):
            try:
                return self._free_once(partition, is_to_free, generation_by_source, groups)
            except (Fenced, Aborted):
                continue
        return self._free_once(partition, is_to_free, generation_by_source, groups)

    def _free_once(
        self,
        partition: int,
        is_to_free: IsToFree,
        generation_by_source: Mapping[int, int],
        groups: Collection[str],
    ) -> bool:
        """Take an acker partition over from its acker, restore it, change it, and write State.

        Freed are the input ids of groups for which `is_to_free(input_id, group)` is
        true; removed are those of `groups` that have no source any more. Returns
        whether there was anything to remove; without that nothing is written.

        Args:
            generation_by_source: by source, where freed sources go on, as `free` has decided it.

        Raises:
            Fenced: the acker took the partition back.
            Aborted: the transaction with State was aborted.
            UsageError: more was initialised than `generation_by_source` allows for.
        """
        transactions = self.log.transactions(f"{self.group}-{partition}")
        with closing(transactions):
            transactions.init(self.limits.operation_ms)  # fences the acker
            restore = Restore(
                self.log, self.topics, self.partitions, self.limits, wire_codec(), state_codec()
            )
            core = restore.restore(partition)
            # `claims_of` reads sources, watermarks and open ranges of the view, and no times
            view = AckerView(core, at_ms=0, notes=StateNotes(), is_behind=False)
            claims = claims_of(view, is_to_free)
            for source, generation in next_generations(claims).items():
                # the generations were decided before this partition was ours: a session may have
                # initialised positions of a later one since
                if generation > generation_by_source.get(source, 0):
                    raise UsageError(
                        f"a session goes on with source {source} of input id {input_id_of(source)}: stop it,"
                        " and repeat the command"
                    )
            remove_claims(core, claims, generation_by_source)
            forgotten_groups = forget_groups(core, groups)
            if not claims and not forgotten_groups:
                return False
            owned_partition = PartitionAcker(core, transactions, self.topics, self.limits, state_codec())
            owned_partition.write()  # the changed State, and the verdicts of what was abandoned
        return True
