"""Bugs in `spout`: planning, the group, publishing, bolts at work, held rows, and what operators read."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    # -- who owns a group, and what it has in hand
    Mutant(
        "a-reader-of-signs-stays-open-where-a-leader-is-lost",
        "spout/group/presence.py",
        "            undo.callback(self.close)\n",
        "            pass\n",
        "tests/unit/spout/group/test_signs_of_life.py"
        "::test_who_does_not_wait_is_told_at_once_of_a_partition_without_a_leader",
        "each look of the page would leave a consumer behind for as long as the partition has no leader",
    ),
    Mutant(
        "verdicts-before-the-emission-leave-the-commit-behind",
        "spout/group/running_session.py",
        "        self.window.open_source(source, cursor.next)\n\n    def _count_pending",
        "\n    def _count_pending",
        "tests/unit/spout/group/test_running_session.py::test_what_is_emitted_and_settled_agrees_with_plain_sets",
        "the group's commit would stand below records that are done",
    ),
    Mutant(
        "a-new-partition-is-no-new-one-where-only-the-journal-has-its-input",
        "spout/group/opening.py",
        "Begun(histories.keys() | marks.keys(), self._left_out_before)",
        "Begun(histories.keys(), self._left_out_before)",
        "tests/unit/spout/group/test_opening.py::test_a_new_partition_of_an_input_that_was_read_begins_at_0",
        "its first records would be passed over where somebody has committed an offset of it",
    ),
    Mutant(
        "a-part-of-a-source-is-sent-before-the-one-below-it-is-durable",
        "spout/group/announce.py",
        "if has_sent and (is_further_piece or part.turn > last_turn):",
        "if has_sent and part.turn > last_turn:",
        "tests/unit/spout/group/test_announced_records.py"
        "::test_an_init_of_too_many_runs_is_cut_and_its_pieces_follow_each_other",
        "a crash between the two could leave the upper one initialised, and the lower one not",
    ),
    Mutant(
        "a-whole-run-is-cut-at-a-block-and-the-next-one-is-taken",
        "spout/planning/supply.py",
        "if ends_with_block and end < run.end:",
        "if ends_with_block:",
        "tests/unit/spout/planning/test_plain_sharing.py"
        "::test_a_run_that_is_taken_to_its_end_does_not_end_at_a_block",
        "the positions between the two would wait below what is emitted",
    ),
    # -- the stack of an exception
    Mutant(
        "a-state-for-another-number-of-partitions-is-found",
        "spout/doctor/services.py",
        "elif reading.value.partitions != partitions:",
        "elif False:",
        "tests/unit/spout/doctor/test_services.py::test_a_state_of_another_number_of_partitions_is_found",
        "an acker of another topics.yaml would pass for one of this",
    ),
    Mutant(
        "a-large-disk-is-full-by-its-bytes-and-a-small-one-by-its-share",
        "spout/doctor/machine.py",
        "elif disk.free_bytes < FREE_BYTES_LOW and share < FREE_SHARE_LOW:",
        "elif share < FREE_SHARE_LOW:",
        "tests/unit/spout/doctor/test_folders.py::test_a_disk_that_is_nearly_full_is_found",
        "a disk with 300 GiB free would be called nearly full",
    ),
    Mutant(
        "the-stack-of-an-exception-stays-in-the-driver",
        "spout/publishing/publish.py",
        "headers=(*note, *stacks)",
        "headers=()",
        "tests/unit/spout/inspect/test_stacks_of_letters.py::test_a_dead_letter_has_the_stack_of_the_exception",
        "whoever reads a dead letter would have to find the driver's log of that minute",
    ),
    # -- what a terminal can write
    Mutant(
        "a-terminal-without-a-sign-ends-the-command",
        "acker/terminal.py",
        "output.reconfigure(errors=ERRORS)",
        "pass",
        "tests/unit/spout/test_hostile_texts.py"
        "::test_the_help_and_the_errors_of_each_command_work_where_the_terminal_lacks_signs",
        "the help of a command would end as a defect of ours",
    ),
    # -- what answers over HTTP
    Mutant(
        "the-target-of-a-request-is-not-asked-for-its-host",
        "spout/serving/hosts.py",
        'authorities.append("" if match is None else match["authority"])',
        "pass",
        "tests/unit/spout/serving/test_hosts.py::test_the_page_refuses_other_hosts_in_each_form_of_a_request",
        "a target in absolute form would name a host that nobody has allowed",
    ),
    Mutant(
        "the-metrics-answer-any-host",
        "spout/serving/wsgi.py",
        "        if refusal:\n",
        "        if not refusal:\n",
        "tests/unit/spout/serving/test_hosts.py"
        "::test_metrics_are_refused_to_other_hosts_in_each_form_of_a_request",
        "a stranger's page would read the names of inputs and groups",
    ),
    Mutant(
        "a-request-is-whole-with-its-headers",
        "spout/serving/asgi.py",
        "return self.cycle is not None and not self.cycle.more_body",
        "return self.cycle is not None",
        "tests/unit/spout/serving/test_connections.py"
        "::test_half_a_request_ends_in_time_and_the_log_says_nothing",
        "a body that does not come would hold its connection for ever",
    ),
    Mutant(
        "nobody-makes-room-for-a-new-connection",
        "spout/serving/connections.py",
        "if len(self) <= self.limits.open_max:",
        "if True:",
        "tests/unit/spout/serving/test_connections.py"
        "::test_a_connection_that_waits_gives_way_before_one_that_is_served",
        "half requests would use up the descriptors before their time is over",
    ),
    Mutant(
        "each-error-of-accept-is-said",
        "spout/serving/accept_errors.py",
        "now_s - self._reported_s < REPORTED_EVERY_S",
        "now_s - self._reported_s < 0",
        "tests/unit/spout/serving/test_connections.py"
        "::test_an_error_of_accept_is_said_once_a_minute_and_other_errors_always",
        "the log would grow by a megabyte a second",
    ),
    # -- Spark's own limit of workers
    Mutant(
        "a-limit-of-spark-s-may-not-forestall-bolt-timeout",
        "spout/isolation/safety.py",
        "0 < idle_ms <= bolt_limit_ms",
        "0 < idle_ms < bolt_limit_ms",
        "tests/unit/spout/isolation/test_safety.py"
        "::test_a_bolt_timeout_that_spark_s_limit_forestalls_is_refused",
        "Spark would end the worker in the same moment, and the query at each start",
    ),
    # -- another cluster
    Mutant(
        "a-verdict-of-another-cluster-settles-nothing",
        "spout/planning_process/verdict_reader.py",
        "        require_cluster(record.place, record.headers, record.value, self._cluster_id)\n",
        "",
        "tests/unit/spout/planning_process/test_other_cluster.py"
        "::test_verdicts_that_are_mirrored_on_while_all_runs_settle_nothing",
        "other records, at the same positions, would be committed as done",
    ),
    Mutant(
        "a-checkpoint-of-another-cluster-is-refused",
        "spout/planning_process/planner.py",
        "        check_cluster(journal, self._context.cluster_id)\n",
        "",
        "tests/unit/spout/planning_process/test_other_cluster.py::test_a_checkpoint_of_another_cluster_is_refused",
        "a query would read from offsets that are those of other records",
    ),
    Mutant(
        "a-commit-without-state-is-named",
        "spout/group/opening.py",
        "        self._report_commits_without_history(histories)\n",
        "",
        "tests/unit/spout/planning_process/test_other_cluster.py"
        "::test_a_commit_without_state_is_named_with_what_nobody_knows_and_where_to_begin",
        "what had failed and waited in another cluster would be left out in silence",
    ),
    # -- what operators read while a broker is missing
    Mutant(
        "who-waits-for-a-missing-broker-is-said-to-be-gone",
        "spout/inspect/readings.py",
        "if not missing or reading.unknown or reading.value:",
        "if True or not missing or reading.unknown or reading.value:",
        "tests/unit/spout/inspect/test_missing_broker_views.py"
        "::test_nobody_is_said_to_be_gone_while_a_broker_is_missing",
        "an operator would release a query that lives",
    ),
    Mutant(
        "a-foreseen-cause-is-new",
        "spout/inspect/failures.py",
        "if has_rule(self._cause_rules_by_input[name], lost):",
        "if False and has_rule(self._cause_rules_by_input[name], lost):",
        "tests/unit/spout/ui/test_attention.py::test_a_cause_for_which_the_file_has_a_rule_is_no_new_one",
        "a monitor would warn of what the file expects",
    ),
    Mutant(
        "latency-counts-from-a-wall-time-of-the-future",
        "spout/inspect/latency.py",
        "emitted_ms = _emission_time_ms(init, record.timestamp_ms)",
        "emitted_ms = init.wall",
        "tests/unit/spout/inspect/test_latency.py::test_a_clock_that_was_set_ahead_changes_no_time",
        "after a clock was set ahead records would seem to take no time, and no verdict be read",
    ),
    # -- what may be committed, and what is planned
    Mutant(
        "a-reset-is-by-the-clock-of-the-last-batch",
        "spout/planning_process/timeout_resets.py",
        "now = self._session.clock.now",
        "now = 0",
        "tests/unit/spout/standalone/test_kafka_spout.py::test_a_reset_holds_by_the_sessions_clock_of_now",
        "work that goes on would time out all the same where nothing new comes",
    ),
    Mutant(
        "a-stranger-is-looked-for-only-when-something-is-refused",
        "spout/group/strangers.py",
        "every_ms = REFUSED_CHECK_MS if refused else STRANGER_CHECK_MS",
        "every_ms = REFUSED_CHECK_MS if refused else 1 << 62",
        "tests/unit/spout/group/test_strangers.py"
        "::test_a_stranger_in_the_group_of_a_quiet_query_is_named_too",
        "who holds up the commits of a quiet group would be found by its next record",
    ),
    Mutant(
        "a-release-is-content-with-a-refused-commit",
        "spout/inspect/operate.py",
        "if refused and not self._rewind:",
        "if False:",
        "tests/unit/spout/group/test_strangers.py"
        "::test_a_release_that_a_stranger_keeps_from_committing_says_so",
        "each start would be refused again, after a release that said it was done",
    ),
    Mutant(
        "who-has-no-partition-finishes-its-step",
        "spout/runtime/process.py",
        "if self.interrupts_step:",
        "if False:",
        "tests/unit/spout/runtime/test_process.py::test_a_signal_while_the_service_is_made_ends_it_there",
        "an acker that looks for a broker would count as hung when it is ended",
    ),
    Mutant(
        "a-query-reads-all-inputs-of-its-group",
        "spout/inspect/overview.py",
        "if query is None or not query.lives or input.stopped:",
        "if True:",
        "tests/unit/spout/inspect/test_unread_inputs.py::test_an_input_that_the_query_reads_no_more_is_named",
        "nobody would hear that an input has no query",
    ),
    Mutant(
        "a-hang-that-passes-is-told-nobody",
        "spout/isolation/poison_finder.py",
        "self._divided_calls.append(_DividedCall(call, Cause.of(call.bolt, error, message)))",
        "pass",
        "tests/unit/spout/isolation/test_isolation.py::test_a_hang_that_does_not_repeat_leaves_its_records",
        "a service that hangs now and then would be seen by nobody",
    ),
    Mutant(
        "a-hang-whose-row-is-found-is-told-twice",
        "spout/isolation/poison_finder.py",
        "if not is_explained and not self.orders.isolates_part_of(call):",
        "if not is_explained:",
        "tests/unit/spout/isolation/test_isolation.py::test_a_hang_whose_row_is_found_is_no_hang_that_passed",
        "each poison row of an ArrowBolt would stand in `failures` as one that passed, too",
    ),
    Mutant(
        "a-jump-of-the-clock-ends-the-patience-with-an-older-leader",
        "spout/planning_process/continuity.py",
        "PassedTime(between_ms_max=OLDER_LEADER_MS_MAX // 2)",
        "PassedTime(between_ms_max=1 << 60)",
        "tests/unit/spout/planning_process/test_continuity.py"
        "::test_a_leader_with_an_older_epoch_is_given_a_minute_by_a_clock_that_is_set",
        "a query would end where somebody sets the clock",
    ),
    Mutant(
        "the-first-status-after-a-stop-is-believed",
        "spout/builder/settled.py",
        "NEW_STATUSES_MIN: Final = 2",
        "NEW_STATUSES_MIN: Final = 1",
        "tests/unit/spout/builder/test_settled.py"
        "::test_the_second_status_of_after_that_counts_whatever_the_clock_shows",
        "a status of before the last batch could end a topology with open roots",
    ),
    Mutant(
        "a-clock-that-may-be-right-is-wrong",
        "spout/doctor/services.py",
        "-CLOCKS_APART_MS <= ahead_ms",
        "-SKEW_MS_MAX <= ahead_ms",
        "tests/unit/spout/doctor/test_services.py::test_a_clock_that_may_be_right_passes",
        "an acker that is slow to write would be told to set its clock",
    ),
    Mutant(
        "a-view-asks-for-missing-brokers-again",
        "spout/inspect/overview.py",
        "    broker = broker_names(missing_brokers(log, topics) if brokers is None else brokers)",
        "    broker = broker_names(missing_brokers(log, topics))",
        "tests/unit/spout/inspect/test_metadata_questions.py::test_which_brokers_are_missing_is_asked_once",
        "each look would wait for a silent broker again",
    ),
    Mutant(
        "a-hang-outside-of-a-child-is-forgotten",
        "spout/isolation/task_runs.py",
        "    notes.write(HangNote(hang.bolt, hang.roots))\n",
        "",
        "tests/unit/spout/isolation/test_hang_notes.py"
        "::test_a_hang_outside_of_a_child_that_does_not_repeat_leaves_its_records",
        "nobody would hear of which record a bolt hung",
    ),
    Mutant(
        "a-hang-that-repeats-is-shown-as-passed",
        "spout/isolation/poison_finder.py",
        "if hang is not None and not self._is_reported_otherwise(hang):",
        "if hang is not None:",
        "tests/unit/spout/isolation/test_hang_notes.py"
        "::test_a_hang_that_repeats_fails_its_record_and_is_not_shown_twice",
        "each record that hangs its worker would be counted as passed, too",
    ),
    Mutant(
        "a-note-of-calls-stands-with-the-first-acker-alone",
        "spout/publishing/publish.py",
        "return set(map(id, noted_records or records[:1]))",
        "return set(map(id, records[:1]))",
        "tests/unit/spout/inspect/test_passed_calls.py"
        "::test_each_acker_of_such_a_record_has_the_note_beside_its_verdict",
        "`inspect` of a record of another acker would not have it",
    ),
    Mutant(
        "a-stopped-input-is-an-alarm",
        "spout/inspect/overview.py",
        'if row["query_lives"] is False and not row["stopped"]]',
        'if row["query_lives"] is False]',
        "tests/unit/spout/inspect/test_stopped_inputs.py::test_what_follows_from_a_stopped_input_is_no_alarm",
        "whoever stops an input on purpose would be called at night",
    ),
    Mutant(
        "a-stopped-input-is-read-in-silence",
        "spout/inspect/readings.py",
        'stopped = "" if processes.is_read else input.stopped',
        "stopped = input.stopped",
        "tests/unit/spout/inspect/test_stopped_inputs.py::test_a_query_that_reads_it_all_the_same_is_named",
        "a query that goes on in spite of the key would have no alarms at all",
    ),
    Mutant(
        "a-stopped-input-begins",
        "spout/streaming/stream.py",
        "read_input.require_not_stopped()",
        "pass",
        "tests/unit/spout/inspect/test_stopped_inputs.py::test_nobody_begins_to_read_it",
        "a supervisor would start again what somebody stopped for a reason",
    ),
    Mutant(
        "a-pause-ends-no-query",
        "spout/planning_process/draining.py",
        "if standing_inputs and next_due_ms is None and not not_taken_over:",
        "if False:",
        "tests/unit/spout/planning_process/test_draining.py"
        "::test_a_query_that_ends_names_the_pause_that_it_would_wait_for",
        "a job with availableNow would wait for ever, and nobody would know for what",
    ),
    Mutant(
        "roots-of-another-group-are-waited-for",
        "spout/group/due.py",
        "and due.group == self._group",
        "and True",
        "tests/unit/spout/planning_process/test_draining.py"
        "::test_a_query_that_ends_waits_for_no_root_of_another_group_under_its_id",
        "a job would wait for roots that nobody replays to it",
    ),
    Mutant(
        "a-throttle-is-called-an-outage",
        "acker/kafka/client.py",
        "is_throttled = self._throttling is not None and self._throttling.is_recent",
        "is_throttled = False",
        "tests/unit/acker/kafka/test_throttling.py::test_a_wait_for_a_throttled_answer_is_no_outage",
        "an operator would look for a broker that is up",
    ),
    Mutant(
        "a-commit-that-the-broker-forgot-stays-forgotten",
        "spout/group/commits.py",
        "to_repeat = ours if is_renewal_due else ours - kept_by_broker",
        "to_repeat = ours if is_renewal_due else set()",
        "tests/unit/spout/group/test_commits.py::test_a_commit_that_the_broker_has_forgotten_is_made_again",
        "the next start of a quiet group would read all records again",
    ),
    Mutant(
        "commits-of-a-quiet-group-are-not-renewed",
        "spout/group/commits.py",
        "to_repeat = ours if is_renewal_due else ours - kept_by_broker",
        "to_repeat = ours - kept_by_broker",
        "tests/unit/spout/group/test_commits.py"
        "::test_commits_of_a_quiet_group_are_renewed_before_they_are_forgotten",
        "a broker that keeps commits for a minute would forget them again and again",
    ),
    Mutant(
        "a-commit-stops-at-a-hole",
        "spout/planning/window.py",
        "if first_pending is not None:\n            return first_pending",
        "pass",
        "tests/unit/spout/planning/test_window.py"
        "::test_the_committable_position_is_the_first_unsettled_emitted_one",
        "a restart without ackers would pass over records that are not done",
    ),
    Mutant(
        "a-commit-stops-before-what-is-free",
        "spout/group/running_session.py",
        "settled_below[source] = min(first_unsettled, cursor.first_uninitialised)",
        "settled_below[source] = first_unsettled",
        "tests/unit/spout/group/test_commits.py::test_nothing_is_committed_beyond_what_was_never_emitted",
        "the commit would pass over records that were never emitted",
    ),
    Mutant(
        "a-commit-never-goes-back",
        "spout/group/commits.py",
        "if offset_of(position) > committed:\n            return True",
        "if offset_of(position) != committed:\n            return True",
        "tests/unit/spout/group/test_commits.py"
        "::test_a_commit_never_goes_back_but_to_the_beginning_of_a_later_generation",
        "an old process that wakes up would move the group's offsets back",
    ),
    Mutant(
        "gaps-of-a-source-are-planned",
        "spout/planning/intake.py",
        "return SourceCursor(from_, highest, gaps)",
        "return SourceCursor(from_, highest)",
        "tests/unit/spout/planning/test_intake.py"
        "::test_a_position_is_free_at_or_above_from_and_the_watermark_of_its_own_partition",
        "records between two parts of an Init that a crash cut off would never be read",
    ),
    Mutant(
        "a-log-that-was-cut-stops-the-query",
        "spout/planning_process/batches.py",
        "if end < read_to[source]:\n                cursor",
        "if end < 0:\n                cursor",
        "tests/unit/spout/planning_process/test_cut_logs.py"
        "::test_a_log_that_ends_before_what_was_read_is_found_without_epochs",
        "records that got the offsets of lost ones would never be read",
    ),
    Mutant(
        "a-log-that-was-cut-and-grew-again-stops-the-query",
        "spout/planning_process/continuity.py",
        "elif epoch > read_to.leader_epoch:\n                to_compare[source] = read_to",
        "elif epoch > read_to.leader_epoch:\n                self._keep(source, cursor, epoch)",
        "tests/unit/spout/planning_process/test_cut_logs.py"
        "::test_a_log_that_was_cut_stops_the_query_with_its_first_lost_offset",
        "records that have the offsets of lost ones would never be read",
    ),
    Mutant(
        "a-running-spout-compares-its-logs",
        "spout/standalone/read_ahead.py",
        "return OffsetAnswers(self.stable_ends(partitions), troubles={}, epochs=epochs)",
        "return OffsetAnswers(self.stable_ends(partitions), troubles={})",
        "tests/unit/spout/standalone/test_cut_logs_spout.py"
        "::test_with_skip_the_spout_goes_on_from_the_first_lost_offset",
        "records that have the offsets of lost ones would never be handed out",
    ),
    Mutant(
        "a-log-is-compared-at-the-start",
        "spout/planning_process/planner.py",
        "batches.continuity.restore(kept_read_to(self._journal, committer.read_to(), session.cursors))",
        "pass",
        "tests/unit/spout/planning_process/test_cut_logs.py"
        "::test_a_log_that_was_cut_while_no_query_ran_is_found_at_the_start",
        "a log that is cut between two runs of a query would be taken for the same",
    ),
    Mutant(
        "roots-of-lost-offsets-get-a-verdict",
        "spout/planning_process/batches.py",
        "self._report_absent(lost, self._session.advance_clock(self._now_ms))",
        "pass",
        "tests/unit/spout/planning_process/test_cut_logs.py::test_with_skip_roots_of_lost_offsets_get_a_verdict",
        "copies of them would be made of other records",
    ),
    Mutant(
        "a-partition-that-was-never-read-begins-at-0",
        "spout/group/starting.py",
        "elif is_added:",
        "elif False:",
        "tests/unit/spout/planning_process/test_changed_topics.py"
        "::test_a_new_session_begins_a_partition_that_its_group_never_read_at_0",
        "what was written to a new partition between two queries would be left out",
    ),
    Mutant(
        "copies-begin-at-commits-of-spouts-alone",
        "spout/group/starting.py",
        "if prefix_in_mark(text) is not None]",
        "if True]",
        "tests/unit/spout/planning_process/test_planner.py"
        "::test_copies_that_were_settled_under_another_prefix_are_not_emitted_again",
        "copies below an offset that another program committed would be left out",
    ),
    Mutant(
        "an-input-that-is-read-in-addition-begins-at-its-start",
        "spout/group/starting.py",
        "planner_spec.start if planner_spec.start is not None else source_spec.input.start",
        "planner_spec.start or 'earliest'",
        "tests/unit/spout/planning_process/test_planner.py"
        "::test_an_input_that_a_query_reads_from_now_on_begins_as_its_start_says",
        "a query that gets one more input would read all that its topic ever held",
    ),
    Mutant(
        "a-superseded-query-commits-nothing",
        "spout/planning_process/planner.py",
        "self._process_event(SessionEvent.HIGHER_SESSION_SEEN)",
        "pass",
        "tests/unit/spout/inspect/test_operate.py"
        "::test_a_query_that_a_reset_stops_leaves_the_commits_of_the_reset_as_they_are",
        "status and tools for lag would show the offsets from before a reset",
    ),
    Mutant(
        "a-restart-takes-again-as-often-as-an-answer-is-old",
        "spout/group/session_state.py",
        "_Event.ANSWER_IS_OLD: _State.RESUMING_AGAIN",
        "_Event.ANSWER_IS_OLD: _State.RESUMING",
        "tests/unit/spout/group/test_opening.py"
        "::test_a_restart_whose_answers_lie_a_second_apart_takes_once_more_and_no_more",
        "a restart would never begin where acker partitions answer a second apart",
    ),
    Mutant(
        "what-cannot-happen-to-a-session-happens",
        "spout/group/session_state.py",
        "        following = TRANSITIONS[self._state].get(event)\n        if following is None:",
        "        following = TRANSITIONS[self._state].get(event)\n"
        "        self._state = following or SessionState.OWNING\n"
        "        if following is None:",
        "tests/property/test_session_machine.py"
        "::test_an_event_leads_on_where_it_can_happen_and_else_raises_and_changes_nothing",
        "a planner that is called in a wrong order would own a group that it has not taken",
    ),
    Mutant(
        "a-query-that-has-left-gives-signs-of-life",
        "spout/planning_process/planner.py",
        "has_left = self._session_states.state in (SessionState.LEFT, SessionState.CLOSED)",
        "has_left = self._session_states.state is SessionState.CLOSED",
        "tests/unit/spout/planning_process/test_planner_states.py"
        "::test_a_planner_says_goodbye_once_and_gives_no_sign_until_it_is_asked_for_records",
        "the next query of its group would wait for its silence",
    ),
    Mutant(
        "a-query-that-comes-back-waits-with-its-sign-of-life",
        "spout/planning_process/planner.py",
        "        self._last_sign.at_ms = None\n        with suppress",
        "        with suppress",
        "tests/unit/spout/planning_process/test_planner_states.py"
        "::test_a_planner_says_goodbye_once_and_gives_no_sign_until_it_is_asked_for_records",
        "for two seconds a second query would take its group",
    ),
    Mutant(
        "a-failed-last-commit-leaves-a-planner-open",
        "spout/planning_process/planner.py",
        "            readers_to_close.callback(self._process_event, SessionEvent.CLOSE)\n",
        "",
        "tests/unit/spout/planning_process/test_planner_states.py"
        "::test_all_of_a_planner_is_closed_though_its_last_commit_raises",
        "whoever closes it again would commit on connections that are gone",
    ),
    Mutant(
        "a-last-batch-is-not-read-again-from-another-topic",
        "spout/planning_process/planner.py",
        "again = {run.source for run in journal.ranges if runs_again}",
        "again = set[int]()",
        "tests/unit/spout/planning_process/test_changed_topics.py"
        "::test_with_take_over_too_a_last_batch_is_not_read_again_from_another_topic",
        "records of the new topic would ack those of the old one",
    ),
    Mutant(
        "an-older-copy-of-a-checkpoint-is-refused",
        "spout/planning_process/planner.py",
        "if opened.is_restart and self._report_if_older_checkpoint(session, taking.verdict_reader):",
        "if False and self._report_if_older_checkpoint(session, taking.verdict_reader):",
        "tests/unit/spout/planning_process/test_older_checkpoint.py"
        "::test_an_older_copy_of_a_checkpoint_is_refused_by_its_positions_and_with_the_cures",
        "acks under batch numbers that were used before would not count, and records would time out",
    ),
    Mutant(
        "another-driver-at-its-last-batch-is-no-older-copy",
        "spout/planning_process/verdict_reader.py",
        "is_old = record.offset < self._first_offsets[place]",
        "is_old = True",
        "tests/unit/spout/planning_process/test_older_checkpoint.py"
        "::test_another_driver_that_is_at_its_last_batch_is_no_sign_of_it",
        "a query whose predecessor has a last batch under way would be called an older copy",
    ),
    Mutant(
        "what-is-passed-over-becomes-a-gap",
        "spout/planning/intake.py",
        "            self._gaps.add(self.next, start)\n",
        "",
        "tests/unit/spout/planning/test_intake.py::test_positions_used_out_of_order_leave_a_gap",
        "records below the first emitted one would be forgotten",
    ),
    Mutant(
        "replays-are-planned-first",
        "spout/planning/intake.py",
        "return shares_of_copies | fair_shares(new_counts, room_for_new)",
        "return fair_shares(count_by_source, room)",
        "tests/unit/spout/planning_process/test_holes_planning.py::test_a_quarter_of_a_batch_stays_for_new_records",
        "replays would wait as long as there are new records",
    ),
    Mutant(
        "an-init-is-cut-at-the-end-of-an-acker-block",
        "acker/root_sets/runs.py",
        "last_blocks = (table[:, 2] - 1) >> block_bits",
        "last_blocks = (table[:, 2] - 2) >> block_bits",
        "tests/unit/spout/group/test_announce.py"
        "::test_a_run_is_cut_where_an_acker_block_ends_and_the_next_one_has_another_owner",
        "the last position of a block would be announced to the wrong acker, and be quarantined",
    ),
    Mutant(
        "parts-of-an-init-are-written-one-after-another",
        "spout/group/announce.py",
        "                if has_sent and (is_further_piece or part.turn > last_turn):\n"
        "                    self._flush()\n",
        "",
        "tests/unit/spout/group/test_announce.py"
        "::test_parts_of_one_source_stay_in_order_when_several_are_announced_together",
        "after a crash later parts of an Init could be there without the earlier ones",
    ),
    Mutant(
        "max-spout-pending",
        "spout/planning_process/batches.py",
        "max(0, input.max_spout_pending - pending[input.id]) for input in self._spec.inputs}",
        "input.max_spout_pending for input in self._spec.inputs}",
        "tests/unit/spout/planning_process/test_planner.py"
        "::test_nothing_is_emitted_while_as_many_are_pending_as_may_be",
        "a slow sink would get more and more records, which all time out",
    ),
    Mutant(
        "what-was-seen-to-be-empty-is-no-record",
        "spout/planning/supply.py",
        "return _SightedRun(run.start, seen_to, run.end, records)",
        "return _SightedRun(run.start, seen_to, run.end, np.arange(run.start, seen_to))",
        "tests/unit/spout/planning_process/test_holes_planning.py::test_the_first_batch_is_behind_the_hole",
        "a hole would take a batch for each of its parts that is as long as the limit",
    ),
    Mutant(
        "a-hole-is-passed-up-to-the-next-record",
        "spout/planning/supply.py",
        "self._holes.append(SourceRun(self._source, stretch.start, end))",
        "self._holes.append(SourceRun(self._source, stretch.start, end + 1))",
        "tests/unit/spout/planning/test_supply.py"
        "::test_a_portion_is_a_prefix_that_holds_no_more_records_than_it_may",
        "the record behind a hole would be absent, and never read",
    ),
    Mutant(
        "a-look-is-believed-as-far-as-it-reached",
        "spout/planning/supply.py",
        "seen_to = min(sighting.end, run.end)",
        "seen_to = run.end",
        "tests/unit/spout/planning/test_supply.py"
        "::test_a_portion_is_a_prefix_that_holds_no_more_records_than_it_may",
        "records that nobody has looked at yet would be absent, and never read",
    ),
    Mutant(
        "a-hole-needs-a-verdict",
        "spout/planning_process/batches.py",
        "self._report_gone_and_holes(gone, holes, session_ms)",
        "self._report_gone_and_holes(gone, [], session_ms)",
        "tests/unit/spout/planning_process/test_holes_planning.py::test_the_first_batch_is_behind_the_hole",
        "the positions of a hole would time out, and hold the commit up until then",
    ),
    Mutant(
        "what-is-empty-is-not-pending",
        "spout/planning_process/batches.py",
        "pending_by_input[spec.input.id] += self._session.window.count_records(source)",
        "pending_by_input[spec.input.id] += self._session.window.count_pending(source)",
        "tests/unit/spout/planning_process/test_holes_planning.py"
        "::test_a_hole_that_has_no_verdict_yet_takes_none_of_it_either",
        "a hole would keep records waiting that there is room for",
    ),
    Mutant(
        "a-source-without-records-leaves-its-share",
        "spout/planning/intake.py",
        "        self._share_out()\n        return sum(",
        "        return sum(",
        "tests/unit/spout/planning_process/test_holes_planning.py"
        "::test_a_partition_that_is_all_hole_leaves_its_share_to_the_others",
        "a partition that is a hole would keep half of each batch empty",
    ),
    Mutant(
        "an-empty-end-is-passed",
        "spout/planning/intake.py",
        "share if supply.count_max else 1,",
        "share,",
        "tests/unit/spout/planning_process/test_holes_planning.py::test_a_topic_that_is_empty_to_its_end_is_passed",
        "a query that shall end would wait for ever before a hole at the end of its topic",
    ),
    Mutant(
        "what-has-not-come-through-a-hole-waits",
        "spout/planning_process/scout.py",
        "if 0 < missed_plannings <= PATIENCE:",
        "if False:",
        "tests/unit/spout/planning_process/test_scout.py"
        "::test_it_waits_for_what_comes_behind_a_hole_and_then_others_go_on",
        "a long hole would be planned one for one while a reader is on its way through it",
    ),
    Mutant(
        "a-look-is-no-condition",
        "spout/planning_process/scout.py",
        "if 0 < missed_plannings <= PATIENCE:",
        "if missed_plannings:",
        "tests/unit/spout/planning_process/test_scout.py"
        "::test_its_patience_ends_and_what_it_learns_later_counts_all_the_same",
        "a partition that sends nothing would be planned never, and no task would say what is wrong",
    ),
    Mutant(
        "a-partition-in-trouble-is-looked-at-no-more",
        "spout/planning_process/scout.py",
        "                view.is_unreadable = True\n            return 1",
        "                raise\n            return 1",
        "tests/unit/spout/planning_process/test_scout.py"
        "::test_a_partition_that_cannot_be_read_is_looked_at_no_more_and_others_are",
        "one damaged partition would end the looks at all others",
    ),
    Mutant(
        "a-part-of-a-batch-stays-for-new-records",
        "spout/planning/intake.py",
        "kept_for_new = min(sum(new_counts.values()), new_share.kept_in(room))",
        "kept_for_new = 0",
        "tests/unit/spout/planning_process/test_holes_planning.py::test_a_quarter_of_a_batch_stays_for_new_records",
        "records that always fail would keep all new ones waiting",
    ),
    Mutant(
        "what-is-owed-to-new-records-adds-up",
        "spout/planning/intake.py",
        "self._owed_quarters = min(max(0, owed_quarters), NEW_SHARE - 1)",
        "self._owed_quarters = 0",
        "tests/unit/spout/planning_process/test_holes_planning.py"
        "::test_in_the_long_run_new_records_have_a_quarter_of_the_smallest_batches",
        "with batches of one record copies would take every one",
    ),
    Mutant(
        "what-left-the-log-takes-no-room",
        "spout/planning_process/batches.py",
        "for source, start, end in _without_gone(in_question, gone):",
        "for source, start, end in in_question:",
        "tests/unit/spout/planning_process/test_holes_planning.py::test_what_left_the_log_takes_no_part_of_a_batch",
        "records that are gone would fill batches, and be reported twice",
    ),
    Mutant(
        "what-spark-did-not-journal-is-planned-again",
        "spout/planning_process/batches.py",
        "if self._last_planned is not None and start == self._last_planned.start:\n"
        "            return self._last_planned.end",
        "if False:\n            return self._last_planned.end",
        "tests/unit/spout/planning_process/test_planner.py"
        "::test_asking_again_before_spark_journalled_gives_the_same_batch",
        "records of a batch that Spark asked for twice would never be emitted",
    ),
    Mutant(
        "a-batch-ends-within-a-quarter-of-the-timeout",
        "spout/planning/pace.py",
        "newest = batches[-1]\n        target_ms = self._timeout_ms / TIMEOUT_SHARE",
        "newest = batches[-1]\n        target_ms = self._timeout_ms * TIMEOUT_SHARE",
        "tests/unit/spout/planning/test_intake.py"
        "::test_the_first_batch_is_small_and_the_next_fits_a_quarter_of_the_timeout",
        "batches would grow until their records time out",
    ),
    Mutant(
        "nothing-is-emitted-before-spark-has-run-a-task",
        "spout/streaming/source.py",
        "self._has_workers = not options.awaits_workers",
        "self._has_workers = True",
        "tests/unit/spout/sinks/test_runner.py::test_the_first_batch_waits_until_spark_has_run_a_task",
        "where Spark looks for executors, records would time out that no worker could see",
    ),
    Mutant(
        "a-connection-that-is-gone-changes-nothing",
        "spout/link/driver_link.py",
        "            self._connection = None\n            self._has_present_state = False\n",
        "            self._connection = None\n            self._has_present_state = False\n"
        "            self._driver_state = DriverState()\n",
        "tests/unit/spout/link/test_links.py"
        "::test_the_end_of_one_process_is_seen_at_once_by_the_other_and_changes_nothing",
        "a paused topology would emit while its driver is away",
    ),
    Mutant(
        "the-driver-makes-its-socket-again",
        "spout/link/driver_socket.py",
        "if not listener.is_there:",
        "if False:",
        "tests/unit/spout/link/test_links.py::test_a_driver_whose_socket_was_removed_makes_it_again",
        "no query would start again behind a cleaner of temporary files",
    ),
    Mutant(
        "what-the-driver-did-is-known-before-the-next-batch-is-planned",
        "spout/link/driver_link.py",
        "        if not self._handle_arrived():\n            self._handle_arrived()\n",
        "",
        "tests/unit/spout/link/test_links.py"
        "::test_what_the_driver_did_before_is_known_when_a_callback_has_caught_up",
        "a topology would emit once more behind its pause",
    ),
    Mutant(
        "what-the-driver-did-is-known-behind-a-connection-that-has-ended",
        "spout/link/driver_link.py",
        "        if not self._handle_arrived():\n            self._handle_arrived()\n",
        "        self._handle_arrived()\n",
        "tests/unit/spout/link/test_links.py"
        "::test_what_the_driver_did_is_known_also_where_the_connection_has_ended_meanwhile",
        "a topology would emit once more behind its pause, where its driver has dropped the planning process",
    ),
    Mutant(
        "who-cannot-send-ends-the-connection",
        "spout/link/connection.py",
        "            self.end()  # or the connection would go on without what was to be said now\n",
        "",
        "tests/unit/spout/link/test_connection.py"
        "::test_who_takes_a_message_slowly_misses_none_of_what_is_said_meanwhile",
        "a planning process that takes a long message slowly would never hear of a pause",
    ),
    Mutant(
        "who-connects-knows-the-key",
        "spout/link/connection.py",
        'if not hmac.compare_digest(_text_of(answer, "proof"), _proof(key, "planner", both_nonces)):',
        'if not _text_of(answer, "proof"):',
        "tests/unit/spout/link/test_connection.py::test_a_stranger_is_dropped_in_time_and_changes_nothing",
        "whoever may enter the folder could tell the driver what he likes",
    ),
    Mutant(
        "who-listens-knows-the-key",
        "spout/link/connection.py",
        'if not hmac.compare_digest(_text_of(answer, "proof"), _proof(key, "driver", both_nonces)):',
        'if not _text_of(answer, "proof"):',
        "tests/unit/spout/link/test_connection.py"
        "::test_who_listens_in_the_driver_s_place_and_does_not_know_its_key_is_not_believed",
        "whoever makes a folder again behind a cleaner could tell a query that its batches are published",
    ),
    Mutant(
        "a-greeting-has-one-deadline",
        "spout/link/connection.py",
        "left_ms = int((deadline_s - time.monotonic()) * 1000)",
        "left_ms = GREETING_MS_MAX",
        "tests/unit/spout/link/test_connection.py"
        "::test_a_stranger_who_says_a_byte_now_and_then_has_no_longer_than_others",
        "a stranger could keep a thread of the driver for ever",
    ),
    Mutant(
        "a-forked-child-closes-its-copies",
        "spout/link/connection.py",
        "    for open_socket in _SOCKETS.values():\n        open_socket.close()\n",
        "",
        "tests/unit/spout/link/test_connection.py"
        "::test_a_driver_that_is_killed_is_seen_at_once_even_while_a_child_of_it_lives",
        "the planning process would wait for a driver that is dead",
    ),
    Mutant(
        "a-mark-of-another-process-stays",
        "spout/link/driver_link.py",
        "if self._mark is not None and not self._driver_state.others_run_again:",
        "if self._mark is not None:",
        "tests/unit/spout/link/test_links.py"
        "::test_a_batch_stays_one_that_runs_again_whichever_process_comes_and_goes",
        "a record that killed its worker would kill it again, since its task is not isolated",
    ),
    Mutant(
        "a-start-that-spark-refuses-takes-no-follower-away",
        "spout/sinks/follower.py",
        "link.set_follower_failure(former_message)",
        "link.set_follower_failure(None)",
        "tests/unit/spout/sinks/test_follower.py"
        "::test_a_second_start_that_spark_refuses_takes_the_follower_from_no_run",
        "a batch would count as written past the sink, while its follower waits for Kafka",
    ),
    Mutant(
        "what-its-sink-owes-is-not-passed-over",
        "spout/planning_process/sink_watch.py",
        "if self._owed_end is None or start != self._owed_end:\n            return False",
        "return False",
        "tests/unit/spout/planning_process/test_sink_watch.py::test_a_batch_is_owed_until_its_sink_has_published_it",
        "a stream that is written past spout.sink would time out for ever, without an error",
    ),
    # -- the session's clock and its acks
    Mutant(
        "a-step-of-the-clock-is-a-second",
        "spout/planning/session.py",
        "self.now = min(self.now + step_ms, self._last_sent + STEP_MS_MAX)",
        "self.now = self.now + step_ms",
        "tests/unit/spout/planning/test_session.py"
        "::test_all_looks_since_the_last_tick_together_add_at_most_a_second",
        "half a second of readings before a sleep would add up, and records would time out early or late",
    ),
    Mutant(
        "the-clock-never-goes-back",
        "spout/planning/session.py",
        "step_ms = min(STEP_MS_MAX, max(0, wall_ms - self._advanced_ms))",
        "step_ms = min(STEP_MS_MAX, wall_ms - self._advanced_ms)",
        "tests/unit/spout/planning/test_session.py::test_the_clock_never_falls_and_is_never_fast",
        "a step of the machine's clock would put deadlines off",
    ),
    Mutant(
        "an-answer-names-all-sources",
        "spout/planning/session.py",
        "        if not taken.refused and not self._sources <= answered_sources:\n            return False\n",
        "",
        "tests/unit/spout/planning/test_session.py"
        "::test_answers_to_others_and_to_an_earlier_take_do_not_count",
        "a session would begin with the watermarks of fewer sources, and emit records twice",
    ),
    Mutant(
        "a-session-is-silent-before-it-counts-as-gone",
        "spout/group/presence.py",
        "return max(0, max(times_ms) + SILENT_MS_MAX - self._now_ms)",
        "return 0",
        "tests/unit/spout/group/test_presence.py"
        "::test_a_group_whose_holder_died_is_taken_once_he_was_silent_for_the_limit_and_says_so",
        "a second query of a group would take it from one that runs",
    ),
    Mutant(
        "signs-that-were-not-sent-yet-are-waited-for",
        "spout/group/presence.py",
        "if has_owner and not self._has_read_earlier_signs:",
        "if False:",
        "tests/unit/spout/group/test_presence.py"
        "::test_a_holder_whose_signs_the_broker_does_not_send_is_waited_for",
        "a second query of a group would take it from one that runs while a broker is silent",
    ),
    Mutant(
        "who-waits-for-records-has-not-left",
        "spout/planning_process/planner.py",
        "        read_to = self._require_owned().batches.ends_if_all_read\n"
        "        self._process_event(SessionEvent.RECORDS_REQUESTED)\n",
        "        read_to = self._require_owned().batches.ends_if_all_read\n",
        "tests/unit/spout/group/test_presence.py"
        "::test_a_topology_that_is_resumed_and_finds_no_records_lives_again",
        "a second query of a group would take it from a topology that was paused and resumed",
    ),
    Mutant(
        "the-process-before-gets-its-whole-timeout",
        "spout/group/running_session.py",
        "return 0 if self.sibling is None else self.sibling.grace_ms(now_ms)",
        "return 0",
        "tests/unit/spout/planning_process/test_planner.py"
        "::test_what_a_restart_emits_has_a_second_more_while_the_process_before_may_live",
        "after a restart records could time out early",
    ),
    # -- bundles
    Mutant(
        "a-bundle-has-its-own-rows",
        "spout/topology/bundles.py",
        "rows.slice(starts[task], counts[task])",
        "rows.slice(starts[task])",
        "tests/unit/spout/topology/test_bundles.py"
        "::test_equal_values_go_to_one_task_whatever_stands_beside_them",
        "a tuple would reach several tasks",
    ),
    Mutant(
        "a-tuple-that-runs-again-goes-the-same-way",
        "spout/topology/bundles.py",
        "        elif packed is not None:\n            keys = packed.astype(np.uint64)\n",
        "        elif packed is not None:\n"
        "            keys = np.arange(rows_before, rows_before + len(packed)).astype(np.uint64)\n",
        "tests/unit/spout/topology/test_bundles.py"
        "::test_a_tuple_that_runs_again_goes_the_same_way_and_all_tasks_have_their_share",
        "a task that runs again would send tuples twice, and lose others",
    ),
    Mutant(
        "anchors-of-several-forms-stay-as-they-are",
        "spout/tuples/places.py",
        "if (keys != keys[0]).any():",
        "if False:",
        "tests/unit/spout/topology/test_bundles.py::test_paths_of_several_forms_arrive_as_they_left",
        "edges of one subscription would be counted as those of another",
    ),
    Mutant(
        "one-number-of-many-places-may-be-negative",
        "spout/tuples/places.py",
        "np.uint64(ordinals & _MASK)",
        "np.uint64(ordinals)",
        "tests/unit/spout/topology/test_bundles.py"
        "::test_places_of_several_subscriptions_are_shuffled_as_each_of_them_is",
        "a query whose bolt joins two subscriptions of a stage would fail at every run of such a batch",
    ),
    Mutant(
        "tuples-for-a-task-behind-the-next-stage-name-it",
        "spout/topology/bundles.py",
        "if placed.tasks.max() >= self.tasks:",
        "if False:",
        "tests/unit/spout/topology/test_bundles.py::test_rows_that_name_their_task_go_there",
        "tuples that pass through a stage of fewer tasks would reach others than those of their key",
    ),
    Mutant(
        "a-number-of-all-rows-is-of-all-of-them",
        "spout/topology/bundles.py",
        "if (numbers == numbers[0]).all():",
        "if numbers[-1] == numbers[0]:",
        "tests/unit/spout/topology/test_bundles.py::test_places_leave_without_a_column_and_arrive_as_one",
        "rows would arrive with the place of another",
    ),
    Mutant(
        "two-threads-write-one-status",
        "spout/planning_process/status.py",
        "{os.getpid()}.{threading.get_ident()}",
        "{os.getpid()}",
        "tests/unit/spout/planning_process/test_planner_status.py"
        "::test_two_threads_that_write_one_status_at_once_bend_neither",
        "of two queries that are given one status file one would fail",
    ),
    Mutant(
        "a-query-does-not-end-before-a-copy-that-is-being-written",
        "spout/planning_process/batches.py",
        "self._ask_offsets(sources, self._log, Bound.END) if replay else self._readable_ends(sources)",
        "self._readable_ends(sources)",
        "tests/unit/spout/planning_process/test_planner.py"
        "::test_a_query_that_ends_when_all_is_done_waits_for_a_copy_that_is_being_written",
        "a query with the trigger availableNow would end with a record undone",
    ),
    # -- order
    Mutant(
        "a-batch-behind-a-failure-is-small",
        "spout/planning/order.py",
        "        if lost_count:\n",
        "        if not lost_count:\n",
        "tests/unit/spout/planning_process/test_order_planning.py"
        "::test_batches_grow_while_little_is_lost_and_are_small_behind_much_that_was",
        "each failure would hold back, copy and read again up to max_held records",
    ),
    Mutant(
        "a-record-behind-one-that-waits-is-held",
        "spout/planning/order.py",
        "for lowest_origin_by_line in (self._line_up.waiting, self.failed):",
        "for lowest_origin_by_line in (self.failed,):",
        "tests/unit/spout/planning/test_order.py"
        "::test_a_gate_holds_what_stands_behind_what_waits_or_failed_here",
        "a record would overtake an earlier one of its key that waits for its replay",
    ),
    Mutant(
        "a-record-behind-one-that-failed-is-held",
        "spout/planning/order.py",
        "for lowest_origin_by_line in (self._line_up.waiting, self.failed):",
        "for lowest_origin_by_line in (self._line_up.waiting,):",
        "tests/unit/spout/planning/test_order.py"
        "::test_a_gate_holds_what_stands_behind_what_waits_or_failed_here",
        "a record would overtake an earlier one of its key that failed in the same batch",
    ),
    Mutant(
        "what-ran-behind-a-late-failure-runs-again",
        "spout/planning/order.py",
        "is_behind = heads < candidates.origins",
        "is_behind = heads > candidates.origins",
        "tests/unit/spout/planning/test_order.py"
        "::test_behind_a_failure_that_no_task_saw_stands_the_rest_of_its_line",
        "where a batch bolt fails a record, later ones of its key would be acked before it",
    ),
    Mutant(
        "an-ordered-partition-waits-for-pending-roots",
        "spout/planning_process/order_watch.py",
        'return f"{UNDER_WAY}{unaccounted_count:,} roots are pending" if unaccounted_count else ""',
        'return ""',
        "tests/unit/spout/planning_process/test_order_planning.py"
        "::test_nothing_of_a_partition_is_planned_while_something_of_it_is_under_way",
        "later records would be read while an earlier one may still fail",
    ),
    Mutant(
        "an-ordered-partition-waits-for-the-replay-worker",
        "spout/planning_process/order_watch.py",
        "            if unread_partitions:\n",
        "            if False:\n",
        "tests/unit/spout/planning_process/test_order_planning.py"
        "::test_what_was_lost_is_waited_for_until_a_replay_worker_has_taken_it_over",
        "a lost record would be overtaken before anybody knows that it waits",
    ),
    Mutant(
        "what-was-lost-is-read-before-its-partition-goes-on",
        "spout/planning_process/order_watch.py",
        "return may_be_lost or bool(due.waiting_of(source))",
        "return bool(due.waiting_of(source))",
        "tests/unit/spout/planning_process/test_order_planning.py"
        "::test_what_is_being_written_to_ack_due_is_waited_for_once_something_was_lost",
        "later records would pass one that was lost, while a replay worker takes it over",
    ),
    Mutant(
        "what-waits-of-a-process-before-is-read-first",
        "spout/planning_process/order_watch.py",
        "if not self._was_due_read_to_end or self._may_have_waiting(source, due)",
        "if self._may_have_waiting(source, due)",
        "tests/unit/spout/planning_process/test_order_planning.py::test_ack_due_is_read_to_its_end_before_the_first_batch",
        "a query that starts again would pass records that wait since before",
    ),
    Mutant(
        "a-range-that-is-read-keeps-no-other-one-waiting",
        "spout/streaming/consume.py",
        "if progress.unread and read_places:",
        "if not progress.unread and read_places:",
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_a_partition_that_is_read_to_its_end_keeps_no_other_one_waiting",
        "a batch of a thousand records would first read all that one partition has",
    ),
    Mutant(
        "what-goes-on-to-other-tasks-has-its-lines-with-it",
        "spout/streaming/read_task.py",
        "sealed_stage is not None and sealed_stage.stage.leaving_form is AnchorForm.NONE",
        "sealed_stage is not None",
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_lines_are_told_where_a_record_failed_and_of_all_that_goes_on_to_other_tasks",
        "what ran behind a record that fails behind a shuffle would be acked before it",
    ),
    Mutant(
        "an-evaluation-that-failed-a-record-has-its-lines-with-it",
        "spout/publishing/settle.py",
        "for report in counted_first for lines in report.lined_records",
        "for report in counted for lines in report.lined_records",
        "tests/unit/spout/planning/test_order.py"
        "::test_what_stands_behind_a_record_that_an_earlier_evaluation_failed_is_held_too",
        "later records would be acked before one that failed when the batch was evaluated before",
    ),
    Mutant(
        "what-a-published-batch-did-not-ack-waits",
        "spout/planning_process/order_watch.py",
        "self._not_acked.setdefault(source, {})[root.source, root.position] = root",
        "pass",
        "tests/unit/spout/planning_process/test_order_planning.py"
        "::test_by_partition_a_published_batch_without_failures_is_followed_before_its_verdicts",
        "later records would pass one that failed, until the replay worker has taken it over",
    ),
    Mutant(
        "the-commit-log-answers-where-no-progress-is-remembered",
        "spout/sinks/follower.py",
        "last_batch = planned if self._batches.is_committed(planned) else planned - 1",
        "last_batch = planned - 1",
        "tests/unit/spout/sinks/test_follower.py"
        "::test_the_commit_log_answers_where_spark_remembers_no_progress",
        "the last batch of a query would not be published, and its records would be written again",
    ),
    Mutant(
        "a-batch-is-published-when-it-is-committed",
        "spout/sinks/follower.py",
        "last_batch = planned if self._batches.is_committed(planned) else planned - 1",
        "last_batch = planned",
        "tests/unit/spout/sinks/test_follower.py"
        "::test_batches_that_end_between_two_looks_are_all_found_in_their_order",
        "records would be acked whose rows are not written yet, and a crash would lose them",
    ),
    Mutant(
        "a-batch-whose-roots-may-have-timed-out-is-waited-for",
        "spout/planning_process/order_watch.py",
        "if is_late or self._has_older_roots:",
        "if self._has_older_roots:",
        "tests/unit/spout/planning_process/test_order_planning.py"
        "::test_a_batch_that_was_published_when_its_roots_may_have_timed_out_is_waited_for",
        "later records would pass one that times out though its ack is durable",
    ),
    Mutant(
        "a-batch-that-another-process-may-have-initialised-is-waited-for",
        "spout/planning_process/order_watch.py",
        "bool(leftover_counts) or self._session.sibling is not None",
        "bool(leftover_counts)",
        "tests/unit/spout/planning_process/test_order_planning.py"
        "::test_a_batch_that_another_process_may_have_initialised_earlier_is_waited_for",
        "later records would pass one that timed out by the clock of a process that was replaced",
    ),
    Mutant(
        "what-waits-with-its-partition-is-not-journalled",
        "spout/group/running_session.py",
        "gaps.add(start, end)",
        "pass",
        "tests/unit/spout/planning_process/test_order_planning.py"
        "::test_what_a_process_before_has_initialised_waits_through_a_restart_with_its_partition",
        "no restart would ever read it: it would time out unread, or be pending for ever",
    ),
    Mutant(
        "the-batch-of-a-process-before-is-waited-for",
        "spout/planning_process/planner.py",
        "if owned.order_watch is not None and owned.batches.is_end_of_last_batch(end):",
        "if owned.order_watch is not None:",
        "tests/unit/spout/planning_process/test_order_planning.py"
        "::test_nothing_of_the_batch_of_a_process_before_is_passed_though_it_was_published",
        "later records would pass a batch that two processes may have published differently",
    ),
    Mutant(
        "a-copy-without-room-blocks-its-line",
        "spout/planning/order.py",
        "                self._block_behind(line, origin)\n        if cause is None:\n",
        "                pass\n        if cause is None:\n",
        "tests/unit/spout/planning/test_order.py"
        "::test_a_new_record_passes_copies_without_room_unless_one_is_of_its_line",
        "a new record would go to the bolts before a copy of its key, and fail only when the batch ends",
    ),
    Mutant(
        "empty-positions-are-no-copies",
        "spout/planning_process/order_watch.py",
        "return self._sight.find_supply(copies, runs).count_max",
        "return position_count",
        "tests/unit/spout/planning_process/test_order_planning.py"
        "::test_a_hole_among_the_copies_holds_up_no_other_key_while_a_record_waits",
        "aborted copies would keep a partition waiting for the slowest record",
    ),
    # -- fingerprints, duplicates, attempts
    Mutant(
        "of-a-repeated-partition-the-newest-attempt-counts",
        "spout/publishing/settle.py",
        "newest_attempts[key] = max(report.task.attempt, newest_attempts.get(key, 0))",
        "newest_attempts[key] = min(report.task.attempt, newest_attempts.get(key, report.task.attempt))",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_of_a_partition_behind_a_shuffle_that_was_repeated_the_newest_attempt_says_what_is_open",
        "of a task that was repeated and failed tuples this time, all would be acked",
    ),
    Mutant(
        "of-a-repeated-read-the-newest-attempt-counts",
        "spout/publishing/settle.py",
        "for report in sorted(reads, key=lambda report: report.task.attempt):",
        "for report in sorted(reads, key=lambda report: -report.task.attempt):",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_of_a_repeated_read_task_the_newest_attempt_says_what_is_open",
        "what the sink got and what is acked would be of two different runs",
    ),
    Mutant(
        "every-share-was-read-once",
        "spout/publishing/settle.py",
        "        and sum(run.end - run.start for run in shares) == plan.count\n",
        "",
        "tests/unit/spout/publishing/test_fold.py::test_shares_that_cut_a_range_cover_it_together",
        "a share that two tasks read would be acked although its edges cancel",
    ),
    Mutant(
        "all-shares-were-read",
        "spout/publishing/settle.py",
        "        and RootSet.of_runs(shares) == plan.roots()\n",
        "",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_as_many_positions_as_planned_are_not_yet_those_that_were_planned",
        "records that no task read would be acked",
    ),
    Mutant(
        "what-was-emitted-was-received",
        "spout/publishing/settle.py",
        "if received in sent:",
        "if received.rows in {fingerprint.rows for fingerprint in sent}:",
        "tests/unit/spout/publishing/test_fold.py::test_rows_lost_or_repeated_between_bolts_fail_the_batch",
        "a stage that got other rows than were sent would count",
    ),
    Mutant(
        "a-fingerprint-is-of-every-row",
        "spout/tuples/anchors.py",
        "mix64_in_place(mixed)\n    return Fingerprint(rows, int(mixed.sum(dtype=np.uint64)))",
        "return Fingerprint(rows, int(mixed.sum(dtype=np.uint64)))",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_other_rows_of_the_same_number_and_sum_are_not_those_that_were_emitted",
        "two rows that were exchanged for two others could go unnoticed",
    ),
    Mutant(
        "a-fingerprint-is-of-whole-paths",
        "spout/tuples/places.py",
        "            sums *= np.uint64(PATH_WEIGHT)\n",
        "",
        "tests/property/test_places.py::test_rows_that_exchanged_their_ordinals_have_another_fingerprint",
        "rows that were exchanged for others of the same roots could go unnoticed",
    ),
    Mutant(
        "a-root-is-received-once",
        "spout/publishing/settle.py",
        "if (is_received_before & report.received).any():",
        "if False:",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_a_root_that_two_first_bolts_receive_fails_the_batch_by_name",
        "behind an explode a record would be acked with its first row",
    ),
    Mutant(
        "a-root-that-the-plan-does-not-have-is-refused",
        "spout/planning/plan.py",
        "if len(indices) and not (indices.min() >= 0 and indices.max() < self.count):",
        "if False:",
        "tests/unit/spout/publishing/test_reports_together.py"
        "::test_an_index_that_the_plan_does_not_have_is_refused",
        "a task with a broken index would fail another record in place of its own",
    ),
    Mutant(
        "a-tuple-is-held-of-a-root-of-its-batch",
        "spout/publishing/settle.py",
        "        if tuples.without(planned):",
        "        if False:",
        "tests/unit/spout/publishing/test_reports_together.py"
        "::test_a_tuple_that_was_held_of_a_root_of_another_batch_is_refused",
        "the edge of a held tuple would be missing from the sum of another root",
    ),
    Mutant(
        "a-failure-in-any-evaluation-counts",
        "spout/publishing/settle.py",
        "own_marks, older_marks = all_marks.of(",
        "own_marks, older_marks = marks.of(",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_the_newest_complete_evaluation_counts_and_a_failure_in_any_one_does",
        "a record that failed where the sink got its rows could be acked",
    ),
    Mutant(
        "what-another-evaluation-left-open-is-not-acked",
        "spout/publishing/settle.py",
        "further = outstanding.summed(RootMark.OPEN)",
        "further = NO_MARKS",
        "tests/unit/spout/publishing/test_fold.py::test_what_any_run_of_a_read_task_left_open_is_not_acked",
        "a record that was left open where the sink got its rows could be acked",
    ),
    Mutant(
        "what-two-other-evaluations-left-open-does-not-cancel",
        "spout/publishing/settle.py",
        "uncounted.of(RootMark.OUTSTANDING).once_for_each_value()",
        "uncounted.of(RootMark.OUTSTANDING)",
        "tests/unit/spout/publishing/test_fold.py::test_what_any_run_of_a_read_task_left_open_is_not_acked",
        "a record that two runs left open would be acked by the third",
    ),
    Mutant(
        "a-stage-is-evaluated-to-its-end",
        "spout/publishing/settle.py",
        "if task_count is None or task_count == len(stages[stage]):",
        "if True:",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_a_bolt_behind_sparks_operators_must_have_finished_its_stage",
        "a sink that takes one row would ack the whole batch",
    ),
    Mutant(
        "two-operators-of-one-name-are-refused",
        "spout/publishing/settle.py",
        "if len(operators) > 1:",
        "if len(operators) > 2:",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_an_operator_behind_sparks_that_is_called_as_another_one_fails_the_batch_by_name",
        "what one of them left open would be acked",
    ),
    # -- publishing
    Mutant(
        "a-failed-root-is-not-acked",
        "spout/publishing/publish.py",
        "acked_whole = outcome.plan.roots() - absent - failed_roots - open_roots",
        "acked_whole = outcome.plan.roots() - absent - open_roots",
        "tests/unit/spout/publishing/test_publish.py::test_failed_roots_are_left_out_of_the_acks",
        "a failed record would be acked where its fail comes late",
    ),
    Mutant(
        "fails-are-durable-before-acks",
        "spout/publishing/publish.py",
        "        if records.fails:\n            producer.flush(self._durable_ms)\n",
        "",
        "tests/unit/spout/publishing/test_publish.py::test_no_ack_is_sent_before_the_fails_are_durable",
        "a crash between the two would ack half of a tree that failed",
    ),
    Mutant(
        "a-batch-that-the-sink-skipped-fails",
        "spout/publishing/publish.py",
        "records = plan.roots() - absent",
        "records = RootSet.of_runs(plan.ranges[:1]) - absent",
        "tests/unit/spout/publishing/test_publish.py"
        "::test_a_skipped_batch_fails_what_has_a_record_and_nothing_else",
        "records of all other partitions of a skipped batch would be acked without their rows",
    ),
    Mutant(
        "a-row-that-is-left-open-acks-no-anchor",
        "spout/held/holding.py",
        "is_acked = ~(is_reset | is_open | ",
        "is_acked = ~(is_reset | ",
        "tests/unit/spout/held/test_holding.py::test_a_row_that_its_bolt_leaves_open_acks_no_anchor",
        "what an ArrowBolt behind an aggregate leaves open would be acked",
    ),
    Mutant(
        "an-anchor-that-one-row-leaves-open-is-not-acked-by-another",
        "spout/publishing/delayed.py",
        "released = released.at(~np.isin(released.edges, left_open.edges))",
        "released = released.at(np.isin(released.edges, released.edges))",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_a_tuple_of_which_one_row_is_left_open_is_acked_by_no_other_row",
        "a tuple of a join would be acked although a bolt is not done with one of its rows",
    ),
    Mutant(
        "a-held-tuple-is-outstanding",
        "spout/publishing/settle.py",
        "RootMarks.together([held.staying(), released_once(own_marks)])",
        "RootMarks.together([released_once(own_marks)])",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_a_held_root_is_open_until_every_tuple_of_it_was_released",
        "a record that waits in a window would be acked before the window is written",
    ),
    Mutant(
        "an-anchor-of-several-rows-is-acked-once",
        "spout/publishing/delayed.py",
        "if len(distinct(released.values)) == len(released):  # what aggregates write, and most joins",
        "if True:",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_a_tuple_that_stands_in_several_rows_of_a_batch_is_acked_once",
        "a tuple that matches twice in a join would never be acked",
    ),
    Mutant(
        "held-rows-of-one-tuple-have-edges-of-their-own",
        "spout/publishing/delayed.py",
        "return child_edges(edges_of_task, held_at.subscription, row_numbers)",
        "return edges_of_task",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_rows_that_sparks_operators_made_of_one_tuple_have_edges_of_their_own",
        "two rows of one tuple in a window would cancel, and the tuple be acked at once",
    ),
    Mutant(
        "a-late-tuple-fails-where-it-shall",
        "spout/publishing/settle.py",
        "if holder.error == LATE:",
        "if holder.error != LATE:",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_a_watermark_decides_what_is_late_and_the_policy_what_becomes_of_it",
        "records that a watermark drops would be acked although they shall fail",
    ),
    Mutant(
        "what-a-hold-knows-is-no-unknown-row",
        "spout/publishing/watermarks.py",
        "return max(0, self.rows - tuple_count)",
        "return max(0, self.rows)",
        "tests/unit/spout/publishing/test_watermarks.py::test_rows_that_a_hold_knows_are_not_counted_twice",
        "each record that was too late for a hold would be counted twice",
    ),
    Mutant(
        "a-record-that-was-too-late-is-not-done",
        "spout/inspect/diagnosis.py",
        "if emission.is_late:",
        "if False:",
        "tests/unit/spout/inspect/test_too_late_views.py"
        "::test_a_record_that_was_too_late_for_its_window_is_not_called_done",
        "inspect would call a record done that is in no window",
    ),
    Mutant(
        "a-note-that-names-a-root-counts-before-one-of-its-batch",
        "spout/inspect/trail.py",
        "self.too_late.setdefault(root, note)",
        "self.too_late[root] = note",
        "tests/unit/spout/inspect/test_too_late_views.py"
        "::test_a_record_that_a_note_names_stays_named_whatever_later_notes_say_of_its_batch",
        "a record that is known to be too late would be called done, or too late",
    ),
    # -- bolts
    Mutant(
        "each-anchor-of-a-tuple-gets-an-edge",
        "spout/bolts/collectors.py",
        "ordinals = tuple([anchor.count_child(key) for key in keys for anchor in distinct])",
        "ordinals = tuple([anchor.count_child(key) for key in keys for anchor in distinct[:1]])",
        "tests/unit/spout/execution/test_multi_anchor.py"
        "::test_its_ack_completes_both_roots_and_its_failure_fails_both",
        "of a tuple with two anchors the second record would be acked without it",
    ),
    Mutant(
        "a-tuple-is-delivered-under-each-of-its-anchors",
        "spout/bolts/collectors.py",
        "for anchor, ordinal in zip(self.anchors, ordinals, strict=False)",
        "for anchor, ordinal in zip(self.anchors[:1], ordinals, strict=False)",
        "tests/unit/spout/tuples/test_tuple.py::test_an_emission_is_anchored_on_every_distinct_anchor_once",
        "a failure behind a join would replay one of two records",
    ),
    Mutant(
        "siblings-have-ordinals-of-their-own",
        "spout/tuples/tuple.py",
        "self._child_count_by_subscription[subscription] = ordinal + 1",
        "self._child_count_by_subscription[subscription] = 0",
        "tests/unit/spout/tuples/test_tuple.py::test_ordinals_count_the_deliveries_of_their_parent",
        "two tuples emitted on one would cancel, and nobody would wait for them",
    ),
    Mutant(
        "a-failed-tuple-fails-each-of-its-roots",
        "spout/bolts/collectors.py",
        "self.failures.extend((delivery.root, cause) for delivery in received.deliveries)",
        "self.failures.extend((delivery.root, cause) for delivery in received.deliveries[:1])",
        "tests/unit/spout/tuples/test_tuple.py::test_failing_fails_every_root_that_the_tuple_descends_from",
        "of a joined tuple that fails one record would time out instead",
    ),
    Mutant(
        "a-tuple-is-settled-once",
        "spout/bolts/collectors.py",
        "if received in self.open_tuples:",
        "if True:",
        "tests/unit/spout/tuples/test_tuple.py"
        "::test_whatever_follows_a_settled_tuple_raises_and_changes_nothing",
        "a bolt that acks and then fails a tuple would not learn that it is wrong",
    ),
    Mutant(
        "what-a-thread-emits-behind-its-task-is-not-lost",
        "spout/execution/stage_run.py",
        "if work.collector.sent:",
        "if False:",
        "tests/unit/spout/execution/test_misbehaving_bolts.py"
        "::test_what_a_thread_emits_and_acks_when_its_task_has_ended_is_not_lost",
        "a record would be acked, and what its bolt emitted on it would be gone",
    ),
    Mutant(
        "a-watched-batch-that-fails-takes-back-its-own-rows",
        "spout/execution/adapters.py",
        "del self.collector.sent[sent_count_before:]\n            causes",
        "self.collector.sent.clear()\n            causes",
        "tests/unit/spout/execution/test_misbehaving_bolts.py"
        "::test_watched_a_batch_that_a_hook_fails_takes_nothing_back_of_the_one_before_it",
        "records would be acked, and what their bolt emitted on them would be gone",
    ),
    Mutant(
        "rows-that-spark-repeats-have-edges-of-their-own",
        "spout/execution/stage_run.py",
        "            if frame.entry_key:\n                places = self._with_hops_of_task_and_row(",
        "            if False:\n                places = self._with_hops_of_task_and_row(",
        "tests/unit/spout/execution/test_repeated_rows.py"
        "::test_rows_that_an_arrow_bolt_leaves_open_in_two_tasks_do_not_cancel",
        "a record that explode made two rows of would be acked while both are open",
    ),
    Mutant(
        "a-null-sends-nothing-beside-it-to-another-task",
        "spout/topology/routing.py",
        "if pa.types.is_integer(column.type):",
        "if pa.types.is_integer(column.type) and not column.null_count:",
        "tests/unit/spout/topology/test_routing.py"
        "::test_a_null_beside_a_value_does_not_send_it_to_another_task",
        "tuples of one key would go to two tasks",
    ),
    Mutant(
        "what-is-open-is-outstanding-with-its-children",
        "spout/bolts/collectors.py",
        "            yield from received.children\n",
        "",
        "tests/unit/spout/tuples/test_tuple.py::test_what_is_neither_acked_nor_failed_stays_outstanding",
        "a tuple that a bolt holds would come out with another value than its acks",
    ),
    Mutant(
        "a-hook-sees-what-is-emitted",
        "spout/execution/adapters.py",
        "invoke(self._name, hook.emit, EmitInfo(sent.values, sent.stream, task_count))",
        "pass",
        "tests/unit/spout/execution/test_watching.py"
        "::test_hooks_see_a_basic_bolts_tuples_in_the_order_in_which_things_happen",
        "a hook would not see what its bolt emits",
    ),
    Mutant(
        "a-hook-sees-fails",
        "spout/execution/adapters.py",
        "hook.fail(FailInfo(received, took_ns / 1_000_000, cause))",
        "pass",
        "tests/unit/spout/execution/test_watching.py::test_hooks_see_what_a_rich_bolt_settles_by_hand",
        "a hook that alarms would stay silent",
    ),
    # -- isolation
    Mutant(
        "a-bolt-that-holds-tuples-begins-anew",
        "spout/isolation/isolation.py",
        "return type(bolt).cleanup in (BasicBolt.cleanup, ArrowBolt.cleanup)",
        "return True",
        "tests/unit/spout/isolation/test_isolation.py"
        "::test_what_a_child_returned_is_kept_only_where_bolts_hold_nothing",
        "what a bolt held in a child that died, to write it in cleanup, would be acked",
    ),
    Mutant(
        "a-broken-bolt-ends-the-query",
        "spout/isolation/poison_finder.py",
        "if poison_count > POISON_MAX:",
        "if False:",
        "tests/unit/spout/isolation/test_isolation.py"
        "::test_a_bolt_that_dies_on_everything_ends_its_task_by_name",
        "a bolt that kills its process with every record would make dead letters of all of them",
    ),
    # -- what operators read
    Mutant(
        "lag-is-unknown-without-what-waits",
        "spout/inspect/readings.py",
        "lag=joined(_lag, ends.start, ends.end, ends.copies_end, emitted_to, copies_progress, pending, due),",
        "lag=joined(_lag, ends.start, ends.end, ends.copies_end, emitted_to, copies_progress, pending,"
        " Reading(0)),",
        "tests/unit/spout/inspect/test_overview.py"
        "::test_the_lag_is_unknown_while_it_is_unknown_how_many_replays_wait",
        "a lag of 0 would be shown while a thousand replays wait",
    ),
    Mutant(
        "what-was-nothing-in-an-old-state-is-unknown",
        "spout/inspect/readings.py",
        "if reading.value or reading.unknown or age_ms < OLD_MS:",
        "if True:",
        "tests/unit/spout/inspect/test_operator_commands.py"
        "::test_no_command_prints_a_zero_that_nobody_knows_while_no_acker_works",
        "with all ackers dead an operator would read that nothing is pending",
    ),
    Mutant(
        "a-state-that-lacks-nothing-is-never-old",
        "spout/inspect/readings.py",
        "for view in readable if view.is_behind), default=None)",
        "for view in readable), default=None)",
        "tests/unit/spout/inspect/test_overview.py"
        "::test_a_quiet_input_whose_acker_works_has_no_unknown_figure",
        "a quiet installation would have no figure for what is pending",
    ),
    Mutant(
        "a-letter-is-of-the-generation-that-was-lost",
        "spout/inspect/story.py",
        "loss.root == emission.place and emitted_ms in (None, loss.emitted_ms) for",
        "loss.root == emission.place for",
        "tests/unit/spout/inspect/test_diagnosis.py"
        "::test_what_a_rewind_emits_again_is_no_dead_letter_before_it_dies_again",
        "the letter of an earlier generation would be replayed beside the record that waits for its replay",
    ),
    Mutant(
        "a-value-of-several-is-unknown-where-one-is",
        "spout/inspect/readings.py",
        "if reading.unknown:\n            return Reading(unknown=reading.unknown)",
        "if reading.unknown and reading.value is not None:\n"
        "            return Reading(unknown=reading.unknown)",
        "tests/unit/spout/inspect/test_overview.py"
        "::test_the_lag_is_unknown_while_it_is_unknown_how_many_replays_wait",
        "the status would show a number that nobody counted",
    ),
    Mutant(
        "what-no-worker-has-taken-over-waits-as-well",
        "spout/inspect/waiting_roots.py",
        "due=Counter(root.partition_id for root in self._all_roots()),",
        "due=Counter(root.partition_id for root in self._shown_entries.waiting.values()),",
        "tests/unit/spout/inspect/test_overview.py"
        "::test_a_lost_root_is_counted_where_it_waits_as_a_copy_and_as_a_dead_letter",
        "with the replay workers down, lost records would be shown nowhere",
    ),
    Mutant(
        "what-is-beneath-a-flawed-entry-is-shown",
        "spout/inspect/waiting_roots.py",
        "self.waiting.setdefault(name_of(record), _waiting_root(root, due_ms=0))",
        "self.waiting[name_of(record)] = _waiting_root(root, due_ms=0)",
        "tests/unit/spout/inspect/test_waiting_roots.py"
        "::test_an_entry_that_somebody_wrote_over_is_shown_as_it_was",
        "a root whose replay is due would be shown as one that no replay worker has taken over",
    ),
    # -- what an operator asks
    Mutant(
        "what-is-unknown-is-never-ok",
        "spout/doctor/monitor.py",
        "for text in _unknown(snapshot, causes)]",
        "for text in ()]",
        "tests/unit/spout/doctor/test_monitor.py::test_what_is_unknown_is_never_ok",
        "a monitor would stay green while nobody can read the state",
    ),
    Mutant(
        "a-wrong-call-of-a-check-is-unknown",
        "spout/cli/main.py",
        "UNKNOWN_CODE if is_check else 2",
        "2",
        "tests/unit/spout/cli/test_check_command.py::test_a_call_that_cannot_check_is_unknown",
        "a typing error in a monitor's file would wake somebody as CRITICAL",
    ),
    Mutant(
        "an-archive-shows-no-key-of-others",
        "acker/redaction.py",
        "text = _PEM.sub(HIDDEN, text)",
        "pass",
        "tests/unit/spout/doctor/test_bundle.py::test_no_secret_is_anywhere_in_the_archive",
        "a private key that an error quotes would be sent along with a report",
    ),
    Mutant(
        "an-archive-shows-no-variable",
        "spout/doctor/redaction.py",
        "yield from variable_secrets(text, environ).items()",
        "pass",
        "tests/unit/spout/doctor/test_bundle.py::test_no_secret_is_anywhere_in_the_archive",
        "what ${NAME} holds would be sent along with a report",
    ),
    Mutant(
        "an-archive-shows-no-text-of-a-record",
        "spout/doctor/redaction.py",
        "SHOWN_FIELDS | SHOWN_TEXTS if is_of_kafka else SHOWN_FIELDS",
        "SHOWN_FIELDS | SHOWN_TEXTS",
        "tests/unit/spout/doctor/test_bundle.py::test_no_secret_is_anywhere_in_the_archive",
        "a payload that a log line quotes would be sent along with a report",
    ),
    Mutant(
        "an-archive-shows-harmless-settings-alone",
        "spout/doctor/redaction.py",
        "redactor.value(value) if HARMLESS.fullmatch(name) else HIDDEN",
        "redactor.value(value)",
        "tests/unit/spout/doctor/test_bundle.py::test_no_secret_is_anywhere_in_the_archive",
        "a setting that nobody has listed would be sent along with a report",
    ),
    # -- text of others, and secrets
    Mutant(
        "a-backtick-of-others-is-no-command",
        "acker/untrusted.py",
        "readable(self.raw).translate(_NO_BACKTICK)",
        "readable(self.raw)",
        "tests/unit/spout/test_hostile_texts.py"
        "::test_a_page_has_no_element_or_command_but_those_of_its_templates",
        "an exception's message would be a command to copy on the page",
    ),
    Mutant(
        "a-backtick-in-a-name-is-no-command",
        "acker/untrusted.py",
        'isolated(shown.replace("`", "%60"))',
        "isolated(shown)",
        "tests/unit/spout/test_hostile_texts.py"
        "::test_a_page_has_no_element_or_command_but_those_of_its_templates",
        "an operator's name would be a command to copy on the page",
    ),
    Mutant(
        "letters-from-the-right-turn-no-line-around",
        "acker/untrusted.py",
        'return f"{ISOLATE}{text}{END}"',
        "return text",
        "tests/unit/spout/test_hostile_texts.py"
        "::test_attention_names_a_hostile_cause_and_is_not_turned_around",
        "a figure behind a Hebrew name would stand before it",
    ),
    Mutant(
        "a-terminal-gets-no-commands",
        "spout/cli/common.py",
        "typer.echo(as_written(sentence_line(line), output.encoding), err=err)",
        "typer.echo(as_written(line, output.encoding), err=err)",
        "tests/unit/spout/test_hostile_texts.py"
        "::test_a_terminal_gets_lines_that_can_be_seen_and_commands_of_ours",
        "a record would clear an operator's screen, or write a line of ours",
    ),
    Mutant(
        "a-page-shows-what-nobody-sees",
        "spout/ui/pages.py",
        "finalize=_visible,",
        "",
        "tests/unit/spout/test_hostile_texts.py::test_what_a_request_asks_for_is_a_text_on_the_page",
        "a link of somebody else's would turn a page around",
    ),
    Mutant(
        "the-text-of-an-exception-may-end-its-process",
        "spout/tuples/tuple.py",
        "    except BaseException as raised:",
        "    except Exception as raised:",
        "tests/unit/spout/execution/test_hostile_errors.py::test_it_fails_its_record_alone",
        "a record whose error has a text that panics would end its query at each start",
    ),
    Mutant(
        "a-value-that-panics-ends-its-task",
        "spout/execution/fitting.py",
        "    except BaseException:  # noqa: BLE001 - values of the user",
        "    except Exception:  # noqa: BLE001 - values of the user",
        "tests/unit/spout/execution/test_unfit_values.py"
        "::test_a_value_that_ends_the_process_fails_its_record_alone",
        "a record for which such a value is emitted would end its query at each start",
    ),
    Mutant(
        "a-predicate-that-leaves-ends-its-task",
        "spout/streaming/read_task.py",
        "            except BaseException as error:  # noqa: BLE001 - what user",
        "            except Exception as error:  # noqa: BLE001 - what user",
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_what_ends_a_process_fails_the_record_for_which_tracked_when_raises_it",
        "one record for which tracked_when calls sys.exit would end the query at each start",
    ),
    Mutant(
        "a-key-is-a-number-in-yaml",
        "spout/inspect/tables.py",
        'style = "\'" if _LIKE_A_NUMBER.fullmatch(text) else None',
        "style = None",
        "tests/unit/spout/test_hostile_texts.py::test_a_text_is_no_number_in_any_version_of_yaml",
        "a program that reads YAML 1.2 would take the key 12e4 for 120000",
    ),
    Mutant(
        "json-shows-what-nobody-sees",
        "spout/inspect/tables.py",
        "return _with_escapes(json.dumps(value, ensure_ascii=False, indent=indent), _json_escape, is_seen)",
        "return json.dumps(value, ensure_ascii=False, indent=indent)",
        "tests/unit/spout/test_hostile_texts.py::test_json_and_yaml_can_be_seen_read_and_are_the_same",
        "JSON would send commands to a terminal",
    ),
    Mutant(
        "a-forged-place-is-no-command",
        "spout/inspect/diagnosis.py",
        'return self.watch_command if parse_location(place) is None else f"windhover inspect {place}"',
        'return f"windhover inspect {place}" if "@" in place else self.watch_command',
        "tests/unit/spout/inspect/test_diagnosis.py"
        "::test_the_command_to_type_next_has_a_place_of_a_record_and_no_other_word_of_it",
        "who forges a verdict would write the command that an operator types next",
    ),
    Mutant(
        "null-is-not-the-text-null",
        "acker/notation.py",
        "if text in (NULL, EMPTY):",
        "if text == EMPTY:",
        "tests/property/test_notation.py::test_a_value_comes_back_from_its_text",
        "a redrive by a key would emit the records of another one",
    ),
    Mutant(
        "two-forms-of-an-accent-have-two-texts",
        "acker/notation.py",
        'return is_message or unicodedata.is_normalized("NFC", text_before + character)',
        "return True",
        "tests/property/test_notation.py::test_no_tool_between_changes_a_text",
        "a key that was copied would name another record",
    ),
    Mutant(
        "what-was-cut-is-no-key",
        "acker/notation.py",
        "if CUT in text:",
        "if False:",
        "tests/property/test_notation.py::test_what_was_cut_is_refused_and_never_taken_for_another_value",
        "nobody would say why a key that was cut is refused",
    ),
    Mutant(
        "a-key-that-nobody-knows-is-not-null",
        "replay/records/letters.py",
        "self.key is None or (letter.has_key and self.key.key == letter.key)",
        "self.key is None or self.key.key == letter.key",
        "tests/unit/spout/inspect/test_dead_letters.py"
        "::test_a_letter_that_has_nothing_of_its_record_has_no_key_that_is_null",
        "a redrive of what has no key would take letters of records that are lost",
    ),
    Mutant(
        "an-address-of-brokers-has-no-login",
        "acker/config/kafka_settings.py",
        'if name in SERVERS and "@" in str(value):',
        "if False:",
        "tests/unit/spout/test_planted_secrets.py"
        "::test_what_is_wrong_with_a_file_is_said_without_its_secrets",
        "librdkafka would write the password into each line about that broker",
    ),
    Mutant(
        "a-line-of-librdkafka-has-no-secret",
        "acker/kafka/client.py",
        "readable(self._secret_values.hide(record.getMessage()))",
        "readable(record.getMessage())",
        "tests/unit/spout/test_planted_secrets.py"
        "::test_neither_errors_nor_lines_of_librdkafka_have_a_setting_s_secret",
        "the address of tokens would be in the log with its password",
    ),
    Mutant(
        "a-setting-is-hidden-in-parts",
        "acker/redaction.py",
        "yield from (part for part in _PARTS.split(value) if len(part) >= SHORT)",
        "yield from ()",
        "tests/unit/acker/test_redaction.py"
        "::test_a_setting_is_found_whole_and_in_parts_and_a_short_one_as_a_word",
        "librdkafka quotes a setting from where it stumbled on",
    ),
    Mutant(
        "the-login-of-a-mirror-is-not-in-its-address",
        "spout/local/jars.py",
        "return MirrorAddress(without_login.geturl(), unquote(address.username), password)",
        "return MirrorAddress(text)",
        "tests/unit/spout/test_planted_secrets.py"
        "::test_the_address_of_a_mirror_is_shown_without_its_password",
        "its password would be in the error of a mirror that is away",
    ),
    Mutant(
        "a-trace-has-no-secret",
        "acker/untrusted.py",
        "        return cut(entry)\n",
        "        return entry\n",
        "tests/unit/spout/test_planted_secrets.py"
        "::test_a_trace_of_an_error_that_nobody_expects_has_no_secret",
        "an address in an error of a library would be printed with its password",
    ),
    Mutant(
        "a-log-has-no-secret",
        "spout/runtime/logs.py",
        "HIDDEN if SECRET_NAMES.search(name) else _cut(value)",
        "HIDDEN if SECRET_NAMES.search(name) else value",
        "tests/unit/spout/test_planted_secrets.py::test_no_line_of_a_log_has_a_secret_and_each_is_one_line",
        "OpenTelemetry's exporter logs the address of its collector",
    ),
    Mutant(
        "a-clock-that-is-behind-is-seen",
        "spout/doctor/executors.py",
        "behind_ms = min(behind_ms, task.answer.began_ms - task.sent_ms)",
        "pass",
        "tests/unit/spout/doctor/test_executors.py::test_an_executor_whose_clock_differs_fails",
        "an executor with a slow clock would pass",
    ),
    # -- what bolts emit: no value is bent
    Mutant(
        "a-fraction-is-no-whole-number",
        "spout/tuples/exact.py",
        "is_whole = bool(number == value)",
        "is_whole = True",
        "tests/unit/spout/tuples/test_exact.py::test_a_value_that_would_lose_something_fails_alone",
        "1.5 would become 1 in silence",
    ),
    Mutant(
        "a-date-has-no-time-of-day",
        "spout/tuples/exact.py",
        "if value.tzinfo is not None or value.time() != MIDNIGHT:",
        "if value.tzinfo is not None:",
        "tests/unit/spout/tuples/test_exact.py::test_a_value_that_would_lose_something_fails_alone",
        "a time would become the day that it lies in",
    ),
    Mutant(
        "a-number-is-no-time",
        "spout/tuples/exact.py",
        'if hasattr(value, "__int__") or isinstance(value, np.generic):',
        "if isinstance(value, np.generic):",
        "tests/unit/spout/tuples/test_exact.py::test_a_value_that_would_lose_something_fails_alone",
        "seconds since 1970 would count as microseconds",
    ),
    Mutant(
        "a-time-has-no-nanoseconds",
        "spout/tuples/exact.py",
        'if getattr(value, "nanosecond", 0):',
        "if False:",
        "tests/unit/spout/tuples/test_exact.py::test_a_value_that_would_lose_something_fails_alone",
        "1,500 nanoseconds would become a microsecond",
    ),
    Mutant(
        "a-finite-number-stays-finite",
        "spout/tuples/exact.py",
        "if isfinite(numbers[row]):",
        "if False:",
        "tests/unit/spout/tuples/test_exact.py::test_a_value_that_would_lose_something_fails_alone",
        "1e300 would be infinite in a float",
    ),
    Mutant(
        "a-map-has-a-key-once",
        "spout/tuples/exact.py",
        "if comparable_key in keys_seen:",
        "if False:",
        "tests/unit/spout/tuples/test_exact.py::test_a_value_that_would_lose_something_fails_alone",
        "of two values of a key Spark would keep one",
    ),
    Mutant(
        "nan-is-one-key",
        "spout/tuples/exact.py",
        '["NaN" if number != number else number for number in keys.to_pylist()]',
        "keys.to_pylist()",
        "tests/unit/spout/tuples/test_exact.py::test_keys_that_spark_takes_for_one_are_refused",
        "a map would have a key twice, and Spark would keep one of its values",
    ),
    Mutant(
        "a-null-of-arrow-is-missing",
        "spout/tuples/exact.py",
        "return not value.is_valid",
        "return False",
        "tests/unit/spout/tuples/test_exact.py::test_a_value_of_arrow_is_itself_and_its_null_is_one",
        "a null map would become an empty one",
    ),
    Mutant(
        "a-decimal-becomes-the-nearest-float",
        "spout/tuples/casts.py",
        "floats = column.cast(pa.string()).cast(target_type)\n    # the same",
        "floats = column.cast(target_type)\n    # the same",
        "tests/unit/spout/tuples/test_casts.py::test_a_decimal_becomes_the_nearest_float",
        "63.8 would become 63.800000000000004",
    ),
    Mutant(
        "a-tiny-number-does-not-vanish",
        "spout/tuples/casts.py",
        "_refuse_zero_of_text(column, castable, decimals)\n    return",
        "pass\n    return",
        "tests/unit/spout/tuples/test_casts.py::test_a_number_does_not_vanish",
        "1e-100 would become 0",
    ),
    Mutant(
        "an-error-shows-what-python-has-no-form-of",
        "spout/execution/fitting.py",
        "value = cell_text(column, 0)",
        "value = str(column[0])",
        "tests/unit/spout/execution/test_unfit_values.py"
        "::test_a_value_that_python_has_no_form_of_fails_its_record_alone",
        "the error would be another one, and fail all records of the batch",
    ),
    Mutant(
        "a-text-comes-to-a-keyed-bolt-as-bytes",
        "spout/held/keyed_rows.py",
        "except (OverflowError, UnicodeDecodeError) as error:",
        "except OverflowError as error:",
        "tests/unit/spout/held/test_keyed_times.py::test_a_text_that_is_no_utf8_fails_alone",
        "one record with the key FF would end the query at each start",
    ),
    Mutant(
        "who-once-got-few-gets-more",
        "spout/standalone/queues.py",
        "if len(lease) < openable_count:",
        "if False:",
        "tests/unit/spout/standalone/test_waiting_clients.py"
        "::test_a_client_that_once_got_less_than_it_requested_gets_as_much_as_there_is_later",
        "a client that works for a second would get three records at each call, whatever waits",
    ),
    Mutant(
        "a-struct-has-no-other-fields",
        "spout/tuples/exact.py",
        "if struct is not None and not struct.keys() <= names:",
        "if False:",
        "tests/unit/spout/tuples/test_exact.py::test_a_value_that_would_lose_something_fails_alone",
        "a field with a misspelled name would be null",
    ),
    Mutant(
        "a-time-without-a-zone-is-local-time",
        "spout/tuples/exact.py",
        "return value if has_zone else value.replace(tzinfo=self.zone)",
        "return value",
        "tests/unit/spout/tuples/test_exact.py::test_a_time_without_a_zone_is_local_time",
        "in New York times would be five hours off",
    ),
    Mutant(
        "rows-go-by-their-names",
        "spout/tuples/tuple.py",
        "return tuple([values[name] for name in fields])",
        "return row",
        "tests/unit/spout/tuples/test_exact.py::test_a_row_that_names_its_values_is_taken_by_its_names",
        "a row with its fields in another order would have its values exchanged",
    ),
    Mutant(
        "what-a-cast-gave-becomes-the-same-again",
        "spout/tuples/casts.py",
        "elif _loses_in_silence(own_type, target_type):",
        "elif False:",
        "tests/unit/spout/tuples/test_casts.py::test_a_column_that_would_lose_something_is_refused",
        "a column of times would become dates, and 2 would be true",
    ),
    Mutant(
        "a-variant-is-marked-whatever-was-used-before",
        "spout/tuples/exact.py",
        "if converter_type.equals(arrow_type, check_metadata=True):",
        "if converter_type.equals(arrow_type):",
        "tests/unit/spout/tuples/test_exact.py::test_only_a_struct_that_spark_marks_is_a_variant",
        "a variant would fail where a struct of the same fields was emitted first",
    ),
    Mutant(
        "a-number-has-room-in-its-decimal",
        "spout/tuples/casts.py",
        "    _refuse_overflow(column, decimals)\n",
        "",
        "tests/unit/spout/tuples/test_casts.py::test_a_number_becomes_the_same_decimal_or_is_refused",
        "a large number would become any other in a decimal with many digits behind the point",
    ),
    Mutant(
        "a-row-that-lacks-a-value-is-told-by-its-size",
        "spout/tuples/tuple.py",
        "if len(row) != len(names):",
        "if False:",
        "tests/unit/spout/tuples/test_rows.py::test_a_row_without_one_value_for_each_field_is_told_with_its_size",
        "its cause would speak of an argument of zip()",
    ),
    Mutant(
        "a-loop-over-untracked-places-ends",
        "spout/tuples/places.py",
        "parent = int(self.parents[row])\n        if",
        "parent = 0 if self._anchors is None else int(self.parents[row])\n        if",
        "tests/unit/spout/tuples/test_place_arrays.py"
        "::test_descendants_of_rows_that_are_not_tracked_have_no_places",
        "whoever looks at each of them would do so for ever",
    ),
    Mutant(
        "a-column-has-a-key-of-a-map-once",
        "spout/tuples/casts.py",
        'return bool(pairs.group_by(["row", "key"]).aggregate([]).num_rows == len(keys))',
        "return True",
        "tests/unit/spout/tuples/test_casts.py::test_a_column_that_would_lose_something_is_refused",
        "of two values of a key Spark would keep one",
    ),
    Mutant(
        "a-column-without-a-zone-is-local-time",
        "spout/tuples/casts.py",
        "if (own_type.tz is None) is (target_type.tz is None):",
        "if True:",
        "tests/unit/spout/tuples/test_casts.py::test_a_column_and_rows_mean_the_same_local_time",
        "an Arrow bolt's times would be five hours off in New York",
    ),
    Mutant(
        "columns-of-2038-have-a-summer",
        "spout/tuples/casts.py",
        '_ZONE_RULES_BEGIN <= bounds["min"] <= bounds["max"] < _ZONE_RULES_END',
        '_ZONE_RULES_BEGIN <= bounds["min"]',
        "tests/unit/spout/tuples/test_casts.py::test_a_column_and_rows_mean_the_same_local_time",
        "from 2038 on columns and rows would differ by an hour each summer",
    ),
    Mutant(
        "what-was-emitted-for-a-failed-row-goes",
        "spout/execution/calls.py",
        "        if stays[start]:",
        "        if len(stays):",
        "tests/unit/spout/execution/test_around_calls.py"
        "::test_what_was_emitted_for_failed_rows_goes_and_all_else_stays_as_it_is",
        "the rows of a failed record would be delivered, and again with its copy",
    ),
    Mutant(
        "a-value-of-a-column-fails-alone",
        "spout/execution/fitting.py",
        "if len(column) > 1:",
        "if False:",
        "tests/unit/spout/execution/test_unfit_values.py"
        "::test_a_column_with_such_values_fails_their_records_alone",
        "a value that does not fit would fail all records of its batch, or the wrong one",
    ),
    Mutant(
        "a-null-where-none-may-be-fails-its-record",
        "spout/tuples/casts.py",
        "if array.null_count and not field.nullable:",
        "if False:",
        "tests/unit/spout/held/test_keyed.py"
        "::test_a_value_that_does_not_fit_its_field_fails_where_it_is_emitted",
        "Spark would end the query at each batch",
    ),
    Mutant(
        "a-keyed-bolt-reads-times-in-the-session's-zone",
        "spout/held/keyed_values.py",
        "time = time.astimezone(zone_of(zone))",
        "pass",
        "tests/unit/spout/held/test_keyed_times.py::test_the_clock_shows_local_time",
        "the days of a keyed bolt would begin at midnight in UTC",
    ),
    Mutant(
        "a-key-has-the-time-of-its-tuples",
        "spout/held/keyed_rows.py",
        "values.append(value_at(held_tuple.values, path, decoder.localize(value)))",
        "values.append(decoder.localize(value))",
        "tests/unit/spout/held/test_keyed_times.py::test_a_key_has_the_exact_time_of_its_tuples",
        "the second of two equal hours of autumn would be the first",
    ),
    Mutant(
        "what-ends-a-process-fails-its-record",
        "spout/execution/adapters.py",
        "            except BaseException as raised:",
        "            except Exception as raised:",
        "tests/unit/spout/execution/test_hostile_errors.py::test_it_fails_its_record_alone",
        "one record at which a library calls sys.exit would end the task of all others",
    ),
    Mutant(
        "a-forked-child-writes-nothing",
        "spout/execution/bolt_work.py",
        "if os.getpid() != self._pid:",
        "if False:",
        "tests/unit/spout/execution/test_hostile_bolts.py"
        "::test_a_child_that_a_bolt_forks_and_that_comes_back_writes_nothing",
        "two processes would answer Spark, each with all that follows",
    ),
    Mutant(
        "a-time-in-a-struct-is-a-key-too",
        "spout/held/keyed_values.py",
        "value = value_at(encoded_values, path)",
        'value = encoded_values.get(".".join(path))',
        "tests/unit/spout/held/test_key_paths.py"
        "::test_a_tuple_whose_key_pandas_cannot_have_fails_alone_by_whatever_name",
        "a keyed bolt would get all tuples of the year 3000 under the key 1970-01-01",
    ),
    Mutant(
        "times-of-an-older-state-get-the-zone",
        "spout/held/keyed_rows.py",
        "return held.values if decoder is None else decoder.with_zones(held.values)",
        "return held.values",
        "tests/unit/spout/held/test_keyed_times.py::test_what_a_state_of_before_holds_is_local_time",
        "after the update to this version a comparison of two held times would raise",
    ),
    Mutant(
        "a-time-that-cannot-be-read-fails-alone",
        "spout/held/keyed_rows.py",
        "new.unreadable.append((received, error))",
        "raise",
        "tests/unit/spout/held/test_keyed_times.py::test_a_tuple_that_cannot_be_read_fails_alone",
        "one record of the year 10000 would end the query at each start",
    ),
    Mutant(
        "a-type-that-is-none-is-refused-at-once",
        "spout/bolts/ddl.py",
        "if _FIRST_WORD_OF_TYPE.fullmatch(first_word) is None:",
        "if False:",
        "tests/unit/spout/bolts/test_ddl.py::test_what_is_wrong_for_sure_is_refused_without_spark",
        "a misspelled type would be found when the query starts",
    ),
    Mutant(
        "an-output-is-there",
        "spout/bolts/ddl.py",
        "    if not output.strip():\n",
        "    if False:\n",
        "tests/unit/spout/bolts/test_ddl.py::test_what_is_wrong_for_sure_is_refused_without_spark",
        "the error of a bolt without output would say nothing of a cure",
    ),
    # -- without Spark
    Mutant(
        "new-records-are-read-beside-copies",
        "spout/standalone/read_ahead.py",
        "if self.new.count < target_count:",
        "if are_too_few and self.new.count < target_count:",
        "tests/unit/spout/standalone/test_kestrel_holes.py"
        "::test_thousands_of_copies_that_were_fetched_keep_no_new_record_waiting",
        "copies that were fetched first would keep new records from being read",
    ),
    Mutant(
        "a-client-gets-a-quarter-of-new-records",
        "spout/standalone/service.py",
        "room_for_new = min(new_share.kept_in(room), input_ahead.new.count)",
        "room_for_new = 0",
        "tests/unit/spout/standalone/test_kestrel_holes.py"
        "::test_copies_that_never_end_leave_a_quarter_to_new_records",
        "copies that fail again and again would be all that clients get",
    ),
    Mutant(
        "a-client-learns-of-a-fork",
        "spout/standalone/client.py",
        "self._lock = self._guard = refusal",
        "_ = refusal",
        "tests/unit/spout/standalone/test_forked_spouts.py::test_each_call_in_a_forked_child_says_what_to_do",
        "a forked worker would confirm records of which nobody ever hears",
    ),
    Mutant(
        "a-spout-learns-of-a-fork",
        "spout/standalone/engine.py",
        "self.lock = self.guard = refusal",
        "_ = refusal",
        "tests/unit/spout/standalone/test_forked_spouts.py::test_each_call_in_a_forked_child_says_what_to_do",
        "to close a spout in a forked worker would hang",
    ),
    Mutant(
        "a-forked-child-leaves-the-folder-of-its-parent",
        "spout/streaming/application.py",
        "self._finalizer.detach()",
        "_ = self._finalizer",
        "tests/unit/spout/standalone/test_forked_spouts.py"
        "::test_a_folder_of_the_parent_stays_when_a_child_ends",
        "a query's batches would fail as soon as a forked child of its driver ends",
    ),
    Mutant(
        "an-item-is-confirmed-once",
        "spout/standalone/queues.py",
        "if store.confirm(client, lease, what.serial):\n                self.publication",
        "if store.confirm(client, lease, what.serial) or True:\n                self.publication",
        "tests/unit/spout/standalone/test_kafka_spout.py::test_the_first_word_on_an_item_counts",
        "an item that timed out would be acked by a late client",
    ),
    Mutant(
        "to-close-tells-of-what-was-not-published",
        "spout/standalone/engine.py",
        "if self._error is not None and not self._was_error_raised:",
        "if False:",
        "tests/unit/spout/standalone/test_kestrel_engine.py"
        "::test_to_close_raises_an_error_that_no_call_has_raised",
        "a program would end as if all that it confirmed were done",
    ),
    Mutant(
        "a-client-that-leaves-puts-its-items-back",
        "spout/standalone/queues.py",
        "return sum(queue.store.put_back_of_client(client) for queue in self.by_name.values())",
        "return 0",
        "tests/unit/spout/standalone/test_kafka_spout.py"
        "::test_what_a_client_had_open_others_get_when_it_is_closed_or_forgotten",
        "items of a client that died would wait for their timeout",
    ),
    Mutant(
        "what-was-initialised-before-is-not-read",
        "spout/standalone/read_ahead.py",
        "                    buffer.end_offset = buffer.begin_offset\n",
        "",
        "tests/unit/spout/standalone/test_read_ahead.py"
        "::test_what_was_initialised_beyond_what_was_read_is_not_read",
        "behind a gap that a crash has left, a spout would read no more",
    ),
    Mutant(
        "what-is-unknown-is-no-series",
        "spout/ui/metrics.py",
        "            value = read(state).value\n",
        "            value = read(state).value or 0\n",
        "tests/unit/spout/ui/test_view_metrics.py::test_what_is_unknown_has_no_series_and_the_view_is_down",
        "with the broker away a dashboard would show that nothing is pending",
    ),
    Mutant(
        "an-old-snapshot-is-no-series",
        "spout/ui/metrics.py",
        'if reason == "stale":',
        'if reason == "never":',
        "tests/unit/spout/ui/test_view_metrics.py"
        "::test_before_the_first_reading_and_after_a_minute_without_one_there_is_no_figure",
        "a page that hangs would serve the figures of an hour ago",
    ),
    Mutant(
        "a-clock-that-stands-has-no-deadline",
        "spout/ui/metrics.py",
        "if query_lives and deadlines_ms else None",
        "if deadlines_ms else None",
        "tests/unit/spout/ui/test_view_metrics.py"
        "::test_without_a_query_the_clock_stands_still_and_there_is_no_deadline",
        "the alert on a passed deadline would fire for every query that is stopped",
    ),
    Mutant(
        "a-query-that-ended-has-no-roots",
        "spout/builder/tuple_metrics.py",
        " and abs(now_ms - status.wall) < STALE_MS",
        "",
        "tests/unit/spout/builder/test_stream_metrics.py"
        "::test_of_a_planning_process_that_is_gone_or_owns_nothing_no_root_is_counted",
        "what was pending at its end would be shown for as long as the driver lives",
    ),
    Mutant(
        "a-derived-hook-sees-its-events",
        "spout/execution/bolt_work.py",
        "isinstance(only_hook, TraceHook) and only_hook.only_traces:",
        "isinstance(only_hook, TraceHook):",
        "tests/unit/spout/runtime/test_tracing.py::test_a_hook_that_is_derived_sees_what_it_asks_for",
        "a user's own hook would silently see nothing",
    ),
    Mutant(
        "a-trace-comes-with-acks-of-nothing",
        "spout/publishing/publish.py",
        "for kind in (RootMark.OPEN, RootMark.TOUCHED, RootMark.TRACED):",
        "for kind in (RootMark.OPEN, RootMark.TOUCHED):",
        "tests/unit/spout/runtime/test_tracing.py"
        "::test_the_span_of_a_record_that_was_held_comes_with_the_batch_that_acks_it",
        "records that a window holds at once would have no span",
    ),
    Mutant(
        "a-trace-that-is-reported-is-sampled",
        "spout/runtime/tracing.py",
        "is_sampled = bool(flags) and bool(int(flags, 16) & 1)",
        "is_sampled = bool(flags)",
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_sampled_traces_are_reported_where_the_driver_writes_spans_and_nowhere_else",
        "tasks would report every record of a producer that samples one in a thousand",
    ),
    Mutant(
        "a-range-goes-on-behind-an-end-that-comes-too-early",
        "spout/streaming/consume.py",
        "if end_offset is not None and end_offset >= self._end_offset:",
        "if end_offset is not None and (is_new or end_offset >= self._end_offset):",
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_a_range_goes_on_behind_an_end_that_a_replica_reports_too_early",
        "records that a follower or a new leader does not know as committed yet would be settled as absent",
    ),
    Mutant(
        "a-task-that-ends-early-keeps-no-connection",
        "spout/streaming/consume.py",
        "for reader in self._fetching_readers.values():",
        "for reader in ():",
        "tests/unit/spout/streaming/test_read_task.py::test_a_task_that_ends_early_closes_what_it_fetched_ahead",
        "a task whose rows are not all read would leave a consumer in its worker, which goes on fetching",
    ),
    Mutant(
        "ranges-are-not-read-together-for-ever",
        "spout/streaming/consume.py",
        "while progress.unread and held_bytes < CHUNK_BYTES and time.monotonic() < until_s:",
        "while progress.unread:",
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_ranges_are_not_read_together_without_end_where_the_leader_of_one_is_silent",
        "a task would hang where one leader is silent and others send on",
    ),
    Mutant(
        "a-cause-is-forgotten-after-an-hour",
        "spout/inspect/failures.py",
        "            if now_ms - cause.last_ms < CAUSE_KEPT_MS\n",
        "",
        "tests/unit/spout/ui/test_attention.py"
        "::test_a_cause_is_new_for_fifteen_minutes_and_again_after_an_hour_without_it",
        "causes of last month would leave no room for those of today",
    ),
    Mutant(
        "a-cause-is-new-again-after-an-hour",
        "spout/inspect/failures.py",
        "if cause is None or at_ms - cause.last_ms >= CAUSE_KEPT_MS:",
        "if cause is None:",
        "tests/unit/spout/ui/test_attention.py"
        "::test_a_cause_that_comes_back_after_an_hour_is_new_to_who_reads_both_failures_at_once",
        "a cause that came back after a month would be flagged by nobody",
    ),
    Mutant(
        "a-page-waits-for-a-broker-that-is-away",
        "spout/ui/log_pages.py",
        "        if self._broker_error is not None:\n",
        "        if False:\n",
        "tests/unit/spout/ui/test_log_pages.py"
        "::test_in_an_outage_a_page_answers_by_the_newest_reading_and_asks_nothing",
        "in an outage every tab would wait half a minute for the one before it",
    ),
    Mutant(
        "a-band-is-drawn-record-by-record",
        "spout/ui/strip.py",
        "np.bincount(cells, minlength",
        "np.bincount([int(cell) for cell in cells], minlength",
        "tests/unit/spout/ui/test_pages.py"
        "::test_a_million_pending_records_are_a_small_snapshot_with_the_work_of_a_tenth",
        "a page of a log with a million open roots would take a second of the process for each tab",
    ),
    Mutant(
        "a-job-of-the-page-ends-in-silence",
        "spout/ui/jobs.py",
        "        except Exception as error:\n",
        "        except KeyError as error:\n",
        "tests/unit/spout/ui/test_redrive_pages.py"
        "::test_a_job_that_ends_by_an_unexpected_error_shows_it_and_another_one_can_be_started",
        "a redrive that our own error ended would look as if it had not begun",
    ),
    Mutant(
        "what-is-free-below-goes-before-what-is-initialised",
        "spout/planning_process/batches.py",
        "if self._waits_for_turn(run.source) or self._is_behind_gap(run)",
        "if self._waits_for_turn(run.source)",
        "tests/unit/spout/planning_process/test_order_planning.py"
        "::test_what_is_free_below_initialised_records_is_emitted_before_them",
        "of a key, later records would be processed before earlier ones",
    ),
    # -- groups that somebody harmed
    Mutant(
        "a-new-session-leaves-a-wrong-clock-behind",
        "spout/group/opening.py",
        "return max(now_ms, former_ms) if is_real else now_ms",
        "return max(now_ms, former_ms)",
        "tests/unit/spout/group/test_harmed_groups.py"
        "::test_release_brings_a_group_back_whose_state_has_what_ackers_once_believed",
        "a group with a forged clock could not be had again",
    ),
    Mutant(
        "a-new-session-leaves-an-epoch-behind-that-none-can-exceed",
        "spout/group/opening.py",
        "return now_ms if wrong_epoch(owner + 1, now_ms) else owner + 1",
        "return owner + 1",
        "tests/unit/spout/group/test_harmed_groups.py"
        "::test_release_brings_a_group_back_whose_state_has_what_ackers_once_believed",
        "a group with a forged owner could not be had again",
    ),
    Mutant(
        "acker-partitions-far-behind-are-led-up-in-steps",
        "spout/group/opening.py",
        "for lower_takes in generation_steps(takes, generation_by_source):",
        "for lower_takes in ():",
        "tests/unit/spout/group/test_harmed_groups.py"
        "::test_generations_that_somebody_raised_in_one_acker_partition_are_spread_to_the_others",
        "a stranger could keep a query from its group by some records to one acker partition",
    ),
    Mutant(
        "a-restart-does-not-go-on-with-a-clock-that-ackers-refuse",
        "spout/group/opening.py",
        "elif self._session_states.is_restart and self._restart_clock_ms > now_ms + CLOCK_AHEAD_MS_MAX:",
        "elif False:",
        "tests/unit/spout/group/test_harmed_groups.py"
        "::test_a_restart_whose_clock_no_acker_believes_is_told_so_and_goes_on_with_a_new_session",
        "nothing that the query emits would time out, and nobody would say so",
    ),
    # -- what Spark's state holds does not come again while it waits there
    Mutant(
        "what-is-held-has-a-later-deadline",
        "spout/publishing/publish.py",
        "touched_at=outcome.plan.now + ahead_ms,",
        "touched_at=outcome.plan.now,",
        "tests/unit/spout/planning_process/test_state_watch.py"
        "::test_what_the_state_holds_outlives_a_quiet_topic_and_what_a_bolt_left_open_does_not",
        "a topic that is quiet for longer than the timeout would be counted twice in its window",
    ),
    Mutant(
        "what-a-bolt-left-open-has-no-later-deadline",
        "spout/publishing/settle.py",
        "held_roots = held_open.roots() if",
        "held_roots = counted_open.roots() if",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_what_a_bolt_left_open_beside_what_is_held_has_no_later_deadline",
        "a record that a bolt forgot would come again after days",
    ),
    Mutant(
        "a-batch-under-way-keeps-its-roots",
        "spout/planning_process/state_watch.py",
        "        self._resets.reset(batch.ranges)",
        "        self._resets.reset(())",
        "tests/unit/spout/planning_process/test_state_watch.py"
        "::test_a_batch_that_runs_for_longer_than_the_timeout_keeps_its_roots_where_the_state_may_hold_them",
        "a slow first batch would be counted twice in its windows",
    ),
    Mutant(
        "a-batch-that-is-run-again-keeps-its-roots",
        "spout/planning_process/planner.py",
        "again = self._journal if self._runs_again else None",
        "again = None",
        "tests/unit/spout/planning_process/test_state_watch.py"
        "::test_a_batch_that_is_run_again_keeps_its_roots_from_the_first_tick_on",
        "a batch that a restart runs again would be counted twice in its windows",
    ),
    Mutant(
        "a-query-that-ends-waits-for-what-no-state-holds",
        "spout/planning_process/state_watch.py",
        "held_runs = self.under_way.ranges if held is None else held",
        "held_runs = self.under_way.ranges",
        "tests/unit/spout/planning_process/test_state_watch.py"
        "::test_a_query_that_ends_when_all_is_done_does_not_wait_for_what_the_state_holds",
        "a query with the trigger availableNow would end with a record undone",
    ),
    Mutant(
        "a-record-that-is-too-large-is-noted-before-what-follows",
        "spout/streaming/consume.py",
        "self.damaged.append(run)\n            messages = [",
        "self.damaged.insert(0, run)\n            messages = [",
        "tests/unit/spout/streaming/test_too_large.py"
        "::test_all_but_records_that_are_too_large_are_handed_out",
        "of two such records the wrong one would fail, and the other be absent",
    ),
    Mutant(
        "a-spout-leaves-out-what-is-too-large",
        "spout/standalone/read_ahead.py",
        "too_large = too_large_runs(messages)\n",
        "too_large = too_large_runs(messages[:0])\n",
        "tests/unit/spout/standalone/test_damaged_spout.py"
        "::test_records_that_are_too_large_are_left_out_alone",
        "a client would get a record that can neither be replayed nor become a dead letter",
    ),
    # -- partitions in trouble
    Mutant(
        "a-log-that-was-cut-is-named",
        "spout/inspect/overview.py",
        "if emitted_to > end:",
        "if emitted_to < 0:",
        "tests/unit/spout/inspect/test_partition_troubles.py"
        "::test_a_log_that_was_cut_is_named_with_what_it_lost",
        "records that an unclean election lost would be missed when the next query begins, days later",
    ),
    Mutant(
        "a-partition-without-an-answer-is-data",
        "spout/inspect/overview.py",
        "self._why_unanswered |= answers.value.troubles",
        "pass",
        "tests/unit/spout/inspect/test_partition_troubles.py::test_it_is_data_in_each_machine_format",
        "a monitor would see unknown values, and no word of the partition",
    ),
    Mutant(
        "a-query-that-only-waits-ends-with-the-name",
        "spout/group/troubles.py",
        "if any(partition.stood_ms >= limit_ms for partition in standing):",
        "if limit_ms < 0:",
        "tests/unit/spout/planning_process/test_leaderless_sources.py"
        "::test_a_query_that_ends_reads_all_else_and_then_says_what_it_waits_for",
        "a query with availableNow would wait for ever, and say nothing",
    ),
    # -- readers of several partitions
    Mutant(
        "a-verdict-partition-that-stands-is-noticed",
        "spout/planning_process/verdict_reader.py",
        "for place in self._first_offsets}\n        return self._standing_watch",
        "for place in ()}\n        return self._standing_watch",
        "tests/unit/spout/planning_process/test_leaderless_sources.py"
        "::test_verdicts_of_the_others_are_read_and_the_partition_that_stands_is_told",
        "roots of one acker partition would stay pending, and nobody would say why",
    ),
    Mutant(
        "a-new-generation-ends-a-doubt",
        "spout/standalone/read_ahead.py",
        "        self.out_of_range = None\n",
        "",
        "tests/unit/spout/standalone/test_read_ahead.py"
        "::test_a_partition_that_is_shorter_than_what_was_read_is_refused",
        "nothing would be handed out any more of a log that was cut",
    ),
    Mutant(
        "a-time-without-a-zone-is-local-time-with-pytz-too",
        "spout/tuples/exact.py",
        "return ZoneInfo(name) if offset is None else timezone(offset)",
        "return zone",
        "tests/unit/spout/tuples/test_exact.py::test_a_zone_is_no_local_mean_time_where_arrow_prefers_pytz",
        "noon in New York would be written as 11:56, with each PyArrow before 25",
    ),
    Mutant(
        "a-first-job-that-fails-answers-who-waits",
        "spout/streaming/keeper.py",
        "        finally:\n",
        "        else:\n",
        "tests/unit/spout/streaming/test_keeper.py"
        "::test_who_asks_is_answered_when_spark_has_run_a_task_or_cannot",
        "a query whose first job fails would emit nothing for ten minutes",
    ),
    Mutant(
        "a-test-of-a-bolt-notices-a-tuple-that-is-left-open",
        "spout/execution/collect.py",
        "if not may_leave_open and (work.collector.open_tuples or work.collector.left_open):",
        "if not may_leave_open and work.collector.open_tuples:",
        "tests/unit/spout/execution/test_collect.py::test_a_tuple_that_is_left_open_is_noticed",
        "an ArrowBolt that leaves a row open would pass its test, and its record would time out",
    ),
    # -- several ranges, partitions and inputs in one batch
    Mutant(
        "the-first-root-of-a-range-is-of-that-range",
        "acker/root_sets/numbering.py",
        "lengths = np.diff(np.searchsorted(numbers, self._bounds))",
        'lengths = np.diff(np.searchsorted(numbers, self._bounds, side="right"))',
        "tests/unit/spout/publishing/test_several_ranges.py"
        "::test_what_is_not_acked_is_named_by_its_partition_its_position_and_its_line",
        "the first record of a partition would hold back the one before it, and not its own",
    ),
    Mutant(
        "the-first-root-of-a-range-is-held-in-that-range",
        "acker/root_sets/numbering.py",
        "lengths = np.diff(np.searchsorted(numbers, self._bounds))",
        'lengths = np.diff(np.searchsorted(numbers, self._bounds, side="right"))',
        "tests/unit/spout/publishing/test_several_ranges.py"
        "::test_what_the_state_holds_is_named_by_its_partition_and_position",
        "the deadline of another partition's record would be moved",
    ),
    Mutant(
        "a-passed-call-names-the-first-root-of-a-range",
        "acker/root_sets/numbering.py",
        "lengths = np.diff(np.searchsorted(numbers, self._bounds))",
        'lengths = np.diff(np.searchsorted(numbers, self._bounds, side="right"))',
        "tests/unit/spout/publishing/test_several_ranges.py::test_each_root_of_an_outcome_is_that_of_the_report",
        "an operator would look at a record of another partition for what hung",
    ),
    Mutant(
        "a-hole-of-a-second-range-is-no-record-of-a-skipped-batch",
        "spout/publishing/publish.py",
        "records = plan.roots() - absent",
        "records = plan.roots() - RootSet.of_runs(absent.runs()[:1])",
        "tests/unit/spout/publishing/test_several_ranges.py"
        "::test_a_skipped_batch_fails_all_but_the_positions_without_a_record",
        "a position without a record would be failed, though nothing is there to be replayed",
    ),
    # -- logs that were cut, and lines, of several partitions
    Mutant(
        "an-empty-partition-is-no-reason-for-a-reader-that-is-out-of-its-log",
        "spout/standalone/read_ahead.py",
        "if start > self._buffers[partition].end_offset\n",
        "if start >= self._buffers[partition].end_offset\n",
        "tests/unit/spout/standalone/test_read_ahead.py"
        "::test_a_partition_that_was_cut_is_noticed_whatever_is_beside_it",
        "a log that was cut would be read on without an error, where another partition is empty",
    ),
    Mutant(
        "each-log-that-was-cut-is-found",
        "spout/planning_process/continuity.py",
        "return Compared(tuple(cuts), unknown)",
        "return Compared(tuple(cuts[:1]), unknown)",
        "tests/unit/spout/planning_process/test_continuity.py::test_each_source_is_judged_by_its_own_leader",
        "with on_data_loss: skip the second log would be read on where the first one was cut",
    ),
    Mutant(
        "one-leader-that-does-not-know-yet-hides-no-other",
        "spout/planning_process/continuity.py",
        "            if intact_to is None:\n                unknown.add(source)",
        "            if intact_to is None:\n                unknown.add(source)\n                break",
        "tests/unit/spout/planning_process/test_continuity.py::test_each_source_is_judged_by_its_own_leader",
        "a log that was cut would not be found while another leader is being elected",
    ),
    Mutant(
        "a-child-has-a-gate-for-each-partition",
        "spout/isolation/isolation.py",
        "self._child_gates.setdefault(gate_state.partition_name, ",
        "self._child_gates.setdefault(gate_state.operator, ",
        "tests/unit/spout/isolation/test_isolation.py"
        "::test_in_a_child_too_each_partition_has_a_line_of_its_own",
        "a record that fails would hold back the other partitions of its task",
    ),
    Mutant(
        "the-next-child-knows-of-each-line-that-failed",
        "spout/isolation/isolation.py",
        "self.gate.fail_all(failed.positions.tolist())",
        "self.gate.fail_all(failed.positions[:1].tolist())",
        "tests/unit/spout/isolation/test_isolation.py"
        "::test_each_line_in_which_a_record_failed_is_held_when_its_child_has_died_too",
        "records would pass a failed one of their key when a child has died in between",
    ),
    Mutant(
        "a-read-task-has-a-gate-for-each-partition",
        "spout/streaming/read_task.py",
        '        gate = Gate(f"{ordered_input.topic}/{partition_of(source)}", ordered_input.name, line_up)',
        "        gate = next(iter(self._gates), None) or"
        ' Gate(f"{ordered_input.topic}/{partition_of(source)}", ordered_input.name, line_up)',
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_a_record_that_fails_holds_back_its_own_partition_alone",
        "a record that fails would hold back the other partitions of its task",
    ),
    # -- two queries, two runs, two sessions
    Mutant(
        "a-query-trims-its-own-reports",
        "spout/publishing/report_accumulator.py",
        "if other_query == query and other_batch <= batch - BATCHES_KEPT:",
        "if other_batch <= batch - BATCHES_KEPT:",
        "tests/unit/spout/publishing/test_two_queries.py"
        "::test_a_batch_makes_room_among_those_of_its_own_query",
        "the reports of a query with lower batch numbers would be gone before its batch ends",
    ),
    Mutant(
        "a-query-has-reports-of-its-own",
        "spout/publishing/report_accumulator.py",
        "any(name == query and batch >= since for name, batch in batches)",
        "any(batch >= since for name, batch in batches)",
        "tests/unit/spout/publishing/test_two_queries.py::test_a_batch_has_the_reports_of_its_own_tasks",
        "a follower would ask Spark again and again while another query runs",
    ),
    Mutant(
        "an-end-comes-before-its-rows",
        "spout/spark/private.py",
        "to_seq([batch_rdd, ends_rdd])",
        "to_seq([ends_rdd, batch_rdd])",
        "tests/unit/spout/spark/test_private.py::test_a_partition_of_rows_comes_before_its_end",
        "rows behind a shuffle that a sink has begun to read, and no more, would be acked",
    ),
    Mutant(
        "an-end-stands-behind-other-rows",
        "spout/sinks/drain.py",
        "CONTINUES_PARTITIONS and are_of_batch(rows) and not are_kept(rows)",
        "CONTINUES_PARTITIONS and not are_kept(rows)",
        "tests/unit/spout/sinks/test_drain.py"
        "::test_other_rows_and_rows_of_an_older_spark_go_through_the_filter",
        "what somebody did with a batch before the sink got it would be undone",
    ),
    Mutant(
        "an-end-stands-behind-rows-that-are-kept",
        "spout/sinks/drain.py",
        "CONTINUES_PARTITIONS and are_of_batch(rows) and not are_kept(rows)",
        "CONTINUES_PARTITIONS and are_of_batch(rows)",
        "tests/unit/spout/sinks/test_drain.py"
        "::test_rows_that_somebody_keeps_or_that_have_their_state_on_executors_go_through_the_filter",
        "the stage of rows that somebody persisted would run a second time",
    ),
    Mutant(
        "an-end-reports-for-every-run",
        "spout/sinks/drain.py",
        "if reporter_id == run_id",
        "if True",
        "tests/unit/spout/sinks/test_drain.py"
        "::test_a_batch_that_runs_again_does_not_count_what_was_read_before",
        "a batch that is run again would be acked by what the run before has read",
    ),
    Mutant(
        "a-run-is-written-by-its-own-plan",
        "spout/sinks/foreach_batch.py",
        "            if query_batch.name and run_id not in self._plan_by_run:",
        "            run_id = query_batch.name\n"
        "            if query_batch.name and run_id not in self._plan_by_run:",
        "tests/unit/spout/sinks/test_two_runs.py::test_a_run_is_written_by_its_own_plan",
        "rows behind a shuffle that is new in a run would be acked unread",
    ),
    Mutant(
        "the-last-run-of-a-stream-takes-its-follower-away",
        "spout/sinks/follower.py",
        "if run.stream.id not in {followed.stream.id for followed in self._run_by_id.values()}:",
        "if True:",
        "tests/unit/spout/sinks/test_follower.py"
        "::test_of_two_runs_of_a_stream_the_last_to_end_takes_its_follower_away",
        "a query that is started again would end, since nobody seems to publish it",
    ),
    Mutant(
        "runs-of-one-query-are-followed-apart",
        "spout/sinks/follower.py",
        "self._run_by_id[query.runId] = run",
        "self._run_by_id[query.id] = run",
        "tests/unit/spout/sinks/test_follower.py"
        "::test_of_two_runs_of_a_stream_the_last_to_end_takes_its_follower_away",
        "the follower would be taken away with the older run",
    ),
    Mutant(
        "a-sink-of-another-run-publishes-nothing-of-this-one",
        "spout/sinks/follower.py",
        "if run.query.runId in self._application.sunk:",
        "if self._application.sunk:",
        "tests/unit/spout/sinks/test_follower.py"
        "::test_a_batch_is_published_whatever_other_run_has_a_sink_of_ours",
        "a query beside one with spout.sink would never be acked",
    ),
    Mutant(
        "a-start-waits-for-its-own-group",
        "spout/sinks/follower.py",
        "if run.stream.group == group and run.thread is not None",
        "if run.thread is not None",
        "tests/unit/spout/sinks/test_follower.py::test_a_start_waits_for_ended_runs_of_its_own_group_alone",
        "a start would wait ten seconds for another group",
    ),
    Mutant(
        "a-lane-is-of-one-session",
        "spout/sinks/batch_end.py",
        'f"{self.query_batch.name}/{outcome.plan.session}"',
        'f"{self.query_batch.name}"',
        "tests/unit/spout/sinks/test_follower.py::test_each_query_and_each_session_has_a_lane_of_its_own",
        "after a reset the batches of a query would count as seen already",
    ),
    Mutant(
        "a-lane-is-of-one-query",
        "spout/sinks/batch_end.py",
        'f"{self.query_batch.name}/{outcome.plan.session}"',
        'f"{outcome.plan.session}"',
        "tests/unit/spout/sinks/test_follower.py::test_each_query_and_each_session_has_a_lane_of_its_own",
        "batches of two queries would take each other's place",
    ),
    Mutant(
        "a-column-has-a-watermark-with-each-hold",
        "spout/publishing/watermarks.py",
        "watermark = stats.column, stats.hold",
        'watermark = stats.column, ""',
        "tests/unit/spout/publishing/test_watermarks.py"
        "::test_each_column_and_each_hold_has_a_watermark_of_its_own",
        "nobody would learn which record moved the lower one of two watermarks",
    ),
    # -- after a call that raised
    Mutant(
        "the-collector-of-a-keyed-call-that-raised-is-closed",
        "spout/held/keyed_rows.py",
        "        collector.is_closed = True",
        "        outcome.is_closed = True",
        "tests/unit/spout/held/test_keyed.py"
        "::test_what_a_bolt_does_by_the_collector_of_an_earlier_call_fails_its_tuples",
        "a row would be lost whose tuple is acked",
    ),
    Mutant(
        "the-collector-of-a-watched-batch-that-raised-is-closed",
        "spout/execution/adapters.py",
        "            collector.is_closed = True\n        failures",
        "            collector.is_closed = not self.collector.open_tuples\n        failures",
        "tests/unit/spout/execution/test_after_an_error.py"
        "::test_what_an_arrow_bolt_does_by_the_collector_of_an_earlier_call_fails_its_rows",
        "rows would be lost whose tuples are acked, in a bolt with hooks",
    ),
    Mutant(
        "the-collector-of-a-batch-that-raised-is-closed",
        "spout/execution/adapters.py",
        "        finally:\n            collector.is_closed = True\n        failures",
        "        else:\n            collector.is_closed = True\n        failures",
        "tests/unit/spout/execution/test_after_an_error.py"
        "::test_what_an_arrow_bolt_does_by_the_collector_of_an_earlier_call_fails_its_rows",
        "rows would be lost whose tuples are acked",
    ),
    Mutant(
        "a-test-of-a-keyed-bolt-closes-its-collectors",
        "spout/execution/collect.py",
        "        collector.is_closed = True",
        "        pass",
        "tests/unit/spout/execution/test_after_an_error.py"
        "::test_a_test_of_a_keyed_bolt_notices_a_collector_of_an_earlier_call",
        "a bolt would pass its test, and fail its tuples on Spark",
    ),
    # -- clients that wait, and items that are lost
    Mutant(
        "what-nobody-opened-has-no-timeout",
        "spout/standalone/service.py",
        "self.queues.reset_unopened_timeouts(now_ms)",
        "pass",
        "tests/unit/spout/standalone/test_unopened_items.py"
        "::test_records_that_nobody_opened_wait_for_their_client",
        "records that were ready while their client paused would be dead letters",
    ),
    Mutant(
        "what-was-put-back-has-its-timeout",
        "spout/standalone/store.py",
        "runs += self._returned_serials.outside(waiting_start, older_end)",
        "runs.append(PositionRun(waiting_start, older_end))",
        "tests/unit/spout/standalone/test_unopened_items.py::test_what_a_client_had_open_times_out_as_before",
        "a client that puts a record back again and again would keep it for ever",
    ),
    Mutant(
        "who-looks-again-requests-no-more",
        "spout/standalone/store.py",
        "self._window_count = max(self._window_count, count)",
        "self._window_count += count",
        "tests/unit/spout/standalone/test_waiting_clients.py"
        "::test_what_is_kept_ready_for_a_client_that_waits_does_not_grow",
        "a client that waits for 10 would keep hundreds ready, which only time out",
    ),
    Mutant(
        "who-waits-no-more-requests-nothing",
        "spout/standalone/client.py",
        "queue.requested_count -= requested_count",
        "queue.requested_count -= 0",
        "tests/unit/spout/standalone/test_waiting_clients.py"
        "::test_what_is_kept_ready_for_a_client_that_waits_does_not_grow",
        "each wait would add to what is kept ready for ever",
    ),
    Mutant(
        "a-client-requests-what-it-may-open",
        "spout/standalone/client.py",
        "requests = [(queue, queue.openable_count(self._limits, count)) for queue in queues]",
        "requests = [(queue, count) for queue in queues]",
        "tests/unit/spout/standalone/test_waiting_clients.py"
        "::test_what_is_kept_ready_for_a_client_that_waits_does_not_grow",
        "what a client may not open would be planned, and time out",
    ),
    Mutant(
        "a-lost-item-has-no-parts",
        "spout/standalone/store.py",
        "                lease.open_parts_by_serial.pop(serial, None)\n"
        "                self._remove_open(lease, serial)",
        "                self._remove_open(lease, serial)",
        "tests/unit/spout/standalone/test_lost_items.py"
        "::test_all_of_an_open_is_confirmed_but_for_what_was_lost",
        "the parts of a lost item would hold up all that was opened with it",
    ),
    Mutant(
        "what-is-confirmed-whole-may-be-late",
        "spout/standalone/queues.py",
        "            self.publication.confirmed_runs += runs\n"
        "            self._record_late_items_of(what.lease)",
        "            self.publication.confirmed_runs += runs",
        "tests/unit/spout/standalone/test_lost_items.py"
        "::test_all_of_an_open_is_confirmed_but_for_what_was_lost",
        "nobody would learn that work was done in vain",
    ),
    Mutant(
        "what-is-failed-whole-may-be-late",
        "spout/standalone/queues.py",
        "                self.publication.fail(runs, cause)\n"
        "            self._record_late_items_of(what.lease)",
        "                self.publication.fail(runs, cause)",
        "tests/unit/spout/standalone/test_lost_items.py::test_all_of_an_open_is_failed_but_for_what_was_lost",
        "nobody would learn that work was done in vain",
    ),
    Mutant(
        "a-late-item-counts-once",
        "spout/standalone/queues.py",
        "why = lease.why_lost_by_serial.pop(serial, None)",
        "why = lease.why_lost_by_serial.get(serial)",
        "tests/unit/spout/standalone/test_lost_items.py"
        "::test_all_of_an_open_is_confirmed_but_for_what_was_lost",
        "an item that is settled twice would count as two",
    ),
    Mutant(
        "each-late-item-counts",
        "spout/standalone/queues.py",
        "for serial in list(lease.why_lost_by_serial):",
        "for serial in list(lease.why_lost_by_serial)[:1]:",
        "tests/unit/spout/standalone/test_lost_items.py"
        "::test_all_of_an_open_is_confirmed_but_for_what_was_lost",
        "of many late items one would count",
    ),
    # -- keys that are null or empty
    Mutant(
        "an-empty-key-has-a-line",
        "spout/planning/order.py",
        "None if key is None else line_of_key(key)",
        "line_of_key(key) if key else None",
        "tests/unit/spout/planning/test_order.py"
        "::test_each_key_has_a_line_of_its_own_and_a_null_one_has_none",
        "records with an empty key would pass one of theirs that failed",
    ),
    Mutant(
        "a-null-key-is-null-in-a-row",
        "spout/tuples/messages.py",
        '        "key": Message.key,',
        '        "key": lambda message: message.key() or None,',
        "tests/unit/spout/tuples/test_messages.py"
        "::test_keys_and_values_are_those_of_the_record_in_each_form_of_a_row",
        "a bolt could not tell an empty key from none",
    ),
    Mutant(
        "a-warning-names-the-first-root-of-a-range",
        "spout/publishing/batch_warnings.py",
        "IsolatedRecord(record_place(source, position, inputs), cause)",
        "IsolatedRecord(record_place(source, position and position - 1, inputs), cause)",
        "tests/unit/spout/publishing/test_several_ranges.py::test_an_operator_reads_the_place_of_the_root",
        "an operator would look at a record of another partition for what ended a worker",
    ),
    Mutant(
        "what-is-dropped-is-dropped-with-its-stream",
        "spout/execution/emitted.py",
        "        del self._stream_by_emission[emission_count:]\n"
        "        del self._task_by_emission[emission_count:]",
        "        pass",
        "tests/unit/spout/execution/test_after_an_error.py"
        "::test_on_several_streams_too_it_is_no_row_of_another_tuple",
        "rows behind a call that raised would go to the stream of another row",
    ),
    # -- clocks that step, budgets, ends of logs, and what may stay
    Mutant(
        "ticks-go-on-by-a-clock-that-was-set-back",
        "acker/waits.py",
        "not 0 <= now_ms - self.at_ms < every_ms",
        "now_ms - self.at_ms >= every_ms",
        "tests/unit/spout/planning_process/test_stepping_clock.py::test_roots_time_out_neither_early_nor_late",
        "for an hour no root would time out",
    ),
    Mutant(
        "signs-of-life-go-on-by-a-clock-that-was-set-back",
        "spout/planning_process/planner.py",
        "self._last_sign.begin_if_due(now_ms, SIGN_EVERY_MS)",
        "now_ms >= (self._last_sign.at_ms or 0) and self._last_sign.begin_if_due(now_ms, SIGN_EVERY_MS)",
        "tests/unit/spout/planning_process/test_stepping_clock.py::test_an_idle_owner_is_seen_to_live_by_whoever_would_take_its_group",
        "another query would take the group of one that lives",
    ),
    Mutant(
        "a-sign-of-life-of-the-future-is-one-of-now",
        "spout/group/presence.py",
        "min(record.timestamp_ms, self._now_ms) if",
        "record.timestamp_ms if",
        "tests/unit/spout/planning_process/test_stepping_clock.py::test_a_sign_counts_from_when_it_was_read_where_its_time_is_of_the_future",
        "the group of a dead owner would be kept for an hour",
    ),
    Mutant(
        "new-partitions-are-found-by-a-clock-that-was-set-back",
        "spout/group/growth.py",
        "self._last_check.begin_if_due(now_ms, SOURCES_EVERY_MS)",
        "now_ms >= (self._last_check.at_ms or 0) and self._last_check.begin_if_due(now_ms, SOURCES_EVERY_MS)",
        "tests/unit/test_clocks.py::test_what_a_process_does_from_time_to_time_goes_on_by_a_clock_that_steps",
        "a new partition would not be read for an hour",
    ),
    Mutant(
        "commits-are-looked-at-by-a-clock-that-was-set-back",
        "spout/group/commits.py",
        "self._last_check.begin_if_due(now_ms, VERIFY_EVERY_MS)",
        "now_ms >= (self._last_check.at_ms or 0) and self._last_check.begin_if_due(now_ms, VERIFY_EVERY_MS)",
        "tests/unit/test_clocks.py::test_what_a_process_does_from_time_to_time_goes_on_by_a_clock_that_steps",
        "what somebody else commits would be noticed an hour later",
    ),
    Mutant(
        "strangers-are-looked-for-by-a-clock-that-was-set-back",
        "spout/group/strangers.py",
        "self._last_question.is_due(now_ms, every_ms)",
        "now_ms - (self._last_question.at_ms or 0) >= every_ms",
        "tests/unit/test_clocks.py::test_what_a_process_does_from_time_to_time_goes_on_by_a_clock_that_steps",
        "a stranger in the group would be named an hour later",
    ),
    Mutant(
        "the-series-of-the-page-go-on-by-a-clock-that-was-set-back",
        "spout/inspect/summary.py",
        "if not 0 <= now_ms - self._recorded_ms < SERIES_EVERY_MS",
        "if now_ms - self._recorded_ms >= SERIES_EVERY_MS",
        "tests/unit/test_clocks.py::test_the_series_of_the_page_go_on_by_a_clock_that_steps",
        "the page would draw nothing new for an hour",
    ),
    Mutant(
        "a-view-of-the-future-is-stale",
        "spout/ui/metrics.py",
        "abs(now_ms - snapshot.at_ms) >= STALE_MS",
        "now_ms - snapshot.at_ms >= STALE_MS",
        "tests/unit/spout/ui/test_view_metrics.py::test_a_reading_of_the_future_is_stale_too",
        "a view that stands would pass for a fresh one for an hour",
    ),
    Mutant(
        "a-status-of-the-future-is-of-nobody-who-lives",
        "spout/builder/tuple_metrics.py",
        "abs(now_ms - status.wall) < STALE_MS",
        "now_ms - status.wall < STALE_MS",
        "tests/unit/spout/builder/test_stream_metrics.py::test_of_a_planning_process_that_is_gone_or_owns_nothing_no_root_is_counted",
        "the roots of a process that has ended would be counted for an hour",
    ),
    Mutant(
        "a-query-that-ends-gives-up-after-time-that-has-passed",
        "spout/planning_process/draining.py",
        "waited_ms(self._passed_time.ms)\n        if has_timeouts",
        "waited_ms(now_ms)\n        if has_timeouts",
        "tests/unit/spout/planning_process/test_stepping_clock.py::test_a_query_that_ends_waits_for_verdicts_by_a_clock_that_steps",
        "a query that ends would give up where its clock is set ahead",
    ),
    Mutant(
        "a-reset-to-the-latest-stops-at-an-open-transaction",
        "spout/inspect/operate.py",
        "starts, ends = log.starts(places), log.stable_ends(places)",
        "starts, ends = log.starts(places), log.ends(places)",
        "tests/unit/spout/group/test_open_transactions.py::test_a_reset_goes_no_further_than_an_open_transaction",
        "what an open transaction commits would never be read",
    ),
    Mutant(
        "a-start-at-the-latest-stops-at-an-open-transaction",
        "spout/group/starting.py",
        "Bound.STABLE_END if start",
        "Bound.END if start",
        "tests/unit/spout/group/test_open_transactions.py::test_a_group_that_starts_at_the_latest_reads_what_the_transaction_commits",
        "what an open transaction commits would never be read",
    ),
    Mutant(
        "a-query-that-ends-stops-at-an-open-transaction",
        "spout/planning_process/planner.py",
        "log.bounds(Bound.STABLE_END, [spec.place for spec",
        "log.bounds(Bound.END, [spec.place for spec",
        "tests/unit/spout/group/test_open_transactions.py::test_a_query_that_ends_reads_up_to_the_transaction_and_ends",
        "a job would wait for somebody else's transaction",
    ),
    Mutant(
        "the-lag-ends-at-an-open-transaction",
        "spout/inspect/overview.py",
        "ends = self._bounds(ask, Bound.STABLE_END, places)",
        "ends = self._bounds(ask, Bound.END, places)",
        "tests/unit/spout/group/test_open_transactions.py::test_the_lag_counts_what_can_be_read",
        "a group that has read all would have a lag",
    ),
    Mutant(
        "a-warning-that-could-be-read-goes-before-what-is-unknown",
        "spout/doctor/monitor.py",
        "    MonitorState.CRITICAL,\n    MonitorState.WARNING,\n    MonitorState.UNKNOWN,\n",
        "    MonitorState.CRITICAL,\n    MonitorState.UNKNOWN,\n    MonitorState.WARNING,\n",
        "tests/unit/spout/doctor/test_monitor_pairs.py::test_the_worst_finding_that_could_be_read_is_the_state",
        "a monitor would show UNKNOWN where something is wrong",
    ),
    Mutant(
        "what-is-unknown-is-named-beside-what-is-wrong",
        "spout/doctor/monitor.py",
        "        *_problems_of(MonitorState.UNKNOWN, unknown),\n    ]",
        "    ] or _problems_of(MonitorState.UNKNOWN, unknown)",
        "tests/unit/spout/doctor/test_monitor_pairs.py::test_the_worst_finding_that_could_be_read_is_the_state",
        "whoever sees a warning would not know that more may be wrong",
    ),
    Mutant(
        "a-view-goes-by-the-brokers-time",
        "spout/inspect/overview.py",
        "snapshot = overview.snapshot(our_now_ms - clocks.correction_ms)",
        "snapshot = overview.snapshot(our_now_ms)",
        "tests/unit/spout/group/test_wrong_clocks.py"
        "::test_a_view_by_a_wrong_clock_names_it_and_still_sees_the_query",
        "on a machine whose clock is wrong a living query would be called gone, and its release advised",
    ),
    Mutant(
        "times-of-writers-are-not-taken-for-the-brokers",
        "acker/writer_clocks.py",
        "if record.timestamp_type == TimestampType.CREATED:",
        "if False:",
        "tests/unit/spout/group/test_wrong_clocks.py::test_a_topic_with_create_time_has_its_writers_times",
        "of a topic with CreateTime no clock that is ahead would be named",
    ),
    Mutant(
        "a-query-that-ended-by-a-slow-worker-is-named-once",
        "spout/spark/connect_back.py",
        "self._running = running",
        "self._running |= running",
        "tests/unit/spout/spark/test_connect_back.py"
        "::test_each_query_that_ended_by_a_slow_worker_has_one_line",
        "the driver's log would name it each second",
    ),
    Mutant(
        "a-hang-has-its-place",
        "spout/tuples/raised.py",
        "outermost_first = reversed(list(walk_stack(frame)))",
        "outermost_first = list(walk_stack(frame))",
        "tests/unit/spout/runtime/test_watchdog.py"
        "::test_a_bolt_that_hangs_ends_its_worker_with_its_place_and_a_trace",
        "the log would name the caller of the code that hangs",
    ),
    Mutant(
        "a-root-behind-a-keyed-bolt-is-found-by-the-next-number",
        "spout/publishing/delayed.py",
        "rows = rows_among(numbers, keyed_numbers)",
        "rows = np.searchsorted(keyed_numbers, numbers)",
        "tests/unit/spout/publishing/test_reports_together.py::test_a_number_on_which_a_keyed_bolt_emitted_nothing_is_refused",
        "another root would be acked in its place",
    ),
    Mutant(
        "each-record-of-a-batch-has-its-note",
        "spout/publishing/publish.py",
        "_fitting(publication.note, room_bytes) if id(acked) in noted_ids else ()",
        "_fitting(publication.note, room_bytes)",
        "tests/unit/spout/publishing/test_sent_records.py::test_the_first_record_of_a_batch_alone_has_its_note",
        "the acker of each would pass it on",
    ),
    Mutant(
        "a-publisher-is-not-cleared-when-it-is-closed",
        "spout/publishing/publish.py",
        "        self._producer = self._log = None\n",
        "        pass\n",
        "tests/unit/spout/publishing/test_sent_records.py::test_a_publisher_opens_its_log_once_and_again_when_it_was_closed",
        "the next batch would be sent by a closed producer",
    ),
    Mutant(
        "what-is-owed-to-new-records-is-forgotten",
        "spout/planning/intake.py",
        "        self._owed_quarters = min(max(0, owed_quarters), NEW_SHARE - 1)",
        "        self._owed_quarters = 0",
        "tests/unit/spout/planning/test_several_supplies.py::test_new_records_get_a_quarter_of_the_room_in_the_long_run",
        "records that always fail would keep every other one waiting",
    ),
    Mutant(
        "what-is-settled-stays-an-empty-position",
        "spout/planning/window.py",
        "            self._empty_by_source[source].remove_all(runs)",
        "            pass",
        "tests/unit/spout/planning/test_several_supplies.py::test_a_window_counts_emitted_empty_and_restored_positions_of_each_source",
        "a source would count fewer records than are pending",
    ),
    Mutant(
        "a-commit-does-not-say-which-installation-made-it",
        "spout/group/starting.py",
        '    return f"{COMMITTED_BY} {topics.prefix}".rstrip()',
        "    return COMMITTED_BY",
        "tests/property/test_commit_marks.py::test_a_mark_is_of_the_installation_that_wrote_it",
        "two installations would read in one group, and handle each record twice",
    ),
    Mutant(
        "a-commit-of-another-installation-is-taken-for-ours",
        "spout/group/starting.py",
        "    return text in (mark, COMMITTED_BY)",
        "    return text.startswith(COMMITTED_BY)",
        "tests/unit/spout/group/test_where_sources_begin.py"
        "::test_another_installation_in_the_group_is_named_and_one_of_an_older_version_is_ours",
        "the same",
    ),
    Mutant(
        "a-closed-stream-leaves-its-descriptor-to-others",
        "spout/cli/main.py",
        "    open_closed_streams()\n",
        "",
        "tests/unit/spout/cli/test_odd_streams.py::test_a_file_never_gets_the_descriptor_of_a_closed_stream",
        "what C code reports on stderr would be written into a file or to a broker",
    ),
)
