"""Every limit of the replay worker, with its default and what happens when it is reached.

Source: docs/design/protocol.md, section 3 rule 10.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplayLimits:
    """Bounds of one worker; those that say so hold for each verdict partition.

    Attributes:
        poll_ms: a step that finds nothing to do waits at most this long.
        operation_timeout_ms: what the broker does not answer within this counts as unreachable.
        unreachable_ms: how long the broker may be away before a step raises `Unreachable`.
        step_ms: how long one thing of a step may take, such as the transaction of one partition; then it has
            hung, and the process ends. Four times `operation_timeout_ms` at least (`hung_ms`).
        stop_ms: how long a process may take to end after a signal; then it ends at once.
        verdict_records_max: verdict records taken from the log at once.
        intake_max: roots in one first transaction, per partition; more wait for the next step.
        fire_max: roots in one second transaction, per partition; more wait for the next step.
        waiting_max: roots that wait for their due time, per partition, 16 bytes each; at the limit no further
            verdicts are read until some have left.
        waiting_bytes_max: memory for what else is known of them, per partition; what does not fit is read
            from `_ack_due` when it is due.
        position_interval_ms: verdicts without a lost root are committed this often, no more.
        fetch_bytes_max: payload fetched at once; the rest is fetched in the next step.
        fetch_gap_bytes: between two wanted records less than this is read through, more is skipped.
        fetch_patience_ms: a fetch that brings nothing for this long counts as unreachable.
        aborts_max: aborted transactions in a row, per partition; one more raises `LogError`.
        fenced_pause_ms: a partition that another worker took is not taken back within this.
        input_retry_ms: an input that cannot go on is tried again after a 64th of this, then after twice as
            long each time, at most this; a line in the log tells as often that its roots wait.
        breaker_window_ms: the share of dead letters is taken over this window.
        breaker_dead_min: fewer dead letters in the window never open the breaker by their share.
        breaker_settled_min: nor do any where fewer roots than this were settled in the window.
    """

    poll_ms: int = 200
    operation_timeout_ms: int = 30_000
    unreachable_ms: int = 300_000
    step_ms: int = 120_000
    stop_ms: int = 20_000
    verdict_records_max: int = 100
    intake_max: int = 2_000
    fire_max: int = 20_000
    waiting_max: int = 10_000_000
    waiting_bytes_max: int = 64 << 20
    position_interval_ms: int = 1_000
    fetch_bytes_max: int = 16 << 20
    fetch_gap_bytes: int = 64 << 10
    fetch_patience_ms: int = 30_000
    aborts_max: int = 20
    fenced_pause_ms: int = 10_000
    input_retry_ms: int = 60_000
    breaker_window_ms: int = 60_000
    breaker_dead_min: int = 100
    breaker_settled_min: int = 1_000

    @property
    def hung_ms(self) -> int:
        """How long one thing of a step may take before it counts as hung, in milliseconds."""
        return max(self.step_ms, 4 * self.operation_timeout_ms)
