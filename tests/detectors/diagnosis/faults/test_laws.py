"""Laws: what is drawn follows the law it is drawn from, and sequences are where they should be."""

import numpy as np
import pytest
from hypothesis import given, settings
from pair_factory import SEEDS

from paritas.detectors.diagnosis.faults.laws import (
    LONGEST,
    SHORTEST,
    VOCABULARY,
    Log,
    draw,
    log_softmax,
    truncated,
    wander,
    workload,
)


@settings(max_examples=10)
@given(SEEDS)
def test_a_workload_is_whole_sequences_of_normal_lengths(seed):
    work = workload(np.random.default_rng(seed), 30, 60.0, 1.0)
    assert work.lengths.min() >= SHORTEST
    assert work.lengths.max() <= LONGEST
    assert len(work.hidden) == len(work.logits) == work.lengths.sum()
    assert work.position.tolist() == [i for n in work.lengths for i in range(n)]
    assert np.bincount(work.sequence).tolist() == work.lengths.tolist()
    kept = np.arange(30) % 3 == 0
    part = work.only(kept)
    assert part.lengths.tolist() == work.lengths[kept].tolist()
    assert np.array_equal(part.logits, work.logits[np.isin(work.sequence, np.flatnonzero(kept))])


def test_a_walk_forgets_within_a_sequence_and_starts_anew():
    work = workload(np.random.default_rng(1), 400, 100.0, 1.0)
    walk = wander(np.random.default_rng(2), work, 0.8)[:, 0]
    follows = work.position[1:] > 0
    assert walk.std() == pytest.approx(1.0, abs=0.03)
    assert np.corrcoef(walk[1:][follows], walk[:-1][follows])[0, 1] == pytest.approx(0.8, abs=0.02)
    assert abs(np.corrcoef(walk[1:][~follows], walk[:-1][~follows])[0, 1]) < 0.15


def test_tokens_are_drawn_as_often_as_the_law_says():
    rng = np.random.default_rng(3)
    law = log_softmax(np.tile(rng.standard_normal((1, 6), np.float32), (60_000, 1)))
    counts = np.bincount(draw(rng, law), minlength=6) / len(law)
    assert counts == pytest.approx(np.exp(law[0]), abs=0.01)


def test_a_log_reads_both_laws_at_the_tokens():
    q, p = log_softmax(np.eye(3, dtype=np.float32)), log_softmax(2 * np.eye(3, dtype=np.float32))
    log = Log.of(np.array([0, 1, 0]), q, p)
    assert log.q.tolist() == [q[0, 0], q[1, 1], q[2, 0]]
    assert log.p.tolist() == [p[0, 0], p[1, 1], p[2, 0]]
    assert log.is_top1.tolist() == [1.0, 1.0, 0.0]
    assert log.top1_q == pytest.approx(np.exp(q.max(axis=1)))


@pytest.mark.parametrize("options", [{"top_p": 0.8}, {"top_k": 3}, {"min_p": 0.2}], ids=str)
def test_a_truncated_law_is_a_law_and_larger_by_the_same_everywhere(options):
    law = log_softmax(np.random.default_rng(4).standard_normal((50, VOCABULARY), np.float32))
    cut = truncated(law, **options)
    kept = np.isfinite(cut)
    assert np.exp(cut).sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert 0 < kept.sum() < kept.size
    lifted = np.where(kept, cut - law, np.nan)
    assert np.nanstd(lifted, axis=1).max() < 1e-4
    assert (np.where(kept, law, np.inf).min(1) >= np.where(kept, -np.inf, law).max(1)).all()


def test_each_truncation_keeps_what_it_says():
    law = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], np.float32))
    assert np.isfinite(truncated(law, top_p=0.75)).tolist() == [[True, True, False, False]]
    assert np.isfinite(truncated(law, top_k=3)).tolist() == [[True, True, True, False]]
    assert np.isfinite(truncated(law, min_p=0.25)).tolist() == [[True, True, True, False]]
