"""Bugs in `acker`: the ledger, its sessions, marks and restart, the wire, the producer, topics.yaml."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    # -- another cluster
    Mutant(
        "an-empty-id-is-of-no-other-cluster",
        "acker/wire/clusters.py",
        "return UNKNOWN_CLUSTER not in (written_in, cluster_id) and written_in != cluster_id",
        "return written_in != cluster_id",
        "tests/unit/acker/wire/test_clusters.py::test_what_names_no_other_cluster_is_taken_as_of_this_one",
        "topics and checkpoints of a former version would be refused",
    ),
    Mutant(
        "state-of-another-cluster-is-refused",
        "acker/service/state.py",
        "require_cluster(first_piece.place, first_piece.headers, first_piece.value, log.cluster_id())",
        "log.cluster_id()",
        "tests/unit/spout/planning_process/test_other_cluster.py::test_mirrored_ack_topics_are_refused_by_name",
        "an acker would take positions of another cluster as settled, and their records would be left out",
    ),
    Mutant(
        "a-take-of-another-cluster-takes-nothing",
        "acker/service/core.py",
        "difference = other_cluster(record.headers, self.cluster_id)",
        'difference = other_cluster(record.headers, "")',
        "tests/unit/spout/planning_process/test_other_cluster.py"
        "::test_takes_and_inits_of_another_cluster_are_quarantined",
        "a session of another cluster would own the group, and its roots be open here",
    ),
    Mutant(
        "headers-of-garbage-mean-nothing",
        "acker/wire/clusters.py",
        "is_ours = value is not None and value.startswith(MAGIC)",
        "is_ours = len(value or b'') >= 0",
        "tests/unit/acker/wire/test_clusters.py::test_what_is_none_of_our_records_is_of_no_other_cluster",
        "one record of a stranger would end ackers and replay workers at each start",
    ),
    # -- the client
    Mutant(
        "no-broker-is-down-whatever-the-numbers",
        "acker/kafka/client.py",
        "if self._all_down_since_s is None:\n            self._all_down_since_s = ",
        'if not text.startswith("0/"):\n            self._all_down_since_s = ',
        "tests/unit/acker/kafka/test_kafka_outage.py"
        "::test_who_waits_when_all_brokers_are_said_to_be_down_asks_whatever_the_numbers_are",
        "a reader would wait for a broker that is gone, in silence",
    ),
    Mutant(
        "who-is-put-out-keeps-its-share",
        "acker/kafka/group.py",
        "        self.is_out = True\n",
        "        self.is_out, self._owned_partitions = True, frozenset()\n",
        "tests/unit/acker/kafka/test_memberships.py"
        "::test_a_member_that_was_put_out_goes_on_with_its_share_until_it_has_another",
        "verdicts would wait for a session after each silence of a coordinator",
    ),
    Mutant(
        "who-is-put-out-takes-nothing-back",
        "acker/service/service.py",
        "may_try_again = is_wait_over and not self._membership.is_out",
        "may_try_again = is_wait_over",
        "tests/unit/acker/service/test_acker_rounds.py"
        "::test_a_partition_that_another_acker_took_is_left_to_it_until_the_group_has_shared_anew",
        "an acker without a place in the group would fence the one that has the partition, again and again",
    ),
    # -- leader epochs
    Mutant(
        "a-restart-keeps-the-epochs-of-what-is-open",
        "acker/service/restore.py",
        "core.leader_epochs = last_state.leader_epochs",
        "last_state.leader_epochs",
        "tests/unit/replay/worker/test_cut_before_accept.py"
        "::test_an_acker_that_restarts_keeps_the_epoch_of_what_is_open",
        "after a restart of its acker a lost root would get a copy of the record that took its place",
    ),
    Mutant(
        "what-a-session-does-not-say-ends-a-step",
        "acker/wire/leader_epochs.py",
        "if steps or step.epoch != UNKNOWN_EPOCH:",
        "if step.epoch != UNKNOWN_EPOCH:",
        "tests/unit/acker/wire/test_leader_epochs.py::test_a_session_that_does_not_say_its_epoch_ends_a_step",
        "sound records of a former query would be taken for others, and die",
    ),
    # -- sets of roots
    Mutant(
        "runs-that-touch-are-one",
        "acker/root_sets/runs.py",
        "(is_same_source & (table[1:, 1] > table[:-1, 2]))",
        "(is_same_source & (table[1:, 1] >= table[:-1, 2]))",
        "tests/property/test_root_sets.py::test_the_parts_of_a_run_are_one_run_again",
        "equal sets would not be equal, and a batch that was read whole would count as read in part",
    ),
    Mutant(
        "edges-at-one-position-have-one-sum",
        "acker/root_sets/runs.py",
        "is_last[:-1] = (borders[1:] != borders[:-1]) | (sources[1:] != sources[:-1])",
        "is_last[:-1] = True",
        "tests/property/test_root_sets.py::test_the_algebra_is_that_of_sets",
        "where a hole begins at the start of a range, an empty run would be acked",
    ),
    Mutant(
        "a-root-that-comes-twice-is-in-one-run",
        "acker/root_sets/runs.py",
        "is_new_source | (positions[1:] - positions[:-1] > 1)",
        "is_new_source | (positions[1:] - positions[:-1] != 1)",
        "tests/property/test_root_sets.py::test_positions_in_any_order_become_their_set",
        "a root that two causes fail would be in two runs that overlap",
    ),
    Mutant(
        "the-last-position-of-a-block-is-in-it",
        "acker/root_sets/runs.py",
        "ends = np.minimum(runs[:, 2] - 1, last_positions) + 1",
        "ends = np.minimum(runs[:, 2], last_positions)",
        "tests/property/test_root_sets.py::test_a_long_run_is_cut_at_every_block_that_it_meets",
        "one record of each block would be neither acked nor failed",
    ),
    Mutant(
        "positions-are-ordered-within-their-source",
        "acker/root_sets/runs.py",
        "if sources[0] == sources[-1] and sources.min() == sources.max():",
        "if sources[0] == sources[-1]:",
        "tests/property/test_root_sets.py::test_equal_positions_of_two_sources_are_different_roots",
        "runs of two partitions would be taken for one",
    ),
    # -- the XOR fold
    Mutant(
        "contributions-are-xored",
        "acker/ledger/roots.py",
        "missing ^= values  # `missing` is a view",
        "missing |= values  # `missing` is a view",
        "tests/unit/acker/ledger/test_acker_verdicts.py"
        "::test_a_root_whose_contributions_fold_to_its_edge_is_acked_and_gone",
        "a root with two contributions would never be acked, or too early",
    ),
    Mutant(
        "a-repeat-within-a-record-counts-twice",
        "acker/ledger/roots.py",
        "np.bitwise_xor.at(all_missing, rows, values)",
        "all_missing[rows] ^= values",
        "tests/unit/acker/ledger/test_acker_verdicts.py"
        "::test_a_position_named_twice_in_a_record_contributes_both_values",
        "of two contributions of one record to one root only the last would be folded",
    ),
    Mutant(
        "a-run-completes-roots-without-contributions-only",
        "acker/ledger/roots.py",
        "if self._missing is None:\n            settled_indices = self.settle_run(start, end)",
        "if True:\n            settled_indices = self.settle_run(start, end)",
        "tests/unit/acker/ledger/test_ledger_roots.py::test_every_form_completes_the_same_roots",
        "a root that waits for a delayed ack would be acked with its batch",
    ),
    Mutant(
        "what-is-missing-moves-with-the-open-roots",
        "acker/ledger/roots.py",
        "self._missing = self._missing[open_indices]",
        "self._missing = self._missing[: len(open_indices)]",
        "tests/unit/acker/ledger/test_ledger_roots.py"
        "::test_a_nearly_settled_run_still_misses_what_its_open_roots_miss",
        "when most of a range is settled, the rest would have the values of other roots",
    ),
    Mutant(
        "a-verdict-for-open-roots-only",
        "acker/ledger/roots.py",
        "settled_indices = indices[~self._settled_mask[indices]]",
        "settled_indices = indices",
        "tests/unit/acker/ledger/test_acker_verdicts.py"
        "::test_an_absent_root_stays_absent_though_its_fold_is_complete",
        "a root would get a second verdict, and be replayed after it was acked",
    ),
    Mutant(
        "edges-are-never-zero",
        "acker/identity.py",
        "return Edge(mix64(parent + mix64(subscription << 32 | ordinal)) or 1)",
        "return Edge(mix64(parent + mix64(subscription << 32 | ordinal)))",
        "tests/unit/acker/test_identity.py::test_an_edge_is_never_zero",
        "a tuple with edge 0 would be acked before it is processed",
    ),
    # -- the ledger
    Mutant(
        "set-once-init",
        "acker/ledger/ledger.py",
        "start = max(run.start, watermark)",
        "start = run.start",
        "tests/unit/acker/ledger/test_acker_verdicts.py::test_a_second_init_of_a_position_is_ignored",
        "an Init that is written again would open settled roots again",
    ),
    Mutant(
        "the-watermark-is-the-end-of-the-init",
        "acker/ledger/ledger.py",
        "self._watermarks[run.source] = run.end",
        "self._watermarks[run.source] = run.end - 1",
        "tests/unit/acker/ledger/test_acker_verdicts.py::test_a_second_init_of_a_position_is_ignored",
        "the last record of each batch could be emitted twice",
    ),
    Mutant(
        "contributions-count-for-their-own-session",
        "acker/ledger/ledger.py",
        "return (cohort,) if does_overlap and cohort.emission.session == session else ()",
        "return (cohort,) if does_overlap else ()",
        "tests/unit/acker/ledger/test_acker_verdicts.py"
        "::test_a_contribution_counts_only_for_roots_of_its_session",
        "a query that was taken over would still ack records of its successor",
    ),
    Mutant(
        "a-timeout-is-due-at-its-time",
        "acker/ledger/cohort.py",
        "if clock_ms < self.deadline_ms:\n            return range(0)",
        "if clock_ms <= self.deadline_ms:\n            return range(0)",
        "tests/unit/acker/ledger/test_cohort.py"
        "::test_roots_expire_when_the_clock_reaches_their_deadline_and_not_before",
        "a root would time out a tick late, or never if the clock stands still",
    ),
    Mutant(
        "a-touched-root-is-due-at-its-time",
        "acker/ledger/cohort.py",
        "indices_not_due = self._later_indices[self._later_deadlines_ms > clock_ms]",
        "indices_not_due = self._later_indices[self._later_deadlines_ms >= clock_ms]",
        "tests/unit/acker/ledger/test_cohort.py"
        "::test_a_touched_root_expires_when_the_clock_reaches_its_own_deadline_and_not_before",
        "a root whose timeout was reset would time out a tick late, or never",
    ),
    Mutant(
        "a-note-of-tomorrow-is-not-counted",
        "acker/service/core.py",
        "if not checks.wrong_clock(late_note.wall, record.timestamp_ms):",
        "if True:",
        "tests/unit/acker/service/test_too_late.py"
        "::test_a_note_that_is_dated_ahead_of_its_record_counts_nothing",
        "one forged note would be what status says of a group for good",
    ),
    Mutant(
        "an-init-by-a-clock-that-was-set-ahead-is-passed-over",
        "acker/wire/checks.py",
        "        or wrong_clock(init.now, written_ms)",
        "        or wrong_clock(max(init.now, init.wall), written_ms)",
        "tests/unit/spout/planning_process/test_stepping_clock.py"
        "::test_what_is_emitted_by_a_clock_that_is_far_off_has_its_verdict",
        "a query whose machine's clock is set ahead by hours while it runs would lose what it emits",
    ),
    Mutant(
        "a-wall-time-of-the-future-counts",
        "acker/service/core.py",
        "wall_ms = checks.emission_wall(init, record.timestamp_ms)",
        "wall_ms = init.wall",
        "tests/unit/spout/planning_process/test_stepping_clock.py"
        "::test_what_is_emitted_by_a_clock_that_is_far_off_has_its_verdict",
        "the copy of a root that timed out would be due in years",
    ),
    Mutant(
        "rows-of-a-batch-are-counted-once",
        "acker/wire/lateness.py",
        "return self.rows if self.first else 0",
        "return self.rows",
        "tests/unit/acker/service/test_too_late.py::test_rows_of_a_batch_in_several_blocks_count_once",
        "a batch in several partitions would have lost its rows several times",
    ),
    Mutant(
        "a-shared-deadline-leaves-later-ones-alone",
        "acker/ledger/cohort.py",
        "is_later = former_deadlines_ms > deadline_ms\n            self.deadline_ms",
        "is_later = former_deadlines_ms < 0\n            self.deadline_ms",
        "tests/unit/acker/ledger/test_cohort.py"
        "::test_roots_that_are_all_touched_share_a_deadline_and_need_no_memory_for_it",
        "a root whose timeout was reset would time out early",
    ),
    Mutant(
        "a-shared-deadline-is-in-state",
        "acker/ledger/cohort.py",
        "if self.deadline_ms == self.emission.deadline_ms(self.emission.at_ms):\n"
        "            return later_indices",
        "if True:\n            return later_indices",
        "tests/unit/acker/ledger/test_cohort.py::test_deadlines_come_whole_through_state",
        "a restart would let roots time out that Spark's state holds",
    ),
    Mutant(
        "a-touch-moves-no-deadline-back",
        "acker/ledger/cohort.py",
        "self._later_deadlines_ms[touched_rows] = np.maximum(deadlines_before_ms, deadline_ms)",
        "self._later_deadlines_ms[touched_rows] = deadline_ms",
        "tests/unit/acker/ledger/test_cohort.py"
        "::test_a_touch_that_comes_late_moves_no_moved_deadline_backwards",
        "a late report of an old batch would let a record time out early",
    ),
    Mutant(
        "a-cohort-is-reminded-of-its-next-deadline",
        "acker/ledger/cohort.py",
        "return int(later_ms.min()) if len(later_indices) else NEVER",
        "return int(later_ms.max()) if len(later_indices) else NEVER",
        "tests/unit/acker/ledger/test_cohort.py"
        "::test_the_next_deadline_is_that_of_the_touched_root_that_is_due_first",
        "of roots with different deadlines all would wait for the last one",
    ),
    # -- fingerprints of records: repeats
    Mutant(
        "a-repeat-with-other-content-fails-its-roots",
        "acker/ledger/marks.py",
        "return Seen.REPEATED if applied_crc == content.crc else Seen.DIFFERENT",
        "return Seen.REPEATED",
        "tests/unit/acker/ledger/test_acker_verdicts.py"
        "::test_a_repeat_with_other_content_fails_the_open_roots_that_it_names",
        "where a bolt does something else when its batch runs again, rows would be lost unnoticed",
    ),
    Mutant(
        "a-repeated-record-counts-once",
        "acker/ledger/marks.py",
        "            mark.applied_crcs[content.source, content.block] = content.crc\n",
        "",
        "tests/unit/acker/ledger/test_acker_verdicts.py::test_a_record_that_comes_twice_counts_once",
        "contributions that a restarted driver writes again would cancel the first ones",
    ),
    Mutant(
        "a-batch-before-the-last-was-applied",
        "acker/ledger/marks.py",
        "        if content.seq < mark.seq:\n            return Seen.REPEATED\n",
        "",
        "tests/unit/acker/ledger/test_acker_verdicts.py::test_a_batch_before_the_last_is_ignored",
        "an old batch that a zombie writes again would count a second time",
    ),
    Mutant(
        "safe-marks-are-those-below-the-safe-position",
        "acker/ledger/marks.py",
        "while self._records_not_in_safe and self._records_not_in_safe[0].offset < safe_offset:",
        "while self._records_not_in_safe and self._records_not_in_safe[0].offset <= safe_offset:",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_a_killed_acker_gives_the_verdicts_that_it_would_have_given",
        "a restart would pass over the contributions at the position where it begins",
    ),
    # -- sessions and fencing
    Mutant(
        "a-lower-session-is-refused",
        "acker/ledger/sessions.py",
        "return SessionRank.LOWER if session < group.owner else SessionRank.HIGHER",
        "return SessionRank.HIGHER",
        "tests/unit/acker/ledger/test_acker_sessions.py"
        "::test_a_lower_session_is_refused_and_told_who_holds_the_group",
        "a query that was taken over could take its group back",
    ),
    Mutant(
        "sessions-are-ordered-by-epoch-first",
        "acker/ledger/cohort.py",
        "group: str\n    epoch: int\n    id: str",
        "group: str\n    id: str\n    epoch: int",
        "tests/unit/acker/ledger/test_acker_sessions.py"
        "::test_a_takeover_abandons_all_open_roots_oldest_first_and_is_told_the_clock_before",
        "a takeover would be refused by chance",
    ),
    Mutant(
        "a-takeover-abandons-what-was-open",
        "acker/service/core.py",
        "                self.ledger.abandon(former, decided_at_ms)\n",
        "",
        "tests/unit/acker/ledger/test_acker_sessions.py"
        "::test_a_takeover_abandons_all_open_roots_oldest_first_and_is_told_the_clock_before",
        "records of a query that died would stay open for ever",
    ),
    Mutant(
        "a-restart-keeps-what-is-open",
        "acker/service/core.py",
        "if former != session:",
        "if True:",
        "tests/unit/acker/ledger/test_acker_sessions.py"
        "::test_a_restart_abandons_nothing_and_is_told_its_own_clock_and_open_roots",
        "each restart of a query would replay all that it had pending",
    ),
    Mutant(
        "an-init-belongs-to-the-generation-of-its-source",
        "acker/service/core.py",
        "generation_of(run.start) == source_generation.generation\n"
        "            and generation_of(last_position) == source_generation.generation",
        "last_position >= 0",
        "tests/unit/acker/ledger/test_acker_sessions.py"
        "::test_only_a_take_raises_a_generation_and_open_roots_of_the_old_one_live_on",
        "after a rewind a query from before it could open roots of the old generation",
    ),
    # -- the clock, and what does not count yet
    Mutant(
        "a-tick-waits-for-fails",
        "acker/ledger/sessions.py",
        "if barrier is None or barrier.ack > reached.ack or barrier.fail > reached.fail:",
        "if barrier is None or barrier.ack > reached.ack:",
        "tests/unit/acker/ledger/test_acker_sessions.py"
        "::test_what_waits_counts_when_both_logs_are_applied_up_to_its_barrier",
        "a failed record would time out in a late acker, and its cause would be lost",
    ),
    Mutant(
        "a-tick-waits-for-acks",
        "acker/ledger/sessions.py",
        "if barrier is None or barrier.ack > reached.ack or barrier.fail > reached.fail:",
        "if barrier is None or barrier.fail > reached.fail:",
        "tests/unit/acker/ledger/test_acker_sessions.py"
        "::test_what_waits_counts_when_both_logs_are_applied_up_to_its_barrier",
        "an acker that comes back would time out what was acked meanwhile",
    ),
    Mutant(
        "of-too-many-ticks-the-last-is-replaced",
        "acker/ledger/sessions.py",
        "del self[ticks.pop()]",
        "del self[ticks.popleft()]",
        "tests/unit/acker/ledger/test_acker_sessions.py::test_too_many_waiting_ticks_of_a_session_are_merged",
        "while ticks wait, the first would be dropped again and again, and nothing would time out",
    ),
    Mutant(
        "the-slower-of-two-clocks-gets-a-second-more",
        "acker/ledger/sessions.py",
        "grace_ms = max(0, clock.read_ms + UNSENT_MS_MAX - init_ms) if has_another_process else 0",
        "grace_ms = max(0, clock.read_ms - init_ms) if has_another_process else 0",
        "tests/unit/acker/ledger/test_acker_sessions.py"
        "::test_what_the_slower_of_two_clocks_emits_has_a_second_more_than_the_difference",
        "after a restart records could time out up to a second early",
    ),
    Mutant(
        "a-take-of-the-owner-may-be-another-process",
        "acker/ledger/sessions.py",
        "clock.shared_until_ms = clock.read_ms + SIBLING_MS",
        "clock.shared_until_ms = None",
        "tests/simulation/test_findings.py"
        "::test_what_a_zombie_emits_outlives_what_its_successor_has_not_told_yet",
        "what a process emits while its successor begins could time out up to a second early",
    ),
    Mutant(
        "state-has-which-sessions-have-two-processes",
        "acker/service/partition.py",
        "shared = shared_headers(core.sessions.shared_until_ms())",
        "shared = shared_headers({})",
        "tests/unit/acker/ledger/test_acker_sessions.py"
        "::test_what_is_emitted_beside_another_process_outlives_what_that_one_has_not_sent",
        "the same, where an acker was killed meanwhile",
    ),
    Mutant(
        "a-clock-is-not-far-ahead-of-its-record",
        "acker/wire/checks.py",
        "if ahead_ms > CLOCK_AHEAD_MS_MAX:",
        "if False:",
        "tests/unit/acker/service/test_forged_records.py"
        "::test_a_forged_record_does_what_the_table_says_and_a_new_session_has_all_again",
        "one record could let nothing of a group time out any more",
    ),
    Mutant(
        "an-epoch-is-one-that-the-next-record-can-exceed",
        "acker/wire/checks.py",
        "if epoch > epoch_max(written_ms):",
        "if False:",
        "tests/unit/acker/service/test_forged_records.py"
        "::test_a_forged_record_does_what_the_table_says_and_a_new_session_has_all_again",
        "after one record no session could own the group",
    ),
    Mutant(
        "a-take-raises-a-generation-by-steps",
        "acker/ledger/sessions.py",
        "if source.generation > highest:",
        "if False:",
        "tests/unit/acker/service/test_forged_records.py"
        "::test_a_forged_record_does_what_the_table_says_and_a_new_session_has_all_again",
        "after one record nobody could rewind the input",
    ),
    Mutant(
        "an-init-leaves-no-block-out",
        "acker/service/core.py",
        "if left_out_start is not None:",
        "if False:",
        "tests/unit/acker/service/test_forged_records.py"
        "::test_a_forged_record_does_what_the_table_says_and_a_new_session_has_all_again",
        "by one record all that an input has would never be read",
    ),
    Mutant(
        "a-session-has-a-name",
        "acker/wire/checks.py",
        "if not (record.group and record.session):",
        "if False:",
        "tests/unit/acker/service/test_forged_records.py"
        "::test_a_forged_record_does_what_the_table_says_and_a_new_session_has_all_again",
        "a group without a name could take what was freed",
    ),
    Mutant(
        "any-session-follows-on-an-owner-that-is-not-real",
        "acker/ledger/sessions.py",
        "if written_ms is not None and wrong_epoch(",
        "if written_ms is None and wrong_epoch(",
        "tests/unit/spout/group/test_harmed_groups.py"
        "::test_release_brings_a_group_back_whose_state_has_what_ackers_once_believed",
        "a group that was harmed once could never be had again",
    ),
    Mutant(
        "an-input-that-was-freed-goes-on-in-a-new-generation",
        "acker/ledger/sessions.py",
        "was_freed = stored is not None and stored.group == FREE",
        "was_freed = False",
        "tests/unit/acker/service/test_freeing.py::test_an_id_that_a_stranger_claimed_is_had_again",
        "its owner would not get the input back",
    ),
    Mutant(
        "a-timeout-is-not-reset-to-a-time-far-ahead",
        "acker/wire/checks.py",
        "return wrong_clock(acks.touched_at - longer_ms, written_ms)",
        'return ""',
        "tests/unit/acker/service/test_forged_records.py"
        "::test_a_forged_record_does_what_the_table_says_and_a_new_session_has_all_again",
        "by one record a root would never time out",
    ),
    Mutant(
        "a-batch-number-is-one-that-a-later-one-can-exceed",
        "acker/wire/checks.py",
        "wrong_numbers(record.epoch, record.seq)",
        "wrong_numbers(record.epoch)",
        "tests/unit/acker/service/test_forged_records.py"
        "::test_a_forged_record_does_what_the_table_says_and_a_new_session_has_all_again",
        "after one record no ack of that writer would count any more",
    ),
    Mutant(
        "a-partition-keeps-so-many-sources",
        "acker/ledger/sessions.py",
        "if new_source_count and len(self.sources) + new_source_count > self._sources_max:",
        "if False:",
        "tests/unit/acker/service/test_freeing.py"
        "::test_there_is_room_for_so_many_sources_and_groups_and_freeing_makes_it_again",
        "some records could let State grow until no acker could write it",
    ),
    Mutant(
        "a-partition-keeps-so-many-groups",
        "acker/ledger/sessions.py",
        "if take.group not in self.groups and len(self.groups) >= self._groups_max:",
        "if False:",
        "tests/unit/acker/service/test_freeing.py"
        "::test_there_is_room_for_so_many_sources_and_groups_and_freeing_makes_it_again",
        "the same, by takes without sources",
    ),
    Mutant(
        "what-is-open-of-a-freed-id-is-abandoned",
        "acker/ledger/ledger.py",
        "if cohort.roots.source in sources:",
        "if False:",
        "tests/unit/acker/service/test_freeing.py::test_an_id_that_a_stranger_claimed_is_had_again",
        "roots of a group that is gone would be open for ever",
    ),
    Mutant(
        "a-topic-whose-writers-choose-the-time-is-named",
        "acker/provisioning/topic_specs.py",
        "    findings += _writer_time_findings(spec, settings)\n",
        "",
        "tests/unit/acker/provisioning/test_topic_specs.py"
        "::test_what_is_odd_but_loses_nothing_by_itself_is_a_warning",
        "whoever claims a clock of next year could date its record next year, and nobody would be warned",
    ),
    Mutant(
        "no-mark-passes-over-a-state-that-is-sound",
        "acker/service/state.py",
        "    except (CodecError, Disagreement):\n        return False\n    return True",
        "    except (CodecError, Disagreement):\n        return False\n    return False",
        "tests/unit/replay/handling/test_repair.py"
        "::test_no_mark_lets_an_acker_pass_over_a_state_that_it_can_read",
        "one record could end all ackers",
    ),
    # -- fails before acks, transactions, restart
    Mutant(
        "contributions-wait-for-all-inits-before-them",
        "acker/service/step_reader.py",
        "        if self._must_wait_for_inits(partition):\n            self.records[partition] =",
        "        if False:\n            self.records[partition] =",
        "tests/limits/test_load_acker.py"
        "::test_a_days_ticks_before_a_contribution_are_applied_in_steps_of_so_many",
        "an acker that was away for long would drop acks, and ack what failed",
    ),
    Mutant(
        "a-step-with-contributions-is-committed-at-once",
        "acker/service/partition.py",
        "return is_late or self._has_read_acks_or_fails or self.core.has_output",
        "return is_late or self.core.has_output",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_a_step_that_has_read_contributions_is_committed_at_once",
        "a contribution that was dropped could count after a restart",
    ),
    Mutant(
        "verdicts-and-state-are-one-transaction",
        "acker/service/partition.py",
        "self._write_in_transaction(write.records)",
        "self._write_in_transaction(write.records[len(write.output.verdicts) :])\n"
        "            self._write_in_transaction(write.records[: len(write.output.verdicts)])",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_an_unknown_outcome_of_a_commit_with_verdicts_is_looked_up",
        "a crash between the two would lose the verdicts",
    ),
    Mutant(
        "verdicts-are-in-the-log-before-state-is",
        "acker/service/partition.py",
        "record.topic != self._topics.state)\n        self._transactions.flush(timeout_ms)",
        "record.topic == self._topics.state)\n        self._transactions.flush(timeout_ms)",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_verdicts_that_are_committed_without_their_state_are_not_given_again",
        "State that is committed alone would lose its verdicts",
    ),
    Mutant(
        "a-restart-reads-the-verdicts-behind-state",
        "acker/service/snapshot.py",
        "default=not_needed_from(ledger.verdict_end_pin.offset))",
        "default=-1)",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_verdicts_that_are_committed_without_their_state_are_not_given_again",
        "verdicts that were committed alone would be given again",
    ),
    Mutant(
        "a-restart-settles-what-state-carries-too",
        "acker/ledger/ledger.py",
        "        if not count:\n            return\n        self.open_count -= count",
        "        is_carried = cohort.bin_number is not None\n"
        "        if not count or (first_verdict is not self.verdict_end_pin and is_carried):\n"
        "            return\n        self.open_count -= count",
        "tests/unit/acker/service/test_acker_cut.py"
        "::test_verdicts_of_carried_roots_without_their_state_are_not_given_again",
        "a record that is open for long would get a second verdict, and a second copy",
    ),
    Mutant(
        "a-verdict-without-its-init-waits-for-it",
        "acker/ledger/ledger.py",
        "            self._keep_without_init(run, pin)\n            for cohort",
        "            for cohort",
        "tests/unit/acker/service/test_acker_cut.py"
        "::test_verdicts_that_are_committed_without_the_inits_of_their_roots_are_not_given_again",
        "a record that is acked within a second of its emission would get a second verdict",
    ),
    Mutant(
        "what-waits-for-its-init-is-read-by-each-restart",
        "acker/service/snapshot.py",
        "pins = [ledger.first_pin_without_init]\n",
        "pins: list[Pin | None] = []\n",
        "tests/unit/acker/service/test_acker_cut.py"
        "::test_verdicts_without_their_inits_are_known_until_all_of_these_were_read_again",
        "a second crash would give a second verdict",
    ),
    Mutant(
        "a-state-counts-when-all-of-it-is-there",
        "acker/service/state.py",
        "        if not is_last:\n"
        "            parts = _decode_parts(codec, records.complete)\n"
        "        last_state = _unpack_last_state(log, codec, records.complete, parts, is_last=is_last)",
        "        last_state = _unpack_last_state(log, codec, records.latest, parts, is_last=is_last)",
        "tests/unit/acker/service/test_acker_cut.py"
        "::test_a_bin_that_is_committed_without_its_state_counts_for_nothing",
        "contributions to roots that are open for long would be folded twice, or no acker would start again",
    ),
    Mutant(
        "what-a-cut-transaction-left-is-written-over",
        "acker/service/restore.py",
        "if not last_state.is_last:",
        "if False:",
        "tests/unit/acker/service/test_acker_cut.py"
        "::test_bins_of_a_cut_transaction_are_written_anew_with_the_next_state",
        "a second restart would fold contributions twice",
    ),
    Mutant(
        "what-an-error-has-cut-short-is-not-written",
        "acker/service/service.py",
        "if not self._is_amid_step:  # what a step",
        "if True:  # what a step",
        "tests/unit/acker/service/test_acker_cut.py"
        "::test_an_acker_that_ends_by_a_refused_transaction_does_not_write_state_without_its_verdicts",
        "records would have no verdict, and never be replayed",
    ),
    Mutant(
        "an-aborted-transaction-is-not-taken-for-committed",
        "acker/service/service.py",
        "elif isinstance(error, Aborted | Unreachable):",
        "elif isinstance(error, Aborted):\n            pass\n        elif isinstance(error, Unreachable):",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_an_aborted_transaction_leads_to_a_restore_and_in_the_end_to_an_error",
        "verdicts would be lost with the transaction",
    ),
    Mutant(
        "a-restart-reads-contributions-again",
        "acker/service/restore.py",
        "records = read_ack_topic(self.log, place, state.safe, state.ack, committed=False, wait_ms=wait_ms)",
        "records = read_ack_topic(self.log, place, state.ack, state.ack, committed=False, wait_ms=wait_ms)",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_a_killed_acker_gives_the_verdicts_that_it_would_have_given",
        "a root with half of its contributions would time out after a restart",
    ),
    Mutant(
        "a-restart-reads-committed-verdicts",
        "acker/service/restore.py",
        "for record in read_ack_topic(self.log, place, first_offset, end, committed=True, wait_ms=wait_ms):",
        "for record in read_ack_topic(self.log, place, first_offset, end, committed=False, wait_ms=wait_ms):",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_verdicts_of_a_transaction_that_was_never_committed_settle_nothing",
        "verdicts of an aborted transaction would settle roots that nobody heard of",
    ),
    Mutant(
        "state-missing-beside-verdicts-is-refused",
        "acker/service/restore.py",
        "self._require_no_verdict(core, verdict_place, verdict_end)",
        "pass",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_verdicts_without_state_are_an_error_but_aborted_ones_are_none",
        "an acker whose state topic was deleted would emit every record again",
    ),
    Mutant(
        "what-no-acker-wrote-is-no-verdict-without-state",
        "acker/service/restore.py",
        "if self._decode(core, record) is None:\n                continue",
        "pass",
        "tests/unit/acker/service/test_foreign_records.py"
        "::test_an_acker_starts_where_a_stranger_was_first_in_its_verdict_topic",
        "one record of a stranger in a new verdict topic would keep its acker from ever starting",
    ),
    Mutant(
        "a-moved-deadline-survives-a-restart",
        "acker/service/snapshot.py",
        "cohort.load_touched(_unpack_int32(carried_range.touched), deadlines_ms)",
        "pass",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_a_killed_acker_gives_the_verdicts_that_it_would_have_given",
        "a record whose timeout was reset would time out after a restart",
    ),
    Mutant(
        "the-safe-position-is-that-of-the-oldest-open-root",
        "acker/service/snapshot.py",
        "safe_offset = pinned_cohort.ack_pin.offset",
        "safe_offset = core.ack_next",
        "tests/unit/acker/service/test_acker_restart.py::test_logs_are_shortened_to_what_a_restart_needs",
        "contributions to open roots would be lost with a crash",
    ),
    # -- what the wire may hold
    Mutant(
        "a-run-stays-in-its-block",
        "acker/wire/checks.py",
        "if run.start < block_start or run.end > block_end:",
        "if run.start < block_start:",
        "tests/unit/acker/service/test_acker_quarantine.py"
        "::test_contributions_that_contradict_themselves_are_quarantined_whole",
        "a damaged record could settle roots of another acker partition",
    ),
    Mutant(
        "a-named-position-stays-in-its-block",
        "acker/wire/checks.py",
        "if int(column_positions.min()) < block_start or int(column_positions.max()) >= block_end:",
        "if int(column_positions.min()) < block_start or int(column_positions.max()) > block_end:",
        "tests/unit/acker/service/test_acker_quarantine.py::test_fails_outside_their_block_are_quarantined",
        "a fail one position beyond the block would be applied by the wrong acker",
    ),
    Mutant(
        "as-many-values-as-positions",
        "acker/wire/checks.py",
        "    if len(acks.positions) != len(acks.values):\n"
        '        return "positions and values differ in length"\n',
        "",
        "tests/unit/acker/service/test_acker_quarantine.py"
        "::test_contributions_that_contradict_themselves_are_quarantined_whole",
        "a damaged record would end the acker",
    ),
    Mutant(
        "an-init-is-for-its-own-acker-partition",
        "acker/wire/checks.py",
        "if acker_partition(run.source, block << ACKER_BLOCK_BITS, partitions) != partition:\n"
        '                return f"positions from',
        'if False:\n                return f"positions from',
        "tests/unit/acker/service/test_acker_quarantine.py"
        "::test_a_block_or_run_of_another_acker_partition_is_quarantined",
        "roots would open where no contribution comes, and time out",
    ),
    Mutant(
        "a-verdict-record-fits-into-a-message",
        "acker/ledger/verdicts.py",
        "if used_bytes + row_bytes > RECORD_BUDGET_BYTES:",
        "if used_bytes >= RECORD_BUDGET_BYTES:",
        "tests/unit/acker/ledger/test_acker_verdicts.py"
        "::test_a_long_list_of_lost_roots_is_cut_into_records_below_the_limit",
        "an acker that fails a million records at once could not write its verdicts",
    ),
    Mutant(
        "a-number-without-an-end-is-given-up",
        "acker/wire/codec.py",
        "if shift > 63:",
        "if shift > 1 << 40:",
        "tests/unit/acker/service/test_acker_quarantine.py::test_a_number_without_an_end_is_given_up_at_once",
        "garbage of 900 KB would hold every acker for longer than a step may take, again after each restart",
    ),
    Mutant(
        "a-header-that-names-no-copies-is-passed-over",
        "acker/ledger/tally.py",
        "        if not len(copy_positions):\n            return\n",
        "",
        "tests/unit/acker/ledger/test_tally.py::test_what_is_no_header_of_copies_is_passed_over",
        "eight bytes in a header would end every acker",
    ),
    # -- the producer
    Mutant(
        "a-refusal-reaches-the-writer",
        "acker/kafka/writer.py",
        'if error is not None:\n            topic = message.topic() or ""',
        'if error is None:\n            topic = message.topic() or ""',
        "tests/unit/acker/kafka/test_kafka_producer.py"
        "::test_a_delivery_report_with_an_error_is_raised_by_flush_once",
        "an ack that the broker refused would count as written",
    ),
    Mutant(
        "a-refusal-is-raised-by-the-flush",
        "acker/kafka/writer.py",
        "        if refusal is not None:\n            raise refusal\n",
        "",
        "tests/unit/acker/kafka/test_kafka_producer.py"
        "::test_a_delivery_report_with_an_error_is_raised_by_flush_once",
        "a query would go on although nothing of its batch was published",
    ),
    Mutant(
        "what-is-not-acknowledged-is-raised-by-the-flush",
        "acker/kafka/writer.py",
        "if queued_count:\n            raise self._unacknowledged(",
        "if False:\n            raise self._unacknowledged(",
        "tests/unit/acker/kafka/test_kafka_producer.py"
        "::test_a_record_without_a_report_is_not_taken_for_written",
        "a query would go on while the broker is away, and its records would time out",
    ),
    Mutant(
        "a-refused-record-aborts-its-transaction",
        "acker/kafka/transactions.py",
        "if self._first_refusal is None:\n            self._commit_open",
        "if True:\n            self._commit_open",
        "tests/unit/acker/kafka/test_kafka_transactions.py"
        "::test_a_record_that_was_refused_at_once_is_told_whatever_becomes_of_the_abort",
        "a copy that was refused would leave a tombstone, and the record would be lost",
    ),
    Mutant(
        "ends-are-asked-for-before-times",
        "acker/kafka/cluster.py",
        "return _end_where_negative(self._offsets(timestamp_ms, ends), ends)",
        "times = self._offsets(timestamp_ms, ends)\n"
        "        return _end_where_negative(times, self.ends(partitions))",
        "tests/unit/acker/kafka/test_kafka_offsets.py::test_that_there_is_no_record_so_late_is_an_answer",
        "a group that begins at a time would lose what came while it asked for that",
    ),
    Mutant(
        "a-new-leader-waits-for-the-silent-one",
        "acker/kafka/cluster.py",
        "if leaders.get(partition, silence.leader) == silence.leader",
        "if True",
        "tests/unit/acker/kafka/test_kafka_offsets.py"
        "::test_a_partition_is_asked_for_as_soon_as_it_has_another_leader_than_the_silent_one",
        "the verdicts of a partition would wait for six seconds more",
    ),
    Mutant(
        "a-last-attempt-without-an-answer-hides-what-is-in-trouble",
        "acker/kafka/client.py",
        "former_trouble = error if isinstance(error, Troubled) else None",
        "former_trouble = None",
        "tests/unit/acker/kafka/test_kafka_client.py"
        "::test_a_last_attempt_without_an_answer_hides_no_trouble_of_the_one_before",
        "the error would say that no broker answers, where one partition has no leader",
    ),
    Mutant(
        "who-asks-about-others-has-looked-for-the-silent-one",
        "acker/kafka/cluster.py",
        "leaders: dict[TopicPartition, int] = {}",
        "leaders: dict[TopicPartition, int] = {}\n        self._silent_leaders_read_s = self._clock()",
        "tests/unit/acker/kafka/test_kafka_questions.py"
        "::test_another_leader_than_the_silent_one_is_found_soon_however_often_it_is_asked",
        "the verdicts of a partition would wait for six seconds more where somebody asks often",
    ),
    Mutant(
        "the-leader-of-now-is-taken-for-the-silent-one",
        "acker/kafka/cluster.py",
        "_Silence(error, now_s + SILENT_AGAIN_S, leader)",
        "_Silence(error, now_s + SILENT_AGAIN_S, self._ask_leader_ids(silent_errors).get(partition))",
        "tests/unit/acker/kafka/test_kafka_offsets.py"
        "::test_a_leader_that_is_new_while_the_old_one_is_waited_for_is_asked_next",
        "nobody would ask the new leader, since it would be silent by mistake",
    ),
    Mutant(
        "leaders-of-another-time-are-asked-when-a-broker-was-lost",
        "acker/kafka/cluster.py",
        "or (is_question_due and has_lost_connection)",
        "",
        "tests/unit/acker/kafka/test_kafka_offsets.py"
        "::test_who_leads_is_asked_once_and_again_for_a_while_after_a_broker_was_lost",
        "the first question after each broker's death would wait three seconds for it",
    ),
    Mutant(
        "what-a-successor-has-shortened-ends-an-acker",
        "acker/service/service.py",
        "for place, start in starts.items() if start > read_offsets[place]}",
        "for place, start in starts.items() if start < 0}",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_an_acker_that_stood_still_gives_up_what_its_successor_has_shortened",
        "an acker that was stopped for a minute would end instead of going on",
    ),
    # -- topics.yaml
    Mutant(
        "a-replay-topic-takes-records-of-any-age",
        "acker/provisioning/topic_specs.py",
        "settings[name] = NO_LIMIT",
        "settings[name] = source_settings[name]",
        "tests/unit/acker/provisioning/test_topic_specs.py::test_a_replay_topic_takes_copies_of_records_of_any_age",
        "the copy of a record that is older than its source allows would be refused",
    ),
    Mutant(
        "defaults-give-way-to-the-users-settings",
        "acker/config/kafka_bounds.py",
        "if low_value + bound.distance <= high_value:",
        "if True:",
        "tests/unit/acker/config/test_kafka_bounds.py"
        "::test_settings_that_do_not_contradict_each_other_make_every_kind_of_client",
        "a replay worker or a task of Spark would end at its start, and name what nobody wrote",
    ),
    Mutant(
        "a-function-of-tokens-never-raises-into-the-client",
        "acker/kafka/tokens.py",
        "            return _ENDED_TOKEN",
        "            raise",
        "tests/unit/acker/kafka/test_tokens.py::test_a_function_that_fails_later_ends_no_process",
        "the process would end when a token is renewed",
    ),
    Mutant(
        "a-variable-is-never-yaml",
        "acker/config/yaml_text.py",
        "return VariableText(filled, variables) if variables else filled",
        "return filled",
        "tests/unit/acker/config/test_text_stays_text.py"
        "::test_a_variable_is_a_number_where_a_number_is_wanted",
        "a number would be wanted of a text that nobody marked as a variable's",
    ),
    Mutant(
        "settings-of-kafka-stay-as-written",
        "acker/config/yaml_text.py",
        "if is_as_written and text and kind",
        "if False and text and kind",
        "tests/unit/acker/config/test_text_stays_text.py::test_a_plain_value_below_kafka_stays_as_written",
        "a password of digits would reach the client as another number",
    ),
    Mutant(
        "two-inputs-have-two-ids",
        "acker/config/topics.py",
        "    yield from _repeated_ids(inputs)\n",
        "",
        "tests/unit/acker/config/test_topics_refusals.py"
        "::test_two_inputs_that_cannot_be_together_are_refused_at_the_later",
        "acks of one input would settle records of another",
    ),
    Mutant(
        "dead-letters-do-not-come-back",
        "acker/config/topics.py",
        "    yield from _circles(inputs)\n",
        "",
        "tests/unit/acker/config/test_topics_refusals.py"
        "::test_dead_letters_that_go_round_in_a_circle_are_refused",
        "a record that always fails would go round for ever",
    ),
    Mutant(
        "causes-are-bounded",
        "acker/ledger/tally.py",
        "if cause not in self.failures and len(self.failures) >= CAUSES_MAX:",
        "if cause not in self.failures and len(self.failures) >= 20_000:",
        "tests/unit/acker/ledger/test_tally.py"
        "::test_ten_thousand_causes_are_a_hundred_and_the_others_together",
        "an error class with an order's number in its name would fill Prometheus' memory",
    ),
    Mutant(
        "verdicts-are-counted",
        "acker/service/service.py",
        "        self._tally.add(output.settled, now_ms)\n",
        "",
        "tests/unit/spout/runtime/test_metrics.py::test_an_acker_counts_the_verdicts_that_it_has_committed",
        "no alert on failures and timeouts would ever fire",
    ),
    Mutant(
        "partitions-commit-side-by-side",
        "acker/kafka/cluster.py",
        "        thread.shutdown(wait=False)",
        "        thread.shutdown(wait=True)",
        "tests/unit/acker/kafka/test_side_by_side.py::test_calls_are_made_at_the_same_time",
        "a verdict would wait for the transactions of all partitions before its own",
    ),
    Mutant(
        "a-transaction-that-takes-long-is-left-to-itself",
        "acker/service/service.py",
        "self._writes.wait(_partitions_of(ackers), PATIENCE_MS)",
        "self._writes.wait(_partitions_of(ackers), 60_000)",
        "tests/unit/acker/service/test_slow_commits.py"
        "::test_a_partition_whose_commit_waits_holds_up_no_other",
        "one silent broker would hold up all partitions of an acker for 15 s and more, again and again",
    ),
    Mutant(
        "a-partition-waits-for-its-transaction",
        "acker/service/service.py",
        "for partition, acker in self._owned_ackers.items() if partition not in self._writes]",
        "for partition, acker in self._owned_ackers.items()]",
        "tests/unit/acker/service/test_slow_commits.py"
        "::test_nothing_is_applied_to_a_partition_before_its_transaction_is_over",
        "two transactions of one producer would be open at once",
    ),
    Mutant(
        "a-partition-whose-transaction-takes-long-is-not-read",
        "acker/service/service.py",
        "        self._reader.pause(self._writes.partitions())\n",
        "",
        "tests/unit/acker/service/test_slow_commits.py"
        "::test_nothing_is_applied_to_a_partition_before_its_transaction_is_over",
        "its contributions would take the room of all others, and fill the memory of the acker",
    ),
    Mutant(
        "what-is-held-is-not-waited-for",
        "acker/service/step_reader.py",
        "                self._control_end_by_place.pop(place, None)\n        self._reassign()",
        "                pass\n        self._reassign()",
        "tests/unit/acker/service/test_slow_commits.py"
        "::test_contributions_that_wait_for_their_inits_wait_on_behind_the_transaction",
        "the others would be fetched no more before it goes on",
    ),
    Mutant(
        "what-is-taken-away-ends-its-transaction-first",
        "acker/service/service.py",
        "ready_partitions = _partitions_of(self._ready_ackers())",
        "ready_partitions = list(self._owned_ackers)",
        "tests/unit/acker/service/test_slow_commits.py"
        "::test_a_partition_that_is_taken_away_ends_its_transaction_first",
        "the producer would be closed while another thread commits with it",
    ),
    Mutant(
        "who-only-waits-has-no-answer",
        "acker/service/service.py",
        "if not self._waits_for_writes():",
        "if True:",
        "tests/unit/acker/service/test_slow_commits.py"
        "::test_an_outage_goes_on_while_a_process_waits_for_transactions_alone",
        "an acker without a broker would never end",
    ),
    Mutant(
        "a-takeover-that-waits-holds-up-no-other",
        "acker/service/service.py",
        "                    if not fencing.is_over(PATIENCE_MS):\n",
        "                    if fencing.result():\n",
        "tests/unit/acker/service/test_slow_commits.py::test_a_takeover_that_waits_holds_up_no_other",
        "a transaction that a silent broker keeps open would hold up all partitions, again and again",
    ),
    Mutant(
        "state-says-the-restore-that-it-has",
        "acker/service/partition.py",
        "self._has_written_restore = write.has_restore",
        "self._has_written_restore = self._last_restore is not None",
        "tests/unit/acker/service/test_partition_writes.py"
        "::test_a_restore_that_is_told_while_state_is_under_way_is_in_the_next_one",
        "no view would ever say how long the restore took",
    ),
    Mutant(
        "what-has-committed-is-told-although-another-partition-failed",
        "acker/service/service.py",
        "                partitions_and_errors.append((partition, outcome))\n                continue\n",
        "                raise outcome\n",
        "tests/unit/acker/service/test_acker_commits.py"
        "::test_what_has_committed_is_told_before_the_error_of_another_partition_ends_the_acker",
        "verdicts that are in the log would be missing in metrics and events",
    ),
    # -- partitions without a leader
    Mutant(
        "a-partition-without-a-leader-is-left-alone",
        "acker/service/silent.py",
        "if not self._is_left_alone(partition, now_ms)",
        "if partition not in self._last_tries",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_a_partition_without_a_leader_does_not_hold_up_the_others",
        "it would never come up again",
    ),
    Mutant(
        "partitions-come-up-in-turn",
        "acker/service/silent.py",
        "return tried_ms, wait_ms, partition",
        "return 0, 0, partition",
        "tests/unit/acker/service/test_acker_restart.py"
        "::test_a_partition_without_a_leader_does_not_hold_up_the_others",
        "one partition without a leader would keep the others of its process from coming up",
    ),
    Mutant(
        "a-copy-that-the-quarantine-refuses-ends-no-acker",
        "acker/service/service.py",
        "if isinstance(error, RecordRefused) and self._owned_ackers[partition].has_quarantined:",
        "if isinstance(error, Fenced) and self._owned_ackers[partition].has_quarantined:",
        "tests/unit/acker/service/test_acker_quarantine.py"
        "::test_a_record_whose_copy_the_quarantine_refuses_does_not_end_the_acker",
        "one record of garbage would end the acker, and each one after it",
    ),
    Mutant(
        "what-the-client-refuses-is-a-refused-record",
        "acker/kafka/client.py",
        "        if code in RECORD_REFUSED:",
        "        if cause.txn_requires_abort() and code in RECORD_REFUSED:",
        "tests/contract/test_kafka_only.py::test_what_the_client_itself_refuses_is_a_refused_record_too",
        "a value above message.max.bytes would end the replay workers",
    ),
    Mutant(
        "a-setting-that-is-needed-is-never-left-out",
        "acker/provisioning/refused_settings.py",
        "unavoidable = [setting for setting in refused if default_values.get(setting.name) != setting.value]",
        "unavoidable = [setting for setting in refused if setting.name not in default_values]",
        "tests/unit/acker/provisioning/test_refused_settings.py"
        "::test_the_error_names_the_setting_its_topics_and_what_happens_without_it",
        "ack topics would be made that delete open roots after seven days",
    ),
    Mutant(
        "what-one-broker-has-is-no-default-of-the-cluster",
        "acker/provisioning/refused_settings.py",
        "return all(defaults.get(name) == value for defaults in defaults_of_each)",
        "return True",
        "tests/unit/acker/provisioning/test_refused_settings.py"
        "::test_what_two_brokers_or_topics_have_otherwise_is_no_default",
        "a setting would be left out that another broker has otherwise",
    ),
    Mutant(
        "a-replay-topic-is-made-for-records-dated-ahead",
        "acker/provisioning/topic_specs.py",
        "_TIME_LIMITS: Final = (_AHEAD_LIMIT, *AGE_LIMITS)",
        "_TIME_LIMITS: Final = AGE_LIMITS",
        "tests/unit/acker/provisioning/test_topic_specs.py"
        "::test_a_topic_that_refuses_what_its_source_takes_is_found_with_the_setting_that_cures_it",
        "a record dated tomorrow would die at its first failure",
    ),
    Mutant(
        "time-in-which-nobody-looked-makes-nothing-stand",
        "acker/kafka/standing.py",
        "min(max(0, now_ms - self._recorded_at_ms), INTERVAL_MS_MAX)",
        "max(0, now_ms - self._recorded_at_ms)",
        "tests/unit/acker/kafka/test_standing.py::test_time_in_which_nobody_looked_counts_little",
        "a process that was stopped for an hour would say that all its partitions stand",
    ),
    Mutant(
        "what-waits-behind-others-in-a-reader-does-not-stand",
        "acker/kafka/standing.py",
        "is_drained or self._read_count - progress.read_count > QUEUED_MAX",
        "True",
        "tests/unit/acker/kafka/test_standing.py"
        "::test_a_partition_behind_others_in_a_slow_reader_does_not_stand",
        "a slow reader would report partitions whose records wait in its own client",
    ),
    Mutant(
        "a-partition-without-a-leader-stands",
        "acker/kafka/standing.py",
        "return bool(self.trouble) or (self.end is not None and self.end > self.position)",
        "return self.end is not None and self.end > self.position",
        "tests/unit/acker/kafka/test_standing.py"
        "::test_a_partition_without_a_leader_stands_though_nobody_knows_its_end",
        "nobody would say why a partition without a leader gives no records",
    ),
    Mutant(
        "a-partition-at-its-end-does-not-stand",
        "acker/kafka/standing.py",
        "(self.end is not None and self.end > self.position)",
        "self.end is not None",
        "tests/unit/acker/kafka/test_standing.py"
        "::test_a_partition_at_its_end_does_not_stand_when_a_record_comes_after_hours",
        "each quiet partition would be an error",
    ),
    Mutant(
        "a-position-that-moves-does-not-stand",
        "acker/kafka/standing.py",
        "if progress is None or progress.position != position:",
        "if progress is None:",
        "tests/unit/acker/kafka/test_standing.py::test_a_position_that_moves_does_not_stand",
        "a reader that goes on would be reported",
    ),
    Mutant(
        "ends-are-asked-now-and-then",
        "acker/kafka/standing.py",
        "if since_request_ms >= wait_ms:",
        "if since_request_ms >= 0:",
        "tests/unit/acker/kafka/test_standing.py"
        "::test_ends_are_asked_only_of_partitions_that_do_not_move_and_not_often",
        "each look of each reader would ask the brokers about all partitions",
    ),
    Mutant(
        "what-stands-is-said-once-a-minute",
        "acker/kafka/standing.py",
        "if not progress.is_reported or is_repeat_due:",
        "if True:",
        "tests/unit/acker/kafka/test_standing.py"
        "::test_a_partition_that_does_not_go_on_is_named_with_position_end_and_since",
        "the log would have a line about it with each look",
    ),
    Mutant(
        "a-reader-that-catches-up-does-not-stand",
        "acker/kafka/standing.py",
        "since_ms = now_ms - self._limit_ms if begins_anew else now_ms",
        "since_ms = now_ms - self._limit_ms",
        "tests/unit/spout/doctor/test_monitor.py"
        "::test_who_catches_up_is_not_taken_for_one_that_stands_by_who_looks_again",
        "the page would be red after each restart of an acker",
    ),
    Mutant(
        "a-view-waits-for-a-silent-broker-again-and-again",
        "acker/kafka/client.py",
        "        if is_one_silent:  # a deadline of 0",
        "        if False:  # a deadline of 0",
        "tests/unit/acker/kafka/test_kafka_outage.py"
        "::test_once_a_broker_is_known_to_be_silent_a_view_asks_each_question_once",
        "who looks what is wrong would wait for the one broker that cannot say it",
    ),
    Mutant(
        "a-service-gives-up-where-one-broker-is-silent",
        "acker/kafka/client.py",
        "if self._shared_wait_ms is None:",
        "if self._shared_wait_ms is None and not is_one_silent:",
        "tests/unit/acker/kafka/test_kafka_outage.py"
        "::test_once_a_broker_is_known_to_be_silent_a_view_asks_each_question_once",
        "an acker would end for a broker that others take the place of in nine seconds",
    ),
    Mutant(
        "a-record-that-is-too-large-is-not-called-damaged",
        "acker/errors.py",
        "if why.startswith(TOO_LARGE):",
        "if not why:",
        "tests/unit/acker/kafka/test_unreadable_words.py::test_only_what_is_damaged_on_a_disk_is_called_so",
        "an operator would look for a broken disk, and find none",
    ),
    Mutant(
        "a-batch-that-does-not-unpack-is-not-called-damaged",
        "acker/errors.py",
        "if why.startswith(NOT_UNPACKED):",
        "if not why:",
        "tests/unit/acker/kafka/test_unreadable_words.py::test_only_what_is_damaged_on_a_disk_is_called_so",
        "an operator would look for a broken disk, and wait for a replica that is whole",
    ),
    # -- a State that is full
    Mutant(
        "a-state-that-is-full-ends-no-acker",
        "acker/service/partition.py",
        "if encoded.size.share > 1:",
        "if encoded.size.share > 9:",
        "tests/unit/acker/service/test_full_state.py"
        "::test_a_full_state_holds_verdicts_back_until_acks_make_room",
        "an acker with a million open ranges would end, and again at each start",
    ),
    Mutant(
        "a-full-state-is-measured-again-when-it-is-smaller",
        "acker/service/partition.py",
        "if self.why_full and self.core.ledger.ranges >= self._range_count_when_full:",
        "if self.why_full:",
        "tests/unit/acker/service/test_full_state.py::test_timeouts_make_room_in_a_full_state",
        "verdicts would be held back for good",
    ),
    Mutant(
        "a-state-has-no-more-items-than-are-read",
        "acker/service/state.py",
        "items=sum(map(len, item_lists)),",
        "items=0,",
        "tests/unit/acker/service/test_full_state.py::test_what_readers_count_is_counted_by_the_writer",
        "a State would be written that no acker can read at its start",
    ),
    # -- what unpacks to more than it weighs
    Mutant(
        "a-state-unpacks-to-no-more-than-is-read",
        "acker/service/state.py",
        "unpacked = unpacking.decompress(body, limits.bytes_max)",
        "unpacked = unpacking.decompress(body)",
        "tests/property/test_fuzz_codec.py::test_a_state_that_unpacks_to_too_much_is_refused",
        "a megabyte in _ack_state would take a gigabyte of every acker and every view",
    ),
    Mutant(
        "items-are-counted-before-they-are-made",
        "acker/wire/item_counts.py",
        "if self._items_left < 0:",
        "if self._items_max < 0:",
        "tests/unit/acker/service/test_bombs.py::test_a_bin_of_too_many_ranges_is_refused_before_they_are_made",
        "16 MB of empty ranges would take a gigabyte once they are decoded",
    ),
    Mutant(
        "a-record-larger-than-any-of-ours-is-not-decoded",
        "acker/wire/codec.py",
        "if data is not None and len(data) > bytes_max:",
        "if data is not None and len(data) > bytes_max << 40:",
        "tests/unit/acker/service/test_bombs.py"
        "::test_a_record_of_the_wire_that_is_too_large_is_quarantined_alone",
        "a record of a gigabyte in a compressed batch would be decoded, and take a hundred times as much",
    ),
    Mutant(
        "nothing-is-written-that-cannot-be-read",
        "acker/service/state.py",
        "if self.size.share > 1:",
        "if self.size.share > 9:",
        "tests/unit/acker/service/test_bombs.py::test_a_state_that_nobody_could_read_is_not_written",
        "an acker would write a State after which it never starts again",
    ),
    Mutant(
        "a-poll-takes-few-large-records",
        "acker/kafka/reader.py",
        "while len(messages) < count_max and value_bytes < bytes_max:",
        "while len(messages) < count_max:",
        "tests/unit/acker/kafka/test_taken_bytes.py::test_no_more_is_copied_than_the_bound_and_a_few_records",
        "a batch that unpacks to a gigabyte would be copied as a whole beside itself",
    ),
    Mutant(
        "a-picker-finds-records-behind-holes",
        "acker/kafka/reader.py",
        "            index = bisect_left(messages, offset, hi=index, key=_offset_of)",
        "            continue",
        "tests/unit/acker/kafka/test_by_partition.py"
        "::test_the_messages_at_some_offsets_are_found_whatever_holes_the_log_has",
        "a lost record behind a marker of a transaction would count as gone, and become a dead letter",
    ),
    # -- partitions that are apart
    Mutant(
        "what-is-apart-waits-for-its-inits",
        "acker/service/step_reader.py",
        "return partition in self._stalled or init_place in self._control_end_by_place",
        "return init_place in self._control_end_by_place",
        "tests/unit/acker/service/test_acker_standing.py"
        "::test_contributions_that_come_before_their_inits_can_be_read_count_when_these_can",
        "contributions would be applied before the init of their root, and dropped",
    ),
    Mutant(
        "what-is-apart-takes-no-room",
        "acker/service/step_reader.py",
        "            if stalled is None:\n                ack_offsets[ack] = self._next_offsets[ack]",
        "            if True:\n                ack_offsets[ack] = self._next_offsets[ack]",
        "tests/unit/acker/service/test_acker_standing.py"
        "::test_a_partition_that_is_apart_holds_few_contributions_and_takes_no_room_of_others",
        "contributions of a partition whose inits cannot be read would fill the memory of the acker",
    ),
    # -- clocks
    Mutant(
        "a-backlog-tells-nothing-of-clocks",
        "acker/clock_watch.py",
        "if not has_waited or newest_ms is None:",
        "if newest_ms is None:",
        "tests/unit/acker/test_clock_watch.py::test_records_of_a_backlog_tell_nothing",
        "after each pause an acker would say that its clock is wrong",
    ),
    Mutant(
        "one-old-record-is-no-wrong-clock",
        "acker/clock_watch.py",
        "if min(ages_ms) > CLOCKS_APART_MS:",
        "if max(ages_ms) > CLOCKS_APART_MS:",
        "tests/unit/acker/test_clock_watch.py"
        "::test_one_partition_that_comes_back_with_old_records_is_no_wrong_clock",
        "an election would be reported as a wrong clock",
    ),
    Mutant(
        "own-topics-have-the-brokers-time",
        "acker/provisioning/topic_specs.py",
        "settings={**basic, **settings, **_BROKERS_TIME},",
        "settings={**basic, **settings},",
        "tests/unit/acker/provisioning/test_topic_specs.py::test_the_broker_says_when_sessions_have_written",
        "an acker whose clock is two hours ahead could write no verdict",
    ),
    Mutant(
        "an-input-is-the-same-by-its-id",
        "acker/provisioning/changes.py",
        "for trait_of in (_id_of, _name_of, _reading_of):",
        "for trait_of in (_name_of, _id_of, _reading_of):",
        "tests/unit/acker/provisioning/test_changes.py"
        "::test_an_input_of_the_same_id_is_the_same_under_another_name",
        "where two inputs exchange their names, validate would refuse what is right",
    ),
    # -- keys that are null or empty
    Mutant(
        "a-null-key-is-null-in-the-quarantine",
        "acker/service/partition.py",
        "key = None if record.key is None else record.key[:QUARANTINE_BYTES]",
        'key = (record.key or b"")[:QUARANTINE_BYTES]',
        "tests/unit/acker/service/test_acker_quarantine.py::test_what_is_quarantined_has_its_key_and_value",
        "nobody would find the writer of the record by what it writes",
    ),
    Mutant(
        "a-null-value-is-null-in-the-quarantine",
        "acker/service/partition.py",
        "value = None if record.value is None else record.value[:value_bytes_max]",
        'value = (record.value or b"")[:value_bytes_max]',
        "tests/unit/acker/service/test_acker_quarantine.py::test_what_is_quarantined_has_its_key_and_value",
        "a tombstone would seem to be an empty record",
    ),
    Mutant(
        "a-key-goes-to-the-client-as-it-is",
        "acker/kafka/writer.py",
        "                    key,\n                    partition,",
        "                    key or None,\n                    partition,",
        "tests/unit/acker/kafka/test_kafka_producer.py"
        "::test_keys_and_values_go_to_the_client_and_come_from_it_as_they_are",
        "a record with an empty key would come back without one",
    ),
    Mutant(
        "a-key-comes-from-the-client-as-it-is",
        "acker/kafka/reader.py",
        "            message.key(),\n            message.value(),",
        "            message.key() or None,\n            message.value(),",
        "tests/unit/acker/kafka/test_kafka_producer.py"
        "::test_keys_and_values_go_to_the_client_and_come_from_it_as_they_are",
        "a record with an empty key would be copied without one",
    ),
    # -- clocks that step, budgets, ends of logs, and what may stay
    Mutant(
        "a-clock-that-is-set-back-stops-no-check-of-counts",
        "acker/service/partition_counts.py",
        "not None and 0 <= now_ms - self._checked_ms < CHECK_EVERY_MS",
        "not None and now_ms - self._checked_ms < CHECK_EVERY_MS",
        "tests/unit/test_clocks.py::test_what_a_process_does_from_time_to_time_goes_on_by_a_clock_that_steps",
        "for an hour nobody would notice that ack topics have got partitions",
    ),
    Mutant(
        "a-clock-that-is-set-ahead-makes-nobody-wait",
        "acker/waits.py",
        "min(self._between_ms_max, max(0, now_ms - self._read_ms))",
        "max(0, now_ms - self._read_ms)",
        "tests/unit/spout/planning_process/test_stepping_clock.py::test_silent_ackers_are_waited_for_as_long_as_the_error_says",
        "a query would end since ackers had not answered for a minute, of which one second has passed",
    ),
    Mutant(
        "a-clock-that-is-set-back-takes-no-time-away",
        "acker/waits.py",
        "min(self._between_ms_max, max(0, now_ms - self._read_ms))",
        "min(self._between_ms_max, now_ms - self._read_ms)",
        "tests/unit/spout/planning_process/test_stepping_clock.py::test_a_living_owner_keeps_its_group_where_the_clock_of_a_newcomer_steps",
        "who waits for a group would look for signs of life an hour later",
    ),
    Mutant(
        "a-reader-that-stands-does-so-by-a-clock-that-was-set-back",
        "acker/kafka/standing.py",
        "since_ms = min(seen.since_ms, now_ms)",
        "since_ms = seen.since_ms",
        "tests/unit/acker/kafka/test_standing.py::test_a_reader_that_catches_up_slowly_does_not_stand_for_who_looks_by_any_clock",
        "an acker that stands would be named an hour later",
    ),
    Mutant(
        "a-takeover-is-told-what-was-read-and-not-what-counts",
        "acker/ledger/sessions.py",
        "former_clock_ms = self.clock(group.owner).read_ms",
        "former_clock_ms = self.clock(group.owner).counted_ms",
        "tests/unit/acker/ledger/test_acker_sessions.py::test_whoever_takes_or_asks_is_told_the_highest_clock_that_was_read",
        "the next session would begin with a clock that is behind",
    ),
    Mutant(
        "a-restart-is-told-what-was-read-and-not-what-counts",
        "acker/service/core.py",
        "own_clock_ms = self.sessions.clock(session).read_ms",
        "own_clock_ms = self.sessions.clock(session).counted_ms",
        "tests/unit/acker/ledger/test_acker_sessions.py::test_whoever_takes_or_asks_is_told_the_highest_clock_that_was_read",
        "a restart would go on with a clock that is behind",
    ),
    Mutant(
        "who-asks-is-told-what-was-read-and-not-what-counts",
        "acker/service/core.py",
        "clock_ms = self.sessions.clock(owner).read_ms",
        "clock_ms = self.sessions.clock(owner).counted_ms",
        "tests/unit/acker/ledger/test_acker_sessions.py::test_whoever_takes_or_asks_is_told_the_highest_clock_that_was_read",
        "a restart that asks for the clock of the process before would go on behind it",
    ),
    Mutant(
        "the-process-before-may-live-from-what-was-read-on",
        "acker/ledger/sessions.py",
        "clock.shared_until_ms = clock.read_ms + SIBLING_MS",
        "clock.shared_until_ms = clock.counted_ms + SIBLING_MS",
        "tests/unit/acker/ledger/test_acker_sessions.py::test_the_process_before_may_live_for_its_time_from_the_highest_clock_on",
        "roots beside the process before would lose the second more too early",
    ),
    Mutant(
        "safe-marks-of-an-ended-session-go",
        "acker/ledger/marks.py",
        "self.safe.forget(session)",
        "pass",
        "tests/property/test_nothing_stays.py::test_a_takeover_leaves_nothing_of_the_sessions_before",
        "State would grow with each session that ever wrote",
    ),
    Mutant(
        "marks-of-an-ended-session-that-are-on-their-way-go",
        "acker/ledger/marks.py",
        " if record.lane.session != session\n",
        "\n",
        "tests/property/test_nothing_stays.py::test_a_takeover_leaves_nothing_of_the_sessions_before",
        "marks of ended sessions would come into State afterwards",
    ),
    Mutant(
        "marks-of-an-ended-session-leave-room",
        "acker/ledger/marks.py",
        "self.latest.forget(session)",
        "pass",
        "tests/property/test_nothing_stays.py::test_ended_sessions_leave_room_for_the_lanes_of_others",
        "after enough sessions all contributions would go to the quarantine",
    ),
    Mutant(
        "marks-of-fails-of-an-ended-session-go",
        "acker/service/core.py",
        "                self.fail_marks.forget(former)\n",
        "",
        "tests/property/test_nothing_stays.py::test_a_takeover_leaves_nothing_of_the_sessions_before",
        "State would grow with each session that ever failed something",
    ),
    Mutant(
        "an-ended-session-leaves-no-mark-later",
        "acker/service/core.py",
        "        if not self.sessions.has_clock(session):\n            return Seen.NEW\n"
        "        content = Content(acks.seq",
        "        content = Content(acks.seq",
        "tests/property/test_nothing_stays.py::test_a_takeover_leaves_nothing_of_the_sessions_before",
        "what a zombie writes would stay in State for ever",
    ),
    Mutant(
        "a-group-that-is-freed-leaves-no-mark",
        "acker/service/freeing.py",
        "            core.fail_marks.forget(session)\n",
        "",
        "tests/property/test_nothing_stays.py::test_nothing_of_a_group_that_was_freed_stays",
        "the name of a group that was freed would stay in State",
    ),
    Mutant(
        "a-refused-commit-of-a-group-is-over",
        "acker/kafka/group.py",
        "        sent_offsets, self._offsets_under_way = self._offsets_under_way, {}\n",
        "        sent_offsets = self._offsets_under_way\n"
        "        if error is None:\n            self._offsets_under_way = {}\n",
        "tests/unit/acker/kafka/test_memberships.py::test_a_commit_goes_out_again_as_soon_as_the_end_of_the_one_before_lets_it",
        "after a refusal the next commit would go out a minute later",
    ),
    Mutant(
        "a-commit-whose-answer-is-lost-is-over",
        "acker/kafka/group.py",
        "self._offsets_under_way = {}  # an earlier commit",
        "pass  # an earlier commit",
        "tests/unit/acker/kafka/test_memberships.py::test_a_commit_goes_out_again_as_soon_as_the_end_of_the_one_before_lets_it",
        "where the next one cannot be sent, it would be tried again a minute later",
    ),
    Mutant(
        "an-acker-counts-restores-in-a-row",
        "acker/service/service.py",
        "        self._failed_commits.pop(partition, None)\n",
        "",
        "tests/unit/acker/service/test_budgets.py::test_transactions_that_fail_far_apart_do_not_end_an_acker",
        "the sixteenth aborted transaction of its life would end an acker",
    ),
    Mutant(
        "an-outage-goes-by-the-wall-clock",
        "acker/waits.py",
        "return 0 if self._since_ms is None else self._clock_ms() - self._since_ms",
        "return 0 if self._since_ms is None else time.time_ns() // 1_000_000",
        "tests/unit/acker/service/test_acker_clock.py"
        "::test_an_acker_without_a_broker_waits_for_it_as_long_as_ever",
        "a clock that is set ahead would end an acker at once",
    ),
    Mutant(
        "each-outage-has-its-own-time",
        "acker/service/service.py",
        "                self._broker.record_answer()\n        except",
        "                pass\n        except",
        "tests/unit/acker/service/test_budgets.py::test_one_acker_lives_through_many_outages",
        "a second outage would end an acker at once",
    ),
    Mutant(
        "a-partition-that-came-up-is-tried-soon-the-next-time",
        "acker/service/silent.py",
        "self._last_tries.items() if partition in partitions\n",
        "self._last_tries.items()\n",
        "tests/unit/acker/service/test_budgets.py::test_a_partition_that_came_up_is_left_alone_for_the_first_time_again",
        "after some outages in a year a partition would be left alone for long at the first try",
    ),
    Mutant(
        "a-note-of-state-may-be-nested-without-end",
        "acker/service/state_notes.py",
        "        return LastRestore(_count(at_ms), _count(took_ms))\n"
        "    except (ValueError, TypeError, RecursionError):\n",
        "        return LastRestore(_count(at_ms), _count(took_ms))\n    except (ValueError, TypeError):\n",
        "tests/unit/acker/service/test_state_notes.py::test_notes_that_no_acker_wrote_count_as_none",
        "one record in _ack_state would end its acker, the page and status at each start",
    ),
    Mutant(
        "a-number-of-a-note-of-state-has-no-end",
        "acker/service/state_notes.py",
        "if not is_whole_number(value, 0, _COUNT_END):",
        "if not is_whole_number(value, 0, _COUNT_END << 2_000):",
        "tests/unit/acker/service/test_state_notes.py::test_notes_that_no_acker_wrote_count_as_none",
        "one record in _ack_state would make the page and the metrics an error",
    ),
)
