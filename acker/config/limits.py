"""How far one process may go: the sections ``acker.limits`` and ``replay.limits``, as its parts read them.

A key is called as its field, without its ``_ms``. A file can set it within its range, which leaves the parts
what they need to get on; code may go further.

Source: docs/design/protocol.md, rule 10.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import ConfigDict, ValidationInfo, ValidatorFunctionWrapHandler
from pydantic import field_validator as validates

from acker.config.keys import FROM_FILE, DurationMs, Section, Whole, key
from acker.units import duration_ms

VERDICT_RETENTION: Final = "7d"
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


def _time(description: str, default: str, low: str, high: str) -> Any:
    return key(
        description, unit="duration", range=f"a duration, {low} to {high}", default=default,
        ge=duration_ms(low), le=duration_ms(high),
    )  # fmt: skip


def _count(description: str, unit: str, default: int, low: int, high: int) -> Any:
    return key(
        description, unit=unit, range=f"a whole number, {low} to {high}", default=default, ge=low, le=high
    )


class _Limits(Section):
    model_config = ConfigDict(alias_generator=lambda name: name.removesuffix("_ms"))

    @validates("*", mode="wrap")
    @classmethod
    def _ranges_bind_files(
        cls, value: object, check: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> object:
        return value if isinstance(value, int) and info.context != FROM_FILE else check(value)


class AckerLimitSettings(_Limits):
    """The section ``limits`` of ``acker``: for each acker process."""

    poll_ms: DurationMs = _time("How long an idle acker waits for contributions.", "50ms", "1ms", "10s")
    pace_ms: DurationMs = _time(
        "Steps that read contributions are so far apart, save some after a rest; verdicts wait as long.",
        "100ms", "0ms", "10s",
    )  # fmt: skip
    # A cluster misses a dead broker after 9 s and elects others in its place, which fits into this.
    operation_ms: DurationMs = _time("How long one answer of the broker is waited for.", "15s", "1s", "10m")
    unreachable_ms: DurationMs = _time(
        "How long the broker may be away before an acker ends.", "5m", "1s", "1d"
    )
    step_ms: DurationMs = _time(
        "How long one thing, such as a partition's transaction, may take before the acker counts as hung and "
        "ends with exit code 70; at least four times operation.",
        "1m", "1s", "1h",
    )  # fmt: skip
    stop_ms: DurationMs = _time(
        "How long an acker may take to end after a signal; then it ends with exit code 70.",
        "20s", "1s", "10m",
    )  # fmt: skip
    step_records: Whole = _count(
        "Records of _ack_ack in one transaction; more wait for the next.",
        "records", 2_000, 1, 1_000_000,
    )  # fmt: skip
    step_bytes: Whole = _count(
        "Bytes of _ack_ack after which one transaction takes no more.",
        "bytes", 64 * _MIB, _MIB, _GIB,
    )  # fmt: skip
    lanes: Whole = _count(
        "Writers whose marks a partition keeps; a record of a further one is quarantined.",
        "lanes", 10_000, 100, 10_000_000,
    )  # fmt: skip
    pending_ticks: Whole = _count(
        "Ticks of a session that wait at once; a further one replaces the last, so deadlines come late.",
        "ticks", 1_000, 1, 1_000_000,
    )  # fmt: skip
    init_roots: Whole = _count(
        "Positions in one Init; a larger one is quarantined. No max_spout_pending may be larger.",
        "roots", 100_000_000, 100_000_000, 10_000_000_000,
    )  # fmt: skip
    # A record counts as 4,096 bytes at least.
    refold_bytes: Whole = _count(
        "How much of _ack_ack and of _ack_verdict a restart reads again; older open roots are kept in the "
        "state with their values.",
        "bytes", 128 * _MIB, 0, 64 * _GIB,
    )  # fmt: skip
    fenced_ms: DurationMs = _time(
        "How long a partition is left alone that another process took.", "10s", "100ms", "10m"
    )
    restore_attempts: Whole = _count(
        "Restores of a partition in a row, without a commit between them, before the acker ends.",
        "restores", 5, 1, 1000,
    )  # fmt: skip
    commit_attempts: Whole = _count(
        "How often a transaction is written before its partition is restored.",
        "transactions", 3, 1, 100,
    )  # fmt: skip
    put_off_ms: DurationMs = _time(
        "How long the transaction of steps is put off that only read inits and ticks.",
        "1s", "0ms", "1m",
    )  # fmt: skip
    retention_interval_ms: DurationMs = _time("How often logs are shortened.", "1m", "1s", "1d")

    @property
    def hung_ms(self) -> int:
        """How long one thing of a step may take before it counts as hung, in milliseconds."""
        return max(self.step_ms, 4 * self.operation_ms)


class AckerLimits(AckerLimitSettings):
    """All limits of an acker: its section, and ``acker.verdict_retention``."""

    verdict_retention_ms: DurationMs = duration_ms(VERDICT_RETENTION)


class ReplayLimits(_Limits):
    """The section ``limits`` of ``replay``: for each replay worker, or for each partition of it."""

    poll_ms: DurationMs = _time("How long an idle worker waits for verdicts.", "200ms", "1ms", "10s")
    operation_timeout_ms: DurationMs = _time(
        "How long one answer of the broker is waited for.", "30s", "1s", "10m"
    )
    unreachable_ms: DurationMs = _time(
        "How long the broker may be away before a worker ends.", "5m", "1s", "1d"
    )
    step_ms: DurationMs = _time(
        "How long one thing, such as a partition's transaction, may take before the worker counts as hung "
        "and ends with exit code 70; at least four times operation_timeout.",
        "2m", "1s", "1h",
    )  # fmt: skip
    stop_ms: DurationMs = _time(
        "How long a worker may take to end after a signal; then it ends with exit code 70.",
        "20s", "1s", "10m",
    )  # fmt: skip
    verdict_records_max: Whole = _count("Verdict records read at once.", "records", 100, 1, 100_000)
    intake_max: Whole = _count(
        "Lost roots taken over in one transaction; more wait for the next.", "roots", 2_000, 1, 100_000
    )
    fire_max: Whole = _count(
        "Copies and dead letters in one transaction; more wait for the next.", "records", 20_000, 1, 100_000
    )
    waiting_max: Whole = _count(
        "Roots of a partition that wait for their replay, 16 bytes each; no further verdicts are read until "
        "some have left.",
        "roots", 10_000_000, 1, 1_000_000_000,
    )  # fmt: skip
    waiting_bytes_max: Whole = _count(
        "Memory for what else is known of those roots; what does not fit is read again when it is due.",
        "bytes",
        64 * _MIB,
        0,
        64 * _GIB,
    )
    position_interval_ms: DurationMs = _time(
        "How often verdicts without a lost root are committed.", "1s", "0s", "10m"
    )
    fetch_bytes_max: Whole = _count(
        "Payload fetched at once, and at least one record.", "bytes", 16 * _MIB, 1, _GIB
    )
    fetch_gap_bytes: Whole = _count(
        "What lies between two wanted records is read when it is less, else skipped.",
        "bytes", 64 << 10, 0, 64 * _MIB,
    )  # fmt: skip
    fetch_patience_ms: DurationMs = _time(
        "How long a fetch may bring nothing; then the broker counts as away.", "30s", "1s", "10m"
    )
    aborts_max: Whole = _count(
        "Aborted transactions of a partition in a row; one more ends the worker.", "transactions", 20, 1, 1000
    )
    fenced_pause_ms: DurationMs = _time(
        "How long a partition is left alone that another worker took.", "10s", "100ms", "10m"
    )
    input_retry_ms: DurationMs = _time(
        "An input that cannot go on, say since a topic of it is missing, is tried again after a 64th of "
        "this, then after twice as long each time up to this; others go on. So often a line tells of it.",
        "1m", "1s", "1h",
    )  # fmt: skip
    breaker_window_ms: DurationMs = _time(
        "The time over which dead_letter.max_ratio is taken.", "1m", "1s", "1d"
    )
    breaker_dead_min: Whole = _count(
        "Fewer dead letters in that time never pause an input by their share.",
        "dead letters", 100, 1, 1_000_000_000,
    )  # fmt: skip
    breaker_settled_min: Whole = _count(
        "Nor do any dead letters where fewer roots than this were acked or became dead letters in that time.",
        "roots", 1_000, 1, 1_000_000_000,
    )  # fmt: skip

    @property
    def hung_ms(self) -> int:
        """How long one thing of a step may take before it counts as hung, in milliseconds."""
        return max(self.step_ms, 4 * self.operation_timeout_ms)


class ReplaySettings(Section):
    """The section ``replay``: what holds for every replay worker."""

    limits: ReplayLimits = key(
        "How far one replay worker may go.", range="a section", default_factory=ReplayLimits
    )
