"""The table of the language and the catalogue of statistics agree."""

from dataclasses import fields

from paritas.contracts.bounds.estimator import EstimatorKind
from paritas.contracts.build_scope import ESTIMATOR_TAKES, TOKEN_FIELDS
from paritas.contracts.catalogue import CATALOGUE, Side, Test, find
from paritas.contracts.explain import explain
from paritas.contracts.shapes import Choice, Record
from paritas.contracts.table_clauses import CLAUSES
from paritas.contracts.table_scope import ESTIMATORS, KERNELS
from paritas.records import KernelIdentity, Role


def test_a_contract_may_declare_what_a_kernel_may_report() -> None:
    assert [f.name for f in KERNELS.fields] == list(Role)
    kernel = KERNELS.fields[0].shape
    assert isinstance(kernel, Record)
    assert set(kernel.names()) == {f.name for f in fields(KernelIdentity)} - {"role"}


def test_every_statistic_can_be_written_under_its_family_and_no_other() -> None:
    offered = {}
    for family in CLAUSES.fields:
        clause = family.shape.item
        statistic = next(f.shape for f in clause.fields if f.name == "statistic")
        assert isinstance(statistic, Choice)
        offered.update(dict.fromkeys(statistic.names, family.name))
    assert offered == {name: entry.family for name, entry in CATALOGUE.items()}


def test_every_estimator_of_the_language_has_a_bound() -> None:
    assert set(ESTIMATORS) == set(ESTIMATOR_TAKES)
    assert set(ESTIMATORS) <= set(EstimatorKind)


def test_the_catalogue_is_whole() -> None:
    assert TOKEN_FIELDS == ("position", "phase", "turn", "logprob")
    for name, entry in CATALOGUE.items():
        assert find(name) is entry
        assert entry.lo < entry.hi
        assert (entry.side is Side.NEITHER) == (entry.test is Test.STATE)
        assert all([entry.says, entry.estimator, entry.blind, entry.reference])
        assert explain(name).startswith(name)
