"""Commit a group's offsets: the prefix below which every record is settled.

The commits are for tools that show lag. What is settled is decided by the ackers, so a commit that
fails does no harm and is tried again. A *check* asks the broker which commits it has, and who made
them.

Source: docs/design/protocol.md, sections 2 (generation) and 5.1; docs/design/conformance.md, S87,
S100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from acker.errors import LogError, Unreachable
from acker.identity import generation_of, offset_of
from acker.kafka.port import NO_EPOCH, Log, ReadTo, TopicPartition
from acker.waits import LastTime
from spout.group.sources import SourceSpec
from spout.group.starting import COMMITTED_BY, is_own_mark, prefix_in_mark
from spout.group.strangers import MovedCommit
from spout.planning.intake import SourceCursor

COMMIT_EVERY_MS = 3_000
"""How often the group's offsets are committed while roots are pending."""

COMMIT_IDLE_MS = 500
"""With nothing pending a commit does not wait long: the process may be killed at any moment, and often is."""

VERIFY_EVERY_MS = 30_000
"""An earlier process of the session that wakes up may commit a lower offset; then we commit ours again."""


COMMIT_AGAIN_MS = 300_000
"""A partition in which nothing comes is committed again so often: the broker forgets the commit of a group
without members after `offsets.retention.minutes`, a week by default. What it has forgotten all the
same is committed again at the next check (`VERIFY_EVERY_MS`).
"""


