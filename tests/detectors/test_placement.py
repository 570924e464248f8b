"""Placement: sequences with the same labels lie in the same rows, looked up once."""

import pickle
from itertools import count

import numpy as np
from pair_factory import BY_REPLICA, EVERYTHING, lost, pair, paired

from paritas.contracts.model import Match, Operator, Requirement, Slice
from paritas.detectors import placement as module
from paritas.detectors.placement import NOWHERE, Placement

MATH = Slice("math", match=Match(labels=(Requirement("slice", Operator.IN, ("math",)),)))
SLICES = (EVERYTHING, MATH, BY_REPLICA)
COLUMNS = (np.array([0, 1]), np.array([1]), np.array([0, 1]))


def placed():
    """A placement, and how it makes the rows of a new instance."""
    rows = count()

    def rows_of(declared, name):
        made.append(name)
        return np.array([next(rows) for _ in COLUMNS[SLICES.index(declared)]])

    made = []
    return Placement(SLICES, COLUMNS), rows_of, made


def at(**labels):
    return paired(pair([0.1], attributes=labels))


def test_a_plan_holds_the_rows_and_columns_of_every_slice():
    placement, rows_of, made = placed()
    plan = placement.place(at(replica="a", slice="math"), rows_of)
    assert [name for _, name in plan.instances] == made == ["all", "math", "replica=a"]
    assert (plan.rows.tolist(), plan.columns.tolist()) == ([0, 1, 2, 3, 4], [0, 1, 1, 0, 1])
    other = placement.place(at(replica="b"), rows_of)
    assert (other.rows.tolist(), other.numbers) == ([0, 1, 5, 6], (0, NOWHERE, 1))
    assert placement.of(2).rows(np.array([1, 0])).tolist() == [[5, 6], [3, 4]]
    assert placement.of(2).names(np.array([1])) == ["replica=b"]


def test_only_what_was_placed_is_known_and_asking_places_nothing():
    placement, rows_of, made = placed()
    assert placement.known(at(replica="a")) is None
    assert made == []
    assert not placement.book.seen
    plan = placement.place(at(replica="a", other="1"), rows_of)
    assert placement.known(at(replica="a", other="2")) is plan


def test_a_loss_lies_where_a_pair_with_its_labels_does():
    placement, rows_of, _ = placed()
    plan = placement.place(at(replica="a", slice="math"), rows_of)
    assert placement.known(lost(attributes={"replica": "a", "slice": "math"})) is plan


def test_labels_that_lead_to_the_same_instances_share_a_plan():
    placement, rows_of, _ = placed()
    plans = {id(placement.place(at(replica="a", slice=kind), rows_of)) for kind in ("code", "chat")}
    assert len(plans) == 1


def test_what_is_remembered_is_bounded_and_can_be_worked_out_again(monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED", 3)
    placement, rows_of, _ = placed()
    plans = [placement.place(at(replica="a", slice=f"s{i}"), rows_of) for i in range(9)]
    assert {tuple(plan.rows) for plan in plans} == {(0, 1, 2, 3)}
    again = pickle.loads(pickle.dumps(placement))
    assert again.known(at(replica="a", slice="s8")) is None
    assert again.place(at(replica="a", slice="s8"), rows_of).rows.tolist() == [0, 1, 2, 3]
