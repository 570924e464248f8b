"""The example contracts of training objectives, from the file to the verdict."""

from pathlib import Path

import pytest
from objective_recordings import record, reward_of

from paritas.commands.offline import judge_recording
from paritas.contracts.lint import lint
from paritas.contracts.load import load_contract, load_text
from paritas.errors import ContractError
from paritas.records import Reason, State

FOLDER = Path(__file__).parents[2] / "examples/contracts"


def advantage(i, _ids):
    return {"advantage": (-1) ** i * 0.5}


def group_of_four(i, _ids):
    return {"group_id": f"g-{i // 4:04}", "advantage": (-1) ** i * 0.5}


def preference(i, _ids):
    return {"group_id": f"g-{i // 2:04}", "preference": ("chosen", "rejected")[i % 2]}


def rewarded(i, ids):
    return {"group_id": f"g-{i:04}", "reward": reward_of(ids)}


NOISE = {"noise": 0.6}
# contract → (labels, what is broken, clauses of the objective that must be violated then)
CASES = {
    "ppo": (advantage, NOISE, {"clip-rate", "phantom-clip"}),
    "grpo": (group_of_four, NOISE, {"clip-rate", "phantom-clip"}),
    "gspo": (group_of_four, NOISE, {"sequence-clip-rate"}),
    "trpo": (None, NOISE, {"trust-region"}),
    "dpo": (preference, NOISE, {"margin"}),
    "dpo-reference": (preference, NOISE, {"margin"}),
    "rlhf-reward": (rewarded, {"tilt": -0.8, "noise": 0.0}, {"reward-loss"}),
    "calibration": (None, {"scale": 1 / 1.6}, {"confidence"}),
    "distillation": (None, NOISE, {"teacher"}),
}


def judged(name, folder, **fault):
    labels, _, _ = CASES[name]
    return judge_recording(load_contract(FOLDER / f"{name}.yaml"), *record(folder, labels=labels, **fault))


def own(judgement, name):
    """States of the objective's own clauses in the plain slice."""
    clauses = set(CASES[name][2]) | ({"reward-gain"} if name == "rlhf-reward" else set())
    return {v.clause: v for v in judgement.verdicts if v.clause in clauses and v.slice == "all"}


def test_every_example_has_a_case():
    service = {"service", "sampled"}  # test_service_examples.py
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(CASES) | service


@pytest.mark.parametrize("name", CASES)
def test_an_example_is_sound_and_says_what_it_is_for(name):
    contract = load_contract(FOLDER / f"{name}.yaml")
    assert contract.name == name
    assert lint(contract) == ()
    assert all(c.source for c in contract.clauses)
    assert (FOLDER / f"{name}.yaml").read_text().startswith("# ")


@pytest.mark.parametrize("name", CASES)
def test_healthy_kernels_violate_nothing_and_were_looked_at(name, tmp_path):
    found = judged(name, tmp_path)
    assert [v for v in found.verdicts if v.state is State.VIOLATED] == []
    for verdict in own(found, name).values():
        assert verdict.units > 0
        assert verdict.estimate < verdict.limit
        assert verdict.reason in (Reason.CERTIFIED, Reason.NEEDS_MORE_UNITS)


@pytest.mark.parametrize("name", CASES)
def test_broken_kernels_violate_the_objective(name, tmp_path):
    _, fault, broken = CASES[name]
    found = own(judged(name, tmp_path, **fault), name)
    assert {clause for clause, v in found.items() if v.state is State.VIOLATED} == broken


@pytest.mark.parametrize("name", ["ppo", "dpo", "dpo-reference", "rlhf-reward"])
def test_without_its_labels_an_objective_is_not_reported(name, tmp_path):
    found = judge_recording(load_contract(FOLDER / f"{name}.yaml"), *record(tmp_path, sequences=20))
    reasons = {v.clause: v.reason for v in own(found, name).values() if v.clause != "phantom-clip"}
    assert set(reasons.values()) == {Reason.NOT_REPORTED}


def test_a_reward_gained_is_the_other_clause(tmp_path):
    found = own(judged("rlhf-reward", tmp_path, tilt=0.8, noise=0.0), "rlhf-reward")
    assert found["reward-gain"].state is State.VIOLATED
    assert found["reward-loss"].state is not State.VIOLATED


def test_the_limit_of_a_reward_clause_is_the_declared_drift_as_a_share_of_the_range():
    clauses = load_contract(FOLDER / "rlhf-reward.yaml").clauses
    (loss,) = (c for c in clauses if c.statistic == "reward_loss")
    assert (loss.at_most, loss.derived, loss.reward_range) == (0.05, False, (-1.0, 1.0))
    assert loss.source == "budget.reward_drift"


def test_dpo_in_sequences_is_refused():
    text = (FOLDER / "dpo.yaml").read_text().replace("unit: group", "unit: sequence")
    with pytest.raises(ContractError) as caught:
        load_text(text, "dpo.yaml")
    assert caught.value.problems == (
        (
            "dpo.yaml:17:9: spec.compare.unit: clause margin: dpo_margin_drift compares two sequences of a group",
            "write compare: {unit: group}",
        ),
    )
