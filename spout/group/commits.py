"""Commit a group's offsets: the prefix below which every record is settled.

The commits are for tools that show lag. What is settled is decided by the ackers, so a commit that fails does
no harm and is tried again.

Source: docs/design/protocol.md, sections 2 (generation) and 5.1; docs/design/conformance.md, S87, S100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from acker.errors import LogError, Unreachable
from acker.identity import generation_of, offset_of
from acker.kafka.port import NO_EPOCH, Log, ReadTo
from spout.group.sources import SourceSpec
from spout.group.starting import COMMITTED_BY
from spout.group.strangers import MovedCommit
from spout.planning.intake import SourceCursor

COMMIT_EVERY_MS = 3_000

COMMIT_IDLE_MS = 500
"""With nothing pending a commit does not wait long: the process may be killed at any moment, and often is."""

VERIFY_EVERY_MS = 30_000
"""An earlier process of the session that wakes up may commit a lower offset; then we commit ours again."""


COMMIT_AGAIN_MS = 300_000
"""A partition in which nothing comes is committed again so often: the broker forgets the commit of a group
without members after `offsets.retention.minutes`, a week by default. What it has forgotten all the same is
committed again at the next look (`VERIFY_EVERY_MS`).
"""


class Committer:
    """Commits for one group; an offset never goes backwards within a generation.

    Attributes:
        refused: why the broker refused the last commit; empty: it took it, or was not asked.
        moved: by source, commits that somebody else made, as the last look found them.
    """

    def __init__(self, log: Log, group: str, specs: Mapping[int, SourceSpec]) -> None:
        self._log = log
        self._group = group
        self._specs = specs
        self._committed = self._read(specs.values())
        self._read_to = self._epochs_of(specs.values())
        self._cursors: Mapping[int, SourceCursor] = {}
        self._generations: dict[int, int] = {}
        self._tried_ms: int | None = None
        self._looked_ms: int | None = None
        self._renewed_ms: int | None = None
        self.failures = 0
        self.refused = ""
        self.moved: dict[int, MovedCommit] = {}

    def follow(self, cursors: Mapping[int, SourceCursor]) -> None:
        """Keep the leader epochs of these with the commits from now on."""
        self._cursors = cursors

    def read_to(self) -> Mapping[int, ReadTo]:
        """Return, by source, what was committed when this began, where it has an epoch."""
        return self._read_to

    def begin_again(self, source: int) -> None:
        """Let the next commit of a source be lower than the last: it is in a new generation."""
        self._generations[source] = -1

    def claim(self, committable: Mapping[int, int]) -> None:
        """Replace commits that no spout wrote, so that it shows later if somebody moves the offsets."""
        specs = [spec for spec, text in self._marked() if text != COMMITTED_BY]
        self._commit({spec.source: committable[spec.source] for spec in specs if spec.source in committable})

    def step(self, committable: Callable[[], Mapping[int, int]], now_ms: int, *, idle: bool) -> bool:
        """Commit now and then, sooner when nothing is pending (`idle`); return whether there was anything.

        `committable` is called when it is time, since it takes milliseconds for a thousand sources.
        """
        wait_ms = COMMIT_IDLE_MS if idle else COMMIT_EVERY_MS
        if self._tried_ms is not None and 0 <= now_ms - self._tried_ms < wait_ms:
            return False
        self._tried_ms = now_ms
        if self._looked_ms is None:
            self._looked_ms = now_ms
        elif not 0 <= now_ms - self._looked_ms < VERIFY_EVERY_MS:
            self._looked_ms = now_ms
            self._verify(now_ms)
        return self.commit(committable())

    def commit(self, committable: Mapping[int, int]) -> bool:
        """Commit, by source, positions above the last commit; return whether there were any."""
        return self._commit({s: position for s, position in committable.items() if self._is_due(s, position)})

    def committed(self) -> dict[int, int]:
        return dict(self._committed)

    def _verify(self, now_ms: int) -> None:
        """Learn what became of our commits, and commit again what the broker has forgotten or soon would."""
        try:
            marked = self._marked()
            # without those that somebody else has moved
            self._committed |= self._read(spec for spec, text in marked if text == COMMITTED_BY)
        except (LogError, Unreachable):
            self.failures += 1
            return
        moved = {spec.source for spec, text in marked if text != COMMITTED_BY}
        self._note_moved([spec for spec, text in marked if text != COMMITTED_BY])
        kept = {spec.source for spec, _ in marked}
        in_new_generation = {source for source, generation in self._generations.items() if generation < 0}
        ours = self._committed.keys() - moved - in_new_generation
        if self._renewed_ms is None:
            self._renewed_ms = now_ms
        is_time = not 0 <= now_ms - self._renewed_ms < COMMIT_AGAIN_MS
        again = ours if is_time else ours - kept
        if again and self._send({source: self._committed[source] for source in again}) and is_time:
            self._renewed_ms = now_ms

    def _note_moved(self, specs: Sequence[SourceSpec]) -> None:
        """Note which commits somebody else made; what was committed again since is ours."""
        theirs = self._read(specs) if specs else {}
        self.moved = {
            spec.source: MovedCommit(spec.place, self._committed.get(spec.source), theirs.get(spec.source))
            for spec in specs
        }

    def _marked(self) -> list[tuple[SourceSpec, str]]:
        specs = {spec.place: spec for spec in self._specs.values()}
        marked = self._log.commit_metadata(self._group, specs)
        return [(specs[place], text) for place, text in marked.items()]

    def _read(self, specs: Iterable[SourceSpec]) -> dict[int, int]:
        sources = {spec.place: spec.source for spec in specs}
        return {sources[place]: at for place, at in self._log.committed(self._group, sources).items()}

    def _epochs_of(self, specs: Iterable[SourceSpec]) -> dict[int, ReadTo]:
        sources = {spec.place: spec.source for spec in specs}
        epochs = {
            sources[place]: epoch for place, epoch in self._log.committed_epochs(self._group, sources).items()
        }
        return {s: ReadTo(self._committed[s], epoch) for s, epoch in epochs.items() if s in self._committed}

    def _commit(self, due: Mapping[int, int]) -> bool:
        offsets = {source: int(offset_of(position)) for source, position in due.items()}
        if not offsets or not self._send(offsets):
            return False
        self._committed |= offsets
        self._generations |= {source: generation_of(position) for source, position in due.items()}
        return True

    def _send(self, offsets: Mapping[int, int]) -> bool:
        """Commit offsets, by source; return whether the broker has them."""
        epochs = {
            self._specs[source].place: self._cursors[source].leader_epoch
            for source in offsets
            if source in self._cursors
        }
        answers = {place: epoch for place, epoch in epochs.items() if epoch != NO_EPOCH}
        by_place = {self._specs[source].place: offset for source, offset in offsets.items()}
        try:
            self._log.commit(self._group, by_place, COMMITTED_BY, answers)
        except (LogError, Unreachable) as error:
            self.failures += 1
            self.refused = "" if isinstance(error, Unreachable) else str(error)
            return False
        self.refused = ""
        return True

    def _is_due(self, source: int, position: int) -> bool:
        committed = self._committed.get(source, 0)
        if offset_of(position) > committed:
            return True
        # After a rewind the new generation's offsets begin below those of the old one.
        return offset_of(position) < committed and generation_of(position) > self._generations.get(
            source, generation_of(position)
        )
