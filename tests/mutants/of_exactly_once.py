"""Bugs in what makes rows and their acks one: the writer, its stores, and the session's clock."""

from tests.mutants.mutant import Mutant

WRITER_TESTS = "tests/unit/spout/exactly_once/test_exact_writer.py"
SQLITE_TESTS = "tests/unit/spout/exactly_once/test_sqlite_store.py"
SINK_TESTS = "tests/unit/spout/sinks/test_exact_batches.py"
CLOCK_TESTS = "tests/unit/spout/planning_process/test_standing_clock.py"

MUTANTS = (
    Mutant(
        "a-start-does-not-publish-what-the-one-before-committed",
        "spout/exactly_once/writer.py",
        "        if grant.last_batch is not None:\n",
        "        if grant.last_batch is None:\n",
        f"{WRITER_TESTS}::test_a_start_publishes_what_the_one_before_committed_before_it_has_its_epoch",
        "its roots would be abandoned, and their rows written a second time",
    ),
    Mutant(
        "a-batch-of-an-earlier-start-is-written",
        "spout/exactly_once/writer.py",
        "return epoch == self._epoch",
        "return self._epoch is not None",
        f"{WRITER_TESTS}::test_a_batch_that_another_start_planned_is_not_its_own",
        "its roots are abandoned, and come again",
    ),
    Mutant(
        "rows-of-all-roots-are-written",
        "spout/exactly_once/acked_roots.py",
        "outcome.own_marks(RootMark.FAILED, RootMark.OUTSTANDING)",
        "outcome.own_marks(RootMark.FAILED)",
        f"{WRITER_TESTS}::test_rows_of_roots_that_failed_or_were_left_open_are_left_out",
        "a record that times out would have its rows in the store, and those of its copy, too",
    ),
    Mutant(
        "a-root-that-was-left-open-can-be-completed-elsewhere",
        "spout/exactly_once/writer.py",
        "publication_of(without_open(outcome), batch.lane)",
        "publication_of(outcome, batch.lane)",
        f"{WRITER_TESTS}::test_a_batch_is_committed_with_its_key_and_only_then_to_be_published",
        "it would be acked, and its rows were left out",
    ),
    Mutant(
        "rows-of-a-second-evaluation-are-written",
        "spout/exactly_once/writer.py",
        "        rows.refuse_change(batch.evaluated)\n",
        "",
        f"{WRITER_TESTS}::test_rows_of_a_second_evaluation_leave_the_store_as_it_is",
        "bolts may have done something else for them, and their roots were settled by the first one",
    ),
    Mutant(
        "a-row-more-that-adds-nothing-is-not-seen",
        "spout/exactly_once/rooted_rows.py",
        "        if arrived != settled:",
        "        if arrived.fingerprint != settled.fingerprint:",
        "tests/unit/spout/exactly_once/test_rooted_rows.py::test_rows_of_another_evaluation_are_refused",
        "hashes may be 0, or cancel each other",
    ),
    Mutant(
        "a-row-without-a-root-is-lost-without-a-word",
        "spout/exactly_once/writer.py",
        "        rows.refuse_strangers(RootSet.of_runs(outcome.plan.ranges))\n",
        "",
        f"{WRITER_TESTS}::test_a_row_of_no_root_of_the_batch_leaves_the_store_as_it_is",
        "an aggregate's rows would be left out, and all records acked",
    ),
    Mutant(
        "a-batch-with-held-tuples-is-written",
        "spout/exactly_once/writer.py",
        "        refuse_held(outcome)\n",
        "",
        f"{WRITER_TESTS}::test_a_batch_that_holds_tuples_is_refused",
        "a later batch would write the other rows of the record, whatever becomes of it",
    ),
    Mutant(
        "a-publication-of-another-version-is-taken",
        "spout/exactly_once/publication_bytes.py",
        "check_metadata=True",
        "check_metadata=False",
        "tests/unit/spout/exactly_once/test_publication_bytes.py"
        "::test_what_is_no_publication_of_this_version_is_refused",
        "columns of the same names may mean something else there",
    ),
    Mutant(
        "a-store-takes-the-commits-of-a-fenced-writer",
        "spout/exactly_once/sqlite_store.py",
        "            if granted != key.epoch:",
        "            if granted < key.epoch:",
        f"{SQLITE_TESTS}::test_of_two_writers_the_one_that_opened_first_writes_nothing_any_more",
        "a driver that slept would write rows whose roots a takeover has put back",
    ),
    Mutant(
        "a-store-grants-one-epoch-twice",
        "spout/exactly_once/sqlite_store.py",
        "max(epoch_min, granted_before + 1)",
        "max(epoch_min, granted_before)",
        f"{SQLITE_TESTS}::test_a_new_store_grants_what_it_is_asked_for_and_has_no_batch",
        "two writers would have it, and neither is fenced",
    ),
    Mutant(
        "rows-are-committed-before-what-is-published-for-them",
        "spout/exactly_once/sqlite_store.py",
        "            last_batch = (key.epoch, key.session, key.query, key.batch, publication)\n",
        '            connection.execute("COMMIT")\n            connection.execute("BEGIN IMMEDIATE")\n'
        "            last_batch = (key.epoch, key.session, key.query, key.batch, publication)\n",
        f"{SQLITE_TESTS}::test_a_writer_that_dies_at_any_statement_of_a_commit_leaves_all_or_nothing",
        "a crash between the two would leave rows whose roots nobody acks",
    ),
    Mutant(
        "the-clock-moves-while-a-batch-is-under-way",
        "spout/planning_process/planner.py",
        "            owned.tenure.stop_clock(now_ms)\n",
        "            pass\n",
        f"{CLOCK_TESTS}::test_no_root_of_a_batch_that_is_not_published_times_out",
        "a root could time out while its rows are committed",
    ),
    Mutant(
        "the-clock-stands-for-ever",
        "spout/planning_process/planner.py",
        "        elif self._unpublished is None:\n",
        "        elif self._unpublished is end:\n",
        f"{CLOCK_TESTS}::test_where_there_was_nothing_to_plan_the_clock_goes_on",
        "what a batch left open would never time out",
    ),
    Mutant(
        "the-publication-of-an-earlier-batch-lets-the-clock-go-on",
        "spout/planning_process/planner.py",
        "        if self._unpublished == end:\n",
        "        if self._unpublished is not None:\n",
        f"{CLOCK_TESTS}::test_the_publication_of_another_batch_lets_no_clock_go_on",
        "a root of the present batch could time out while its rows are committed",
    ),
    Mutant(
        "a-start-from-a-checkpoint-goes-on-with-its-session",
        "spout/group/opening.py",
        "return bool(self._journal.session) and self._grant_epoch is None",
        "return bool(self._journal.session)",
        "tests/unit/spout/group/test_opening.py"
        "::test_each_start_that_writes_exactly_once_is_a_session_of_its_own",
        "a root could time out by the clock of the process before, while its rows are committed",
    ),
    Mutant(
        "a-start-ends-the-writer-of-a-query-that-lives",
        "spout/group/opening.py",
        "        if not self._resumes and not self._spec.take_over:",
        "        if not journal.session and not self._spec.take_over:",
        "tests/unit/spout/group/test_presence.py"
        "::test_a_start_does_not_end_the_writer_of_another_checkpoint_that_lives",
        "two queries of one group would end each other without end",
    ),
    Mutant(
        "a-session-has-another-epoch-than-its-store-granted",
        "spout/group/opening.py",
        "            epoch = self._grant_epoch(epoch)\n",
        "            self._grant_epoch(epoch)\n",
        "tests/unit/spout/group/test_opening.py"
        "::test_a_session_that_writes_exactly_once_has_the_epoch_that_its_store_grants",
        "a start that is fenced could take the group from the writer after it",
    ),
    Mutant(
        "a-session-follows-on-one-whose-store-it-does-not-open",
        "spout/group/opening.py",
        "        self._refuse_past_store(answers.owner)\n",
        "",
        "tests/unit/spout/group/test_opening.py"
        "::test_a_session_without_the_store_does_not_follow_on_one_that_writes_exactly_once",
        "what is open may be in the store, and would be written again",
    ),
    Mutant(
        "a-checkpoint-with-a-store-goes-on-without-it",
        "spout/group/opening.py",
        "            self._refuse_past_store(journalled)\n",
        "",
        "tests/unit/spout/group/test_opening.py"
        "::test_a_query_without_the_store_does_not_go_on_from_the_checkpoint_of_one_that_has_it",
        "the batch under way may be in the store, and would be evaluated and written again",
    ),
    Mutant(
        "a-batch-without-records-stops-the-clock-for-good",
        "spout/planning_process/planner.py",
        "        if end != start and end.ranges:",
        "        if end != start:",
        f"{CLOCK_TESTS}::test_a_batch_without_records_leaves_the_clock_as_it_is",
        "nobody publishes it, so what an earlier batch left open would never time out",
    ),
    Mutant(
        "a-task-that-ran-twice-counts",
        "spout/sinks/exact_sink.py",
        "        runs_by_task.setdefault(task, set()).add((evaluated.stage, evaluated.attempt))\n",
        "        runs_by_task.setdefault(task, set()).add((evaluated.stage, 0))\n",
        f"{SINK_TESTS}::test_a_batch_in_which_a_task_reported_twice_does_not_count",
        "its rows may be of another run than what was settled",
    ),
    Mutant(
        "a-batch-that-is-run-again-is-written-again",
        "spout/sinks/exact_sink.py",
        "        if link.runs_again(plan) or not is_of_this_run:",
        "        if not is_of_this_run:",
        f"{SINK_TESTS}::test_a_batch_that_is_run_again_is_passed_over",
        "its run would end, since a later start has opened the store",
    ),
    Mutant(
        "a-batch-of-the-run-before-is-written-by-the-sink-of-both",
        "spout/sinks/exact_sink.py",
        "        if link.runs_again(plan) or not is_of_this_run:",
        "        if link.runs_again(plan):",
        f"{SINK_TESTS}"
        "::test_a_batch_that_a_run_has_had_is_not_another_run_s_though_nobody_says_that_it_runs_again",
        "the store may have it already",
    ),
    Mutant(
        "a-row-of-several-records-belongs-to-the-first",
        "spout/exactly_once/anchored_rows.py",
        "    if (np.repeat(indices, counts) != roots_of_paths).any():\n",
        "    if not len(indices):\n",
        "tests/unit/spout/exactly_once/test_anchored_rows.py"
        "::test_a_row_of_no_record_or_of_several_is_refused",
        "it would be written though another of its records failed",
    ),
    Mutant(
        "the-store-is-opened-twice-for-one-process",
        "spout/streaming/keeper.py",
        "        self._processes_with_grant.add(question.process)\n",
        "",
        "tests/unit/spout/streaming/test_keeper.py"
        "::test_the_store_is_opened_once_for_a_process_that_asks_whether_it_may_take_the_group",
        "its session would have an epoch that is fenced by itself",
    ),
)
