"""Units: what belongs together, and which outcome tells something."""

import numpy as np
from pair_factory import BY_REPLICA, EVERYTHING, clause, contract, lost, pair, paired

from paritas.contracts.model import Stage
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.units import Batch, chunks, cut, unit_key
from paritas.records import PairReason

COLUMNS = Evaluator(contract(clause("tv", 0.5)), stage=Stage.FULL, recover=False).columns


def one(name, group=""):
    return paired(pair([0.1], name=name, group_id=group))


def batch_of(*outcomes, by_group=False):
    return Batch.of(outcomes, COLUMNS, by_group=by_group)


def test_a_unit_is_a_sequence_or_a_group_that_stands_together():
    outcomes = [one("a", "g"), one("b", "g"), one("c"), one("d", "g")]
    assert batch_of(*outcomes).starts == [0, 1, 2, 3, 4]
    assert batch_of(*outcomes, by_group=True).starts == [0, 2, 3, 4]
    assert unit_key(outcomes[0], by_group=True) == ("run", "group:g")
    assert unit_key(outcomes[0], by_group=False) == ("run", "a")


def test_the_tellers_of_a_unit_are_its_outcomes_but_for_repeats():
    repeat, loss = lost(PairReason.DUPLICATE, "a"), lost(PairReason.UNMATCHED, "d")
    batch = batch_of(
        repeat, one("a"), lost(PairReason.LATE, "b"), loss, one("e", "g"), one("f", "g"), by_group=True
    )
    assert [batch.tellers_of(unit).tolist() for unit in range(len(batch))] == [[1], [], [3], [4, 5]]
    assert batch.places.tolist() == [3, 0, 3, 3, 1, 2]
    assert [i for i in range(6) if batch.is_loss(i)] == [0, 2, 3]


def test_reasons_are_counted_unit_by_unit():
    reasons = {}
    batch = batch_of(one("a"), lost(PairReason.DUPLICATE, "a"), one("b"), lost(PairReason.UNMATCHED, "c"))
    batch.count(range(1), reasons)
    assert reasons == {"paired": 1, "duplicate": 1}
    batch.count(range(1, 3), reasons)
    assert reasons == {"paired": 2, "duplicate": 1, "unmatched": 1}


def test_what_is_remembered_of_a_pair_stands_beside_it():
    batch = batch_of(paired(pair([0.1, -0.3], name="a", lag=2)), one("b"), paired(pair([], name="c")))
    np.testing.assert_allclose(batch.sizes, [0.2, 0.1, 0.0])
    assert batch.lags.tolist() == [2, 0, 0]
    assert len(batch.sums) == len(batch.pairs) == 3


def test_no_unit_is_cut_in_two():
    outcomes = [one("a", "g"), one("b", "g"), one("c", "g"), one("d")]
    assert [cut(outcomes, 0, sequences=n, by_group=True) for n in (1, 2, 3, 4, 9)] == [3, 3, 3, 4, 4]
    assert [cut(outcomes, 0, sequences=n, by_group=False) for n in (1, 2, 3)] == [1, 2, 3]


def test_chunks_hold_few_tokens_or_one_pair():
    lengths = [3, 4, 20, 1, 0, 5]
    pairs = [pair(np.zeros(n), name=f"s{n}") for n in lengths]
    assert [chunk.counts().tolist() for chunk in chunks(pairs, 8)] == [[3, 4], [20], [1, 0, 5]]
    assert [len(chunk) for chunk in chunks([], 8)] == [0]


def placed(outcomes, *, by_group):
    """An evaluator that has seen the labels of these outcomes, their batch and their plans."""
    whole = contract(clause("tv", 0.5), slices=(EVERYTHING, BY_REPLICA))
    evaluator = Evaluator(whole, stage=Stage.FULL, recover=False)
    batch = Batch.of(outcomes, evaluator.columns, by_group=by_group)
    plans = [evaluator.placement.place(outcomes[i], evaluator._rows_of) for i in batch.tellers]
    return evaluator, batch, plans


def at(name, replica, group="", size=0.1):
    told = {"name": name, "group_id": group, "attributes": {"replica": replica}, "event_ns": int(name) * 10}
    return paired(pair([size], **told))


def test_units_tell_each_instance_once_in_their_order():
    outcomes = [at("1", "a"), at("2", "b"), lost(name="3", attributes={"replica": "a"}), at("4", "a")]
    evaluator, batch, plans = placed(outcomes, by_group=False)
    (run,) = batch.runs(batch.tellers, plans, evaluator.placement)
    told = {name: outcomes.tolist() for name, outcomes in run.by_name()}
    assert told == {"all": [0, 1, 2, 3], "replica=a": [0, 2, 3], "replica=b": [1]}
    assert run.unit.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert run.table is batch.table


def test_a_group_over_two_replicas_is_one_entry_in_each():
    outcomes = [at("1", "a", "g", 0.1), at("2", "b", "g", 0.2), at("3", "a", "g", 0.3), at("4", "b")]
    evaluator, batch, plans = placed(outcomes, by_group=True)
    everything, replicas = batch.runs(batch.tellers, plans, evaluator.placement)
    assert (everything.unit.tolist(), everything.event_ns.tolist()) == ([0, 1], [10, 40])
    assert {name: o.tolist() for name, o in replicas.by_name()} == {"replica=a": [0, 2], "replica=b": [1, 3]}
    assert replicas.unit.tolist() == [0, 0, 1]
    assert [replicas.names[i] for i in replicas.instance] == ["replica=a", "replica=b", "replica=b"]
    assert replicas.event_ns.tolist() == [10, 10, 40]
    assert replicas.table.tokens.ravel().tolist() == [2, 1, 1]


def test_the_time_of_a_group_is_that_of_its_first_pair():
    outcomes = [lost(name="0", group_id="g", event_ns=5), at("1", "a", "g"), at("2", "a", "g")]
    evaluator, batch, plans = placed(outcomes, by_group=True)
    paired_only = batch.tellers[1:]
    (run, _) = batch.runs(paired_only, plans[1:], evaluator.placement)
    assert (run.unit.tolist(), run.event_ns.tolist()) == ([0], [10])