class Committer:
    """Commits for one group; an offset never goes backwards within a generation.

    Attributes:
        failures: how many commits and checks have failed.
        refused: why the broker refused the last commit; empty: it took it, did not answer, or was
            not asked.
        moved: by source, commits that somebody else made, as of the last check.
    """

    def __init__(
        self, log: Log, group: str, specs: Mapping[int, SourceSpec], mark: str = COMMITTED_BY
    ) -> None:
        """Read what is committed; `specs` are by source, and new sources may be added to them.

        `mark` is the metadata of our installation's commits, as `commit_mark` returns it.
        """
        self._mark = mark
        self._log = log
        self._group = group
        self._specs = specs
        # by source: what the broker has, as far as this process knows
        self._committed_offsets = self._fetch_offsets(specs.values())
        # by source: what was committed when this began, with the leader epoch
        self._read_to = self._fetch_epochs(specs.values())
        self._cursors: Mapping[int, SourceCursor] = {}
        # by source, the generation of the last commit; below 0: the next commit is the first of a new one
        self._generations: dict[int, int] = {}
        self._last_try = LastTime()  # to commit
        self._last_check = LastTime()  # of what the broker has
        self._last_renewal = LastTime()  # of all commits
        self.failures = 0
        self.refused = ""
        self.moved: dict[int, MovedCommit] = {}

    def use_cursors(self, cursors: Mapping[int, SourceCursor]) -> None:
        """Take the leader epochs that are committed with each offset from these cursors, by source."""
        self._cursors = cursors

    def read_to(self) -> Mapping[int, ReadTo]:
        """Return, by source, what was committed when this began; one without an epoch is missing."""
        return self._read_to

    def allow_lower_commit(self, source: int) -> None:
        """Allow the next commit of a source to be lower than the last: it is in a new generation."""
        self._generations[source] = -1

    def replace_foreign_commits(self, committable: Mapping[int, int]) -> None:
        """Replace commits that no spout wrote, so that it shows later if somebody moves the offsets.

        `committable` has positions by source.
        """
        positions: dict[int, int] = {}  # by source
        for spec, mark in self._fetch_marked_specs():
            if not is_own_mark(mark, self._mark) and spec.source in committable:
                positions[spec.source] = committable[spec.source]
        self._commit(positions)

    def step(self, committable: Callable[[], Mapping[int, int]], now_ms: int, *, idle: bool) -> bool:
        """Commit every `COMMIT_EVERY_MS`, or `COMMIT_IDLE_MS` when nothing is pending (`idle`).

        Return whether anything was committed.

        `committable` is called when it is time, since it takes milliseconds for a thousand sources.
        """
        wait_ms = COMMIT_IDLE_MS if idle else COMMIT_EVERY_MS
        if not self._last_try.begin_if_due(now_ms, wait_ms):
            return False
        if self._last_check.at_ms is None:  # what was committed is known from the start
            self._last_check.at_ms = now_ms
        elif self._last_check.begin_if_due(now_ms, VERIFY_EVERY_MS):
            self._check_commits(now_ms)
        return self.commit(committable())

    def commit(self, committable: Mapping[int, int]) -> bool:
        """Commit, by source, positions above the last commit; return whether anything was committed."""
        new_positions = {
            source: position for source, position in committable.items() if self._is_new(source, position)
        }
        return self._commit(new_positions)

    def committed(self) -> dict[int, int]:
        """Return the offsets that are committed, by source, as far as this process knows."""
        return dict(self._committed_offsets)

    def _check_commits(self, now_ms: int) -> None:
        """Ask what became of our commits; commit again what the broker has forgotten or soon would.

        1. Ask the broker which commits it has, and by whom.
        2. Record those that somebody else made.
        3. Commit ours again: those that the broker has forgotten, and every `COMMIT_AGAIN_MS` all.
        """
        # 1. what the broker has
        try:
            marked_specs = self._fetch_marked_specs()
            our_specs = [spec for spec, mark in marked_specs if is_own_mark(mark, self._mark)]
            self._committed_offsets |= self._fetch_offsets(our_specs)
        except (LogError, Unreachable):
            self.failures += 1
            return
        # 2. what is somebody else's
        moved = [(spec, mark) for spec, mark in marked_specs if not is_own_mark(mark, self._mark)]
        self._record_moved(moved)
        # 3. ours again
        kept_by_broker = {spec.source for spec, _ in marked_specs}
        # below 0: the next commit is the first of a new generation, and the last one no longer holds
        in_new_generation = {source for source, generation in self._generations.items() if generation < 0}
        ours = self._committed_offsets.keys() - self.moved.keys() - in_new_generation
        if self._last_renewal.at_ms is None:  # the first check: all was committed a moment ago
            self._last_renewal.at_ms = now_ms
        is_renewal_due = self._last_renewal.is_due(now_ms, COMMIT_AGAIN_MS)
        to_repeat = ours if is_renewal_due else ours - kept_by_broker
        if not to_repeat:
            return
        has_sent = self._send({source: self._committed_offsets[source] for source in to_repeat})
        if has_sent and is_renewal_due:
            self._last_renewal.at_ms = now_ms

    def _record_moved(self, marked_specs: Sequence[tuple[SourceSpec, str]]) -> None:
        """Keep in `moved` the commits that somebody else made, in place of those of the last check.

        `marked_specs`: their sources, each with the commit's metadata. A source that is not among
        them any more was committed by us again.
        """
        moved_specs = [spec for spec, _ in marked_specs]
        their_offsets = self._fetch_offsets(moved_specs) if moved_specs else {}
        moved: dict[int, MovedCommit] = {}
        for spec, mark in marked_specs:
            moved[spec.source] = MovedCommit(
                place=spec.place,
                ours=self._committed_offsets.get(spec.source),
                theirs=their_offsets.get(spec.source),
                prefix=prefix_in_mark(mark),
            )
        self.moved = moved

    def _fetch_marked_specs(self) -> list[tuple[SourceSpec, str]]:
        """Ask the broker for the sources that have a commit; return each with its metadata.

        In a commit of ours that is our mark.
        """
        specs_by_place = {spec.place: spec for spec in self._specs.values()}
        marks_by_place = self._log.commit_metadata(self._group, specs_by_place)
        return [(specs_by_place[place], mark) for place, mark in marks_by_place.items()]

    def _fetch_offsets(self, specs: Iterable[SourceSpec]) -> dict[int, int]:
        """Ask the broker for the committed offsets of sources; return them by source."""
        sources_by_place = {spec.place: spec.source for spec in specs}
        offsets_by_place = self._log.committed(self._group, sources_by_place)
        return {sources_by_place[place]: offset for place, offset in offsets_by_place.items()}

    def _fetch_epochs(self, specs: Iterable[SourceSpec]) -> dict[int, ReadTo]:
        """Ask the broker for the leader epochs of commits.

        Return by source the offset with its epoch.
        """
        sources_by_place = {spec.place: spec.source for spec in specs}
        epochs_by_place = self._log.committed_epochs(self._group, sources_by_place)
        read_to: dict[int, ReadTo] = {}
        for place, epoch in epochs_by_place.items():
            source = sources_by_place[place]
            if source in self._committed_offsets:
                read_to[source] = ReadTo(self._committed_offsets[source], epoch)
        return read_to

    def _commit(self, positions: Mapping[int, int]) -> bool:
        """Commit positions, by source; return whether there were any, and the broker has them."""
        offsets = {source: int(offset_of(position)) for source, position in positions.items()}
        if not offsets or not self._send(offsets):
            return False
        self._committed_offsets |= offsets
        self._generations |= {source: generation_of(position) for source, position in positions.items()}
        return True

    def _send(self, offsets: Mapping[int, int]) -> bool:
        """Commit offsets, by source, and set `refused`; return whether the broker has them."""
        offsets_by_place: dict[TopicPartition, int] = {}
        epochs_by_place: dict[TopicPartition, int] = {}
        for source, offset in offsets.items():
            place = self._specs[source].place
            offsets_by_place[place] = offset
            cursor = self._cursors.get(source)
            if cursor is not None and cursor.leader_epoch != NO_EPOCH:
                epochs_by_place[place] = cursor.leader_epoch
        try:
            self._log.commit(self._group, offsets_by_place, self._mark, epochs_by_place)
        except Unreachable:  # the broker did not answer, so it refused nothing
            self.failures += 1
            self.refused = ""
            return False
        except LogError as error:
            self.failures += 1
            self.refused = str(error)
            return False
        self.refused = ""
        return True

    def _is_new(self, source: int, position: int) -> bool:
        """Return whether a position has to be committed: above the last commit, or of a later generation."""
        committed = self._committed_offsets.get(source, 0)
        if offset_of(position) > committed:
            return True
        # after a rewind the new generation's offsets begin below those of the former one
        generation = generation_of(position)
        committed_generation = self._generations.get(source, generation)
        return offset_of(position) < committed and generation > committed_generation
