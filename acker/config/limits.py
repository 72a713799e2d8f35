"""The acker's limits: each has a name, a default, and a stated behaviour when it is reached.

Source: docs/design/protocol.md, rule 10.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AckerLimits:
    """What one acker process allows itself and its writers.

    Attributes:
        poll_ms: how long an idle step waits for contributions. Bounds how late a tick is noticed.
        pace_ms: how far apart steps that read contributions are kept, but for `acker.service.inbox.BURST`
            after a rest, so that what trickles in shares a transaction. A full step is followed by one at
            once.
        operation_ms: how long one answer of the broker is waited for before it counts as unreachable. A
            cluster misses a dead broker after 9 s and elects others in its place, which fits into this.
        unreachable_ms: how long the broker may be away before `AckerService.step` raises `Unreachable`.
        step_ms: how long one thing of a step may take, such as the transaction of one partition; then it has
            hung, and the process ends. Four times `operation_ms` at least (`hung_ms`).
        stop_ms: how long a process may take to end after a signal; then it ends at once.
        step_records: records of ``_ack_ack`` that one transaction applies; the rest waits for the next.
        step_bytes: bytes of ``_ack_ack`` after which a step fetches no more.
        lanes: lanes whose marks one partition keeps; a record of a further one is quarantined.
        pending_ticks: ticks of one session that wait for their barrier; a further one replaces the last,
            so deadlines are noticed later, never earlier.
        init_roots: positions that one ``Init`` may name; a larger one is quarantined.
        refold_bytes: how much of ``_ack_ack`` a restore reads again, and of ``_ack_verdict`` likewise; a
            record counts as 4,096 bytes at least. A range that would keep more of the log is carried in
            State with its values.
        fenced_ms: how long a partition is left alone whose transactional id another process took, unless the
            group gives it to us anew before.
        restore_attempts: how often in a row a partition may be restored without a commit in between.
        commit_attempts: how often the output of a step is written before the partition is restored.
        put_off_ms: how long the transaction of steps is put off that only read inits and ticks; a restart
            reads again what came meanwhile.
        retention_interval_ms: how often logs are shortened.
        verdict_retention_ms: how long a verdict stays readable at least.
    """

    poll_ms: int = 50
    pace_ms: int = 100
    operation_ms: int = 15_000
    unreachable_ms: int = 300_000
    step_ms: int = 60_000
    stop_ms: int = 20_000
    step_records: int = 2_000
    step_bytes: int = 64 * 1024 * 1024
    lanes: int = 10_000
    pending_ticks: int = 1_000
    init_roots: int = 100_000_000
    refold_bytes: int = 128 * 1024 * 1024
    fenced_ms: int = 10_000
    restore_attempts: int = 5
    commit_attempts: int = 3
    put_off_ms: int = 1_000
    retention_interval_ms: int = 60_000
    verdict_retention_ms: int = 7 * 24 * 3_600_000

    @property
    def hung_ms(self) -> int:
        """How long one thing of a step may take before it counts as hung, in milliseconds."""
        return max(self.step_ms, 4 * self.operation_ms)
