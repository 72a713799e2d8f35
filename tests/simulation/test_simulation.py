"""The ring of the simulation: seeds that must hold, safeguards that must be missed, histories that repeat."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import replay.worker.accept
from replay.policy import disposition
from replay.policy.disposition import Disposition, LostEmission, Policy
from spout.cli import main as windhover
from tests.simulation import slices
from tests.simulation.__main__ import app
from tests.simulation.ablations.ablations import ABLATIONS
from tests.simulation.checkers.checkers import checkers
from tests.simulation.options import CHOSEN, FAULTS, Profile, draw
from tests.simulation.report import COMMAND
from tests.simulation.report import command as command_of
from tests.simulation.run import PROFILES, ablate, run_options, seeds
from tests.simulation.shrink import shrink
from tests.simulation.truth.facts import Broken
from tests.simulation.world.world import World

PROJECT = Path(__file__).resolve().parents[2]

SEEDS = 300

MISSED = 300
"""Seeds of its profile in which a safeguard that is taken out must be missed; most are in the first ten."""


def command(arguments: list[str]) -> int:
    """Run `python -m tests.simulation` and return its exit code."""
    return windhover.run(arguments, app, COMMAND)


def digest_of(seed: int, hash_seed: int) -> str:
    """Run a seed in a process of its own and return the digest of its history."""
    program = (
        f"from tests.simulation.run import seeds\nprint(next(seeds({seed}, 1, 'rough')).world.digest())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.slow
def test_no_rule_breaks_in_some_hundred_seeds() -> None:
    broken = [f"seed {run.options.seed}: {run.broken}" for run in seeds(0, SEEDS) if run.broken]

    assert broken == []


def test_no_rule_breaks_when_everything_goes_wrong_at_once() -> None:
    """And everything does: of the faults that are drawn there is none that does not happen."""
    broken, happened = [], set[str]()
    for run in seeds(0, 60, "rough"):
        broken += [f"seed {run.options.seed}: {run.broken}"] if run.broken else []
        happened |= {fault for fault, count in run.world.faults.items() if count}

    assert broken == []
    assert FAULTS.keys() - CHOSEN - {"shorten"} <= happened


def test_no_rule_breaks_where_inputs_are_ordered() -> None:
    """InOrder among them: of each key, or partition, what is acked comes in order, whatever dies."""
    runs = list(seeds(30, 20, "ordered"))

    assert [f"seed {run.options.seed}: {run.broken}" for run in runs if run.broken] == []
    assert {run.options.ordering for run in runs} == {"key", "partition"}
    assert any(root.was_held for run in runs for root in run.world.truth.roots.values())


def test_no_rule_breaks_for_anybody_while_a_stranger_writes_in_everybodys_name() -> None:
    """O1809: and each of his records that a session could not have written is in the quarantine."""
    runs = list(seeds(0, 15, "forged"))

    assert [f"seed {run.options.seed}: {run.broken}" for run in runs if run.broken] == []
    assert sum(run.world.faults["forged"] for run in runs) > 100


def test_no_rule_breaks_where_logs_are_cut() -> None:
    """O622 to O628: nothing is acked that is not done, no copy is of another record, each loss is named."""
    runs = list(seeds(0, 20, "cut"))

    assert [f"seed {run.options.seed}: {run.broken}" for run in runs if run.broken] == []
    assert sum(run.world.faults["cut"] for run in runs) > 50


def test_no_rule_breaks_where_transactions_of_ackers_are_under_way_for_long() -> None:
    """D1013, D1015: an acker does other things meanwhile, loses partitions, dies, or goes on as a zombie."""
    runs = list(seeds(0, 20, "lagging"))

    assert [f"seed {run.options.seed}: {run.broken}" for run in runs if run.broken] == []
    assert sum(run.world.faults["lagging"] for run in runs) > 500


def test_no_rule_breaks_where_rows_and_acks_are_one_transaction() -> None:
    """Rule 12; executors are lost between a batch's settling and its commit, and starts end each other."""
    runs = list(seeds(20, 25, "exact"))

    assert [f"seed {run.options.seed}: {run.broken}" for run in runs if run.broken] == []
    told = {event[2] for run in runs for event in run.world.events}
    assert {"stored", "rows changed", "not of this start"} <= told


def test_a_calm_run_has_no_fault_and_loses_nothing() -> None:
    for run in seeds(0, 20, "calm"):
        assert run.broken is None
        assert not run.world.faults
        assert not {"FAILED", "ABANDONED"} & {root.verdict for root in run.world.truth.roots.values()}


@pytest.mark.parametrize("seed", [3, 4])
def test_the_same_seed_gives_the_same_events_byte_for_byte(seed: int) -> None:
    assert digest_of(seed, hash_seed=1) == digest_of(seed, hash_seed=2)


def test_another_seed_gives_another_history() -> None:
    first, second = seeds(0, 2)

    assert first.world.digest() != second.world.digest()


def test_every_fault_is_absent_in_some_runs_and_happens_in_others() -> None:
    drawn = [draw(seed, Profile()).rates for seed in range(40)]

    for fault in FAULTS.keys() - CHOSEN:
        assert 0 < sum(fault in rates for rates in drawn) < len(drawn)


def test_there_is_one_checker_for_each_rule() -> None:
    assert len({type(checker).__name__ for checker in checkers()}) == 13
    assert all(checker.rule for checker in checkers())


