"""Measures: every number is what its clause says of its pair in its slice."""

import numpy as np
import pytest
from hypothesis import given, settings
from pair_factory import EVERYTHING, clause, pair, ragged_pairs

from paritas.contracts.model import Estimator, Match, Operator, Requirement, Slice
from paritas.detectors import measures as module
from paritas.detectors.evidence import PairBatch
from paritas.detectors.measures import Columns, Measures, measure
from paritas.detectors.rows import make_row
from paritas.detectors.slices import token_mask
from paritas.detectors.statistics import gradient_bias, token_bets, unit_values

LATE = Slice("late", match=Match(tokens=(Requirement("position", Operator.GTE, (2.0,)),)))
MATH = Slice("math", match=Match(labels=(Requirement("slice", Operator.IN, ("math",)),)))
CLAUSES = (
    clause("tv", 0.05),
    clause("mean_ratio", 1.002),
    clause("top1_frequency", 0.01),
    clause("kl_k3", 0.1),
    clause("pairing_rate", at_least=0.9),
    clause("gradient_bias", 0.1),
)
ASKED = tuple((c, s) for s in (EVERYTHING, LATE, MATH) for c in CLAUSES)
COLUMNS = Columns.of(ASKED, {})


@settings(max_examples=25)
@given(ragged_pairs())
def test_every_number_is_computed_on_its_own(pairs):
    batch = PairBatch.of(pairs)
    got = measure(batch, COLUMNS)
    for asked, declared in ASKED:
        i, mask = COLUMNS.place[asked.id, declared.name], token_mask(declared.match, batch)
        row = make_row(asked, declared, declared.name, 1.0)
        census = asked.statistic == "pairing_rate"
        raw = np.ones(len(batch)) if census else unit_values(batch, asked, mask)
        np.testing.assert_array_equal(got.scaled[:, i], row.scale.down(raw))
        np.testing.assert_array_equal(got.tokens[:, i], batch.counts(mask))
        if asked.statistic in ("mean_ratio", "top1_frequency"):
            bets = got.on_tokens[:, :, COLUMNS.conditional.index(i)]
            with np.errstate(over="ignore"):
                expected = np.minimum(np.exp(token_bets(batch, asked, mask, row.up)), bets.max(initial=1e300))
            np.testing.assert_allclose(bets, expected, rtol=1e-12)


@settings(max_examples=25)
@given(ragged_pairs())
def test_the_pairs_beside_it_change_no_bit_of_a_measure(pairs):
    together = measure(PairBatch.of(pairs), COLUMNS)
    alone = [measure(PairBatch.of([one]), COLUMNS) for one in pairs]
    if alone:
        apart = Measures.joined(alone)
        for name in ("scaled", "tokens", "on_tokens"):
            assert getattr(apart, name).tobytes() == getattr(together, name).tobytes()


def test_slices_that_take_every_token_share_their_columns(monkeypatch):
    made = []

    def counting(batch, asked, mask, estimator, real=module._raw):
        made.append((asked.id, mask is None))
        return real(batch, asked, mask, estimator)

    monkeypatch.setattr(module, "_raw", counting)
    measure(PairBatch.of([pair([0.1, 0.2])]), COLUMNS)
    assert sorted(made) == sorted((c.id, whole) for c in CLAUSES for whole in (True, False))
    assert COLUMNS.of_slice(CLAUSES, MATH).tolist() == COLUMNS.of_slice(CLAUSES, EVERYTHING).tolist()


def test_no_columns_and_no_pairs():
    nothing = Columns.of((), {})
    assert nothing.bets is None
    assert measure(PairBatch.of([pair([0.1])]), nothing).scaled.shape == (1, 0)
    assert measure(PairBatch.of([]), COLUMNS).scaled.shape == (0, len(COLUMNS.rows))


@pytest.mark.parametrize(
    "estimator",
    [
        Estimator("none"),
        Estimator("tis", cap=3.0),
        Estimator("clip", clip=0.2),
        Estimator("mis", cap=2.0, low=0.5),
    ],
    ids=lambda e: e.kind,
)
def test_a_contracts_estimator_replaces_the_clauses_own(estimator):
    batch = PairBatch.of([pair([0.9, -0.9, 0.1])])
    got = measure(batch, Columns.of([(CLAUSES[-1], EVERYTHING)], {"gradient_bias": estimator}))
    row = make_row(CLAUSES[-1], EVERYTHING, "all", 1.0, estimator=estimator)
    assert row.scale.up(float(got.scaled[0, 0])) == pytest.approx(gradient_bias(batch, estimator)[0])
    assert 0.0 <= got.scaled[0, 0] <= 1.0


def test_an_estimator_that_needs_advantages_cannot_tell_without():
    columns = Columns.of([(CLAUSES[-1], EVERYTHING)], {"gradient_bias": Estimator("ppo_min", clip=0.2)})
    assert np.isnan(measure(PairBatch.of([pair([0.1])]), columns).scaled).all()
