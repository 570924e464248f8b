"""Host arrays to traces: extents, statuses, names; no PyTorch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritas.collectors.torch import Names, Stamp
from paritas.collectors.torch.traces import HostBatch, extents, traces_of
from paritas.records import TokenStatus
from paritas.tokens import TokenHasher

HASHER = TokenHasher(b"0123456789abcdef")


def made(batch, names=None):
    names = names or Names([str(row) for row in range(len(batch.mask))])
    return traces_of(batch, names, Stamp("run", weights_version="3"), hasher=HASHER, event_ns=5)


@st.composite
def batches(draw):
    rows, length = draw(st.integers(1, 4)), draw(st.integers(0, 9))
    seed = draw(st.integers(0, 2**32 - 1))
    r = np.random.default_rng(seed)
    return HostBatch(
        r.choice([-1.5, -0.0, np.nan, 2.0, -9999.0], (rows, length)).astype(np.float32),
        r.integers(-2, 50, (rows, length)),
        r.random((rows, length)) < draw(st.sampled_from([0.0, 0.3, 1.0])),
        (r.random((rows, length)) < 0.7) if draw(st.booleans()) else None,
        r.integers(0, 2**31, (rows, length)).astype(np.int32) if draw(st.booleans()) else None,
    )


@given(batches())
def test_every_token_of_a_response_is_there_once_with_one_status(batch):
    found = {trace.sequence_id: trace for trace in made(batch)}
    for row, (first, end) in enumerate(extents(batch.mask)):
        assert (str(row) in found) == (end > first)
        if end > first:
            trace = found[str(row)]
            assert len(trace) == end - first
            assert sum(trace.counts().values()) == end - first
            ranks = None if batch.rank is None else batch.rank[row, first:end].tolist()
            assert (None if trace.rank is None else trace.rank.tolist()) == ranks
            assert trace.token.tolist() == HASHER.hash(batch.token[row, first:end]).tolist()
            inside = batch.mask[row] if batch.loss_mask is None else (batch.mask & batch.loss_mask)[row]
            assert (trace.status == TokenStatus.MASKED).tolist() == (~inside[first:end]).tolist()


def test_a_trace_holds_its_own_columns_only():
    batch = HostBatch(
        np.zeros((2, 1000), np.float32), np.zeros((2, 1000), np.int64), np.zeros((2, 1000), bool)
    )
    batch.mask[:, 10:14] = True
    for trace in made(batch):
        assert (trace.logprob.base, trace.token.base, trace.status.base) == (None, None, None)
        assert trace.event_ns == 5


class Arriving:
    """A digest that arrives when a test says so."""

    def __init__(self, digest):
        self.digest = digest

    def text(self):
        return self.digest


@pytest.mark.parametrize(
    ("told", "arrived", "digest"), [("", "w1:a", "w1:a"), ("w1:own", "w1:a", "w1:own"), ("", "", "")]
)
def test_a_digest_that_arrives_fills_a_stamp_that_has_none(told, arrived, digest):
    stamp = Stamp("run", weights_digest=told, weighed=Arriving(arrived)).settled()
    assert (stamp.weights_digest, stamp.weighed) == (digest, None)


@pytest.mark.parametrize("names", [Names(["a"]), Names(["a", "b"], ["g"])])
def test_names_must_be_as_many_as_rows(names):
    batch = HostBatch(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int64), np.ones((2, 3), bool))
    with pytest.raises(ValueError, match="2 rows"):
        made(batch, names)
