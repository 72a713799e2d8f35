"""The plan of one micro-batch: which positions of which sources it emits, and how tasks share them.

A plan is a pure function of what Spark journalled (``spout.planning.journal``). So a batch that runs again
has the same positions in the same order. What tasks report names a root by its *index*: its place
among all positions of the plan. A *share* is what one task reads.

Source: docs/design/protocol.md, section 5.1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from acker.errors import TrackingError
from acker.identity import I64, WIRE_BLOCK_BITS, first_source
from acker.root_sets.numbering import RootNumbers
from acker.root_sets.root_set import RootSet
from acker.root_sets.runs import runs_between
from acker.wire.events import SourceRun
from spout.planning.order import LineUp

TASK_RECORDS_MIN = 1_000
"""No task gets fewer records: with fewer, starting a task costs more than a second core gains."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What one micro-batch of a group's session emits.

    Attributes:
        session: id of the session; empty where nothing is tracked.
        partitions: N, the number of acker partitions.
        now: session clock of the batch's last Init, ms; it becomes `Acks.touched_at`. A batch that emits
            nothing has no Init; then it is when the batch began (`spout.streaming.batch_log`).
        timeout_ms: the shortest timeout of the group's inputs, ms; 0: no input has one.
        tracked: whether its acks and fails are published.
        ranges: what it emits, ascending by source and start, disjoint.
    """

    group: str
    session: str
    epoch: int
    partitions: int
    now: int
    timeout_ms: int
    tracked: bool
    ranges: tuple[SourceRun, ...]

    @property
    def count(self) -> int:
        """How many positions it emits."""
        return sum(run.end - run.start for run in self.ranges)

    def roots(self) -> RootSet:
        """Return the positions that it emits, as a set."""
        return RootSet.of_runs(self.ranges)

    def starts(self) -> tuple[int, ...]:
        """Return for each of `ranges` the index of its first position."""
        return (0, *accumulate(run.end - run.start for run in self.ranges))[:-1]

    def index(self) -> PlanIndex:
        """Build the index that finds positions; keep it if you look up many."""
        return PlanIndex(self.ranges)


class PlanIndex(RootNumbers):
    """Finds the index of a root of a plan, and the root of an index: its number in the set of all
    roots.
    """

    __slots__ = ()

    def __init__(self, ranges: Sequence[SourceRun]) -> None:
        """Number the roots of ranges.

        Raises:
            TrackingError: they do not ascend, or overlap: the numbers of their set would be other roots'.
        """
        for earlier, later in pairwise(ranges):
            if (later.source, later.start) < (earlier.source, earlier.end):
                raise TrackingError(f"the ranges of a plan do not ascend: {later} is behind {earlier}")
        super().__init__(RootSet.of_runs(ranges))

    def of(self, source: int, positions: I64) -> I64:
        """Return each position's index, `(n,) int64`; `TrackingError`: one is not in the plan."""
        indices = self.find(source, positions)
        if (indices < 0).any():  # -1: not in the plan
            raise TrackingError(
                f"a position of source {source} is not in the plan of this batch; do not change anchors"
            )
        return indices

    def sources_and_positions(self, indices: I64) -> tuple[I64, I64]:
        """Return the source and the position of each index: two arrays, `(n,) int64` as `indices`.

        Raises `TrackingError`: an index is not of this plan.
        """
        if len(indices) and not (indices.min() >= 0 and indices.max() < self.count):
            raise TrackingError(
                "a task named a root that is not in the plan of its batch; install one version"
            )
        return self.roots(indices)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What one Spark task reads.

    Attributes:
        ranges: its share of the plan, ascending.
        topics: the topic of each of their sources.
        order: by source of a partition that is read in order, which of its records are blocked. All
            of its records and copies are in this task.
        topic_ids: Kafka's id of each topic by its name, as far as the batch's offset knows them.
    """

    plan: BatchPlan
    ranges: tuple[SourceRun, ...]
    topics: Mapping[int, str]
    order: Mapping[int, LineUp] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


def read_tasks(
    plan: BatchPlan, topics: Mapping[int, str], tasks: int, order: Mapping[int, LineUp] | None = None
) -> list[ReadTask]:
    """Divide a plan into tasks of about equal size, of `TASK_RECORDS_MIN` or more.

    Partitions that are read in order get tasks of their own, as a whole and with their copies.

    Args:
        topics: the topic of each source.
        tasks: the largest number of tasks of either kind.
        order: for each partition that is read in order, by its source, which records are blocked.
    """
    order = order or {}
    # first what may be cut anywhere, then partitions as a whole
    unordered = [run for run in plan.ranges if first_source(run.source) not in order]
    record_count = sum(run.end - run.start for run in unordered)
    pieces = min(tasks, max(1, record_count // TASK_RECORDS_MIN))
    shares = cut_ranges(unordered, pieces)
    divided = [ReadTask(plan, share, _topics_of(share, topics)) for share in shares]
    for share in _whole_partition_shares(plan.ranges, order, tasks):
        partitions = {int(first_source(run.source)) for run in share}
        line_ups = {source: order[source] for source in sorted(partitions)}
        divided.append(ReadTask(plan, share, _topics_of(share, topics), line_ups))
    return divided


def _topics_of(share: Sequence[SourceRun], topics: Mapping[int, str]) -> dict[int, str]:
    """Return the topics of a share's sources."""
    return {run.source: topics[run.source] for run in share}


