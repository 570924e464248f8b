"""Evaluation: which rows a sequence touches, in units, however the input is cut."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import (
    BY_REPLICA,
    EVERYTHING,
    NS,
    SEEDS,
    clause,
    contract,
    evaluated,
    lost,
    pair,
    paired,
    random_pair,
    units,
)

from paritas.contracts.model import Compare, Family, Match, Operator, Requirement, Slice, Stage
from paritas.detectors import evaluate
from paritas.detectors import units as module
from paritas.detectors.evaluate import Change, Evaluator
from paritas.detectors.evidence import PairBatch
from paritas.detectors.statistics import unit_values
from paritas.detectors.units import unit_key
from paritas.records import KernelIdentity, PairReason, Role

CLAUSES = (
    clause("tv", 0.05),
    clause("tv_topk", 0.05),
    clause("mean_ratio", 1.002),
    clause("top1_frequency", 0.01),
    clause("sequence_tv", 0.3),
    clause("kl_k3", 0.1),
    clause("nonfinite_rate", 0.0),
    clause("pairing_rate", at_least=0.9),
    clause("weights_lag", 1.0),
    clause("time_to_first_token", 1.0, quantile=0.9),
)
LATE_TOKENS = Slice("late", match=Match(tokens=(Requirement("position", Operator.GTE, (3.0,)),)))
SLICES = (EVERYTHING, LATE_TOKENS, BY_REPLICA)


def mixed(seed, n=40):
    """Outcomes of every kind: pairs of random length, in groups or not, and losses."""
    rng, outcomes, group = np.random.default_rng(seed), [], ""
    for i in range(n):
        group = group if rng.random() < 0.6 else f"g{i}" if rng.random() < 0.5 else ""
        if rng.random() < 0.2:
            reason = rng.choice([r for r in PairReason if r is not PairReason.PAIRED])
            outcomes.append(lost(str(reason), f"l{i}", group_id=group, event_ns=i * NS))
        else:
            one = random_pair(rng, int(rng.integers(0, 8)), f"s{i}")
            more = {"weights_version": str(i // 15), "event_ns": i * NS, "group_id": group}
            outcomes.append(paired(replace(one, **more)))
    return outcomes


def whole_contract(unit="sequence"):
    return contract(*CLAUSES, slices=SLICES, compare=Compare(unit=unit))


def image(evaluator):
    """Everything an evaluator knows that a verdict or an explanation may rest on, bit for bit."""
    bank = {k: v.tobytes() for k, v in vars(evaluator.bank).items() if isinstance(v, np.ndarray)}
    states = {
        name: (s.recent.older.tobytes(), s.recent.newer.tobytes(), s.lag, s.shifted, s.worst)
        for name, s in evaluator.states.items()
    }
    return bank, states, evaluator.index, evaluator.reasons, evaluator.versions, evaluator.book.seen


def told(crossings):
    return [(c.change, c.clause.id, c.slice, c.index, c.event_ns, c.weights_version) for c in crossings]


def ends_of_units(outcomes, evaluator):
    """Return where the input may be cut: between units."""
    by_group = evaluator.contract.compare.unit == "group"
    keys = [unit_key(o, by_group=by_group) for o in outcomes]
    return [i for i in range(1, len(keys)) if keys[i] != keys[i - 1]]


@settings(max_examples=25)
@given(SEEDS, st.sampled_from(["sequence", "group"]), st.data())
def test_cutting_the_input_between_units_changes_no_bit(seed, unit, data):
    outcomes = mixed(seed)
    one, other = (Evaluator(whole_contract(unit), stage=Stage.FULL, recover=True) for _ in range(2))
    crossings = told(one.observe(outcomes))
    cuts = sorted(data.draw(st.sets(st.sampled_from(ends_of_units(outcomes, one)), max_size=9)))
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(outcomes)], strict=True):
        found += told(other.observe(outcomes[start:stop]))
        other = pickle.loads(pickle.dumps(other))
    assert found == crossings
    assert image(other) == image(one)


@settings(max_examples=15)
@given(SEEDS, st.sampled_from(["sequence", "group"]), st.integers(1, 9), st.integers(1, 40))
def test_the_size_of_a_batch_changes_no_bit(seed, unit, sequences, tokens):
    outcomes = mixed(seed)
    expected = image(evaluated(whole_contract(unit), outcomes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "BATCH_SEQUENCES", sequences)
        patch.setattr(module, "CHUNK_TOKENS", tokens)
        assert image(evaluated(whole_contract(unit), outcomes)) == expected


@settings(max_examples=15)
@given(SEEDS, st.sampled_from(["sequence", "group"]), st.booleans())
def test_units_together_are_units_one_by_one(seed, unit, recover):
    """Wherever they can, units are folded together; that changes no bit and no crossing."""
    outcomes = [
        replace(o, pair=o.pair and replace(o.pair, weights_version="1")) for o in mixed(seed, 120)
    ] + units([0.0] * 150, attributes={"replica": "r1"})
    found = []
    for together in (True, False):
        evaluator = Evaluator(whole_contract(unit), stage=Stage.FULL, recover=recover)
        with pytest.MonkeyPatch.context() as patch:
            if not together:
                patch.setattr(Evaluator, "_ordinary", lambda _, __, first, ___: (first, []))
            found.append((told(evaluator.observe(outcomes)), image(evaluator)))
    assert found[0] == found[1]


@settings(max_examples=15)
@given(SEEDS)
def test_a_row_holds_the_mean_of_its_units(seed):
    outcomes = [replace(o, pair=o.pair and replace(o.pair, weights_version="")) for o in mixed(seed)]
    evaluator = evaluated(whole_contract(), outcomes)
    pairs = [o.pair for o in outcomes if o.pair is not None]
    replica = {"all": lambda p: True, **{f"replica=r{i}": _is(f"r{i}") for i in range(3)}}
    for asked in CLAUSES:
        if asked.statistic == "pairing_rate":
            continue
        values = unit_values(PairBatch.of(pairs), asked)
        for name, inside in replica.items():
            if (asked.id, name) not in evaluator.index:
                continue
            index = evaluator.index[asked.id, name]
            own = np.array([v for v, p in zip(values, pairs, strict=True) if inside(p)])
            known = own[~np.isnan(own)]
            assert evaluator.bank.units[index] == len(known)
            assert evaluator.bank.without[index] == len(own) - len(known)
            scaled = evaluator.rows[index].scale.down(known)
            np.testing.assert_allclose(evaluator.bank.total[index], scaled.sum(), rtol=1e-9, atol=1e-9)


def _is(replica):
    return lambda one: one.attributes["replica"] == replica


def test_a_token_slice_takes_only_its_tokens():
    outcomes = [paired(pair([0.0, 0.0, 0.0, np.log(0.5)])), paired(pair([np.log(0.5)] * 2, name="short"))]
    evaluator = evaluated(contract(clause("tv", 0.9), slices=(EVERYTHING, LATE_TOKENS)), outcomes)
    late, everything = (evaluator.index["tv", name] for name in ("late", "all"))
    bank = evaluator.bank
    assert (bank.units[late], bank.without[late], bank.tokens[late]) == (1, 1, 1)
    assert bank.total[late] == pytest.approx(0.5)
    assert (bank.units[everything], bank.tokens[everything]) == (2, 6)
    assert bank.total[everything] == pytest.approx(0.125 + 0.5)


def test_a_clause_is_judged_in_the_slices_it_names():
    both = contract(clause("tv", 0.5, slices=("late",)), clause("kl_k3", 0.5), slices=SLICES)
    evaluator = evaluated(both, units([0.1], attributes={"replica": "a"}))
    assert set(evaluator.index) == {("tv", "late"), *(("kl_k3", s) for s in ("all", "late", "replica=a"))}


# ---- units


def test_a_value_that_looks_like_another_key_has_a_row_of_its_own():
    slices = (Slice("replica", by=("replica",)), Slice("place", by=("replica", "slice")))
    evaluator = Evaluator(contract(clause("tv", 0.1), slices=slices), stage=Stage.FULL, recover=True)
    plain, odd = {"replica": "r1", "slice": "math"}, {"replica": "r1,slice=math"}
    told = [paired(pair([0.1], name=str(i), attributes=a)) for i, a in enumerate((plain, plain, odd))]
    assert list(evaluator.observe(told)) == []
    units = {row.name: int(n) for row, n in zip(evaluator.rows, evaluator.bank.units, strict=True)}
    assert units == {"replica=r1": 2, "replica=r1,slice=math": 2, "replica=r1%2Cslice=math": 1}


def test_a_group_is_one_unit_with_the_mean_value():
    members = [(0.1, "g"), (0.3, "g"), (0.5, "")]
    outcomes = [
        paired(replace(o.pair, sequence_id=f"s{i}", group_id=group))
        for i, (value, group) in enumerate(members)
        for o in units([value])
    ]
    for unit, expected in (("group", (2, 0.2 + 0.5)), ("sequence", (3, 0.9))):
        whole = contract(clause("tv", 0.9), compare=Compare(unit=unit))
        bank = evaluated(whole, outcomes).bank
        assert (bank.units[0], bank.tokens[0]) == (expected[0], 3)
        assert bank.total[0] == pytest.approx(expected[1])


def test_token_bets_of_a_group_multiply():
    ells = [np.log([0.5, 1.4]), np.log([1.2])]
    grouped = [paired(pair(e, name=f"s{i}", group_id="g")) for i, e in enumerate(ells)]
    together = [paired(pair(np.concatenate(ells)))]
    banks = [
        evaluated(contract(clause("mean_ratio", 1.0), compare=Compare(unit="group")), outcomes).bank
        for outcomes in (grouped, together)
    ]
    np.testing.assert_allclose(banks[0].log_over, banks[1].log_over, rtol=1e-12)


# ---- losses


def test_a_loss_counts_against_pairing_and_nowhere_else():
    whole = contract(clause("pairing_rate", at_least=0.9), clause("tv", 0.5))
    evaluator = evaluated(whole, [*units([0.1]), lost("unmatched", "a"), lost("token_mismatch", "b")])
    rate, tv = (evaluator.index[name, "all"] for name in ("pairing_rate", "tv"))
    assert evaluator.rows[rate].scale.up(
        evaluator.bank.total[rate] / evaluator.bank.units[rate]
    ) == pytest.approx(1 / 3)
    assert evaluator.bank.units[tv] == 1


@pytest.mark.parametrize("unit", ["sequence", "group"])
def test_pairing_is_told_sequence_by_sequence_also_in_a_group(unit):
    """A group of four with one loss has lost a quarter, not half, whenever the loss is told."""
    whole = contract(clause("pairing_rate", at_least=0.9), clause("tv", 0.5), compare=Compare(unit=unit))
    members = [replace(o, group_id="g") for o in units([0.1] * 3)]
    late, other = lost("unmatched", "a", group_id="g"), units([0.1])
    for outcomes in ([*members, late], [late, *members], [*members, *other, late]):
        evaluator = evaluated(whole, outcomes)
        rate = evaluator.index["pairing_rate", "all"]
        share = evaluator.rows[rate].scale.up(evaluator.bank.total[rate] / evaluator.bank.units[rate])
        assert (evaluator.bank.units[rate], share) == (len(outcomes), pytest.approx(1 - 1 / len(outcomes)))


def test_groups_that_lose_fewer_sequences_than_allowed_do_not_alarm():
    rng = np.random.default_rng(8)
    outcomes = [
        (paired(pair([0.0], **told)) if rng.random() < 0.997 else lost(**told))
        for i in range(4000)
        for told in [{"name": f"s{i:04}", "group_id": f"g{i // 8}", "event_ns": i // 8 * NS}]
    ]
    whole = contract(clause("pairing_rate", at_least=0.99), compare=Compare(unit="group"))
    assert not evaluated(whole, outcomes).bank.violated.any()


@pytest.mark.parametrize("reason", [PairReason.DUPLICATE, PairReason.LATE])
def test_a_repeat_counts_against_nothing_but_is_counted(reason):
    evaluator = evaluated(contract(clause("pairing_rate", at_least=0.9)), [*units([0.1]), lost(reason)])
    assert evaluator.bank.units[0] == 1
    assert evaluator.reasons == {"paired": 1, reason.value: 1}


def test_losses_leave_facts_for_the_diagnosis():
    outcomes = [
        lost("token_mismatch", "a", facts={"shift": 1.0, "differing": 4.0}),
        lost("token_mismatch", "b", facts={"shift": 0.0, "differing": 4.0}),
        lost("weights_mismatch", "c", facts={"lag": 3.0}),
        lost("weights_mismatch", "d", facts={}),
    ]
    state = evaluated(contract(clause("pairing_rate", at_least=0.9)), outcomes).states["all"]
    assert (state.shifted, state.lag) == (1, 3)


# ---- crossings


def crossings_of(whole, outcomes, *, recover=False):
    return list(Evaluator(whole, stage=Stage.FULL, recover=recover).observe(outcomes))


def test_a_violation_is_told_at_its_unit_with_its_place():
    whole = contract(clause("tv", 0.05), slices=(EVERYTHING, BY_REPLICA))
    quiet, loud = units([0.01] * 20), units([0.9] * 20, attributes={"replica": "b"}, weights_version="4")
    found = crossings_of(whole, [*quiet, *loud])
    assert {(c.change, c.slice, c.declared, c.weights_version) for c in found} == {
        (Change.VIOLATED, "all", "all", "4"),
        (Change.VIOLATED, "replica=b", "replica", "4"),
    }
    assert all(0 < c.event_ns < 20 * NS for c in found)


def test_the_evaluator_stands_at_the_deciding_unit_while_a_crossing_is_handled():
    evaluator = Evaluator(contract(clause("tv", 0.05)), stage=Stage.FULL, recover=False)
    seen = [int(evaluator.bank.units[c.index]) for c in evaluator.observe(units([0.9] * 500))]
    assert len(seen) == 1
    assert seen[0] < 20


def test_a_stream_recovers_and_a_recording_does_not():
    outcomes = units([0.9] * 50 + [0.0] * 400)
    for recover, changes in ((True, ["violated", "recovered"]), (False, ["violated"])):
        found = crossings_of(contract(clause("tv", 0.05)), outcomes, recover=recover)
        assert [c.change.value for c in found] == changes


def test_new_weights_supersede_and_old_ones_coming_late_do_not():
    versions = ["1"] * 30 + ["2", "1", "2", "1"]
    outcomes = [
        paired(replace(o.pair, weights_version=v))
        for o, v in zip(units([0.9] * 30 + [0.01] * 4), versions, strict=True)
    ]
    found = crossings_of(contract(clause("tv", 0.05)), outcomes)
    assert [(c.change.value, c.weights_version) for c in found] == [("violated", "1"), ("superseded", "1")]


def test_under_new_weights_everything_is_tested_afresh():
    outcomes = [
        paired(replace(o.pair, weights_version="1" if i < 30 else "2"))
        for i, o in enumerate(units([0.9] * 30 + [0.0] * 10 + [0.9] * 30))
    ]
    found = crossings_of(contract(clause("tv", 0.05)), outcomes)
    told = [(c.change.value, c.weights_version) for c in found]
    assert told == [("violated", "1"), ("superseded", "1"), ("violated", "2")]
    assert found[2].event_ns >= 40 * NS
    quiet = evaluated(contract(clause("tv", 0.05)), outcomes[:40])
    assert not quiet.bank.violated[0]
    assert quiet.bank.units[0] == 10


def test_the_first_weights_supersede_nothing():
    outcomes = [paired(replace(o.pair, weights_version="1")) for o in units([0.9] * 30)]
    assert [c.change.value for c in crossings_of(contract(clause("tv", 0.05)), outcomes)] == ["violated"]


def kernel(**fields):
    return KernelIdentity(Role.INFERENCE, **fields)


def test_a_new_kernel_restarts_certificates_and_no_monitor():
    outcomes = units([0.01] * 35)
    outcomes[30:] = [paired(replace(o.pair, inference=kernel(dtype="int8"))) for o in outcomes[30:]]
    plain = evaluated(contract(clause("tv", 0.05)), units([0.01] * 35)).bank
    bank = evaluated(contract(clause("tv", 0.05)), outcomes).bank
    assert (bank.units[0], plain.units[0]) == (5, 35)
    np.testing.assert_array_equal(bank.log_alarm, plain.log_alarm)
    assert bank.log_pass.max() < plain.log_pass.max()


def test_replicas_of_unlike_hardware_are_one_fleet():
    gpus = [kernel(gpu=f"gpu{i % 3}") for i in range(40)]
    outcomes = [
        paired(replace(o.pair, inference=gpu)) for o, gpu in zip(units([0.01] * 40), gpus, strict=True)
    ]
    assert evaluated(contract(clause("tv", 0.05)), outcomes).bank.units[0] == 38  # the third began afresh


def test_an_identity_that_differs_is_told_once():
    declared = {Role.INFERENCE: {"dtype": "bfloat16"}}
    whole = contract(clause("kernel_identity", family=Family.RUNTIME), kernels=declared)
    outcomes = units([0.1] * 3, inference=kernel(dtype="bfloat16")) + units(
        [0.1] * 3, inference=kernel(dtype="int8")
    )
    found = crossings_of(whole, outcomes)
    assert [(c.change.value, c.clause.id, c.slice, c.index) for c in found] == [
        ("violated", "kernel_identity", "all", -1)
    ]


# ---- what is remembered


def test_the_worst_sequences_are_the_exemplars():
    state = evaluated(contract(clause("tv", 0.9)), units(np.linspace(0.0, 0.5, 30))).states["all"]
    pairs = [o.pair for o in units(np.linspace(0.0, 0.5, 30))]
    assert [t for _, t in state.worst] == [p.trace_id for p in pairs[:-6:-1]]


def test_memory_is_bounded_however_long_the_stream():
    whole = contract(clause("tv", 0.5), slices=(EVERYTHING, BY_REPLICA))
    outcomes = [
        paired(replace(o.pair, attributes={"replica": f"r{i}"}, weights_version=f"{i}"))
        for i, o in enumerate(units([0.1] * 1500))
    ]
    evaluator = Evaluator(whole, stage=Stage.FULL, recover=True)
    sizes = []
    for start in range(0, 1500, 300):
        list(evaluator.observe(outcomes[start : start + 300]))
        sizes.append(len(pickle.dumps(evaluator)))
    assert len(evaluator.rows) == 1 + BY_REPLICA.at_most + 1
    assert len(evaluator.versions) == 1024
    assert sizes[-1] <= sizes[-2] + 2000
