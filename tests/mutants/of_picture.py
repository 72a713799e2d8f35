"""Bugs in the picture: what a query may do, what a file leaves out, and what is not known."""

from tests.mutants.mutant import Mutant

_QUERY = "tests/unit/spout/picture/test_picture_query.py"
_FILES = "tests/unit/spout/picture/test_picture_files.py"
_COUNTS = "tests/unit/spout/questions/test_letter_counts.py"
_DETAILS = "tests/unit/spout/questions/test_letter_details.py"
_KEPT = "tests/unit/spout/questions/test_kept_letters.py"
_LOADER = "tests/unit/spout/picture/test_picture_loader.py"
_OUTCOMES = "tests/unit/spout/picture/test_redrive_outcomes.py"
_SILENT = "tests/unit/spout/questions/test_silent_broker.py"
_ROOTS = "tests/unit/spout/questions/test_open_roots.py"
_RECORDED_ROOTS = "tests/unit/spout/questions/test_recorded_roots.py"

MUTANTS = (
    # -- what `dlq stats` counts
    Mutant(
        "marks-are-written-before-their-letters",
        "spout/picture/letter_tables.py",
        '        self._picture.insert("letters", self._letter_rows)\n'
        "        self._picture.connection.executemany(_MARK, self._mark_values)\n",
        "        self._picture.connection.executemany(_MARK, self._mark_values)\n"
        '        self._picture.insert("letters", self._letter_rows)\n',
        f"{_COUNTS}::test_marks_are_known_however_the_letters_are_written",
        "letters that somebody has handled would be counted as open",
    ),
    Mutant(
        "letters-of-a-part-are-counted-as-all",
        "spout/questions/letters.py",
        "            loader.read_or_raise(now_ms=0)",
        "            loader.read(now_ms=0)",
        f"{_COUNTS}::test_numbers_of_a_part_are_not_shown_as_those_of_all",
        "while a broker is away, numbers of a part would be taken for those of all",
    ),
    Mutant(
        "a-place-means-letters-of-all-inputs",
        "spout/inspect/dead_letters.py",
        "            place = _place_of_input(input, text)\n",
        "            place = max(_place_of_input(other, text) or '' for other in inputs) or None\n",
        f"{_COUNTS}::test_a_place_means_the_letters_of_its_input_alone",
        "a letter of another input could be shown, and be meant by the sample of a redrive",
    ),
    Mutant(
        "a-named-letter-is-looked-for-from-the-start",
        "spout/picture/reading.py",
        "max(starts[place], offset, named_starts.get(place, 0))",
        "max(starts[place], offset)",
        f"{_COUNTS}::test_of_a_named_letter_only_its_partition_is_read_and_from_there_on",
        "to show one letter a whole topic would be read",
    ),
    Mutant(
        "a-key-that-is-unknown-counts-as-the-key-null",
        "spout/questions/letter_counts.sql",
        "    FROM counted_letters WHERE has_key GROUP BY key\n",
        "    FROM counted_letters GROUP BY key\n",
        f"{_COUNTS}::test_the_key_of_a_record_that_could_not_be_read_is_not_the_key_null",
        "of records that nobody could read the key would be said to be null",
    ),
    # -- what a page keeps of letters
    Mutant(
        "letters-behind-the-mark-stay",
        "spout/questions/kept_letters.py",
        '            execute(f"{of_partition} AND offset >= ?", [*place, first_offsets[place]])\n',
        "",
        f"{_KEPT}::test_who_was_killed_before_the_marks_were_written_has_each_letter_once",
        "a page that was killed while it read would show letters twice",
    ),
    Mutant(
        "a-topic-that-was-created-again-is-gone-on-with",
        "spout/questions/kept_letters.py",
        "if id_then != topic_id or next_offset",
        "if next_offset",
        f"{_KEPT}::test_of_a_topic_that_was_created_again_nothing_is_kept",
        "letters of a topic that is gone would be shown as those of the new one",
    ),
    Mutant(
        "letters-of-a-former-topic-stay",
        "spout/questions/kept_letters.py",
        "            self._forget_former_topics(topics)\n",
        "",
        f"{_KEPT}::test_a_topic_that_no_input_has_any_more_takes_no_room",
        "an input with another dead-letter topic would show the letters of both, for good",
    ),
    Mutant(
        "marks-outlive-their-letters",
        "spout/questions/kept_letters.py",
        "            self._forget(topic, starts, first_offsets)\n"
        "            self._write_marks(input, topic_id, first_offsets, other_records)\n",
        "            self._forget(topic, starts, first_offsets)\n",
        f"{_KEPT}::test_a_log_that_was_cut_and_grows_while_nobody_reads_is_read_from_its_start",
        "letters that were forgotten would never be read again",
    ),
    Mutant(
        "two-pages-keep-letters-in-one-file",
        "spout/picture/database.py",
        '        self.connection.execute("PRAGMA locking_mode = EXCLUSIVE")\n',
        "",
        f"{_KEPT}::test_the_file_is_for_its_owner_and_for_one_page",
        "two pages would both read what is new, and each letter would be there twice",
    ),
    # -- what `dlq show` says of a letter
    Mutant(
        "details-of-a-letter-have-the-limits-of-a-query",
        "spout/questions/letters.py",
        "has_limits=not has_details",
        "has_limits=True",
        f"{_DETAILS}::test_a_payload_of_any_size_is_whole",
        "a large payload would be shown as null, and nobody could copy it from its letter",
    ),
    Mutant(
        "letters-that-nobody-named-are-kept",
        "spout/picture/letter_tables.py",
        "                elif self._is_named(input, entry):\n",
        "                else:\n",
        f"{_DETAILS}::test_only_letters_that_are_named_are_kept",
        "to show one letter the payloads of all behind it would be in memory",
    ),
    # -- what became of letters that redrives handled
    Mutant(
        "outcomes-of-some-redrives-are-told-as-those-of-all",
        "spout/questions/redrives.py",
        "            loader.read_or_raise(now_ms=0)",
        "            loader.read(now_ms=0)",
        f"{_OUTCOMES}::test_numbers_of_some_outcomes_are_not_shown_as_those_of_all",
        "an operator would read that no letter of a redrive was acked, where nobody knows it",
    ),
    Mutant(
        "a-later-redrive-is-not-followed",
        "spout/picture/outcome_table.py",
        "if followed is not None and followed.redrives == redrives:",
        "if followed is not None:",
        f"{_OUTCOMES}::test_a_picture_that_follows_has_later_redrives_and_what_became_of_their_letters",
        "a picture that follows would lack the letters of redrives that began later",
    ),
    Mutant(
        "a-limit-of-outcomes-is-no-hole",
        "spout/picture/outcome_table.py",
        "                reading.note_cut(Hole(TABLE, why, input.dead_letter.topic))\n",
        "",
        f"{_OUTCOMES}::test_outcomes_behind_a_limit_are_a_hole",
        "counts would lack letters, and nothing would say so",
    ),
    Mutant(
        "a-command-that-needs-all-reads-on-behind-an-error",
        "spout/picture/loader.py",
        "        self._read(now_ms, raises_errors=True)",
        "        self._read(now_ms, raises_errors=False)\n"
        "        if self.errors:\n            raise self.errors[0]",
        _SILENT + "::test_the_first_state_that_cannot_be_read_ends_the_command",
        "each of many acker partitions would be waited for, for the same answer",
    ),
    Mutant(
        "a-command-waits-as-long-as-a-picture-for-a-silent-topic",
        "spout/picture/reading.py",
        "            patience_ms=self._limits.patience_ms,\n",
        "",
        _SILENT + "::test_a_silent_partition_is_waited_for_as_long_as_an_operation_may_take",
        "a slow broker would be taken for one that has nothing more",
    ),
    # -- what `roots` shows
    Mutant(
        "open-roots-of-a-part-are-shown-as-all",
        "spout/questions/open_roots.py",
        "        self._loader.read_or_raise(now_ms)",
        "        self._loader.read(now_ms)",
        f"{_RECORDED_ROOTS}::test_roots_prints_what_was_recorded",
        "while a State cannot be read, its roots would be missing, and nothing would say so",
    ),
    Mutant(
        "open-roots-come-in-the-order-of-their-topics-names",
        "spout/questions/open_roots.sql",
        "ORDER BY emitted_at, topics.number, partition",
        "ORDER BY emitted_at, topic, partition",
        f"{_ROOTS}::test_of_roots_that_were_emitted_together_those_of_the_input_with_the_lower_id_come_first",
        "rows would come in another order than on the day before",
    ),
    Mutant(
        "an-old-state-is-as-good-as-a-new-one",
        "spout/questions/unknown_ackers.sql",
        "(is_behind AND state_at <= :old_until)",
        "(is_behind AND state_at < 0)",
        f"{_RECORDED_ROOTS}::test_roots_prints_what_was_recorded",
        "roots that an old State lacks would be said not to be open",
    ),
    # -- what a query may do
    Mutant(
        "a-query-of-a-picture-may-do-anything",
        "spout/picture/query.py",
        "        return sqlite3.SQLITE_DENY\n",
        "        return sqlite3.SQLITE_OK\n",
        f"{_QUERY}::test_no_statement_changes_anything_or_reaches_a_file",
        "whoever may ask a picture could open other databases, and write files",
    ),
    Mutant(
        "a-query-of-a-picture-may-call-any-function",
        "spout/picture/query.py",
        'if (detail or "").lower() in _ALLOWED_FUNCTIONS:',
        "if detail:",
        f"{_QUERY}::test_no_statement_changes_anything_or_reaches_a_file",
        "a function that a later SQLite brings could do more than compute",
    ),
    Mutant(
        "a-picture-that-is-asked-can-be-changed",
        "spout/picture/query.py",
        '"PRAGMA query_only = ON"',
        '"PRAGMA query_only = OFF"',
        f"{_QUERY}::test_the_first_fence_holds_where_the_second_one_is_open",
        "the authorizer alone would keep a query from changing the picture",
    ),
    Mutant(
        "the-file-of-a-picture-is-opened-for-writing",
        "spout/picture/database.py",
        "?mode=ro",
        "?mode=rw",
        f"{_FILES}::test_a_file_has_what_the_picture_had_and_only_its_owner_reads_it",
        "a query could change the file of a colleague",
    ),
    Mutant(
        "a-value-of-an-answer-has-any-size",
        "spout/picture/query.py",
        "        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT_BYTES_MAX)\n",
        "",
        f"{_QUERY}::test_a_value_or_a_query_of_any_size_is_refused",
        "one query could take all memory of a machine",
    ),
    Mutant(
        "a-query-sorts-in-any-memory",
        "spout/picture/query.py",
        'f"PRAGMA hard_heap_limit = {MEMORY_BYTES_MAX}"',
        '"PRAGMA hard_heap_limit"',
        f"{_QUERY}::test_a_query_that_sorts_or_groups_more_than_the_limit_is_refused",
        "one query could take all memory of a machine",
    ),
    # -- what a file has
    Mutant(
        "a-picture-for-others-has-payloads",
        "spout/picture/database.py",
        "if column.holds is Holds.PAYLOAD and not self.has_payloads:",
        "if False:",
        f"{_FILES}::test_a_file_for_others_has_no_payload_and_no_secret_in_any_column",
        "a file for a colleague would have what customers wrote",
    ),
    Mutant(
        "a-picture-for-others-has-secrets",
        "spout/picture/database.py",
        "return None if text is None else cut(text)",
        "return text",
        f"{_FILES}::test_a_file_for_others_has_no_payload_and_no_secret_in_any_column",
        "a password in the message of an exception would be sent to a colleague",
    ),
    Mutant(
        "a-picture-is-written-over-the-one-before-it",
        "spout/picture/database.py",
        'part = path.with_name(f".{path.name}.{os.getpid()}.part")',
        "part = path",
        f"{_FILES}::test_without_room_nothing_is_left_and_the_error_says_what_to_do",
        "a disk that is full would leave half a picture, and no former one",
    ),
    Mutant(
        "a-payload-that-is-no-json-stands-where-json-is-asked-for",
        "spout/picture/database.py",
        'parameter = f"CASE WHEN json_valid({parameter}) THEN {parameter} END"',
        "pass",
        f"{_LOADER}::test_a_letter_has_where_its_record_was_and_a_key_inside_its_payload_can_be_asked_for",
        "one such letter would let every search in payloads end with an error",
    ),
    # -- what is not known
    Mutant(
        "what-waits-is-0-where-it-cannot-be-read",
        "spout/picture/loader.py",
        "if not self._topic_reader.is_whole(self._topics.ack_topics.due):",
        "if False:",
        f"{_LOADER}::test_a_topic_that_is_missing_is_a_hole_and_the_rest_is_loaded",
        "an operator would read that nothing waits, where nobody knows it",
    ),
    Mutant(
        "what-was-deleted-unread-is-no-hole",
        "spout/picture/reading.py",
        "if start > read_to[place] and not use.may_begin_late:",
        "if False:",
        f"{_LOADER}::test_what_is_deleted_before_a_picture_that_follows_has_read_it_is_a_hole",
        "counts would lack records, and nothing would say so",
    ),
    Mutant(
        "half-of-a-reading-stays",
        "spout/picture/database.py",
        'self.connection.execute("ROLLBACK")',
        'self.connection.execute("COMMIT")',
        f"{_LOADER}::test_a_reading_that_raises_changes_nothing",
        "the next reading would count what it has again",
    ),
    # -- what became of roots
    Mutant(
        "the-first-root-that-nobody-accepted-does-not-wait",
        "spout/picture/verdict_tables.py",
        "return min(len(self.positions), max(0, progress.skip - self.first_index))",
        "return min(len(self.positions), max(0, progress.skip + 1 - self.first_index))",
        f"{_LOADER}::test_a_root_that_waits_has_its_entry_and_one_that_nobody_accepted_has_none",
        "a lost record would be in no table of what waits",
    ),
    Mutant(
        "roots-that-a-worker-accepts-wait-twice",
        "spout/picture/verdict_tables.py",
        "self._delete_rows(new_roots, accepted_count)",
        "self._delete_rows(new_roots, 0)",
        f"{_LOADER}::test_a_root_that_waits_no_more_leaves_while_the_picture_follows",
        "a record that waits would be counted twice",
    ),
    Mutant(
        "roots-that-were-lost-while-nobody-knew-the-progress-are-forgotten",
        "spout/picture/verdict_tables.py",
        "        lost_positions = positions(lost.positions)\n        if not len(lost_positions):\n",
        "        lost_positions = positions(lost.positions)\n        if progress is None:\n",
        f"{_LOADER}::test_what_was_lost_while_nobody_knew_what_is_accepted_waits_once_that_is_known",
        "a picture that follows would lack them for ever, and nothing would say so",
    ),
    Mutant(
        "an-open-root-is-settled-as-well",
        "spout/picture/init_tables.py",
        "                roots -= progress.open_roots\n",
        "",
        f"{_LOADER}::test_open_settled_and_announced_roots_are_rows_of_emissions_with_their_session",
        "a record would be counted twice, once in a state that it has not",
    ),
)