def _whole_partition_shares(
    ranges: Sequence[SourceRun], order: Mapping[int, LineUp], tasks: int
) -> list[tuple[SourceRun, ...]]:
    """Return the share of each task that reads partitions in order, each partition as a whole.

    The largest goes first, each to the task that has least so far. Of 50, 30 and 30 records two
    tasks get 50, and 30 and 30.
    """
    # 1. by source of a partition: how many positions it has, with its copies
    size_by_source = Counter[int]()
    for run in ranges:
        ordered_source = first_source(run.source)
        if ordered_source in order:
            size_by_source[ordered_source] += run.end - run.start
    # 2. the task of each partition, the largest first; of equal ones that with the lower number, so
    # that a plan that is divided again has the same shares
    size_by_task = [0] * min(tasks, len(size_by_source))
    task_by_source: dict[int, int] = {}
    for source in sorted(size_by_source, key=lambda source: (-size_by_source[source], source)):
        smallest_task = size_by_task.index(min(size_by_task))
        task_by_source[source] = smallest_task
        size_by_task[smallest_task] += size_by_source[source]
    # 3. their ranges
    shares: list[list[SourceRun]] = [[] for _ in size_by_task]
    for run in ranges:  # in their order, so that each share ascends
        ordered_source = first_source(run.source)
        if ordered_source in task_by_source:
            shares[task_by_source[ordered_source]].append(run)
    return [tuple(share) for share in shares]


def runs_without_record(source: int, expected: int, positions: I64) -> list[SourceRun]:
    """Return the positions of a source that hold no record, as runs; none: each holds one.

    Args:
        expected: the first position that may hold one.
        positions: those that do, `(n,) int64`, ascending, one at least; behind the last one nothing
            is looked for.
    """
    # where 10 was expected, 11, 12 and 15 leave out 10, and 13 to 14
    missing_runs = runs_between(expected, int(positions[-1]) + 1, positions)
    return [SourceRun(source, start, end) for start, end in missing_runs]


def cut_ranges(ranges: Sequence[SourceRun], pieces: int) -> list[tuple[SourceRun, ...]]:
    """Cut ranges into at most `pieces` shares of about equal size, in order; of no position there
    is none.

    A cut moves to the end of a range or of a wire block (32,768 positions) if one is within a quarter of a
    share. Then the share needs fewer seeks, and whole blocks are packed fastest.
    """
    total = sum(run.end - run.start for run in ranges)
    if not total:
        return []
    # 1. the indices at which a share ends and the next one begins
    # ranges of 5, 3 and 2 positions begin at the indices 0, 5 and 8; 10 is behind the last one
    range_indices = list(accumulate((run.end - run.start for run in ranges), initial=0))
    share_size = total / max(1, pieces)
    cuts: set[int] = set()
    for number in range(1, max(1, pieces)):
        index = round(share_size * number)
        cuts.add(_near_edge(ranges, range_indices, index, reach=share_size / 4))
    # 2. cut there: into a piece of the range before the cut, and the rest of it, with which a share
    # begins
    cuts_left = deque(sorted(cuts - {0, total}))
    shares: list[list[SourceRun]] = [[]]
    for (source, start, end), first_index in zip(ranges, range_indices[:-1], strict=True):
        shift = start - first_index  # from an index to a position of this range
        part_start = start
        while cuts_left and cuts_left[0] + shift < end:
            cut_at = cuts_left.popleft() + shift
            # no piece without a position, where the cut is the range's start
            if part_start < cut_at:
                shares[-1].append(SourceRun(source, part_start, cut_at))
            shares.append([])
            part_start = cut_at
        shares[-1].append(SourceRun(source, part_start, end))
    return [tuple(share) for share in shares]


def _near_edge(ranges: Sequence[SourceRun], range_indices: Sequence[int], index: int, reach: float) -> int:
    """Return the index of the nearest end of a range or of a wire block; `index` if none is near.

    An index counts the positions of all ranges: of [10, 15) and [40, 43) the index 6 is position
    41.

    Args:
        range_indices: the indices at which ranges begin, and behind them the index behind the last one.
        reach: how far from `index` it may be.
    """
    # 1. the range that has this index, and the wire block of its position
    range_number = min(bisect_right(range_indices, index), len(ranges)) - 1
    start = ranges[range_number].start
    end = ranges[range_number].end
    shift = range_indices[range_number] - start  # from a position of this range to its index
    block_size = 1 << WIRE_BLOCK_BITS
    block_start = (index - shift) // block_size * block_size
    # 2. as indices: both ends of the range, and those of the block that are within the range
    edge_indices = [range_indices[range_number], range_indices[range_number + 1]]
    block_edges = (block_start, block_start + block_size)
    edge_indices += [edge + shift for edge in block_edges if start < edge < end]
    # 3. the nearest of them; of two that are as near, the lower one
    nearest = min(edge_indices, key=lambda edge: (abs(edge - index), edge))
    return nearest if abs(nearest - index) <= reach else index
