"""Every public function of the pure rooms is called by a property test, or it stands here, with the reason.

A function counts as called where a file of tests/property names it. Many others are run by the models there,
through what they call: `RUN_BY_MODELS` has those that a run of tests/property under coverage has seen.
`EXEMPT` has the rest. Both lists may only shrink: a function with a property of its own can be taken out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PURE_ROOMS = (
    "acker/identity.py", "acker/wire", "acker/ledger", "acker/service", "replay/policy", "replay/records",
    "spout/planning", "spout/publishing", "spout/tuples", "spout/group",
)  # fmt: skip
PRODUCT = ("acker", "replay", "spout")

RUN_BY_MODELS = """
acker/wire/causes.py: class_name clipped cut_text error_class error_classes error_text with_code_line
  without_code_line
acker/wire/checks.py: emission_wall epoch_max read_verdicts start_of_left_out_block wrong_clock wrong_epoch
  wrong_fails wrong_init wrong_names wrong_numbers wrong_source wrong_take wrong_taken wrong_touch
  wrong_verdicts
acker/wire/clusters.py: cluster_header cluster_of is_of_another other_cluster require_cluster
acker/wire/codec.py: load_schema
acker/wire/events.py: pack_positions pack_values
acker/wire/headers.py: first_value
acker/wire/lateness.py: too_late_codec
acker/wire/leader_epochs.py: epochs_header epochs_of_runs read_epochs
acker/wire/stacks.py: cut_stack key_of read_stack read_stacks stack_header stacks_header
acker/ledger/contribution.py: count_at_or_above clip
acker/ledger/ledger.py: block_runs
acker/ledger/verdicts.py: split_into_records
acker/service/core.py: read_cost_bytes wrong_headers
acker/service/freeing.py: claims_of forget_groups remove_claims next_generations
acker/service/passed_over.py: damage_handler read_ack_topic
acker/service/snapshot.py: carried_bin carry_old_cohorts load_deadlines load_state take_snapshot
acker/service/state.py: bin_part encode_state damaged_state_as_disagreement not_needed_from part_of_key
  read_shared_until_ms shared_headers first_verdict_to_read
acker/service/state_notes.py: moved_deadlines read_notes
replay/records/copies.py: build_copy original_headers past_headers
replay/records/dead_letter.py: build_dead_letter
replay/records/due.py: flaw_of flaw_of_entry history_of parse_root_key root_key root_of_key
replay/records/due_fold.py: flaw_of_newer name_of
replay/records/headers.py: header_text joined_headers our_values parted_headers plain_headers record_id
  root_name
replay/records/letters.py: copy_of_letter mark_record own_headers parse_letter
replay/records/record_time.py: parse_record_time needs_no_time_header time_headers time_of written_time
replay/records/redrives.py: audit_record parse_audit
spout/group/session_state.py: status_word
spout/planning/intake.py: cursor_of fair_shares
spout/planning/order.py: line_up_of list_of turn_of waits_for
spout/planning/plan.py: cut_ranges read_tasks
spout/planning/supply.py: joined_portions positions_in
spout/publishing/delayed.py: held_edges
spout/publishing/publish.py: not_acked
spout/publishing/root_marks.py: steps_of
spout/tuples/casts.py: check_nulls exact_cast has_not_null with_zone
spout/tuples/counts.py: sum_of_counts
spout/tuples/exact.py: exact_values near_decimal
spout/tuples/failures.py: cause_of cause_of_output with_class
spout/tuples/places.py: ordinals_for_children ordinals_of uniform_places
spout/tuples/raised.py: first_of_each place_of place_of_code
spout/tuples/rows.py: misfits one_batch put_in_order rows_of_wrong_size size_error
spout/tuples/tuple.py: by_names short_repr text_of values_in_order
spout/group/carried.py: carried_commits
spout/group/opening.py: clock_after epoch_above generation_steps
spout/group/presence.py: read_inputs session_text sign_headers
spout/group/running_session.py: running_session_of
spout/group/sources.py: find_sources sources_of topic_names
spout/group/starting.py: check_cluster check_commits check_journal check_topic starting_offsets
"""
"""By file, as ``python -m coverage run -m pytest -n0 tests/property`` has shown it."""

EXEMPT = {
    "it handles damage of a log, which tests/unit/acker/service plays batch by batch": """