def test_every_ablation_names_checkers_that_exist_and_a_partner_that_exists() -> None:
    names = {type(checker).__name__ for checker in checkers()}
    for ablation in ABLATIONS.values():
        assert set(ablation.falls) <= names
        assert not ablation.pair or ablation.pair in ABLATIONS
        assert ablation.profile.always.keys() <= FAULTS.keys()


def test_what_stands_in_for_a_safeguard_is_called_as_the_safeguard_is() -> None:
    """Another signature would end every run by a TypeError, which tells nothing of the safeguard."""
    for name, ablation in ABLATIONS.items():
        for owner, attribute, stand_in in ablation.removal():
            original = inspect.getattr_static(owner, attribute)
            if callable(original):
                asked = list(inspect.signature(stand_in).parameters.values())
                if [each.kind for each in asked] != [inspect.Parameter.VAR_POSITIONAL]:
                    wanted = inspect.signature(original).parameters
                    assert [each.name for each in asked] == list(wanted), f"{name}: {attribute}"


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", sorted(ABLATIONS))
def test_without_a_safeguard_its_checker_falls(name: str) -> None:
    fall = ablate(name, MISSED, ABLATIONS[name].begin)

    assert fall.fell, f"{name} was not missed in {MISSED} seeds; others that fell: {fall.others}"


def test_what_was_taken_out_is_back_after_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    for ablation in ABLATIONS.values():
        taken_out = ablation.removal()
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in taken_out]
        chosen = replace(ablation, removal=partial(list, taken_out))

        def look(world: World, taken_out: list[tuple[Any, str, Any]] = taken_out) -> None:
            seen.append(all(vars(owner)[name] is stand_in for owner, name, stand_in in taken_out))

        monkeypatch.setattr(World, "run", look)
        run_options(draw(0, PROFILES["calm"], "calm"), chosen)
        assert all(getattr(owner, name) is kept for owner, name, kept in before)
    assert seen == [True] * len(ABLATIONS)


@pytest.mark.parametrize("error", [KeyError("a bug of the product"), Broken("NoLoss", "a finding")])
def test_what_was_taken_out_is_back_after_a_run_that_ended_early(error: Exception) -> None:
    def fall(*_: object) -> object:
        raise error

    before = vars(replay.worker.accept)["dispose"]
    options = draw(0, ABLATIONS["dead-letter"].profile, "dead-letter")
    fallen = replace(ABLATIONS["dead-letter"], removal=lambda: [(replay.worker.accept, "dispose", fall)])
    runs = [run_options(replace(options, seed=seed), fallen) for seed in range(5)]

    assert any(run.broken for run in runs)
    assert vars(replay.worker.accept)["dispose"] is before


def test_a_finding_is_shrunk_and_repeated_by_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    name = "delivery-ordinals"
    found = next(run for run in seeds(0, 20, ablate=name) if run.broken)
    small = shrink(found, name, tries=40)
    again = command_of(small.options, name)

    assert small.broken is not None
    assert small.broken.rule == "NoEarlyCompletion"
    sizes = [(len(run.world.events), run.options.records) for run in (small, found)]
    assert sizes[0] < sizes[1]
    assert command([*again.removeprefix(COMMAND).split(), "--json"]) == 1
    assert small.world.digest() in capsys.readouterr().out


@pytest.mark.slow
def test_two_processes_find_what_one_does(capsys: pytest.CaptureFixture[str]) -> None:
    """Slices are told in the order of their seeds, whichever is done first."""
    told, count = [], 2 * slices.SLICE_SEEDS + 4
    arguments = ["--seeds", str(count), "--from", "31", "--steps", "30", "--json"]
    for jobs in ("1", "2"):
        assert command([*arguments, "--jobs", jobs]) == 0
        figures = json.loads(capsys.readouterr().out)
        assert figures.pop("seconds") > 0
        told.append(figures)
    assert told[0] == told[1]
    assert told[0]["runs"] == count


def test_the_command_ends_with_0_when_all_held_and_with_2_when_it_is_called_wrongly() -> None:
    assert command(["--seeds", "2", "--json"]) == 0
    assert command(["--ablate", "no-such-safeguard"]) == 2
    assert command(["--without", "no-such-fault"]) == 2


def test_ablations_refuse_what_they_would_not_heed(capsys: pytest.CaptureFixture[str]) -> None:
    for option in (
        ("--from", "1"), ("--profile", "calm"), ("--ablate", "dead-letter"), ("--without", "crash"),
        ("--steps", "10"), ("--records", "3"), ("--groups", "1"),
    ):  # fmt: skip
        assert command(["--ablations", *option]) == 2
        assert option[0] in capsys.readouterr().err


@pytest.mark.slow
def test_an_exception_of_the_product_is_a_finding_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def dispose(policy: Policy, lost: LostEmission, now_ms: int, jitter: float) -> Disposition:
        if lost.attempt >= 2:
            raise KeyError("a bug of the product")
        return disposition.dispose(policy, lost, now_ms, jitter)

    monkeypatch.setattr(replay.worker.accept, "dispose", dispose)
    monkeypatch.setattr(slices, "shrink", lambda run, ablate: shrink(run, ablate, tries=10))

    assert command(["--seeds", "10"]) == 1
    told = capsys.readouterr().out
    assert "NeverCrashes" in told
    assert "KeyError: 'a bug of the product'" in told
    assert "in dispose" in told
    again = next(line for line in told.splitlines() if line.startswith(f"repeat it: {COMMAND} "))
    assert command([*again.removeprefix(f"repeat it: {COMMAND} ").split(), "--json"]) == 1
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert finding["rule"] == "NeverCrashes"
