"""Bugs in `replay`: the policy, back-off, the breaker, takeover, the two transactions, dead letters."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    # -- a small input, and the default policy
    Mutant(
        "a-small-input-looks-back-to-its-last-roots",
        "replay/policy/breaker.py",
        "if settled_count < self.settled_min:",
        "if settled_count < 0:",
        "tests/unit/replay/policy/test_replay_breaker.py"
        "::test_a_small_stream_opens_the_breaker_by_the_share_of_its_last_roots",
        "all records of an input with few of them could become dead letters, and nothing would stop it",
    ),
    Mutant(
        "by-default-a-service-may-be-away-for-minutes",
        "acker/config/retry_settings.py",
        "attempts: Whole = whole(10, (1, 1_000_000)",
        "attempts: Whole = whole(5, (1, 1_000_000)",
        "tests/unit/replay/policy/test_default_schedule.py::test_a_service_may_be_down_for_minutes",
        "what fails while a service is away for a minute would be dead after 18 s",
    ),
    # -- another cluster
    Mutant(
        "what-waits-in-another-cluster-is-refused",
        "replay/worker/entries.py",
        "        require_cluster(record.place, record.headers, record.value, own_cluster)\n",
        "",
        "tests/unit/spout/planning_process/test_other_cluster.py::test_mirrored_ack_topics_are_refused_by_name",
        "a replay worker would copy other records than those that failed, or make dead letters of them",
    ),
    Mutant(
        "each-record-of-what-waits-names-its-cluster",
        "replay/worker/worker.py",
        "return Outgoing(*due_partition, value, key, (*headers, *cluster_header(self.cluster_id)))",
        "return Outgoing(*due_partition, value, key, headers)",
        "tests/unit/spout/planning_process/test_other_cluster.py"
        "::test_each_record_of_state_and_of_what_waits_names_its_cluster",
        "mirrored, it would be taken as this cluster's",
    ),
    # -- the policy
    Mutant(
        "a-place-without-a-record-never-had-one",
        "replay/worker/fetch.py",
        "cut_off.update(place for place in places if",
        "cut_off.update(place for place in () if",
        "tests/unit/replay/worker/test_cut_before_accept.py"
        "::test_what_was_aborted_after_the_cut_does_not_hide_what_was_there",
        "a record that was cut off would vanish where an aborted one took its place",
    ),
    Mutant(
        "only-the-record-that-was-begun-is-skipped-in-part",
        "replay/worker/accept.py",
        "if self._records and self._records[0].offset == self.progress.next:",
        "if self._records:",
        "tests/unit/replay/worker/test_intake_skips.py"
        "::test_only_of_the_record_that_was_begun_is_anything_skipped",
        "behind a marked verdict record the first lost roots of the next one would never come again",
    ),
    Mutant(
        "a-cause-has-the-waits-of-its-rule",
        "replay/policy/disposition.py",
        "delay_ms(rule.backoff or policy.backoff, backoff_failures, jitter)",
        "delay_ms(policy.backoff, backoff_failures, jitter)",
        "tests/unit/replay/policy/test_schedules_by_cause.py"
        "::test_a_cause_has_the_attempts_and_waits_of_its_rule",
        "what the file says of a cause would not be done",
    ),
    Mutant(
        "a-record-that-took-the-place-of-a-lost-one-is-not-copied",
        "replay/worker/fetch.py",
        "record.leader_epoch > emitted_epoch",
        "record.leader_epoch < emitted_epoch",
        "tests/unit/replay/worker/test_replay_cut_logs.py"
        "::test_a_record_that_took_the_place_of_a_lost_one_is_not_copied",
        "a bolt would get a record that was never lost, under the history of another one",
    ),
    Mutant(
        "a-lost-record-is-compared-with-the-epoch-of-its-emission",
        "replay/worker/accept.py",
        "epoch = root.leader_epoch\n",
        "epoch = NO_EPOCH\n",
        "tests/unit/replay/worker/test_cut_before_accept.py"
        "::test_no_copy_is_made_of_a_record_that_took_the_place_before_the_verdict_was_read",
        "what a log has after a cut would be copied in place of what was lost before",
    ),
    Mutant(
        "a-lost-copy-is-compared-with-the-epoch-of-its-emission",
        "replay/worker/accept.py",
        "if is_of_later_leader(answer, emitted_epoch):",
        "if False:",
        "tests/unit/replay/worker/test_cut_before_accept.py::test_a_lost_copy_is_not_taken_for_another_one",
        "another record's history would be taken for the lost copy's",
    ),
    Mutant(
        "attempts-are-as-many-as-configured",
        "replay/policy/disposition.py",
        "return DeadReason.ATTEMPTS if _used_attempts(policy, lost) >= attempts else None",
        "return DeadReason.ATTEMPTS if _used_attempts(policy, lost) > attempts else None",
        "tests/unit/replay/policy/test_disposition.py::test_attempts_include_the_first_emission",
        "each failing record would be emitted once more than topics.yaml allows",
    ),
    Mutant(
        "an-abandoned-root-is-replayed-as-often-as-configured",
        "replay/policy/disposition.py",
        "if lost.abandoned > policy.max_abandoned:",
        "if lost.abandoned >= policy.max_abandoned:",
        "tests/unit/replay/worker/test_replay_service.py"
        "::test_a_root_abandoned_more_often_than_max_abandoned_is_buried",
        "the first takeover would make dead letters",
    ),
    Mutant(
        "a-blocked-emission-is-no-attempt",
        "replay/policy/disposition.py",
        "uncounted = lost.blocked\n",
        "uncounted = 0\n",
        "tests/unit/replay/worker/test_replay_held.py::test_what_was_held_uses_up_no_attempt_and_no_back_off",
        "a record that waits behind another would become a dead letter that no bolt saw",
    ),
    Mutant(
        "the-time-limit-holds-at-its-time",
        "replay/policy/disposition.py",
        "if 0 < policy.time_limit_ms <= lost.lived_ms:",
        "if 0 < policy.time_limit_ms < lost.lived_ms:",
        "tests/unit/replay/policy/test_disposition.py::test_the_next_loss_behind_the_time_limit_is_the_last",
        "a record at its time limit would be replayed once more",
    ),
    Mutant(
        "a-rule-for-a-class-fits-its-subclasses",
        "replay/policy/disposition.py",
        "if rule.error in (None, *classes) and rule.operator in (None, operator):",
        "if rule.error in (None, error) and rule.operator in (None, operator):",
        "tests/unit/replay/policy/test_disposition.py"
        "::test_a_cause_that_a_rule_calls_final_ends_all_attempts_at_once",
        "a rule for OSError would not hold for ConnectionError",
    ),
    # -- back-off
    Mutant(
        "back-off-grows",
        "replay/policy/disposition.py",
        "delay = _exponential_delay_ms(backoff, failures - 1)",
        "delay = _exponential_delay_ms(backoff, 0)",
        "tests/unit/replay/policy/test_backoff.py::test_the_delay_doubles_from_the_initial_one",
        "a service that is down would be asked at the first rate for ever",
    ),
    Mutant(
        "back-off-does-not-overflow",
        "replay/policy/disposition.py",
        "    if exponent >= exponent_of_max:\n        return backoff.max_ms\n",
        "",
        "tests/unit/replay/policy/test_backoff.py"
        "::test_the_delay_stays_at_its_maximum_however_often_a_root_failed",
        "a record that failed often enough would end the replay worker",
    ),
    Mutant(
        "a-replay-is-never-early",
        "replay/worker/waiting.py",
        "is_due = entries[:, _ENTRY_DUE_MS] <= now_ms",
        "is_due = entries[:, _ENTRY_DUE_MS] <= now_ms + 1_000",
        "tests/unit/replay/worker/test_replay_schedule.py"
        "::test_of_those_that_were_just_added_none_is_taken_early",
        "back-off would be a second shorter than configured",
    ),
    # -- the breaker
    Mutant(
        "the-breaker-opens-at-max-consecutive",
        "replay/policy/breaker.py",
        "return self.max_consecutive - self._dead_in_a_row",
        "return self.max_consecutive - self._dead_in_a_row + 1",
        "tests/unit/replay/policy/test_replay_breaker.py"
        "::test_as_many_in_a_row_may_die_as_max_consecutive_says",
        "one more record than allowed would become a dead letter",
    ),
    Mutant(
        "an-ack-ends-the-row-of-dead-letters",
        "replay/policy/breaker.py",
        "self._dead_in_a_row = 0\n            self._second_of_now(now_ms).acked += count",
        "self._second_of_now(now_ms).acked += count",
        "tests/unit/replay/policy/test_replay_breaker.py::test_a_root_that_is_acked_begins_the_row_anew",
        "an input with some poison among good records would be paused",
    ),
    Mutant(
        "an-open-breaker-pauses-its-input",
        "replay/worker/partition.py",
        "for pause in firing.pauses:\n            value =",
        "for pause in ():\n            value =",
        "tests/unit/replay/worker/test_replay_inputs.py"
        "::test_a_pause_outlives_the_worker_and_ends_by_resume_alone",
        "the next owner would go on making dead letters of a broken stream",
    ),
    Mutant(
        "a-partition-that-comes-later-leaves-the-breaker-open",
        "replay/worker/partition.py",
        "for input_id in former_pauses.keys() & worker.breakers.keys():",
        "for input_id in worker.breakers:",
        "tests/unit/replay/worker/test_replay_inputs.py"
        "::test_a_partition_that_comes_later_leaves_the_breaker_open",
        "each partition that moves to a worker would allow as many dead letters of a broken stream again",
    ),
    Mutant(
        "a-resume-reaches-who-had-the-paused-partition-before",
        "replay/worker/service.py",
        "        self._worker.forget_pauses_except(assigned)\n",
        "",
        "tests/unit/replay/worker/test_replay_inputs.py"
        "::test_after_a_resume_a_worker_that_the_paused_partition_has_left_counts_anew",
        "a single dead letter would pause an input again that a person has just resumed",
    ),
    Mutant(
        "a-paused-input-waits",
        "replay/worker/partition.py",
        "if due_ms <= now_ms and not is_paused and self._worker.is_ready(input_id, now_ms):",
        "if due_ms <= now_ms and self._worker.is_ready(input_id, now_ms):",
        "tests/unit/replay/worker/test_replay_service.py"
        "::test_the_breaker_pauses_its_input_by_the_count_in_a_row_and_the_rest_waits",
        "a pause would hold back nothing",
    ),
    # -- takeover
    Mutant(
        "what-stands-behind-the-progress-is-taken-over",
        "replay/worker/partition.py",
        " if lost_root.root not in accepted]",
        "]",
        "tests/unit/replay/worker/test_replay_crashes.py"
        "::test_a_takeover_that_a_delayed_commit_cuts_gives_one_copy_of_each_root",
        "where a commit arrives late, each root of the transaction that it cuts would be replayed twice",
    ),
    Mutant(
        "a-progress-has-passed-what-stands-behind-it",
        "replay/worker/partition.py",
        "        if not accepted_past:\n            records.append(",
        "        if True:\n            records.append(",
        "tests/unit/replay/worker/test_replay_crashes.py"
        "::test_a_takeover_that_was_cut_and_is_read_again_in_parts_gives_one_copy_of_each_root",
        "a worker that ends soon after a commit that arrived late would leave roots that are replayed twice",
    ),
    Mutant(
        "what-was-replayed-behind-the-progress-is-taken-over",
        "replay/worker/entries.py",
        "        self.table.remove(root, record.offset)\n        self.roots_past_progress.add(root)\n",
        "        self.table.remove(root, record.offset)\n",
        "tests/unit/replay/worker/test_replay_crashes.py"
        "::test_what_a_cut_takeover_left_and_an_owner_replayed_is_not_taken_over_again",
        "what an owner replayed behind a commit that arrived late would be replayed again by the next one",
    ),
    Mutant(
        "a-second-transaction-repeats-the-progress",
        "replay/worker/partition.py",
        "        if not self._accepted_past_progress:\n"
        "            records.append(self._progress_record(self.progress, now_ms))\n"
        "        for pause",
        "        for pause",
        "tests/unit/replay/worker/test_replay_crashes.py"
        "::test_tombstones_stand_before_a_progress_though_no_verdict_comes",
        "where no verdict comes, the next owner would keep each root that was replayed in memory",
    ),
    Mutant(
        "an-owner-without-new-verdicts-may-repeat-the-progress",
        "replay/worker/partition.py",
        "                self._accepted_past_progress.clear()",
        "                pass",
        "tests/unit/replay/worker/test_replay_crashes.py"
        "::test_tombstones_stand_before_a_progress_though_no_verdict_comes",
        "owners that get no verdict would keep each root that was replayed since the last one in memory",
    ),
    Mutant(
        "a-proof-of-ownership-is-no-progress",
        "replay/worker/partition.py",
        "self._run_transaction([self._record_of_owner])",
        "self._run_transaction([self._progress_record(self.progress, None)])",
        "tests/unit/replay/worker/test_replay_crashes.py"
        "::test_an_owner_of_a_paused_input_repeats_no_progress_before_what_stands_behind_it",
        "a worker that ends soon after a commit that arrived late would leave roots that are replayed twice",
    ),
    Mutant(
        "copies-of-a-transaction-that-was-cut-are-looked-for",
        "replay/worker/firing.py",
        "        if not committed_by_root:\n            return outcomes",
        "        if committed_by_root is not None:\n            return outcomes",
        "tests/unit/replay/worker/test_replay_crashes.py"
        "::test_a_second_transaction_that_a_delayed_commit_cuts_gives_one_copy_of_each_root",
        "where a commit arrives late, each copy that it commits would be written again",
    ),
    Mutant(
        "after-an-abort-tombstones-need-their-copies",
        "replay/worker/partition.py",
        "        self._has_aborted_once = True",
        "        self._has_aborted_once = False",
        "tests/unit/replay/worker/test_replay_crashes.py::test_a_delayed_abort_loses_no_copy",
        "an abort that arrives late would undo copies and leave their tombstones: records would be lost",
    ),
    Mutant(
        "a-copy-that-cannot-be-looked-for-is-written",
        "replay/worker/cut.py",
        "            if root_of_copy is not None:",
        "            for root_of_copy in root_by_key_and_headers.values():",
        "tests/unit/replay/worker/test_replay_crashes.py"
        "::test_a_second_transaction_that_a_delayed_commit_cuts_gives_one_copy_of_each_root",
        "a root whose copy was refused would never be replayed",
    ),
    Mutant(
        "a-half-taken-record-is-gone-on-with",
        "replay/worker/accept.py",
        "roots += islice(record.roots(), skip_count, batch_end)",
        "roots += islice(record.roots(), 0, room)",
        "tests/unit/replay/worker/test_replay_service.py"
        "::test_one_verdict_record_may_name_more_roots_than_one_transaction_holds",
        "of a large verdict some roots would be replayed twice, and others never",
    ),
    Mutant(
        "skipped-roots-are-of-the-first-record-alone",
        "replay/worker/accept.py",
        "    skip_count = 0\n        if self.read_to",
        "if self.read_to",
        "tests/unit/replay/worker/test_replay_service.py"
        "::test_one_transaction_may_take_the_rest_of_a_verdict_record_and_the_first_of_the_next",
        "lost roots of later verdicts would be forgotten",
    ),
    Mutant(
        "what-a-strange-group-emitted-does-not-stop-the-input",
        "replay/worker/accept.py",
        "if worker.is_of_other_group(lost.source, lost.group):",
        "if False:",
        "tests/unit/replay/worker/test_replay_service.py"
        "::test_what_another_group_emitted_under_an_inputs_id_holds_up_nothing_of_the_input",
        "some forged records would delay an input's copies by up to a minute, for ever",
    ),
    Mutant(
        "what-a-strange-group-emitted-takes-no-place-in-a-transaction",
        "replay/worker/partition.py",
        "due_ms_by_entry_offset[offset] = now_ms + self._worker.limits.input_retry_ms",
        "pass",
        "tests/unit/replay/worker/test_replay_service.py"
        "::test_what_another_group_emitted_under_an_inputs_id_holds_up_nothing_of_the_input",
        "many forged records would keep an input's copies from ever being made",
    ),
    Mutant(
        "what-was-put-aside-keeps-its-place",
        "replay/worker/accept.py",
        "new_entry = replace(new_entry, due_ms=min(aside.due_ms, now_ms))",
        "pass",
        "tests/unit/replay/worker/test_replay_inputs.py"
        "::test_what_was_put_aside_is_replayed_before_what_was_abandoned_after_it",
        "younger records would be replayed before older ones",
    ),
    Mutant(
        "a-lost-copy-goes-on-with-its-history",
        "replay/worker/accept.py",
        "return Past(lineage, history_of(answer.headers), leader_epoch=answer.leader_epoch)",
        "return Past(Lineage(location(*place)))",
        "tests/unit/replay/worker/test_replay_service.py"
        "::test_a_root_that_fails_every_time_is_tried_attempts_times_and_then_buried_once",
        "attempts would begin at 1 again, and a poison record would be tried for ever",
    ),
    Mutant(
        "an-abandoned-emission-is-counted",
        "replay/worker/accept.py",
        "            abandoned += 1\n",
        "            abandoned += 0\n",
        "tests/unit/replay/worker/test_replay_service.py::test_abandonments_use_up_no_attempts",
        "takeovers would use up the attempts of good records",
    ),
    Mutant(
        "a-timed-out-emission-is-counted",
        "replay/worker/accept.py",
        "            timed_out += 1\n",
        "            timed_out += 0\n",
        "tests/unit/replay/worker/test_replay_policies.py"
        "::test_timeouts_that_are_not_counted_use_up_no_attempts_however_many_there_are",
        "timeouts that shall not count would use up attempts",
    ),
    Mutant(
        "an-input-whose-topic-refuses-a-record-waits-alone",
        "replay/worker/partition.py",
        "except (TopicError, NotAuthorized, RecordRefused) as error:",
        "except (TopicError, NotAuthorized) as error:",
        "tests/unit/replay/worker/test_replay_refused.py"
        "::test_a_topic_that_takes_no_copy_is_the_inputs_trouble",
        "one topic's settings would end the replay workers, and no input's records would be replayed",
    ),
    Mutant(
        "an-input-whose-replay-topic-is-compacted-waits-alone",
        "replay/worker/outcome.py",
        "if copy.key is None and topic.name in self._compacted_topics:",
        "if copy.key is None and topic.name in ():",
        "tests/unit/replay/worker/test_replay_inputs.py"
        "::test_an_input_whose_topic_refuses_a_copy_waits_alone_until_the_topic_is_corrected",
        "records without a key would die, though the topic alone is wrong",
    ),
    Mutant(
        "no-record-dies-while-nothing-shows-that-its-topic-takes-others",
        "replay/worker/narrowing.py",
        "return AtFault.TOPIC if len(self.suspects) >= self._refused_copies_max else AtFault.UNKNOWN",
        "return AtFault.RECORDS",
        "tests/unit/replay/worker/test_replay_refused.py"
        "::test_a_topic_that_takes_no_copy_is_the_inputs_trouble",
        "a wrong setting of a topic would make a dead letter of each record",
    ),
    Mutant(
        "roots-are-tried-from-all-that-are-due",
        "replay/worker/narrowing.py",
        "return [unsuspected[index % len(unsuspected)]]",
        "return unsuspected[:1]",
        "tests/unit/replay/worker/test_replay_refused.py"
        "::test_the_records_that_are_refused_die_alone_with_the_brokers_words",
        "a run of ten refused records would hold up the healthy ones behind it",
    ),
    Mutant(
        "the-search-of-one-input-holds-up-no-other",
        "replay/worker/refusals.py",
        "if together and self._transaction_count % 2 == 1:",
        "if False:",
        "tests/unit/replay/worker/test_replay_inputs.py"
        "::test_the_search_for_refused_records_of_one_input_holds_up_no_other",
        "an input of which many copies are refused would hold up all others for minutes",
    ),
    Mutant(
        "a-refused-letter-is-put-aside",
        "replay/worker/refusals.py",
        "            return self._why_letter_is_put_aside_by_offset[offset]",
        "            return None",
        "tests/unit/replay/worker/test_replay_refused.py"
        "::test_a_dead_letter_that_is_refused_waits_alone_until_the_topic_takes_it",
        "a dead letter that cannot be written would be tried for ever, and its neighbours with it",
    ),
    Mutant(
        "a-refused-letter-of-a-redrive-stays",
        "replay/handling/letter_handling.py",
        "self.left_by_why[Left.REFUSED] += 1",
        "self.handled_count += 1",
        "tests/unit/replay/handling/test_redrive.py"
        "::test_a_letter_whose_copy_is_refused_is_left_alone_and_the_others_are_handled",
        "a redrive would count letters as handled that it did not write",
    ),
    # -- what came with a record
    Mutant(
        "ours-begin-at-the-last-border",
        "replay/records/headers.py",
        "for index in range(len(headers) - 1, -1, -1):",
        "for index in range(len(headers)):",
        "tests/unit/replay/records/test_replay_headers.py"
        "::test_what_came_with_a_record_is_parted_from_ours_in_each_of_its_lives",
        "what an earlier life wrote would count as ours",
    ),
    Mutant(
        "a-border-stands-where-its-number-says",
        "replay/records/headers.py",
        'if name == OWN and value == b"%d" % index:',
        "if name == OWN:",
        "tests/unit/replay/records/test_replay_headers.py::test_a_border_that_no_worker_wrote_is_none",
        "a header that somebody wrote into a replay topic would hide its attempt",
    ),
    Mutant(
        "a-source-record-keeps-headers-like-ours",
        "replay/records/copies.py",
        "    if not is_replay(due.source):\n        return record.headers",
        "    if due.source < 0:\n        return record.headers",
        "tests/unit/spout/standalone/test_record_lives.py"
        "::test_an_input_of_dead_letters_sees_the_letter_whole_at_each_attempt",
        "a triage bolt would see another record at attempt 2",
    ),
    Mutant(
        "a-time-that-the-client-cannot-write-is-in-a-header",
        "replay/records/record_time.py",
        "says_itself = topic_keeps and time.ms != 0 and",
        "says_itself = topic_keeps and",
        "tests/unit/replay/records/test_record_time.py"
        "::test_a_copy_of_a_copy_its_letter_and_its_redrive_tell_the_time_of_the_record",
        "a record dated 0 would be of the present at its second attempt",
    ),
    Mutant(
        "a-copy-shows-the-time-of-its-record",
        "spout/tuples/messages.py",
        '"timestamp": lambda message: _datetime_of(message, time_of_original(message).ms),',
        '"timestamp": lambda message: _datetime_of(message, _time_in_log(message).ms),',
        "tests/unit/spout/standalone/test_record_lives.py"
        "::test_a_record_has_its_time_at_each_attempt_in_its_letter_and_when_it_lives_again",
        "a record dated 0 would be of the present at its second attempt",
    ),
    Mutant(
        "a-time-that-spark-cannot-hold-is-null",
        "spout/tuples/messages.py",
        "is_outside = (times_ms > COLUMN_MS_MAX) | (times_ms < -COLUMN_MS_MAX)",
        "is_outside = times_ms < -COLUMN_MS_MAX",
        "tests/unit/spout/tuples/test_messages.py"
        "::test_a_time_is_the_same_in_the_column_or_null_and_is_logged",
        "nanoseconds would come out as another time, and move the watermark",
    ),
    Mutant(
        "missing-verdicts-are-refused",
        "replay/worker/partition.py",
        "if progress.next < start:",
        "if progress.next < 0:",
        "tests/unit/replay/worker/test_replay_service.py"
        "::test_verdicts_deleted_before_they_were_taken_over_are_an_error",
        "lost records whose verdicts were deleted would vanish without a word",
    ),
    Mutant(
        "a-verdict-that-is-read-again-is-not-taken-over-again",
        "replay/worker/service.py",
        "            partition.intake.read_to = record.offset + 1",
        "            pass",
        "tests/unit/replay/worker/test_replay_crashes.py"
        "::test_verdicts_that_are_read_again_behind_an_outage_are_taken_over_once",
        "an outage between two verdict records of one poll would replay a record twice",
    ),
    # -- the two transactions
    Mutant(
        "lost-roots-and-progress-are-one-transaction",
        "replay/worker/partition.py",
        "        entry_offsets = self._run_transaction(records)\n        self.intake.record_committed",
        "        self._run_transaction(records[len(entries) :])\n"
        "        entry_offsets = self._run_transaction(entries)\n        self.intake.record_committed",
        "tests/unit/replay/worker/test_replay_crashes.py"
        "::test_a_worker_killed_at_any_call_and_started_again_writes_each_outcome_once",
        "a crash between the two would lose records",
    ),
    Mutant(
        "copy-and-tombstone-are-one-transaction",
        "replay/worker/partition.py",
        "records = [copy.record for _, copy in _copies_to_send(outcomes)]",
        "self._run_transaction([outcome.record_to_write for outcome in outcomes"
        " if outcome.record_to_write is not None])\n"
        "        records = []",
        "tests/unit/replay/worker/test_replay_crashes.py"
        "::test_a_worker_killed_at_any_call_and_started_again_writes_each_outcome_once",
        "a crash between the two would replay a record twice",
    ),
    Mutant(
        "what-was-not-written-goes-on-waiting",
        "replay/worker/waiting.py",
        "self._schedule_by_input[input_id].add(next_due_ms, offset)",
        "pass",
        "tests/unit/replay/worker/test_replay_inputs.py::test_an_input_in_trouble_waits_alone",
        "a root whose payload did not fit would never be replayed",
    ),
    Mutant(
        "the-last-entry-of-a-root-counts",
        "replay/worker/waiting.py",
        "waiting: I64 = rows[is_last_of_root & is_entry]",
        "waiting: I64 = rows[is_entry]",
        "tests/unit/replay/worker/test_replay_schedule.py"
        "::test_of_a_log_the_last_record_of_each_key_counts_and_a_tombstone_ends_it",
        "after a restart every record that was ever replayed would be replayed again",
    ),
    # -- copies and dead letters
    Mutant(
        "the-topic-is-the-same-after-the-fetch",
        "replay/worker/outcome.py",
        "    unchanged = worker.fetch_unchanged(unchanged)\n",
        "",
        "tests/unit/replay/worker/test_replay_service.py"
        "::test_a_topic_that_is_created_again_between_fetch_and_copy_is_noticed",
        "a topic that is created again meanwhile would give another record's payload",
    ),
    Mutant(
        "a-record-that-was-read-and-is-gone-is-a-dead-letter",
        "replay/worker/outcome.py",
        "if answer is Absence.NEVER and was_a_record(entry):",
        "if False:",
        "tests/unit/replay/records/test_replay_proof.py"
        "::test_a_record_that_a_bolt_failed_is_buried_though_the_log_shows_a_hole",
        "a record that left the log would vanish without a note",
    ),
    Mutant(
        "of-compacted-topics-a-hole-was-a-record",
        "replay/worker/fetch.py",
        '            if "compact" not in info.settings.get("cleanup.policy", ""):',
        "            if info is not None:",
        "tests/unit/replay/worker/test_replay_service.py::test_a_compacted_record_is_buried_without_payload",
        "a record that compaction took would vanish without a dead letter",
    ),
    Mutant(
        "a-fetch-does-not-pass-a-whole-log",
        "replay/worker/fetch.py",
        "\n            and reading.passed_bytes < limits.fetch_passed_bytes_max",
        "",
        "tests/unit/replay/worker/test_replay_fetch.py"
        "::test_a_fetch_ends_when_it_has_passed_enough_and_answers_at_least_one",
        "one fetch of records that lie far apart would outlast what a worker has to end, again and again",
    ),
    Mutant(
        "a-letter-is-marked-with-its-copy",
        "replay/handling/letter_handling.py",
        "self.write(marks, copies_to_write)",
        "self.write([], copies_to_write)",
        "tests/unit/spout/inspect/test_dead_letters.py"
        "::test_a_command_that_is_repeated_writes_nothing_twice_wherever_it_died",
        "a command that is repeated would replay a dead letter a second time",
    ),
    Mutant(
        "copies-of-letters-are-in-the-log-before-their-marks",
        "replay/handling/letter_handling.py",
        "        self._transactions.flush(timeout_ms)\n",
        "",
        "tests/unit/replay/handling/test_redrive.py"
        "::test_no_letter_is_marked_whose_copy_a_transaction_that_ended_too_early_did_not_write",
        "a dead letter would count as replayed, and its record be lost",
    ),
    Mutant(
        "who-handles-letters-waits-for-marks-that-nobody-sees-yet",
        "replay/handling/letter_box.py",
        "ends = log.ends(starts) if waits_for_open else log.stable_ends(starts)",
        "ends = log.stable_ends(starts)",
        "tests/unit/replay/handling/test_redrive.py"
        "::test_letters_are_not_handled_while_an_open_transaction_may_hide_their_marks",
        "a command that is repeated behind a killed replay worker would replay its letters twice",
    ),
    Mutant(
        "handled-letters-keep-no-others-out",
        "replay/handling/letter_box.py",
        "next_offset = box.end_partition()",
        "next_offset = None",
        "tests/unit/spout/inspect/test_dead_letters.py"
        "::test_letters_beyond_those_that_are_kept_have_their_turn_when_it_is_repeated",
        "a command that is repeated would never get past the first 100,000 letters",
    ),
    Mutant(
        "a-rate-makes-up-for-no-time-without-letters",
        "replay/handling/letter_handling.py",
        "        self._next_allowed_ms = max(self._next_allowed_ms, now_ms - catch_up_ms)\n",
        "",
        "tests/unit/spout/inspect/test_dead_letters.py"
        "::test_a_rate_does_not_make_up_for_time_without_letters",
        "after a minute of reading letters, a minute's letters would come at once to a sink that recovers",
    ),
    Mutant(
        "who-handles-letters-fences-others",
        "replay/handling/letter_handling.py",
        "        self.fence()\n        box",
        "        box",
        "tests/unit/spout/inspect/test_dead_letters.py"
        "::test_of_two_who_handle_letters_at_once_the_first_is_fenced",
        "two people at once would replay a dead letter twice",
    ),
    # -- roots of strangers
    Mutant(
        "roots-of-a-former-group-hold-up-none-of-the-present-one",
        "replay/worker/outcome.py",
        "entries = sorted(worker.record_and_leave_out_foreign(entries), key=_order_of_origin)",
        "entries = sorted(entries, key=_order_of_origin)",
        "tests/unit/replay/worker/test_changed_inputs.py"
        "::test_roots_of_the_former_group_hold_up_none_of_the_new_one",
        "who gives an input another group in topics.yaml would get no replays of the new one",
    ),
    Mutant(
        "an-inputs-own-roots-are-never-dropped",
        "replay/handling/dropping.py",
        "if due.group not in own_groups and self.group in (None, due.group)",
        "if self.group in (None, due.group)",
        "tests/unit/replay/handling/test_dropping.py::test_an_inputs_own_roots_are_never_dropped",
        "the command would drop records that nobody has processed",
    ),
    Mutant(
        "a-root-that-was-fired-since-is-not-dropped-again",
        "replay/records/due_fold.py",
        "self.waiting.pop((record.partition, root), None)",
        "pass",
        "tests/unit/replay/handling/test_dropping.py::test_it_is_shown_first_and_dropped_alone",
        "what is done would be shown as waiting for ever",
    ),
    Mutant(
        "an-entry-that-a-reader-wants-none-of-replaces-the-one-before",
        "replay/records/due_fold.py",
        "# it stands in the place of one that the reader may have kept\n"
        "            self._kept_entries.end(record, root)\n",
        "pass\n",
        "tests/unit/spout/group/test_waiting_entries.py"
        "::test_a_root_whose_entry_another_group_wrote_over_is_not_waited_for",
        "a job would wait for a root that nobody replays to it",
    ),
    Mutant(
        "a-key-in-another-partition-is-another-key",
        "replay/records/due_fold.py",
        'return record.partition, record.key or b""',
        'return 0, record.key or b""',
        "tests/unit/spout/group/test_waiting_entries.py::test_a_tombstone_in_another_partition_ends_nothing",
        "a record would pass one of its key that waits",
    ),
    Mutant(
        "a-flawed-record-ends-no-pause",
        "replay/records/due_fold.py",
        "        if flaw or isinstance(stored, Due):\n",
        "        if flaw or isinstance(stored, Due):\n            self._pauses.pop(entry_name, None)\n",
        "tests/unit/replay/records/test_due_fold.py"
        "::test_what_cannot_be_read_takes_no_progress_back_and_ends_no_pause",
        "an input that its replay worker keeps paused could not be resumed",
    ),
    Mutant(
        "a-worker-notices-that-an-operator-dropped-roots",
        "replay/worker/partition.py",
        "return self._worker.limits.input_retry_ms if may_be_dropped else 0",
        "return 0",
        "tests/unit/replay/handling/test_dropping.py::test_a_worker_that_lives_is_fenced_and_goes_on",
        "a replay worker would count dropped roots until it is started again",
    ),
    # -- clocks
    Mutant(
        "a-letter-has-a-time-that-its-topic-takes",
        "replay/worker/partition.py",
        "if error.is_for_its_time:",
        "if False:",
        "tests/unit/replay/worker/test_letters_by_wrong_clocks.py"
        "::test_letters_are_written_however_wrong_the_workers_clock_is",
        "dead letters of a worker whose clock is ahead would be put aside without end",
    ),
    # -- keys that are null or empty
    Mutant(
        "a-copy-has-the-record-s-key",
        "replay/records/copies.py",
        "            record.value,\n            record.key,",
        '            record.value,\n            record.key or b"",',
        "tests/unit/replay/worker/test_keys_of_copies.py"
        "::test_copies_the_dead_letter_and_what_a_redrive_writes_have_the_record_s_key_and_value",
        "a copy without a key would overwrite what has an empty one",
    ),
    Mutant(
        "a-copy-has-the-record-s-value",
        "replay/records/copies.py",
        "            record.value,\n            record.key,",
        "            record.value or None,\n            record.key,",
        "tests/unit/replay/worker/test_keys_of_copies.py"
        "::test_copies_the_dead_letter_and_what_a_redrive_writes_have_the_record_s_key_and_value",
        "an empty record would be replayed as a tombstone",
    ),
    Mutant(
        "a-dead-letter-has-the-record-s-key",
        "replay/records/dead_letter.py",
        "        key=record.key if record else None,",
        "        key=(record.key or None) if record else None,",
        "tests/unit/replay/worker/test_keys_of_copies.py"
        "::test_copies_the_dead_letter_and_what_a_redrive_writes_have_the_record_s_key_and_value",
        "an empty key would be gone with the record's life",
    ),
    Mutant(
        "a-redrive-has-the-record-s-key",
        "replay/records/letters.py",
        "        value=record.value,\n        key=record.key,",
        '        value=record.value,\n        key=record.key or b"",',
        "tests/unit/replay/worker/test_keys_of_copies.py"
        "::test_copies_the_dead_letter_and_what_a_redrive_writes_have_the_record_s_key_and_value",
        "a record without a key would come again with an empty one",
    ),
    # -- clocks that step, budgets, ends of logs, and what may stay
    Mutant(
        "a-worker-counts-aborts-in-a-row",
        "replay/worker/service.py",
        "                self._aborts_in_a_row_by_partition.pop(number, None)\n",
        "                pass\n",
        "tests/unit/replay/worker/test_replay_budgets.py::test_aborts_far_apart_do_not_end_a_worker",
        "the sixteenth aborted transaction of its life would end a replay worker",
    ),
    Mutant(
        "a-trouble-that-is-over-does-not-count-for-the-next",
        "replay/worker/worker.py",
        "            del self._trouble_by_input[input_id]\n",
        "",
        "tests/unit/replay/worker/test_replay_budgets.py::test_an_input_that_went_on_is_left_alone_for_the_first_time_again",
        "an input that goes on would be left alone all the same",
    ),
    Mutant(
        "a-slow-redrive-is-not-stalled",
        "replay/handling/redrive.py",
        "            self._last_handled_at_ms = self._clock.ms\n",
        "",
        "tests/unit/replay/handling/test_slow_redrives.py::test_one_that_is_slow_is_not_stalled",
        "a redrive that waits for a slow query would end",
    ),
    Mutant(
        "a-root-that-is-to-be-replayed-keeps-its-stack",
        "replay/worker/accept.py",
        "stack=root.stack if dead_reason else cut_stack(root.stack, WAITING_STACK_BYTES_MAX),",
        'stack=root.stack if dead_reason else "",',
        "tests/unit/spout/inspect/test_stacks_of_letters.py"
        "::test_a_letter_whose_copy_is_refused_when_it_is_due_has_the_stack_of_the_failure",
        "a dead letter whose copy was refused would not say why the record failed",
    ),
)
