"""Bugs in `spout`: planning, the group, publishing, bolts at work, held rows, and what operators read."""

from tests.mutants.mutant import Mutant

MUTANTS = (
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
        "spout/planner/verdict_reader.py",
        "        require_cluster(record.place, record.headers, self._cluster_id)\n",
        "",
        "tests/unit/spout/planner/test_other_cluster.py"
        "::test_verdicts_that_are_mirrored_on_while_all_runs_settle_nothing",
        "other records, at the same positions, would be committed as done",
    ),
    Mutant(
        "a-checkpoint-of-another-cluster-is-refused",
        "spout/planner/planner.py",
        "        check_cluster(journal, self._context.cluster_id)\n",
        "",
        "tests/unit/spout/planner/test_other_cluster.py::test_a_checkpoint_of_another_cluster_is_refused",
        "a query would read from offsets that are those of other records",
    ),
    Mutant(
        "a-commit-without-state-is-named",
        "spout/group/opening.py",
        "            self._report_carried(answers.sources())\n",
        "",
        "tests/unit/spout/planner/test_other_cluster.py"
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
        "if has_rule(self._rules[name], lost):",
        "if False and has_rule(self._rules[name], lost):",
        "tests/unit/spout/ui/test_attention.py::test_a_cause_for_which_the_file_has_a_rule_is_no_new_one",
        "a monitor would warn of what the file expects",
    ),
    # -- what may be committed, and what is planned
    Mutant(
        "a-reset-is-by-the-clock-of-the-last-batch",
        "spout/planner/timeout_resets.py",
        "now = self._tenure.clock.now",
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
        "if self.interrupts:",
        "if False:",
        "tests/unit/spout/runtime/test_process.py::test_a_signal_while_the_service_is_made_ends_it_there",
        "an acker that looks for a broker would count as hung when it is ended",
    ),
    Mutant(
        "a-query-reads-all-inputs-of-its-group",
        "spout/inspect/overview.py",
        "or one.id in query.inputs or one.stopped:",
        "or True:",
        "tests/unit/spout/inspect/test_unread_inputs.py::test_an_input_that_the_query_reads_no_more_is_named",
        "nobody would hear that an input has no query",
    ),
    Mutant(
        "a-hang-that-passes-is-told-nobody",
        "spout/isolation/inquest.py",
        "self._divided.append((call, Cause(call.bolt, error, how)))",
        "pass",
        "tests/unit/spout/isolation/test_isolation.py::test_a_hang_that_does_not_repeat_leaves_its_records",
        "a service that hangs now and then would be seen by nobody",
    ),
    Mutant(
        "a-hang-whose-row-is-found-is-told-twice",
        "spout/isolation/inquest.py",
        "if not is_explained and not self.orders.blames_part_of(call):",
        "if not is_explained:",
        "tests/unit/spout/isolation/test_isolation.py::test_a_hang_whose_row_is_found_is_no_hang_that_passed",
        "each culprit of an ArrowBolt would stand in `failures` as one that passed, too",
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
        'stopped = "" if lives.is_read else found.stopped',
        "stopped = found.stopped",
        "tests/unit/spout/inspect/test_stopped_inputs.py::test_a_query_that_reads_it_all_the_same_is_named",
        "a query that goes on in spite of the key would have no alarms at all",
    ),
    Mutant(
        "a-stopped-input-begins",
        "spout/streaming/stream.py",
        "own.require_not_stopped()",
        "pass",
        "tests/unit/spout/inspect/test_stopped_inputs.py::test_nobody_begins_to_read_it",
        "a supervisor would start again what somebody stopped for a reason",
    ),
    Mutant(
        "a-pause-ends-no-query",
        "spout/planner/draining.py",
        "if standing and next_due_ms is None and not not_taken_over:",
        "if False:",
        "tests/unit/spout/planner/test_draining.py"
        "::test_a_query_that_ends_names_the_pause_that_it_would_wait_for",
        "a job with availableNow would wait for ever, and nobody would know for what",
    ),
    Mutant(
        "roots-of-another-group-are-waited-for",
        "spout/group/due.py",
        "and due.group == self._group",
        "and True",
        "tests/unit/spout/planner/test_draining.py"
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
        "again = ours if is_time else ours - kept",
        "again = ours if is_time else set()",
        "tests/unit/spout/group/test_commits.py::test_a_commit_that_the_broker_has_forgotten_is_made_again",
        "the next start of a quiet group would read all records again",
    ),
    Mutant(
        "commits-of-a-quiet-group-are-not-renewed",
        "spout/group/commits.py",
        "again = ours if is_time else ours - kept",
        "again = ours - kept",
        "tests/unit/spout/group/test_commits.py"
        "::test_commits_of_a_quiet_group_are_renewed_before_they_are_forgotten",
        "a broker that keeps commits for a minute would forget them again and again",
    ),
    Mutant(
        "a-commit-stops-at-a-hole",
        "spout/planning/window.py",
        "return self._high.get(source) if first is None else first",
        "return self._high.get(source)",
        "tests/unit/spout/planning/test_window.py"
        "::test_the_committable_position_is_the_first_unsettled_emitted_one",
        "a restart without ackers would pass over records that are not done",
    ),
    Mutant(
        "a-commit-stops-before-what-is-free",
        "spout/group/tenure.py",
        "found[source] = cursor.first_free if settled is None else min(settled, cursor.first_free)",
        "found[source] = cursor.first_free if settled is None else settled",
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
        "return SourceCursor(from_, top, free)",
        "return SourceCursor(from_, top)",
        "tests/unit/spout/planning/test_intake.py"
        "::test_a_position_is_free_at_or_above_from_and_the_watermark_of_its_own_partition",
        "records between two parts of an Init that a crash cut off would never be read",
    ),
    Mutant(
        "a-log-that-was-cut-stops-the-query",
        "spout/planner/batches.py",
        "if end < read_to[source]:\n                cursor",
        "if end < 0:\n                cursor",
        "tests/unit/spout/planner/test_cut_logs.py"
        "::test_a_log_that_ends_before_what_was_read_is_found_without_epochs",
        "records that got the offsets of lost ones would never be read",
    ),
    Mutant(
        "a-log-that-was-cut-and-grew-again-stops-the-query",
        "spout/planner/continuity.py",
        "elif epoch > read.leader_epoch:\n                to_compare[source] = read",
        "elif epoch > read.leader_epoch:\n                self._keep(source, cursor, epoch)",
        "tests/unit/spout/planner/test_cut_logs.py"
        "::test_a_log_that_was_cut_stops_the_query_with_its_first_lost_offset",
        "records that have the offsets of lost ones would never be read",
    ),
    Mutant(
        "a-running-spout-compares-its-logs",
        "spout/standalone/read_ahead.py",
        "return OffsetAnswers(self.stable_ends(partitions), {}, epochs)",
        "return OffsetAnswers(self.stable_ends(partitions), {})",
        "tests/unit/spout/standalone/test_cut_logs_spout.py"
        "::test_with_skip_the_spout_goes_on_from_the_first_lost_offset",
        "records that have the offsets of lost ones would never be handed out",
    ),
    Mutant(
        "a-log-is-compared-at-the-start",
        "spout/planner/planner.py",
        "batches.continuity.restore(kept_by(self._journal, committer.read_to(), tenure.cursors))",
        "pass",
        "tests/unit/spout/planner/test_cut_logs.py"
        "::test_a_log_that_was_cut_while_no_query_ran_is_found_at_the_start",
        "a log that is cut between two runs of a query would be taken for the same",
    ),
    Mutant(
        "roots-of-lost-offsets-get-a-verdict",
        "spout/planner/batches.py",
        "self._report_absent(lost, self._tenure.look(self._now_ms))",
        "pass",
        "tests/unit/spout/planner/test_cut_logs.py::test_with_skip_roots_of_lost_offsets_get_a_verdict",
        "copies of them would be made of other records",
    ),
    Mutant(
        "a-partition-that-was-never-read-begins-at-0",
        "spout/group/starting.py",
        "elif is_new:",
        "elif False:",
        "tests/unit/spout/planner/test_changed_topics.py"
        "::test_a_new_session_begins_a_partition_that_its_group_never_read_at_0",
        "what was written to a new partition between two queries would be left out",
    ),
    Mutant(
        "copies-begin-at-commits-of-spouts-alone",
        "spout/group/starting.py",
        "if text == COMMITTED_BY]",
        "if True]",
        "tests/unit/spout/planner/test_planner.py"
        "::test_copies_that_were_settled_under_another_prefix_are_not_emitted_again",
        "copies below an offset that another program committed would be left out",
    ),
    Mutant(
        "an-input-that-is-read-in-addition-begins-at-its-start",
        "spout/group/starting.py",
        "spec.start if spec.start is not None else one.input.start",
        "spec.start or 'earliest'",
        "tests/unit/spout/planner/test_planner.py"
        "::test_an_input_that_a_query_reads_from_now_on_begins_as_its_start_says",
        "a query that gets one more input would read all that its topic ever held",
    ),
    Mutant(
        "a-superseded-query-commits-nothing",
        "spout/planner/planner.py",
        "self._is_superseded = True",
        "pass",
        "tests/unit/spout/inspect/test_operate.py"
        "::test_a_query_that_a_reset_stops_leaves_the_commits_of_the_reset_as_they_are",
        "status and tools for lag would show the offsets from before a reset",
    ),
    Mutant(
        "a-last-batch-is-not-read-again-from-another-topic",
        "spout/planner/planner.py",
        "again = {run.source for run in journal.ranges if runs_again}",
        "again = set[int]()",
        "tests/unit/spout/planner/test_changed_topics.py"
        "::test_with_take_over_too_a_last_batch_is_not_read_again_from_another_topic",
        "records of the new topic would ack those of the old one",
    ),
    Mutant(
        "an-older-copy-of-a-checkpoint-is-refused",
        "spout/planner/planner.py",
        "if opened.is_restart and self._is_older(tenure):",
        "if False and self._is_older(tenure):",
        "tests/unit/spout/planner/test_older_checkpoint.py"
        "::test_an_older_copy_of_a_checkpoint_is_refused_by_its_positions_and_with_the_cures",
        "acks under batch numbers that were used before would not count, and records would time out",
    ),
    Mutant(
        "another-driver-at-its-last-batch-is-no-older-copy",
        "spout/planner/verdict_reader.py",
        "is_old = record.offset < self._began[TopicPartition(record.topic, record.partition)]",
        "is_old = True",
        "tests/unit/spout/planner/test_older_checkpoint.py"
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
        "return of_copies | fair_shares(new, room - sum(of_copies.values()))",
        "return fair_shares(counts, room)",
        "tests/unit/spout/planner/test_holes_planning.py::test_a_quarter_of_a_batch_stays_for_new_records",
        "replays would wait as long as there are new records",
    ),
    Mutant(
        "an-init-is-cut-at-the-end-of-an-acker-block",
        "spout/group/announce.py",
        "return ((position >> ACKER_BLOCK_BITS) + 1) << ACKER_BLOCK_BITS",
        "return ((position + 1 >> ACKER_BLOCK_BITS) + 1) << ACKER_BLOCK_BITS",
        "tests/unit/spout/group/test_announce.py"
        "::test_a_run_is_cut_where_an_acker_block_ends_and_the_next_one_has_another_owner",
        "the last position of a block would be announced to the wrong acker, and be quarantined",
    ),
    Mutant(
        "parts-of-an-init-are-written-one-after-another",
        "spout/group/announce.py",
        "                if written and (first or wave > last):\n                    self._flush()\n",
        "",
        "tests/unit/spout/group/test_announce.py"
        "::test_parts_of_one_source_stay_in_order_when_several_are_announced_together",
        "after a crash later parts of an Init could be there without the earlier ones",
    ),
    Mutant(
        "max-spout-pending",
        "spout/planner/batches.py",
        "return {one.id: max(0, one.max_spout_pending - pending[one.id]) for one in self._spec.inputs}",
        "return {one.id: one.max_spout_pending for one in self._spec.inputs}",
        "tests/unit/spout/planner/test_planner.py"
        "::test_nothing_is_emitted_while_as_many_are_pending_as_may_be",
        "a slow sink would get more and more records, which all time out",
    ),
    Mutant(
        "what-was-seen-to-be-empty-is-no-record",
        "spout/planning/supply.py",
        "return _Part(run.start, seen_to, run.end, seen.records[low:high])",
        "return _Part(run.start, seen_to, run.end, np.arange(run.start, seen_to))",
        "tests/unit/spout/planner/test_holes_planning.py::test_the_first_batch_is_behind_the_hole",
        "a hole would take a batch for each of its parts that is as long as the limit",
    ),
    Mutant(
        "a-hole-is-passed-up-to-the-next-record",
        "spout/planning/supply.py",
        "self._holes.append(SourceRun(self._source, gap.start, end))",
        "self._holes.append(SourceRun(self._source, gap.start, end + 1))",
        "tests/unit/spout/planning/test_supply.py"
        "::test_a_portion_is_a_prefix_that_holds_no_more_records_than_it_may",
        "the record behind a hole would be absent, and never read",
    ),
    Mutant(
        "a-look-is-believed-as-far-as-it-reached",
        "spout/planning/supply.py",
        "seen_to = min(seen.to, run.end)",
        "seen_to = run.end",
        "tests/unit/spout/planning/test_supply.py"
        "::test_a_portion_is_a_prefix_that_holds_no_more_records_than_it_may",
        "records that nobody has looked at yet would be absent, and never read",
    ),
    Mutant(
        "a-hole-needs-a-verdict",
        "spout/planner/batches.py",
        "self._settle_empty(gone, holes, now)",
        "self._settle_empty(gone, [], now)",
        "tests/unit/spout/planner/test_holes_planning.py::test_the_first_batch_is_behind_the_hole",
        "the positions of a hole would time out, and hold the commit up until then",
    ),
    Mutant(
        "what-is-empty-is-not-pending",
        "spout/planner/batches.py",
        "pending[one.input.id] += self._tenure.window.records_of(source)",
        "pending[one.input.id] += self._tenure.window.pending_of(source)",
        "tests/unit/spout/planner/test_holes_planning.py"
        "::test_a_hole_that_has_no_verdict_yet_takes_none_of_it_either",
        "a hole would keep records waiting that there is room for",
    ),
    Mutant(
        "a-source-without-records-leaves-its-share",
        "spout/planning/intake.py",
        "        self._share_out()\n        return sum(",
        "        return sum(",
        "tests/unit/spout/planner/test_holes_planning.py"
        "::test_a_partition_that_is_all_hole_leaves_its_share_to_the_others",
        "a partition that is a hole would keep half of each batch empty",
    ),
    Mutant(
        "an-empty-end-is-passed",
        "spout/planning/intake.py",
        "share if supply.count else 1,",
        "share,",
        "tests/unit/spout/planner/test_holes_planning.py::test_a_topic_that_is_empty_to_its_end_is_passed",
        "a query that shall end would wait for ever before a hole at the end of its topic",
    ),
    Mutant(
        "what-has-not-come-through-a-hole-waits",
        "spout/planner/scout.py",
        "return [place for place in unknown if 0 < self._views[place].misses <= PATIENCE]",
        "return []",
        "tests/unit/spout/planner/test_scout.py"
        "::test_it_waits_for_what_comes_behind_a_hole_and_then_others_go_on",
        "a long hole would be planned one for one while a reader is on its way through it",
    ),
    Mutant(
        "a-look-is-no-condition",
        "spout/planner/scout.py",
        "return [place for place in unknown if 0 < self._views[place].misses <= PATIENCE]",
        "return [place for place in unknown if self._views[place].misses]",
        "tests/unit/spout/planner/test_scout.py"
        "::test_its_patience_ends_and_what_it_learns_later_counts_all_the_same",
        "a partition that sends nothing would be planned never, and no task would say what is wrong",
    ),
    Mutant(
        "a-partition-in-trouble-is-looked-at-no-more",
        "spout/planner/scout.py",
        "                view.is_over = True\n            return 1",
        "                raise\n            return 1",
        "tests/unit/spout/planner/test_scout.py"
        "::test_a_partition_that_cannot_be_read_is_looked_at_no_more_and_others_are",
        "one damaged partition would end the looks at all others",
    ),
    Mutant(
        "a-part-of-a-batch-stays-for-new-records",
        "spout/planning/intake.py",
        "kept = min(sum(new.values()), share.of(room)) if copies and new else 0",
        "kept = 0",
        "tests/unit/spout/planner/test_holes_planning.py::test_a_quarter_of_a_batch_stays_for_new_records",
        "records that always fail would keep all new ones waiting",
    ),
    Mutant(
        "what-is-owed-to-new-records-adds-up",
        "spout/planning/intake.py",
        "self._owed = min(max(0, owed), NEW_SHARE - 1)",
        "self._owed = 0",
        "tests/unit/spout/planner/test_holes_planning.py"
        "::test_in_the_long_run_new_records_have_a_quarter_of_the_smallest_batches",
        "with batches of one record copies would take every one",
    ),
    Mutant(
        "what-left-the-log-takes-no-room",
        "spout/planner/batches.py",
        "readable[run.source] = [PositionRun(*part) for part in left]",
        "pass",
        "tests/unit/spout/planner/test_holes_planning.py::test_what_left_the_log_takes_no_part_of_a_batch",
        "records that are gone would fill batches, and be reported twice",
    ),
    Mutant(
        "what-spark-did-not-journal-is-planned-again",
        "spout/planner/batches.py",
        "if self._last is not None and start == self._last[0]:\n            return self._last[1]",
        "if False:\n            return self._last[1]",
        "tests/unit/spout/planner/test_planner.py"
        "::test_asking_again_before_spark_journalled_gives_the_same_batch",
        "records of a batch that Spark asked for twice would never be emitted",
    ),
    Mutant(
        "a-batch-ends-within-a-quarter-of-the-timeout",
        "spout/planning/pace.py",
        "(count, took_ms), target_ms = points[-1], self._timeout_ms / TIMEOUT_SHARE",
        "(count, took_ms), target_ms = points[-1], self._timeout_ms * TIMEOUT_SHARE",
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
        "a-message-that-is-gone-changes-nothing",
        "spout/planner/mailbox.py",
        "        return self._state\n\n    def _write(",
        "        return DriverState() if text is None else self._state\n\n    def _write(",
        "tests/unit/spout/planner/test_mailbox.py"
        "::test_what_a_cleaner_removes_changes_nothing_that_was_read_before",
        "a paused topology would emit when a cleaner removes temporary files",
    ),
    Mutant(
        "the-driver-writes-again-what-is-gone",
        "spout/planner/mailbox.py",
        "                if not path.exists():\n                    self._put(path, text)",
        "                pass",
        "tests/unit/spout/planner/test_mailbox.py::test_the_driver_writes_again_what_a_cleaner_has_removed",
        "a query would end, since nobody has read that its batch is published",
    ),
    Mutant(
        "what-its-sink-owes-is-not-passed-over",
        "spout/planner/mailbox.py",
        "if self._owed is None or start != self._owed:\n            return False",
        "return False",
        "tests/unit/spout/planner/test_mailbox.py::test_a_batch_is_owed_until_its_sink_has_published_it",
        "a stream that is written past spout.sink would time out for ever, without an error",
    ),
    # -- the session's clock and its acks
    Mutant(
        "a-step-of-the-clock-is-a-second",
        "spout/planning/session.py",
        "self.now = min(self.now + step_ms, self._sent + STEP_MS_MAX)",
        "self.now = self.now + step_ms",
        "tests/unit/spout/planning/test_session.py"
        "::test_all_looks_since_the_last_tick_together_add_at_most_a_second",
        "half a second of readings before a sleep would add up, and records would time out early or late",
    ),
    Mutant(
        "the-clock-never-goes-back",
        "spout/planning/session.py",
        "step_ms = min(STEP_MS_MAX, max(0, wall_ms - self._looked_ms))",
        "step_ms = min(STEP_MS_MAX, wall_ms - self._looked_ms)",
        "tests/unit/spout/planning/test_session.py::test_the_clock_never_falls_and_is_never_fast",
        "a step of the machine's clock would put deadlines off",
    ),
    Mutant(
        "an-answer-names-all-sources",
        "spout/planning/session.py",
        "        if not taken.refused and not self._sources <= named:\n            return False\n",
        "",
        "tests/unit/spout/planning/test_session.py"
        "::test_answers_to_others_and_to_an_earlier_take_do_not_count",
        "a session would begin with the watermarks of fewer sources, and emit records twice",
    ),
    Mutant(
        "a-session-is-silent-before-it-counts-as-gone",
        "spout/group/presence.py",
        "return max(0, max(last) + SILENT_MS_MAX - self._now_ms)",
        "return 0",
        "tests/unit/spout/group/test_presence.py"
        "::test_a_group_whose_holder_died_is_taken_once_he_was_silent_for_the_limit_and_says_so",
        "a second query of a group would take it from one that runs",
    ),
    Mutant(
        "signs-that-were-not-sent-yet-are-waited-for",
        "spout/group/presence.py",
        "if name.epoch and not self._has_read:",
        "if False:",
        "tests/unit/spout/group/test_presence.py"
        "::test_a_holder_whose_signs_the_broker_does_not_send_is_waited_for",
        "a second query of a group would take it from one that runs while a broker is silent",
    ),
    Mutant(
        "who-waits-for-records-has-not-left",
        "spout/planner/planner.py",
        "        self._has_left = False\n        read_to = ",
        "        read_to = ",
        "tests/unit/spout/group/test_presence.py"
        "::test_a_topology_that_is_resumed_and_finds_no_records_lives_again",
        "a second query of a group would take it from a topology that was paused and resumed",
    ),
    Mutant(
        "the-process-before-gets-its-whole-timeout",
        "spout/group/tenure.py",
        "return 0 if self.sibling is None else self.sibling.grace_ms(now_ms)",
        "return 0",
        "tests/unit/spout/planner/test_planner.py"
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
        "        elif (packed := _packed(batch)) is not None:\n            keys = packed.astype(np.uint64)\n",
        "        elif (packed := _packed(batch)) is not None:\n"
        "            keys = np.arange(first, first + len(packed)).astype(np.uint64)\n",
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
        "if load.tasks.max() >= self.tasks:",
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
        "two-sinks-write-one-file",
        "spout/planner/mailbox.py",
        "{os.getpid()}.{threading.get_ident()}",
        "{os.getpid()}",
        "tests/unit/spout/planner/test_mailbox.py"
        "::test_the_sinks_of_two_queries_write_the_number_of_cores_at_once",
        "of two queries that note a new executor at once one would fail",
    ),
    Mutant(
        "a-query-does-not-end-before-a-copy-that-is-being-written",
        "spout/planner/batches.py",
        "self._ends(sources, self._log, Bound.END) if replay else self._readable(sources)",
        "self._readable(sources)",
        "tests/unit/spout/planner/test_planner.py"
        "::test_a_query_that_ends_when_all_is_done_waits_for_a_copy_that_is_being_written",
        "a query with the trigger availableNow would end with a record undone",
    ),
    # -- order
    Mutant(
        "a-batch-behind-a-failure-is-small",
        "spout/planning/order.py",
        "math.inf if not lost else max",
        "math.inf if lost else max",
        "tests/unit/spout/planner/test_order_planning.py"
        "::test_batches_grow_while_little_is_lost_and_are_small_behind_much_that_was",
        "each failure would hold back, copy and read again up to max_held records",
    ),
    Mutant(
        "a-record-behind-one-that-waits-is-held",
        "spout/planning/order.py",
        "for stops in (self._line_up.waiting, self.failed):",
        "for stops in (self.failed,):",
        "tests/unit/spout/planning/test_order.py"
        "::test_a_gate_holds_what_stands_behind_what_waits_or_failed_here",
        "a record would overtake an earlier one of its key that waits for its replay",
    ),
    Mutant(
        "a-record-behind-one-that-failed-is-held",
        "spout/planning/order.py",
        "for stops in (self._line_up.waiting, self.failed):",
        "for stops in (self._line_up.waiting,):",
        "tests/unit/spout/planning/test_order.py"
        "::test_a_gate_holds_what_stands_behind_what_waits_or_failed_here",
        "a record would overtake an earlier one of its key that failed in the same batch",
    ),
    Mutant(
        "what-ran-behind-a-late-failure-runs-again",
        "spout/planning/order.py",
        "[heads < rows[:, 2]]",
        "[heads > rows[:, 2]]",
        "tests/unit/spout/planning/test_order.py"
        "::test_behind_a_failure_that_no_task_saw_stands_the_rest_of_its_line",
        "where a batch bolt fails a record, later ones of its key would be acked before it",
    ),
    Mutant(
        "an-ordered-partition-waits-for-pending-roots",
        "spout/planner/order_watch.py",
        'return f"{UNKNOWN}{pending:,} roots are pending" if pending else ""',
        'return ""',
        "tests/unit/spout/planner/test_order_planning.py"
        "::test_nothing_of_a_partition_is_planned_while_something_of_it_is_under_way",
        "later records would be read while an earlier one may still fail",
    ),
    Mutant(
        "an-ordered-partition-waits-for-the-replay-worker",
        "spout/planner/order_watch.py",
        "if (behind := self._not_taken_over(source))",
        "if (behind := self._not_taken_over(source)) and False",
        "tests/unit/spout/planner/test_order_planning.py"
        "::test_what_was_lost_is_waited_for_until_a_replay_worker_has_taken_it_over",
        "a lost record would be overtaken before anybody knows that it waits",
    ),
    Mutant(
        "what-was-lost-is-read-before-its-partition-goes-on",
        "spout/planner/order_watch.py",
        "return any(lost) or bool(due.waiting_of(source))",
        "return bool(due.waiting_of(source))",
        "tests/unit/spout/planner/test_order_planning.py"
        "::test_what_is_being_written_to_ack_due_is_waited_for_once_something_was_lost",
        "later records would pass one that was lost, while a replay worker takes it over",
    ),
    Mutant(
        "what-waits-of-a-process-before-is-read-first",
        "spout/planner/order_watch.py",
        "if not self._was_read or self._may_wait(each, self._due)",
        "if self._may_wait(each, self._due)",
        "tests/unit/spout/planner/test_order_planning.py::test_ack_due_is_read_to_its_end_before_the_first_batch",
        "a query that starts again would pass records that wait since before",
    ),
    Mutant(
        "a-range-that-is-read-keeps-no-other-one-waiting",
        "spout/streaming/consume.py",
        "if left and (whole := fetched - left.keys()):",
        "if not left and (whole := fetched - left.keys()):",
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_a_partition_that_is_read_to_its_end_keeps_no_other_one_waiting",
        "a batch of a thousand records would first read all that one partition has",
    ),
    Mutant(
        "what-goes-on-to-other-tasks-has-its-lines-with-it",
        "spout/streaming/read_task.py",
        "narrow is not None and narrow.stage.carry is Carry.NONE",
        "narrow is not None",
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_lines_are_told_where_a_record_failed_and_of_all_that_goes_on_to_other_tasks",
        "what ran behind a record that fails behind a shuffle would be acked before it",
    ),
    Mutant(
        "an-evaluation-that-failed-a-record-has-its-lines-with-it",
        "spout/publishing/settle.py",
        "for report in every for each in report.lined",
        "for report in newest for each in report.lined",
        "tests/unit/spout/planning/test_order.py"
        "::test_what_stands_behind_a_record_that_an_earlier_evaluation_failed_is_held_too",
        "later records would be acked before one that failed when the batch was evaluated before",
    ),
    Mutant(
        "what-a-published-batch-did-not-ack-waits",
        "spout/planner/order_watch.py",
        "self._not_acked.setdefault(source, {})[each.source, each.position] = each",
        "pass",
        "tests/unit/spout/planner/test_order_planning.py"
        "::test_by_partition_a_published_batch_without_failures_is_followed_before_its_verdicts",
        "later records would pass one that failed, until the replay worker has taken it over",
    ),
    Mutant(
        "the-commit-log-answers-where-no-progress-is-remembered",
        "spout/sinks/follower.py",
        "last = planned if self._batches.is_committed(planned) else planned - 1",
        "last = planned - 1",
        "tests/unit/spout/sinks/test_follower.py"
        "::test_the_commit_log_answers_where_spark_remembers_no_progress",
        "the last batch of a query would not be published, and its records would be written again",
    ),
    Mutant(
        "a-batch-is-published-when-it-is-committed",
        "spout/sinks/follower.py",
        "last = planned if self._batches.is_committed(planned) else planned - 1",
        "last = planned",
        "tests/unit/spout/sinks/test_follower.py"
        "::test_batches_that_end_between_two_looks_are_all_found_in_their_order",
        "records would be acked whose rows are not written yet, and a crash would lose them",
    ),
    Mutant(
        "a-batch-whose-roots-may-have-timed-out-is-waited-for",
        "spout/planner/order_watch.py",
        "if is_late or self._plans_old:",
        "if self._plans_old:",
        "tests/unit/spout/planner/test_order_planning.py"
        "::test_a_batch_that_was_published_when_its_roots_may_have_timed_out_is_waited_for",
        "later records would pass one that times out though its ack is durable",
    ),
    Mutant(
        "a-batch-that-another-process-may-have-initialised-is-waited-for",
        "spout/planner/order_watch.py",
        "bool(planned) or self._tenure.sibling is not None",
        "bool(planned)",
        "tests/unit/spout/planner/test_order_planning.py"
        "::test_a_batch_that_another_process_may_have_initialised_earlier_is_waited_for",
        "later records would pass one that timed out by the clock of a process that was replaced",
    ),
    Mutant(
        "what-waits-with-its-partition-is-not-journalled",
        "spout/group/tenure.py",
        "gaps.add(start, end)",
        "pass",
        "tests/unit/spout/planner/test_order_planning.py"
        "::test_what_a_process_before_has_initialised_waits_through_a_restart_with_its_partition",
        "no restart would ever read it: it would time out unread, or be pending for ever",
    ),
    Mutant(
        "the-batch-of-a-process-before-is-waited-for",
        "spout/planner/planner.py",
        "if owned.order is not None and owned.batches.is_last(end):",
        "if owned.order is not None:",
        "tests/unit/spout/planner/test_order_planning.py"
        "::test_nothing_of_the_batch_of_a_process_before_is_passed_though_it_was_published",
        "later records would pass a batch that two processes may have published differently",
    ),
    Mutant(
        "a-copy-without-room-blocks-its-line",
        "spout/planning/order.py",
        "            if line is not None and origin is not None:  # new ones of its line may not pass\n"
        "                self._has_failed(line, origin)\n",
        "",
        "tests/unit/spout/planning/test_order.py"
        "::test_a_new_record_passes_copies_without_room_unless_one_is_of_its_line",
        "a new record would go to the bolts before a copy of its key, and fail only when the batch ends",
    ),
    Mutant(
        "empty-positions-are-no-copies",
        "spout/planner/order_watch.py",
        "unread = self._sight.supply(copies_source(spec.source), free).count",
        "pass",
        "tests/unit/spout/planner/test_order_planning.py"
        "::test_a_hole_among_the_copies_holds_up_no_other_key_while_a_record_waits",
        "aborted copies would keep a partition waiting for the slowest record",
    ),
    # -- fingerprints, duplicates, attempts
    Mutant(
        "of-a-repeated-partition-the-newest-attempt-counts",
        "spout/publishing/settle.py",
        "newest[key] = max(each.attempt, newest.get(key, 0))",
        "newest[key] = min(each.attempt, newest.get(key, each.attempt))",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_of_a_partition_behind_a_shuffle_that_was_repeated_the_newest_attempt_says_what_is_open",
        "of a task that was repeated and failed tuples this time, all would be acked",
    ),
    Mutant(
        "of-a-repeated-read-the-newest-attempt-counts",
        "spout/publishing/settle.py",
        "for each in sorted(evaluations, key=lambda each: each.attempt):",
        "for each in sorted(evaluations, key=lambda each: -each.attempt):",
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
        "        and united(shares) == united(plan.ranges)\n",
        "",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_as_many_positions_as_planned_are_not_yet_those_that_were_planned",
        "records that no task read would be acked",
    ),
    Mutant(
        "what-was-emitted-was-received",
        "spout/publishing/settle.py",
        "if _sum(report.took for report in stages[stage]) in gave",
        "if _sum(report.took for report in stages[stage]).rows in {each.rows for each in gave}",
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
        "            found *= np.uint64(PATH_WEIGHT)\n",
        "",
        "tests/property/test_places.py::test_rows_that_exchanged_their_ordinals_have_another_fingerprint",
        "rows that were exchanged for others of the same roots could go unnoticed",
    ),
    Mutant(
        "a-root-is-received-once",
        "spout/publishing/settle.py",
        "if (here & report.received).any():",
        "if False:",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_a_root_that_two_first_bolts_receive_fails_the_batch_by_name",
        "behind an explode a record would be acked with its first row",
    ),
    Mutant(
        "a-failure-in-any-evaluation-counts",
        "spout/publishing/settle.py",
        "failures = [cause for report in every for cause in report.failures]",
        "failures = [cause for report in newest for cause in report.failures]",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_the_newest_complete_evaluation_counts_and_a_failure_in_any_one_does",
        "a record that failed where the sink got its rows could be acked",
    ),
    Mutant(
        "what-another-evaluation-left-open-is-not-acked",
        "spout/publishing/settle.py",
        "roots, sums = residuals(plan, [each_once])",
        "roots, sums = residuals(plan, [])",
        "tests/unit/spout/publishing/test_fold.py::test_what_any_run_of_a_read_task_left_open_is_not_acked",
        "a record that was left open where the sink got its rows could be acked",
    ),
    Mutant(
        "what-two-other-evaluations-left-open-does-not-cancel",
        "spout/publishing/settle.py",
        "np.unique(np.concatenate(rows), axis=0)",
        "np.concatenate(rows)",
        "tests/unit/spout/publishing/test_fold.py::test_what_any_run_of_a_read_task_left_open_is_not_acked",
        "a record that two runs left open would be acked by the third",
    ),
    Mutant(
        "a-stage-is-evaluated-to-its-end",
        "spout/publishing/settle.py",
        "complete = [stages[stage] for stage in newest if tasks_of(stage) in (None, len(stages[stage]))]",
        "complete = [stages[stage] for stage in newest]",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_a_bolt_behind_sparks_operators_must_have_finished_its_stage",
        "a sink that takes one row would ack the whole batch",
    ),
    Mutant(
        "two-operators-of-one-name-are-refused",
        "spout/publishing/settle.py",
        "if len(ways) > 1:",
        "if len(ways) > 2:",
        "tests/unit/spout/publishing/test_fold.py"
        "::test_an_operator_behind_sparks_that_is_called_as_another_one_fails_the_batch_by_name",
        "what one of them left open would be acked",
    ),
    # -- publishing
    Mutant(
        "a-failed-root-is-not-acked",
        "spout/publishing/publish.py",
        "taken = np.concatenate([_NO_POSITIONS, *failed])\n    at, value",
        "taken = _NO_POSITIONS\n    at, value",
        "tests/unit/spout/publishing/test_publish.py::test_failed_roots_are_left_out_of_the_acks",
        "a failed record would be acked where its fail comes late",
    ),
    Mutant(
        "fails-are-durable-before-acks",
        "spout/publishing/publish.py",
        "        if publication.fails:\n            producer.flush(self._durable_ms)\n",
        "",
        "tests/unit/spout/publishing/test_publish.py::test_no_ack_is_sent_before_the_fails_are_durable",
        "a crash between the two would ack half of a tree that failed",
    ),
    Mutant(
        "a-batch-that-the-sink-skipped-fails",
        "spout/publishing/publish.py",
        "left[first : first + end - start] = False",
        "left[first:] = False",
        "tests/unit/spout/publishing/test_publish.py"
        "::test_a_skipped_batch_fails_what_has_a_record_and_nothing_else",
        "records behind a hole of a skipped batch would be acked without their rows",
    ),
    Mutant(
        "a-row-that-is-left-open-acks-no-anchor",
        "spout/held/holding.py",
        "acked = ~(touched | opened | ",
        "acked = ~(touched | ",
        "tests/unit/spout/held/test_holding.py::test_a_row_that_its_bolt_leaves_open_acks_no_anchor",
        "what an ArrowBolt behind an aggregate leaves open would be acked",
    ),
    Mutant(
        "an-anchor-that-one-row-leaves-open-is-not-acked-by-another",
        "spout/publishing/delayed.py",
        "done = ~np.isin(edges, left_open)",
        "done = np.isin(edges, edges)",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_a_tuple_of_which_one_row_is_left_open_is_acked_by_no_other_row",
        "a tuple of a join would be acked although a bolt is not done with one of its rows",
    ),
    Mutant(
        "a-held-tuple-is-outstanding",
        "spout/publishing/settle.py",
        "partial, residual = residuals(plan, (r.outstanding for r in newest), [*kept_on, *released.edges])",
        "partial, residual = residuals(plan, (r.outstanding for r in newest), [*released.edges])",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_a_held_root_is_open_until_every_tuple_of_it_was_released",
        "a record that waits in a window would be acked before the window is written",
    ),
    Mutant(
        "an-anchor-of-several-rows-is-acked-once",
        "spout/publishing/delayed.py",
        "if len(distinct(edges.view(np.int64))) == len(edges):  # what aggregates write, and most joins",
        "if True:",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_a_tuple_that_stands_in_several_rows_of_a_batch_is_acked_once",
        "a tuple that matches twice in a join would never be acked",
    ),
    Mutant(
        "held-rows-of-one-tuple-have-edges-of-their-own",
        "spout/publishing/delayed.py",
        "return child_edges(edges, entry.subscription, entry.first + np.arange(len(edges)))",
        "return edges",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_rows_that_sparks_operators_made_of_one_tuple_have_edges_of_their_own",
        "two rows of one tuple in a window would cancel, and the tuple be acked at once",
    ),
    Mutant(
        "a-late-tuple-fails-where-it-shall",
        "spout/publishing/settle.py",
        "if r.held.fails_late",
        "if not r.held.fails_late",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_a_watermark_decides_what_is_late_and_the_policy_what_becomes_of_it",
        "records that a watermark drops would be acked although they shall fail",
    ),
    Mutant(
        "what-a-hold-knows-is-no-unknown-row",
        "spout/publishing/watermarks.py",
        "return max(0, self.rows - held)",
        "return max(0, self.rows)",
        "tests/unit/spout/publishing/test_watermarks.py::test_rows_that_a_hold_knows_are_not_counted_twice",
        "each record that was too late for a hold would be counted twice",
    ),
    Mutant(
        "a-record-that-was-too-late-is-not-done",
        "spout/inspect/diagnosis.py",
        "if last.is_late:",
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
        "ordinals = tuple([anchor.bear(key) for key in self._keys[stream] for anchor in distinct])",
        "ordinals = tuple([anchor.bear(key) for key in self._keys[stream] for anchor in distinct[:1]])",
        "tests/unit/spout/execution/test_multi_anchor.py"
        "::test_its_ack_completes_both_roots_and_its_failure_fails_both",
        "of a tuple with two anchors the second record would be acked without it",
    ),
    Mutant(
        "a-tuple-is-delivered-under-each-of-its-anchors",
        "spout/bolts/collectors.py",
        "for anchor, ordinal in zip(self.anchors, self.ordinals[first:], strict=False)",
        "for anchor, ordinal in zip(self.anchors[:1], self.ordinals[first:], strict=False)",
        "tests/unit/spout/tuples/test_tuple.py::test_an_emission_is_anchored_on_every_distinct_anchor_once",
        "a failure behind a join would replay one of two records",
    ),
    Mutant(
        "siblings-have-ordinals-of-their-own",
        "spout/tuples/tuple.py",
        "self._born[subscription] = ordinal + 1",
        "self._born[subscription] = 0",
        "tests/unit/spout/tuples/test_tuple.py::test_ordinals_count_the_deliveries_of_their_parent",
        "two tuples emitted on one would cancel, and nobody would wait for them",
    ),
    Mutant(
        "a-failed-tuple-fails-each-of-its-roots",
        "spout/bolts/collectors.py",
        "self.failures.extend((delivery.root, named) for delivery in received.deliveries)",
        "self.failures.extend((delivery.root, named) for delivery in received.deliveries[:1])",
        "tests/unit/spout/tuples/test_tuple.py::test_failing_fails_every_root_that_the_tuple_descends_from",
        "of a joined tuple that fails one record would time out instead",
    ),
    Mutant(
        "a-tuple-is-settled-once",
        "spout/bolts/collectors.py",
        "if received in self.open:",
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
        "spout/execution/bolt_work.py",
        "del self.collector.sent[before:]\n            causes",
        "self.collector.sent.clear()\n            causes",
        "tests/unit/spout/execution/test_misbehaving_bolts.py"
        "::test_watched_a_batch_that_fails_takes_nothing_back_of_the_one_before_it",
        "records would be acked, and what their bolt emitted on them would be gone",
    ),
    Mutant(
        "rows-that-spark-repeats-have-edges-of-their-own",
        "spout/execution/stage_run.py",
        "return self._distinguished(places, frame.entry, first) if frame.entry else places",
        "return places",
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
        "spout/execution/bolt_work.py",
        "invoke(self.name, hook.emit, EmitInfo(sent.values, sent.stream, self._deliveries[sent.stream]))",
        "pass",
        "tests/unit/spout/execution/test_watching.py"
        "::test_hooks_see_a_basic_bolts_tuples_in_the_order_in_which_things_happen",
        "a hook would not see what its bolt emits",
    ),
    Mutant(
        "a-hook-sees-fails",
        "spout/execution/bolt_work.py",
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
        "spout/isolation/inquest.py",
        "if culprits > CULPRITS_MAX:",
        "if False:",
        "tests/unit/spout/isolation/test_isolation.py"
        "::test_a_bolt_that_dies_on_everything_ends_its_task_by_name",
        "a bolt that kills its process with every record would make dead letters of all of them",
    ),
    # -- what operators read
    Mutant(
        "lag-is-unknown-without-what-waits",
        "spout/inspect/readings.py",
        "lag=joined(_lag, ends.start, ends.end, ends.copies_end, emitted_to, copies, pending, due),",
        "lag=joined(_lag, ends.start, ends.end, ends.copies_end, emitted_to, copies, pending, Reading(0)),",
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
        "loss.root == last.place and lost_ms in (None, loss.emitted_ms) for",
        "loss.root == last.place for",
        "tests/unit/spout/inspect/test_diagnosis.py"
        "::test_what_a_rewind_emits_again_is_no_dead_letter_before_it_dies_again",
        "the letter of an earlier generation would be replayed beside the record that waits for its replay",
    ),
    Mutant(
        "a-value-of-several-is-unknown-where-one-is",
        "spout/inspect/readings.py",
        "if each.unknown:\n            return Reading(unknown=each.unknown)",
        "if each.unknown and each.value is not None:\n            return Reading(unknown=each.unknown)",
        "tests/unit/spout/inspect/test_overview.py"
        "::test_the_lag_is_unknown_while_it_is_unknown_how_many_replays_wait",
        "the status would show a number that nobody counted",
    ),
    Mutant(
        "what-no-worker-has-taken-over-waits-as-well",
        "spout/inspect/waiting_roots.py",
        "Counter(each.place for each in self._all()),",
        "Counter(each.place for each in self._waiting.values()),",
        "tests/unit/spout/inspect/test_overview.py"
        "::test_a_lost_root_is_counted_where_it_waits_as_a_copy_and_as_a_dead_letter",
        "with the replay workers down, lost records would be shown nowhere",
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
        'return self.watch if parse_location(place) is None else f"windhover inspect {place}"',
        'return f"windhover inspect {place}" if "@" in place else self.watch',
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
        'return is_message or unicodedata.is_normalized("NFC", tail + character)',
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
        "readable(self._values.hide(record.getMessage()))",
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
        'return MirrorAddress(plain.geturl(), unquote(parts.username), unquote(parts.password or ""))',
        "return MirrorAddress(text)",
        "tests/unit/spout/test_planted_secrets.py"
        "::test_the_address_of_a_mirror_is_shown_without_its_password",
        "its password would be in the error of a mirror that is away",
    ),
    Mutant(
        "a-trace-has-no-secret",
        "acker/untrusted.py",
        'text = cut(entry).rstrip("\\n")',
        'text = entry.rstrip("\\n")',
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
        "behind = min(behind, each.answer.began_ms - each.sent_ms)",
        "pass",
        "tests/unit/spout/doctor/test_executors.py::test_an_executor_whose_clock_differs_fails",
        "an executor with a slow clock would pass",
    ),
    # -- what bolts emit: no value is bent
    Mutant(
        "a-fraction-is-no-whole-number",
        "spout/tuples/exact.py",
        "is_whole = bool(whole == value)",
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
        "if isfinite(kept[row]):",
        "if False:",
        "tests/unit/spout/tuples/test_exact.py::test_a_value_that_would_lose_something_fails_alone",
        "1e300 would be infinite in a float",
    ),
    Mutant(
        "a-map-has-a-key-once",
        "spout/tuples/exact.py",
        "if key in seen:",
        "if False:",
        "tests/unit/spout/tuples/test_exact.py::test_a_value_that_would_lose_something_fails_alone",
        "of two values of a key Spark would keep one",
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
        "elif _loses_in_silence(have, kind):",
        "elif False:",
        "tests/unit/spout/tuples/test_casts.py::test_a_column_that_would_lose_something_is_refused",
        "a column of times would become dates, and 2 would be true",
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
        "if (have.tz is None) is (kind.tz is None):",
        "if True:",
        "tests/unit/spout/tuples/test_casts.py::test_a_column_and_rows_mean_the_same_local_time",
        "an Arrow bolt's times would be five hours off in New York",
    ),
    Mutant(
        "columns-of-2038-have-a-summer",
        "spout/tuples/casts.py",
        '_ARROW_KNOWS[0] <= bounds["min"] <= bounds["max"] < _ARROW_KNOWS[1]',
        '_ARROW_KNOWS[0] <= bounds["min"]',
        "tests/unit/spout/tuples/test_casts.py::test_a_column_and_rows_mean_the_same_local_time",
        "from 2038 on columns and rows would differ by an hour each summer",
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
        "spout/held/keyed_times.py",
        "at = at.astimezone(zone_of(self._zone))",
        "pass",
        "tests/unit/spout/held/test_keyed_times.py::test_the_clock_shows_local_time",
        "the days of a keyed bolt would begin at midnight in UTC",
    ),
    Mutant(
        "a-key-has-the-time-of-its-tuples",
        "spout/held/keyed_rows.py",
        "held[0].values.get(name, times.localize(part)) if is_timed else part",
        "times.localize(part) if is_timed else part",
        "tests/unit/spout/held/test_keyed_times.py::test_a_key_has_the_exact_time_of_its_tuples",
        "the second of two equal hours of autumn would be the first",
    ),
    Mutant(
        "times-of-an-older-state-get-the-zone",
        "spout/held/keyed_rows.py",
        "return held.values if times is None else times.read_kept(held.values)",
        "return held.values",
        "tests/unit/spout/held/test_keyed_times.py::test_what_a_state_of_before_holds_is_local_time",
        "after the update to this version a comparison of two held times would raise",
    ),
    Mutant(
        "a-time-that-cannot-be-read-fails-alone",
        "spout/held/keyed_rows.py",
        "unreadable.append((received, error))",
        "raise",
        "tests/unit/spout/held/test_keyed_times.py::test_a_tuple_that_cannot_be_read_fails_alone",
        "one record of the year 10000 would end the query at each start",
    ),
    Mutant(
        "a-type-that-is-none-is-refused-at-once",
        "spout/bolts/ddl.py",
        "if _KIND.fullmatch(first) is None:",
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
        "if self.new.count < count:",
        "if lacks and self.new.count < count:",
        "tests/unit/spout/standalone/test_kestrel_holes.py"
        "::test_thousands_of_copies_that_were_fetched_keep_no_new_record_waiting",
        "copies that were fetched first would keep new records from being read",
    ),
    Mutant(
        "a-client-gets-a-quarter-of-new-records",
        "spout/standalone/service.py",
        "kept = min(share.of(room), ahead.new.count) if competes else 0",
        "kept = 0",
        "tests/unit/spout/standalone/test_kestrel_holes.py"
        "::test_copies_that_never_end_leave_a_quarter_to_new_records",
        "copies that fail again and again would be all that clients get",
    ),
    Mutant(
        "a-client-learns-of-a-fork",
        "spout/standalone/client.py",
        "self._lock = self._guard = Behind(",
        "_ = Behind(",
        "tests/unit/spout/standalone/test_forked_spouts.py::test_each_call_in_a_forked_child_says_what_to_do",
        "a forked worker would confirm records of which nobody ever hears",
    ),
    Mutant(
        "a-spout-learns-of-a-fork",
        "spout/standalone/engine.py",
        "self.lock = self.guard = self._requested = self._work = self.behind",
        "_ = self.behind",
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
        "if store.settle(client, lease, what.serial):\n                self.publication",
        "if store.settle(client, lease, what.serial) or True:\n                self.publication",
        "tests/unit/spout/standalone/test_kafka_spout.py::test_the_first_word_on_an_item_counts",
        "an item that timed out would be acked by a late client",
    ),
    Mutant(
        "to-close-tells-of-what-was-not-published",
        "spout/standalone/engine.py",
        "if self._error is not None and not self._is_raised:",
        "if False:",
        "tests/unit/spout/standalone/test_kestrel_engine.py"
        "::test_to_close_raises_an_error_that_no_call_has_raised",
        "a program would end as if all that it confirmed were done",
    ),
    Mutant(
        "a-client-that-leaves-puts-its-items-back",
        "spout/standalone/queues.py",
        "return sum(queue.store.leave(client) for queue in self.by_name.values())",
        "return 0",
        "tests/unit/spout/standalone/test_kafka_spout.py"
        "::test_what_a_client_had_open_others_get_when_it_is_closed_or_forgotten",
        "items of a client that died would wait for their timeout",
    ),
    Mutant(
        "what-was-initialised-before-is-not-read",
        "spout/standalone/read_ahead.py",
        "                    buffer.end = buffer.begin\n",
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
        "if lives and times_ms else None",
        "if times_ms else None",
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
        "isinstance(only, TraceHook) and only.only_traces:",
        "isinstance(only, TraceHook):",
        "tests/unit/spout/runtime/test_tracing.py::test_a_hook_that_is_derived_sees_what_it_asks_for",
        "a user's own hook would silently see nothing",
    ),
    Mutant(
        "a-trace-comes-with-acks-of-nothing",
        "spout/publishing/publish.py",
        "for notes in (traces, too_late))",
        "for notes in (too_late,))",
        "tests/unit/spout/runtime/test_tracing.py"
        "::test_the_span_of_a_record_that_was_held_comes_with_the_batch_that_acks_it",
        "records that a window holds at once would have no span",
    ),
    Mutant(
        "a-trace-that-is-reported-is-sampled",
        "spout/runtime/tracing.py",
        "if flags and int(flags, 16) & 1 else None",
        "if flags else None",
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_sampled_traces_are_reported_where_the_driver_writes_spans_and_nowhere_else",
        "tasks would report every record of a producer that samples one in a thousand",
    ),
    Mutant(
        "a-range-goes-on-behind-an-end-that-comes-too-early",
        "spout/streaming/consume.py",
        "if end is not None and end >= self._end:",
        "if end is not None and (fresh or end >= self._end):",
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_a_range_goes_on_behind_an_end_that_a_replica_reports_too_early",
        "records that a follower or a new leader does not know as committed yet would be settled as absent",
    ),
    Mutant(
        "a-task-that-ends-early-keeps-no-connection",
        "spout/streaming/consume.py",
        "for reader in self._ahead.values():",
        "for reader in ():",
        "tests/unit/spout/streaming/test_read_task.py::test_a_task_that_ends_early_closes_what_it_fetched_ahead",
        "a task whose rows are not all read would leave a consumer in its worker, which goes on fetching",
    ),
    Mutant(
        "ranges-are-not-read-together-for-ever",
        "spout/streaming/consume.py",
        "while left and held < CHUNK_BYTES and time.monotonic() < until_s:",
        "while left:",
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_ranges_are_not_read_together_without_end_where_the_leader_of_one_is_silent",
        "a task would hang where one leader is silent and others send on",
    ),
    Mutant(
        "a-cause-is-forgotten-after-an-hour",
        "spout/inspect/failures.py",
        " if now_ms - each.last_ms < CAUSE_KEPT_MS}",
        "}",
        "tests/unit/spout/ui/test_attention.py"
        "::test_a_cause_is_new_for_fifteen_minutes_and_again_after_an_hour_without_it",
        "causes of last month would leave no room for those of today",
    ),
    Mutant(
        "a-cause-is-new-again-after-an-hour",
        "spout/inspect/failures.py",
        "if was is None or at_ms - was.last_ms >= CAUSE_KEPT_MS:",
        "if was is None:",
        "tests/unit/spout/ui/test_attention.py"
        "::test_a_cause_that_comes_back_after_an_hour_is_new_to_who_reads_both_failures_at_once",
        "a cause that came back after a month would be flagged by nobody",
    ),
    Mutant(
        "a-page-waits-for-a-broker-that-is-away",
        "spout/ui/log_pages.py",
        "        if self._away is not None:\n",
        "        if False:\n",
        "tests/unit/spout/ui/test_log_pages.py"
        "::test_in_an_outage_a_page_answers_by_the_newest_reading_and_asks_nothing",
        "in an outage every tab would wait half a minute for the one before it",
    ),
    Mutant(
        "a-band-is-drawn-record-by-record",
        "spout/ui/strip.py",
        "np.bincount(self._cell_of(offsets)[0], minlength",
        "np.bincount([int(cell) for cell in self._cell_of(offsets)[0]], minlength",
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
        "spout/planner/batches.py",
        "if self._waits(run.source) or run.start >= self._gap_end(run)",
        "if self._waits(run.source)",
        "tests/unit/spout/planner/test_order_planning.py"
        "::test_what_is_free_below_initialised_records_is_emitted_before_them",
        "of a key, later records would be processed before earlier ones",
    ),
    # -- groups that somebody harmed
    Mutant(
        "a-new-session-leaves-a-wrong-clock-behind",
        "spout/group/opening.py",
        "return max(now_ms, before_ms) if is_real else now_ms",
        "return max(now_ms, before_ms)",
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
        "for step in generation_steps(self._named, self._generations.get(partition, {})):",
        "for step in ():",
        "tests/unit/spout/group/test_harmed_groups.py"
        "::test_generations_that_somebody_raised_in_one_acker_partition_are_spread_to_the_others",
        "a stranger could keep a query from its group by some records to one acker partition",
    ),
    Mutant(
        "a-restart-does-not-go-on-with-a-clock-that-ackers-refuse",
        "spout/group/opening.py",
        "elif self._is_restart and self._clock_ms > now_ms + CLOCK_AHEAD_MS_MAX:",
        "elif False:",
        "tests/unit/spout/group/test_harmed_groups.py"
        "::test_a_restart_whose_clock_no_acker_believes_is_told_so_and_goes_on_with_a_new_session",
        "nothing that the query emits would time out, and nobody would say so",
    ),
    # -- what Spark's state holds does not come again while it waits there
    Mutant(
        "what-is-held-has-a-later-deadline",
        "spout/publishing/publish.py",
        "touched_at=plan.now + ahead_ms)",
        "touched_at=plan.now)",
        "tests/unit/spout/planner/test_state_watch.py"
        "::test_what_the_state_holds_outlives_a_quiet_topic_and_what_a_bolt_left_open_does_not",
        "a topic that is quiet for longer than the timeout would be counted twice in its window",
    ),
    Mutant(
        "what-a-bolt-left-open-has-no-later-deadline",
        "spout/publishing/settle.py",
        "    if not any(report.outstanding for report in newest):\n        return partial",
        "    if True:\n        return partial",
        "tests/unit/spout/publishing/test_delayed.py"
        "::test_what_a_bolt_left_open_beside_what_is_held_has_no_later_deadline",
        "a record that a bolt forgot would come again after days",
    ),
    Mutant(
        "a-batch-under-way-keeps-its-roots",
        "spout/planner/state_watch.py",
        "        self._resets.reset(batch.ranges)",
        "        self._resets.reset(())",
        "tests/unit/spout/planner/test_state_watch.py"
        "::test_a_batch_that_runs_for_longer_than_the_timeout_keeps_its_roots_where_the_state_may_hold_them",
        "a slow first batch would be counted twice in its windows",
    ),
    Mutant(
        "a-batch-that-is-run-again-keeps-its-roots",
        "spout/planner/planner.py",
        "again = self._journal if self._runs_again else None",
        "again = None",
        "tests/unit/spout/planner/test_state_watch.py"
        "::test_a_batch_that_is_run_again_keeps_its_roots_from_the_first_tick_on",
        "a batch that a restart runs again would be counted twice in its windows",
    ),
    Mutant(
        "a-query-that-ends-waits-for-what-no-state-holds",
        "spout/planner/state_watch.py",
        "        if self.under_way is not None:\n"
        "            self._add(self.under_way.ranges if held is None else held)",
        "        if self.under_way is not None:\n            self._add(self.under_way.ranges)",
        "tests/unit/spout/planner/test_state_watch.py"
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
        "if too_large := too_large_runs(messages):",
        "if too_large := too_large_runs(messages[:0]):",
        "tests/unit/spout/standalone/test_damaged_spout.py"
        "::test_records_that_are_too_large_are_left_out_alone",
        "a client would get a record that can neither be replayed nor become a dead letter",
    ),
    # -- partitions in trouble
    Mutant(
        "a-log-that-was-cut-is-named",
        "spout/inspect/overview.py",
        "if emitted_to > end_offset:",
        "if emitted_to < 0:",
        "tests/unit/spout/inspect/test_partition_troubles.py"
        "::test_a_log_that_was_cut_is_named_with_what_it_lost",
        "records that an unclean election lost would be missed when the next query begins, days later",
    ),
    Mutant(
        "a-partition-without-an-answer-is-data",
        "spout/inspect/overview.py",
        "self._troubles |= answers.value.troubles",
        "pass",
        "tests/unit/spout/inspect/test_partition_troubles.py::test_it_is_data_in_each_machine_format",
        "a monitor would see unknown values, and no word of the partition",
    ),
    Mutant(
        "a-query-that-only-waits-ends-with-the-name",
        "spout/group/troubles.py",
        "if any(partition.stood_ms >= limit_ms for partition in standing):",
        "if limit_ms < 0:",
        "tests/unit/spout/planner/test_leaderless_sources.py"
        "::test_a_query_that_ends_reads_all_else_and_then_says_what_it_waits_for",
        "a query with availableNow would wait for ever, and say nothing",
    ),
    # -- readers of several partitions
    Mutant(
        "a-verdict-partition-that-stands-is-noticed",
        "spout/planner/verdict_reader.py",
        "for place in self._began}\n        return self._watch",
        "for place in ()}\n        return self._watch",
        "tests/unit/spout/planner/test_leaderless_sources.py"
        "::test_verdicts_of_the_others_are_read_and_the_partition_that_stands_is_told",
        "roots of one acker partition would stay pending, and nobody would say why",
    ),
    Mutant(
        "a-new-generation-ends-a-doubt",
        "spout/standalone/read_ahead.py",
        "        self.doubt = None  # planning",
        "        # planning",
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
        "except SPARK_ERRORS as error:",
        "except ZeroDivisionError as error:",
        "tests/unit/spout/streaming/test_keeper.py"
        "::test_who_asks_is_answered_when_spark_has_run_a_task_or_cannot",
        "a query whose first job fails would emit nothing for ten minutes",
    ),
    Mutant(
        "a-test-of-a-bolt-notices-a-tuple-that-is-left-open",
        "spout/execution/collect.py",
        "if not may_leave_open and (work.collector.open or work.collector.left_open):",
        "if not may_leave_open and work.collector.open:",
        "tests/unit/spout/execution/test_collect.py::test_a_tuple_that_is_left_open_is_noticed",
        "an ArrowBolt that leaves a row open would pass its test, and its record would time out",
    ),
    # -- several ranges, partitions and inputs in one batch
    Mutant(
        "the-first-root-of-a-range-is-of-that-range",
        "spout/publishing/publish.py",
        'np.searchsorted(firsts, indices, side="right") - 1], _positions',
        'np.searchsorted(firsts, indices, side="left") - 1], _positions',
        "tests/unit/spout/publishing/test_several_ranges.py"
        "::test_what_is_not_acked_is_named_by_its_partition_its_position_and_its_line",
        "the first record of a partition would hold back the one before it, and not its own",
    ),
    Mutant(
        "the-first-root-of-a-range-is-held-in-that-range",
        "spout/publishing/publish.py",
        'np.searchsorted(firsts, indices, side="right") - 1], _positions',
        'np.searchsorted(firsts, indices, side="left") - 1], _positions',
        "tests/unit/spout/publishing/test_several_ranges.py"
        "::test_what_the_state_holds_is_named_by_its_partition_and_position",
        "the deadline of another partition's record would be moved",
    ),
    Mutant(
        "a-passed-call-names-the-first-root-of-a-range",
        "spout/publishing/settle.py",
        "number = bisect_right(firsts, root) - 1",
        "number = max(0, bisect_right(firsts, root - 1) - 1)",
        "tests/unit/spout/publishing/test_several_ranges.py::test_each_root_of_an_outcome_is_that_of_the_report",
        "an operator would look at a record of another partition for what hung",
    ),
    Mutant(
        "a-hole-of-a-second-range-is-no-record-of-a-skipped-batch",
        "spout/publishing/publish.py",
        "first = int(plan.index_of(source, np.array([start]))[0])",
        "first = start - plan.ranges[0].start",
        "tests/unit/spout/publishing/test_several_ranges.py"
        "::test_a_skipped_batch_fails_all_but_the_positions_without_a_record",
        "a record would be neither failed nor acked, and time out; a hole would be failed",
    ),
    # -- logs that were cut, and lines, of several partitions
    Mutant(
        "an-empty-partition-is-no-reason-for-a-reader-that-is-out-of-its-log",
        "spout/standalone/read_ahead.py",
        "if at > self._buffers[place].end}",
        "if at >= self._buffers[place].end}",
        "tests/unit/spout/standalone/test_read_ahead.py"
        "::test_a_partition_that_was_cut_is_noticed_whatever_is_beside_it",
        "a log that was cut would be read on without an error, where another partition is empty",
    ),
    Mutant(
        "each-log-that-was-cut-is-found",
        "spout/planner/continuity.py",
        "return Compared(tuple(cuts), older)",
        "return Compared(tuple(cuts[:1]), older)",
        "tests/unit/spout/planner/test_continuity.py::test_each_source_is_judged_by_its_own_leader",
        "with on_data_loss: skip the second log would be read on where the first one was cut",
    ),
    Mutant(
        "one-leader-that-does-not-know-yet-hides-no-other",
        "spout/planner/continuity.py",
        "            if intact is None:\n                older.add(source)",
        "            if intact is None:\n                older.add(source)\n                break",
        "tests/unit/spout/planner/test_continuity.py::test_each_source_is_judged_by_its_own_leader",
        "a log that was cut would not be found while another leader is being elected",
    ),
    Mutant(
        "a-child-has-a-gate-for-each-partition",
        "spout/isolation/isolation.py",
        "self._gates.setdefault(slip.place, ",
        "self._gates.setdefault(slip.operator, ",
        "tests/unit/spout/isolation/test_isolation.py"
        "::test_in_a_child_too_each_partition_has_a_line_of_its_own",
        "a record that fails would hold back the other partitions of its task",
    ),
    Mutant(
        "the-next-child-knows-of-each-line-that-failed",
        "spout/isolation/isolation.py",
        "                    self.gate.fail(root)\n        return worked.batches",
        "                    self.gate.fail(root)\n                    break\n        return worked.batches",
        "tests/unit/spout/isolation/test_isolation.py"
        "::test_each_line_in_which_a_record_failed_is_held_when_its_child_has_died_too",
        "records would pass a failed one of their key when a child has died in between",
    ),
    Mutant(
        "a-read-task-has-a-gate-for-each-partition",
        "spout/streaming/read_task.py",
        '        gate = Gate(f"{ordered.topic}/{partition_of(source)}", ordered.name, line_up)',
        "        gate = next(iter(self._gates), None) or"
        ' Gate(f"{ordered.topic}/{partition_of(source)}", ordered.name, line_up)',
        "tests/unit/spout/streaming/test_read_task.py"
        "::test_a_record_that_fails_holds_back_its_own_partition_alone",
        "a record that fails would hold back the other partitions of its task",
    ),
    # -- two queries, two runs, two sessions
    Mutant(
        "a-query-trims-its-own-reports",
        "spout/publishing/ledger.py",
        "if query == batch[0] and number <= batch[1] - BATCHES_KEPT:",
        "if number <= batch[1] - BATCHES_KEPT:",
        "tests/unit/spout/publishing/test_two_queries.py"
        "::test_a_batch_makes_room_among_those_of_its_own_query",
        "the reports of a query with lower batch numbers would be gone before its batch ends",
    ),
    Mutant(
        "a-query-has-reports-of-its-own",
        "spout/publishing/ledger.py",
        "any(name == query and batch >= since for name, batch in batches)",
        "any(batch >= since for name, batch in batches)",
        "tests/unit/spout/publishing/test_two_queries.py::test_a_batch_has_the_reports_of_its_own_tasks",
        "a follower would ask Spark again and again while another query runs",
    ),
    Mutant(
        "a-run-is-written-by-its-own-plan",
        "spout/sinks/foreach_batch.py",
        "            if lane.name and run not in self._plans:",
        "            run = lane.name\n            if lane.name and run not in self._plans:",
        "tests/unit/spout/sinks/test_two_runs.py::test_a_run_is_written_by_its_own_plan",
        "rows behind a shuffle that is new in a run would be acked unread",
    ),
    Mutant(
        "the-last-run-of-a-stream-takes-its-follower-away",
        "spout/sinks/follower.py",
        "if run.stream.id not in {other.stream.id for other in self._runs.values()}:",
        "if True:",
        "tests/unit/spout/sinks/test_follower.py"
        "::test_of_two_runs_of_a_stream_the_last_to_end_takes_its_follower_away",
        "a query that is started again would end, since nobody seems to publish it",
    ),
    Mutant(
        "runs-of-one-query-are-followed-apart",
        "spout/sinks/follower.py",
        "self._runs[query.runId] = run",
        "self._runs[query.id] = run",
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
        'f"{self.lane.name}/{outcome.plan.session}"',
        'f"{self.lane.name}"',
        "tests/unit/spout/sinks/test_follower.py::test_each_query_and_each_session_has_a_lane_of_its_own",
        "after a reset the batches of a query would count as seen already",
    ),
    Mutant(
        "a-lane-is-of-one-query",
        "spout/sinks/batch_end.py",
        'f"{self.lane.name}/{outcome.plan.session}"',
        'f"{outcome.plan.session}"',
        "tests/unit/spout/sinks/test_follower.py::test_each_query_and_each_session_has_a_lane_of_its_own",
        "batches of two queries would take each other's place",
    ),
    Mutant(
        "a-column-has-a-watermark-with-each-hold",
        "spout/publishing/watermarks.py",
        "place = stats.column, stats.hold",
        'place = stats.column, ""',
        "tests/unit/spout/publishing/test_watermarks.py"
        "::test_each_column_and_each_hold_has_a_watermark_of_its_own",
        "nobody would learn which record moved the lower one of two watermarks",
    ),
    # -- after a call that raised
    Mutant(
        "the-collector-of-a-keyed-call-that-raised-is-closed",
        "spout/held/keyed_rows.py",
        "        first.is_closed = True",
        "        collector.is_closed = True",
        "tests/unit/spout/held/test_keyed.py"
        "::test_what_a_bolt_does_by_the_collector_of_an_earlier_call_fails_its_tuples",
        "a row would be lost whose tuple is acked",
    ),
    Mutant(
        "the-collector-of-a-watched-batch-that-raised-is-closed",
        "spout/execution/bolt_work.py",
        "        collector.is_closed = True\n        for number, cause",
        "        collector.is_closed = not causes\n        for number, cause",
        "tests/unit/spout/execution/test_after_an_error.py"
        "::test_what_an_arrow_bolt_does_by_the_collector_of_an_earlier_call_fails_its_rows",
        "rows would be lost whose tuples are acked, in a bolt with hooks",
    ),
    Mutant(
        "the-collector-of-a-batch-that-raised-is-closed",
        "spout/execution/bolt_work.py",
        "        finally:\n            collector.is_closed = True\n            self._pulse.end()",
        "        else:\n            collector.is_closed = True\n"
        "        finally:\n            self._pulse.end()",
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
        "who-looks-again-requests-no-more",
        "spout/standalone/store.py",
        "self._now = max(self._now, count)",
        "self._now += count",
        "tests/unit/spout/standalone/test_waiting_clients.py"
        "::test_what_is_kept_ready_for_a_client_that_waits_does_not_grow",
        "a client that waits for 10 would keep hundreds ready, which only time out",
    ),
    Mutant(
        "who-waits-no-more-requests-nothing",
        "spout/standalone/client.py",
        "queue.requested -= room",
        "queue.requested -= 0",
        "tests/unit/spout/standalone/test_waiting_clients.py"
        "::test_what_is_kept_ready_for_a_client_that_waits_does_not_grow",
        "each wait would add to what is kept ready for ever",
    ),
    Mutant(
        "a-client-requests-what-it-may-open",
        "spout/standalone/client.py",
        "requested = [(queue, queue.room(self._limits, count)) for queue in queues]",
        "requested = [(queue, count) for queue in queues]",
        "tests/unit/spout/standalone/test_waiting_clients.py"
        "::test_what_is_kept_ready_for_a_client_that_waits_does_not_grow",
        "what a client may not open would be planned, and time out",
    ),
    Mutant(
        "a-lost-item-has-no-parts",
        "spout/standalone/store.py",
        "                lease.parts.pop(serial, None)\n                self._close(lease, serial)",
        "                self._close(lease, serial)",
        "tests/unit/spout/standalone/test_lost_items.py"
        "::test_all_of_an_open_is_confirmed_but_for_what_was_lost",
        "the parts of a lost item would hold up all that was opened with it",
    ),
    Mutant(
        "what-is-confirmed-whole-may-be-late",
        "spout/standalone/queues.py",
        "            self.publication.runs += runs\n            self._note_all_late(what.lease)",
        "            self.publication.runs += runs",
        "tests/unit/spout/standalone/test_lost_items.py"
        "::test_all_of_an_open_is_confirmed_but_for_what_was_lost",
        "nobody would learn that work was done in vain",
    ),
    Mutant(
        "what-is-failed-whole-may-be-late",
        "spout/standalone/queues.py",
        "                self.publication.fail(runs, cause)\n            self._note_all_late(what.lease)",
        "                self.publication.fail(runs, cause)",
        "tests/unit/spout/standalone/test_lost_items.py::test_all_of_an_open_is_failed_but_for_what_was_lost",
        "nobody would learn that work was done in vain",
    ),
    Mutant(
        "a-late-item-counts-once",
        "spout/standalone/queues.py",
        "why = lease.lost.pop(serial, None)",
        "why = lease.lost.get(serial)",
        "tests/unit/spout/standalone/test_lost_items.py"
        "::test_all_of_an_open_is_confirmed_but_for_what_was_lost",
        "an item that is settled twice would count as two",
    ),
    Mutant(
        "each-late-item-counts",
        "spout/standalone/queues.py",
        "for serial in list(lease.lost):",
        "for serial in list(lease.lost)[:1]:",
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
        "for number, first in enumerate(firsts) if first <= root)",
        "for number, first in enumerate(firsts) if first < root or not number)",
        "tests/unit/spout/publishing/test_several_ranges.py::test_an_operator_reads_the_place_of_the_root",
        "an operator would look at a record of another partition for what ended a worker",
    ),
    Mutant(
        "what-is-dropped-is-dropped-with-its-stream",
        "spout/execution/emitted.py",
        "        del self._streams[len(self.values) :], self._tasks[len(self.values) :]",
        "        pass",
        "tests/unit/spout/execution/test_after_an_error.py"
        "::test_on_several_streams_too_it_is_no_row_of_another_tuple",
        "rows behind a call that raised would go to the stream of another row",
    ),
    # -- clocks that step, budgets, ends of logs, and what may stay
    Mutant(
        "ticks-go-on-by-a-clock-that-was-set-back",
        "spout/planner/planner.py",
        "is_due = self._ticked_ms is None or not 0 <= now_ms - self._ticked_ms < TICK_EVERY_MS",
        "is_due = self._ticked_ms is None or now_ms - self._ticked_ms >= TICK_EVERY_MS",
        "tests/unit/spout/planner/test_stepping_clock.py::test_roots_time_out_neither_early_nor_late",
        "for an hour no root would time out",
    ),
    Mutant(
        "signs-of-life-go-on-by-a-clock-that-was-set-back",
        "spout/planner/planner.py",
        "not 0 <= now_ms - self._signed_ms < SIGN_EVERY_MS",
        "now_ms - self._signed_ms >= SIGN_EVERY_MS",
        "tests/unit/spout/planner/test_stepping_clock.py::test_an_idle_owner_is_seen_to_live_by_whoever_would_take_its_group",
        "another query would take the group of one that lives",
    ),
    Mutant(
        "a-sign-of-life-of-the-future-is-one-of-now",
        "spout/group/presence.py",
        "min(record.timestamp_ms, self._now_ms) if",
        "record.timestamp_ms if",
        "tests/unit/spout/planner/test_stepping_clock.py::test_a_sign_counts_from_when_it_was_read_where_its_time_is_of_the_future",
        "the group of a dead owner would be kept for an hour",
    ),
    Mutant(
        "new-partitions-are-found-by-a-clock-that-was-set-back",
        "spout/group/growth.py",
        "not 0 <= now_ms - self._looked_ms < SOURCES_EVERY_MS",
        "now_ms - self._looked_ms >= SOURCES_EVERY_MS",
        "tests/unit/test_clocks.py::test_what_a_process_does_from_time_to_time_goes_on_by_a_clock_that_steps",
        "a new partition would not be read for an hour",
    ),
    Mutant(
        "commits-are-looked-at-by-a-clock-that-was-set-back",
        "spout/group/commits.py",
        "elif not 0 <= now_ms - self._looked_ms < VERIFY_EVERY_MS",
        "elif now_ms - self._looked_ms >= VERIFY_EVERY_MS",
        "tests/unit/test_clocks.py::test_what_a_process_does_from_time_to_time_goes_on_by_a_clock_that_steps",
        "what somebody else commits would be noticed an hour later",
    ),
    Mutant(
        "strangers-are-looked-for-by-a-clock-that-was-set-back",
        "spout/group/strangers.py",
        "not 0 <= now_ms - self._checked_ms < every_ms",
        "now_ms - self._checked_ms >= every_ms",
        "tests/unit/test_clocks.py::test_what_a_process_does_from_time_to_time_goes_on_by_a_clock_that_steps",
        "a stranger in the group would be named an hour later",
    ),
    Mutant(
        "the-series-of-the-page-go-on-by-a-clock-that-was-set-back",
        "spout/inspect/summary.py",
        "if not 0 <= now_ms - self._put_ms < SERIES_EVERY_MS",
        "if now_ms - self._put_ms >= SERIES_EVERY_MS",
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
        "spout/planner/draining.py",
        "self._without_progress.waited_ms(self._passed.ms) >= limit_ms",
        "self._without_progress.waited_ms(now_ms) >= limit_ms",
        "tests/unit/spout/planner/test_stepping_clock.py::test_a_query_that_ends_waits_for_verdicts_by_a_clock_that_steps",
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
        "spout/planner/planner.py",
        "log.bounds(Bound.STABLE_END, [spec.place for spec",
        "log.bounds(Bound.END, [spec.place for spec",
        "tests/unit/spout/group/test_open_transactions.py::test_a_query_that_ends_reads_up_to_the_transaction_and_ends",
        "a job would wait for somebody else's transaction",
    ),
    Mutant(
        "the-lag-ends-at-an-open-transaction",
        "spout/inspect/overview.py",
        "self._each(ask, Bound.START, places), self._each(ask, Bound.STABLE_END, places)",
        "self._each(ask, Bound.START, places), self._each(ask, Bound.END, places)",
        "tests/unit/spout/group/test_open_transactions.py::test_the_lag_counts_what_can_be_read",
        "a group that has read all would have a lag",
    ),
    Mutant(
        "a-warning-that-could-be-read-goes-before-what-is-unknown",
        "spout/doctor/monitor.py",
        "order = (MonitorState.CRITICAL, MonitorState.WARNING, MonitorState.UNKNOWN, MonitorState.OK)",
        "order = (MonitorState.CRITICAL, MonitorState.UNKNOWN, MonitorState.WARNING, MonitorState.OK)",
        "tests/unit/spout/doctor/test_monitor_pairs.py::test_the_worst_finding_that_could_be_read_is_the_state",
        "a monitor would show UNKNOWN where something is wrong",
    ),
    Mutant(
        "what-is-unknown-is-named-beside-what-is-wrong",
        "spout/doctor/monitor.py",
        "    found += [MonitorProblem(MonitorState.UNKNOWN",
        "    found = found or [MonitorProblem(MonitorState.UNKNOWN",
        "tests/unit/spout/doctor/test_monitor_pairs.py::test_the_worst_finding_that_could_be_read_is_the_state",
        "whoever sees a warning would not know that more may be wrong",
    ),
    Mutant(
        "a-view-goes-by-the-brokers-time",
        "spout/inspect/overview.py",
        "snapshot = overview.snapshot(here_ms - clocks.correction_ms)",
        "snapshot = overview.snapshot(here_ms)",
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
)
