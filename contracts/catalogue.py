"""The closed catalogue of statistics: unit, range, test, reference, and what each cannot see.

`detectors.statistics` computes them under the same names; a test compares the two lists.
Notation: q is the inference kernel (tokens are drawn from it), p the training kernel,
``ell = log p - log q`` of a sampled token in nats, ``w = exp(ell)``, W the product of w over
a sequence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from paritas.contracts.model import Family, Stage

__all__ = ["CATALOGUE", "Need", "Side", "Statistic", "Test", "find"]


class Test(StrEnum):
    """How a clause on the statistic is judged."""

    __test__ = False  # not a pytest class

    BOUNDED_MEAN = "bounded_mean"  # units in [lo, hi]: certifiable and falsifiable
    NON_NEGATIVE_MEAN = "non_negative_mean"  # unbounded units: can be refuted, never certified
    CONDITIONAL_MEAN = "conditional_mean"  # null holds given every prefix: token bets inside the unit
    SUPREMUM = "supremum"  # one observation above the limit refutes it; nothing certifies it
    STATE = "state"  # compared, not estimated


class Side(StrEnum):
    """Which limit makes sense."""

    AT_MOST = "at_most"
    AT_LEAST = "at_least"
    NEITHER = "neither"


class Need(StrEnum):
    """What the input must hold for the statistic to exist."""

    PAIR = "pair"  # both kernels' log-probabilities
    TOP_INFERENCE = "top_inference"  # top-k list of the inference kernel
    TOP_BOTH = "top_both"  # top-k lists of both kernels
    FULL_LOGITS = "full_logits"  # whole distributions; offline only
    TIMINGS = "timings"
    IDENTITY = "identity"
    TRACE = "trace"  # any trace


@dataclass(frozen=True, slots=True)
class Statistic:
    """One catalogue entry.

    Attributes
    ----------
    unit : str
        Unit of the estimate and of the limit.
    lo, hi : float
        Range of one unit's value; `hi` may be infinite.
    says, estimator, blind : str
        What it is for; how one unit's value is computed; what it cannot see.
    reference : str
        Where the estimator or bound comes from (bounds.md numbers are the mathematics of this project, docs/mathematics.md).
    options : tuple of str
        Clause keys it takes besides the limit.
    """

    name: str
    family: Family
    unit: str
    lo: float
    hi: float
    test: Test
    side: Side
    need: Need
    says: str
    estimator: str
    blind: str
    reference: str
    options: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()

    @property
    def certifiable(self) -> bool:
        """Whether any amount of online data can turn a clause on it into a PASS."""
        return self.test in (Test.BOUNDED_MEAN, Test.CONDITIONAL_MEAN, Test.STATE)


INF = float("inf")
_N, _S, _R, _O = Family.NUMERICAL, Family.STATISTICAL, Family.RUNTIME, Family.OBSERVABILITY

_ENTRIES = (
    Statistic(
        "tv",
        _N,
        "probability",
        0.0,
        1.0,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.PAIR,
        says="Total variation between the two next-token distributions, mean over tokens of a sequence.",
        estimator="mean over tokens of (1-w)+; exactly unbiased for any supports",
        blind="faults that leave w near 1 at sampled tokens: both sides at one wrong temperature; rare bad tokens in a large mean",
        reference="A19, D15-D16",
    ),
    Statistic(
        "tv_topk",
        _N,
        "probability",
        0.0,
        1.0,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.TOP_BOTH,
        says="Total variation by the hybrid top-k estimator: same mean as `tv`, about a third of its variance at k = 20.",
        estimator="sum over S of (q-p)+ plus 1{x not in S}(1-w)+, S = ids in both top-k lists",
        blind="as `tv`; a list that contains the sampled token by construction biases it",
        reference="A18, A19",
    ),
    Statistic(
        "logit_oscillation",
        _N,
        "logits",
        0.0,
        INF,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.TOP_BOTH,
        says="Oscillation of the logit drift (max minus min), which bounds every other divergence; shift-invariant.",
        estimator="max minus min of log p - log q over ids in both top-k lists: a lower bound of the true oscillation",
        blind="the tail of the vocabulary outside both lists",
        reference="A1, A2",
        options=("quantile",),
    ),
    Statistic(
        "argmax_flip_rate",
        _N,
        "share",
        0.0,
        1.0,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.TOP_BOTH,
        says="Share of positions where the two kernels disagree on the most likely token (greedy decoding changes).",
        estimator="mean over tokens of 1{top-1 of q differs from top-1 of p}",
        blind="drift that keeps the argmax; ties are counted as flips",
        reference="A17",
    ),
    Statistic(
        "logprob_abs_diff",
        _N,
        "nats",
        0.0,
        INF,
        Test.NON_NEGATIVE_MEAN,
        Side.AT_MOST,
        Need.PAIR,
        says="Mean absolute log-probability difference, the number most frameworks print.",
        estimator="mean over tokens of |ell|",
        blind="rare bad tokens: 0.1 % of tokens at sd 1 move it by 5 %; which side moved",
        reference="TRL, slime, SkyRL under their own names (rosetta)",
    ),
    Statistic(
        "ratio_tail",
        _S,
        "share",
        0.0,
        1.0,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.PAIR,
        says="Share of tokens whose ratio leaves [1/above, above]: finds stale weights and rare broken tokens that no mean shows.",
        estimator="mean over tokens of 1{|ell| > ln(above)}",
        blind="uniform small drift",
        reference="IcePop's share outside [0.5, 5]; A1",
        options=("above",),
    ),
    Statistic(
        "mean_ratio",
        _S,
        "ratio",
        0.0,
        INF,
        Test.CONDITIONAL_MEAN,
        Side.AT_MOST,
        Need.PAIR,
        says="Integrity: E min(w, cap) may not exceed 1. Above 1 the logged q is not the sampling law, or the trainer has already learned these tokens (stale sampler).",
        estimator="mean over tokens of min(w, cap)",
        blind="faults that keep the mean at or below 1: truncation, precision noise, both sides at one wrong temperature",
        reference="A21 (mean-one test), D16",
        options=("cap",),
    ),
    Statistic(
        "top1_frequency",
        _S,
        "share",
        -1.0,
        1.0,
        Test.CONDITIONAL_MEAN,
        Side.AT_MOST,
        Need.TOP_INFERENCE,
        says="Integrity: the sampled token is the logged top-1 exactly as often as the log says. Finds logs that are not the sampling law although both kernels agree on them.",
        estimator="|mean over tokens of 1{sampled = argmax q} - q(argmax)|",
        blind="processors that keep the top-1 probability",
        reference="A21 (top-1 frequency test)",
    ),
    Statistic(
        "sequence_tv",
        _S,
        "probability",
        0.0,
        1.0,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.PAIR,
        says="Total variation between whole responses: bounds the drift of any terminal reward in [0, 1].",
        estimator="(1-W)+ with log W = sum of ell over the sequence",
        blind="sequences with missing tokens are left out and counted; grows like the root of the length when nothing is wrong",
        reference="B7, C1",
    ),
    Statistic(
        "gradient_bias",
        _S,
        "bias in units of A_max G",
        -1.0,
        2.0,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.PAIR,
        says="Certificate of policy-gradient bias under the contract's estimator (none, tis, mis, clip, ppo_min).",
        estimator="the D3 statistic of the estimator, mean over tokens (tis: 1 - min(w, cap))",
        blind="the gradient of the deployed policy; prefix mismatch (D11)",
        reference="D1-D3, D9",
        options=("cap", "clip"),
    ),
    Statistic(
        "phantom_clip_rate",
        _S,
        "share",
        0.0,
        1.0,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.PAIR,
        says="Share of tokens PPO would clip before any update, spent on numerics.",
        estimator="mean over tokens of 1{w outside [1-clip, 1+clip]}",
        blind="drift inside the clip range",
        reference="D18",
        options=("clip",),
    ),
    Statistic(
        "calibration_gap",
        _S,
        "probability",
        0.0,
        1.0,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.TOP_BOTH,
        says="Signed confidence drift of the training top-1 token between the kernels, no labels needed.",
        estimator="|mean over tokens of q(a) - p(a)|, a = top-1 of p, q(a) from the inference list",
        blind="unsigned noise (`tv` sees it)",
        reference="E1, E3",
    ),
    Statistic(
        "kl_k3",
        _S,
        "nats",
        0.0,
        INF,
        Test.NON_NEGATIVE_MEAN,
        Side.AT_MOST,
        Need.PAIR,
        says="KL(q||p) by the k3 estimator; can be refuted, never certified.",
        estimator="mean over tokens of w - 1 - ell",
        blind="missing support: truncation makes it smaller",
        reference="A4, B4; NeMo-RL gen_kl_error, prime-rl mismatch_kl",
    ),
    Statistic(
        "chi_square",
        _S,
        "dimensionless",
        0.0,
        INF,
        Test.NON_NEGATIVE_MEAN,
        Side.AT_MOST,
        Need.PAIR,
        says="chi-square(p||q), the variance of the ratio; can be refuted, never certified.",
        estimator="mean over tokens of (w-1)^2",
        blind="missing support",
        reference="A6",
    ),
    Statistic(
        "ess",
        _S,
        "share",
        0.0,
        1.0,
        Test.NON_NEGATIVE_MEAN,
        Side.AT_LEAST,
        Need.PAIR,
        says="Effective sample size per token on raw ratios; can be refuted, never certified.",
        estimator="refuted through mean of w^2 > 1/limit; shown as (sum w)^2 / (n sum w^2)",
        blind="truncation (stays at 0.999)",
        reference="A6, B5",
    ),
    Statistic(
        "time_to_first_token",
        _R,
        "seconds",
        0.0,
        INF,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.TIMINGS,
        says="Latency of the first token; a clause names the quantile.",
        estimator="share of requests above the limit, against 1 - quantile",
        blind="autocorrelated load below one window",
        reference="exceedance test",
        options=("quantile",),
    ),
    Statistic(
        "inter_token_latency",
        _R,
        "seconds",
        0.0,
        INF,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.TIMINGS,
        says="Time between tokens, mean of a request; a clause names the quantile over requests.",
        estimator="share of requests whose mean inter-token latency is above the limit, against 1 - quantile",
        blind="single stalls inside a long request",
        reference="exceedance test",
        options=("quantile",),
    ),
    Statistic(
        "kernel_identity",
        _R,
        "",
        0.0,
        1.0,
        Test.STATE,
        Side.NEITHER,
        Need.IDENTITY,
        says="Every reported identity field equals the one the contract declares for its role.",
        estimator="field by field; a field that was not reported is undecided, not equal",
        blind="fields nobody reports",
        reference="architecture 3",
    ),
    Statistic(
        "weights_lag",
        _R,
        "versions",
        0.0,
        INF,
        Test.SUPREMUM,
        Side.AT_MOST,
        Need.PAIR,
        says="How many weights versions the trainer is ahead of the sampler.",
        estimator="train version minus inference version where both are integers",
        blind="versions that are not numbers or not reported; equal numbers over unequal weights",
        reference="architecture 6",
    ),
    Statistic(
        "pairing_rate",
        _O,
        "share",
        0.0,
        1.0,
        Test.BOUNDED_MEAN,
        Side.AT_LEAST,
        Need.TRACE,
        says="Share of sequences whose two views were paired in time. Below its limit no other clause can pass.",
        estimator="1{paired} per sequence of a closed cohort",
        blind="sequences that neither side ever reported",
        reference="statistics 6",
        options=("within",),
    ),
    Statistic(
        "nonfinite_rate",
        _O,
        "share",
        0.0,
        1.0,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.TRACE,
        says="Share of tokens whose log-probability is NaN, infinite, positive or a sentinel on either side.",
        estimator="mean over tokens of 1{status in nonfinite, positive, sentinel}",
        blind="values that were silently replaced by plausible ones",
        reference="token accounting",
    ),
    Statistic(
        "missing_rate",
        _O,
        "share",
        0.0,
        1.0,
        Test.BOUNDED_MEAN,
        Side.AT_MOST,
        Need.TRACE,
        says="Share of generated, unmasked tokens without a log-probability on either side.",
        estimator="mean over tokens of 1{status = missing}",
        blind="whole sequences that are missing (`pairing_rate` sees them)",
        reference="token accounting",
    ),
    Statistic(
        "logprob_semantics_known",
        _O,
        "share",
        0.0,
        1.0,
        Test.BOUNDED_MEAN,
        Side.AT_LEAST,
        Need.TRACE,
        says="Share of inference traces that say what law their log-probabilities belong to.",
        estimator="1{semantics is not unknown} per sequence",
        blind="a statement that is false (`top1_frequency` sees it)",
        reference="statistics 1.2",
    ),
    Statistic(
        "silence",
        _O,
        "seconds",
        0.0,
        INF,
        Test.SUPREMUM,
        Side.AT_MOST,
        Need.TRACE,
        says="Time since a kernel last reported.",
        estimator="stream time minus last seen time, the larger of the two kernels",
        blind="nothing reports at all before the first trace",
        reference="architecture 8",
    ),
)

CATALOGUE: Mapping[str, Statistic] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def find(name: str) -> Statistic:
    """Return the entry called `name`.

    Raises
    ------
    KeyError
        If the catalogue has no such statistic.

    Examples
    --------
    >>> find("tv").unit
    'probability'
    """
    return CATALOGUE[name]
