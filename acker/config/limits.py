"""How far one process may go: the sections ``acker.limits`` and ``replay.limits``, as its parts
read them.

Fields without a range are constants: a file that sets one gets a warning. Ranges bind files; code
may go further.

Source: docs/design/protocol.md, rule 10.
"""

from __future__ import annotations

from typing import Final

from pydantic import ValidationInfo, ValidatorFunctionWrapHandler
from pydantic import field_validator as validates

from acker.config.keys import FROM_FILE, DurationMs, Section, Whole, duration, key, whole

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


class _Limits(Section):
    @validates("*", mode="wrap")
    @classmethod
    def _ranges_bind_files(
        cls, value: object, check: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> object:
        return value if isinstance(value, int) and info.context != FROM_FILE else check(value)


STANDS_MS: Final = 30_000
"""A partition stands where its position has not moved for so long, though its log goes on. An
election takes 10 to 20 s."""

LIVE_MS_MIN: Final = 30_000
"""``/livez`` fails where a loop has neither ended a step nor begun an operation for so long, or longer."""


class AckerLimits(_Limits):
    """The section ``limits`` of ``acker``: for each acker process."""

    pace_ms: DurationMs = duration("200ms", "0ms to 10s", "500ms")
    """How long an acker waits between two steps that read acks. A verdict may come later by this
    time. A longer pace costs less work. After a rest the first steps come sooner."""
    # A cluster misses a dead broker after 9 s and elects others in its place, which fits into this.
    operation_ms: DurationMs = duration("15s", "1s to 10m", "30s")
    """How long an acker waits for one answer of the broker."""
    unreachable_ms: DurationMs = duration("5m", "1s to 1d", "15m")
    """How long the broker may be away. After this time the acker ends."""
    step_ms: DurationMs = duration("1m", "1s to 1h", "2m")
    """How long one action, such as the transaction of a partition, may take. After this time the
    acker counts as hung, and ends with exit code 70. An acker takes at least four times
    `operation`."""
    stop_ms: DurationMs = duration("20s", "1s to 10m", "40s")
    """How long an acker may take to end after a signal. After this time it ends with exit code
    70."""
    # A record counts as 4,096 bytes at least.
    refold_bytes: Whole = whole(128 * _MIB, (0, 64 * _GIB), "bytes", "67108864")
    """How many bytes of `_ack_ack`, and of `_ack_verdict`, an acker reads again when it starts. A
    smaller number makes a start shorter, and the snapshots in `_ack_state` larger: they keep the
    older open roots."""
    retention_interval_ms: DurationMs = duration("1m", "1s to 1d", "10m")
    """How often an acker deletes the beginning of the ack topics that nobody needs any more."""

    poll_ms: Whole = 50
    """An idle acker waits so long for contributions at a time."""
    quiet_ms: Whole = 250
    """One without an open root waits so long, for inits and takes, which wake it up at once."""
    step_records: Whole = 2_000
    """Records of ``_ack_ack`` in one transaction, ten fetches of 200; more wait for the next. So
    many inits, ticks and fails are read at once before them."""
    step_bytes: Whole = 64 * _MIB
    """Bytes of ``_ack_ack`` after which a transaction takes no more: 74 records of the largest
    size."""
    lanes: Whole = 10_000
    """Writers whose marks a partition keeps, at some 100 bytes 1 MB of State; a record of one more
    is quarantined. A query is one writer."""
    sources: Whole = 100_000
    """Sources that a partition keeps, 6 MB of State; a `Take` with further ones is refused."""
    groups: Whole = 10_000
    """Groups that a partition keeps; a `Take` of a further one is refused."""
    pending_ticks: Whole = 1_000
    """Ticks of a session that wait at once: 500 s of them, one each 500 ms. A further one replaces
    the last, so deadlines come late."""
    init_roots: Whole = 100_000_000
    """Positions in one Init, as many as `max_spout_pending` can be; a larger one is quarantined."""
    stands_ms: Whole = STANDS_MS
    """A partition of an ack topic stands that does not go on for so long; it is said, and the
    others work."""
    fenced_ms: Whole = 10_000
    """A partition that another process took is left alone so long, in which the group hands it
    over."""
    restore_attempts: Whole = 15
    """Restores of a partition in a row, without a commit between them; one more ends the acker. An
    election aborts one transaction, and the next one may meet its end."""
    commits_at_once: Whole = 16
    """Partitions that commit side by side, each by a thread of its own that waits for the
    broker."""
    put_off_ms: Whole = 1_000
    """Transactions of steps that read only inits and ticks are put off so long: two ticks share
    one."""

    @property
    def hung_ms(self) -> int:
        """How long one thing of a step may take before it counts as hung."""
        return max(self.step_ms, 4 * self.operation_ms)

    @property
    def live_ms(self) -> int:
        """How long the loop may stand still before ``/livez`` fails: it may wait for an answer."""
        return max(LIVE_MS_MIN, self.operation_ms)


class ReplayLimits(_Limits):
    """The section ``limits`` of ``replay``: for each replay worker, or for each partition of it."""

    operation_timeout_ms: DurationMs = duration("30s", "1s to 10m", "45s")
    """How long a replay worker waits for one answer of the broker."""
    unreachable_ms: DurationMs = duration("5m", "1s to 1d", "15m")
    """How long the broker may be away. After this time the worker ends."""
    step_ms: DurationMs = duration("2m", "1s to 1h", "5m")
    """How long one action, such as the transaction of a partition, may take. After this time the
    worker counts as hung, and ends with exit code 70. A worker takes at least four times
    `operation_timeout`."""
    stop_ms: DurationMs = duration("20s", "1s to 10m", "40s")
    """How long a worker may take to end after a signal. After this time it ends with exit code
    70."""
    waiting_max: Whole = whole(10_000_000, (1, 1_000_000_000), "roots", "20000000")
    """How many lost roots of a partition may wait for their replay; each takes 16 bytes of memory.
    At this number the worker reads no further verdicts of the partition, until some roots have
    left."""
    waiting_bytes_max: Whole = whole(64 * _MIB, (0, 64 * _GIB), "bytes", "134217728")
    """Memory for the causes and times of those roots. The worker reads what does not fit from
    `_ack_due` again when it is due."""
    fetch_bytes_max: Whole = whole(16 * _MIB, (1, _GIB), "bytes", "33554432")
    """How many bytes of payload a worker fetches at once. It always fetches one record at least."""
    input_retry_ms: DurationMs = duration("1m", "1s to 1h", "2m")
    """How long a worker waits at most until it tries an input again that cannot go on, for example
    because a topic is missing. The first wait is a 64th of this, and each further one twice as
    long. The worker logs one line in each such time. Other inputs go on."""
    breaker_window_ms: DurationMs = duration("1m", "1s to 1d", "5m")
    """The time over which the breaker takes the share of dead letters (`dead_letter.max_ratio`).
    If fewer than `breaker_settled_min` roots ended in this time, it takes the last
    `breaker_settled_min` roots."""
    breaker_dead_min: Whole = whole(20, (1, 1_000_000_000), "dead letters", "100")
    """With fewer dead letters than this in that time, the breaker does not pause an input for its
    share."""
    breaker_settled_min: Whole = whole(100, (1, 1_000_000_000), "roots", "1000")
    """The breaker does not pause an input for its share before so many of its roots ended, acked
    or as dead letters."""

    poll_ms: Whole = 500
    """An idle worker waits so long for verdicts, which wake it up, as what is due does; then it
    looks whether its group has changed."""
    verdict_records_max: Whole = 100
    """Verdict records read at once; at most 900,000 bytes each, so 90 MB."""
    intake_max: Whole = 2_000
    """Lost roots taken over in one transaction; more wait for the next."""
    fire_max: Whole = 20_000
    """Copies and dead letters in one transaction: 20 MB of records of 1 kB, which take a second."""
    refused_max: Whole = 10
    """So many copies of an input that its topic refused, each tried alone and none accepted
    between them, are the topic's trouble, not the records': the input waits."""
    position_interval_ms: Whole = 1_000
    """Verdicts without a lost root are committed so often, as an acker commits ticks."""
    fetch_gap_bytes: Whole = 256 << 10
    """What lies between two wanted records is read when it is less, else skipped: at 100 MB/s it
    takes 2.6 ms, and a skip 3 to 10 ms, since what was fetched ahead is thrown away."""
    fetch_passed_bytes_max: Whole = 256 * _MIB
    """What one fetch passes between the records that it wants, a skip as `fetch_gap_bytes`: 3 to
    10 s, below `stop_ms`."""
    stands_ms: Whole = STANDS_MS
    """A partition stands that does not go on for so long; it is said, and the others work."""
    fetch_patience_ms: Whole = 30_000
    """A fetch may bring nothing for so long, as one answer of the broker; then the broker counts
    as away."""
    aborts_max: Whole = 20
    """Aborted transactions of a partition in a row; one more ends the worker."""
    fenced_pause_ms: Whole = 10_000
    """A partition that another worker took is left alone so long, as an acker does."""

    @property
    def hung_ms(self) -> int:
        """How long one thing of a step may take before it counts as hung, in milliseconds."""
        return max(self.step_ms, 4 * self.operation_timeout_ms)

    @property
    def live_ms(self) -> int:
        """How long the loop may not go on before ``/livez`` fails: an answer may be waited for."""
        return max(LIVE_MS_MIN, self.operation_timeout_ms)


class ReplaySettings(Section):
    """The section ``replay``: what holds for every replay worker."""

    limits: ReplayLimits = key(range="a section", default_factory=ReplayLimits)
    """How far one replay worker may go."""