acker/service/passed_over.py: is_mark is_passed_over likely_writer require_passed_over
acker/service/state.py: is_sound_part
""",
    "it writes a sentence for people; tests/unit has the sentence": """
replay/policy/damage.py: held_up_cure
replay/records/movers.py: mover_record mover_text
spout/publishing/settle.py: namesakes_message
spout/group/presence.py: describe_session
spout/group/starting.py: clock_ahead log_was_cut older_checkpoint re_created refused_by_acker
spout/group/strangers.py: member_text members_text moved_cure stranger_text stranger_texts
""",
    "a constant and a number: `flaw_of`, which is run, compares with it": """
replay/records/due.py: pause_key
""",
    "it asks Spark for the task, or the session, that runs it": """
spout/publishing/report_accumulator.py: add_report is_local task_name
""",
    "it builds columns of Spark, which tests/integration/spark runs": """
spout/tuples/anchor_columns.py: collect_anchors join_anchors
""",
    "it reads the frame of a thread that hangs, which only a process of its own shows": """
spout/tuples/raised.py: place_of_thread
""",
    "it asks a log, whose answers tests/unit/spout/group plays one by one": """
spout/group/clocks.py: watch_clocks
spout/group/strangers.py: strangers_now strangers_of
""",
}
"""By reason."""


def modules(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules of files and folders, each with its path."""
    for folder in folders:
        path = PROJECT / folder
        for file in [path] if path.suffix else sorted(path.rglob("*.py")):
            yield file.relative_to(PROJECT).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def names_in(tree: ast.AST) -> set[str]:
    """Return all names that a tree reads: of variables, functions, and attributes."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@cache
def public_functions() -> frozenset[str]:
    return frozenset(
        f"{file}:{node.name}"
        for file, tree in modules(*PURE_ROOMS)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    )


@cache
def named_by_properties() -> frozenset[str]:
    return frozenset().union(*(names_in(tree) for _, tree in modules("tests/property")))


def listed(text: str) -> set[str]:
    """Return the functions of a list; a line begins with a file, or is indented and goes on with names."""
    functions = set[str]()
    file = ""
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            file, _, line = line.partition(":")
        functions.update(f"{file}:{name}" for name in line.split())
    return functions


def by_models() -> set[str]:
    return listed(RUN_BY_MODELS)


def exempt() -> set[str]:
    return set().union(*map(listed, EXEMPT.values()))


def test_every_public_function_of_a_pure_room_has_a_property_or_a_reason() -> None:
    named = named_by_properties()
    without = {function for function in public_functions() if function.rpartition(":")[2] not in named}
    missing = without - by_models() - exempt()
    assert not missing, f"write a property test, or a reason here: {sorted(missing)}"


def test_the_lists_name_functions_that_are_there_and_each_once() -> None:
    assert by_models() | exempt() <= public_functions()
    assert not by_models() & exempt()
    assert sum(len(listed(text)) for text in EXEMPT.values()) == len(exempt())


def test_what_the_models_run_can_be_reached_from_them() -> None:
    """By its name: nothing of it is dead, and nothing stands here that no test could call."""
    bodies: dict[str, set[str]] = {}
    for _, tree in modules(*PRODUCT, "tests/support"):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                bodies.setdefault(node.name, set()).update(names_in(node))
    reached, found = set[str](), set(named_by_properties())
    while found:
        name = found.pop()
        if name not in reached:
            reached.add(name)
            found |= bodies.get(name, set())
    assert {function for function in by_models() if function.rpartition(":")[2] not in reached} == set()
