"""Pairing: every way a sequence can end, in any order of arrival, in bounded memory."""

import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import NS, both, segments, trace

from paritas.contracts.model import Compare
from paritas.detectors import cohorts
from paritas.detectors.pairing import Pairer, PairerLimits, match
from paritas.records import PairReason, Role


def run(pairer, traces, now_ns=0):
    """Feed traces and end the input; return the outcomes in order."""
    outcomes = [o for t in traces for o in pairer.process(t, now_ns)]
    return [*outcomes, *pairer.flush(now_ns)]


def reasons(outcomes):
    return Counter(o.reason for o in outcomes)


def names(outcomes):
    return [o.sequence_id for o in outcomes]


# ---- segments


@given(st.permutations(range(5)))
def test_segments_join_in_any_order(order):
    parts = segments("inference", [2, 3]) + segments("train", [4])
    whole = {role: segments(role, [])[0] for role in ("inference", "train")}
    outcomes = run(Pairer(Compare()), [parts[i] for i in order])
    assert [o.reason for o in outcomes] == [PairReason.PAIRED]
    one, alone = outcomes[0].pair, match(whole["inference"], whole["train"], Compare()).pair
    np.testing.assert_array_equal(one.log_ratio, alone.log_ratio)
    np.testing.assert_array_equal(one.logprob_q, alone.logprob_q)


# ---- arrival: duplicates, late ones, what never comes


def test_a_copy_of_a_waiting_segment_is_a_duplicate():
    inference, train = both()
    outcomes = run(Pairer(Compare()), [inference, inference, train])
    assert reasons(outcomes) == {PairReason.PAIRED: 1, PairReason.DUPLICATE: 1}
    assert outcomes[0].detail == "inference trace at position 0"


def test_a_copy_of_a_finished_sequence_is_a_duplicate():
    inference, train = both()
    outcomes = run(Pairer(Compare()), [inference, train, train, inference])
    assert reasons(outcomes) == {PairReason.PAIRED: 1, PairReason.DUPLICATE: 2}


def test_the_other_half_of_what_was_given_up_is_late():
    pairer = Pairer(Compare(pair_within_s=5.0))
    inference, train = both()
    first = list(pairer.process(inference, 0))
    given_up = list(pairer.tick(5 * NS))
    after = list(pairer.process(train, 6 * NS))
    assert first == []
    assert [o.reason for o in given_up] == [PairReason.UNMATCHED]
    assert given_up[0].detail == "only inference was reported"
    assert [o.reason for o in after] == [PairReason.LATE]


def test_a_half_waits_as_long_as_the_contract_says():
    pairer = Pairer(Compare(pair_within_s=5.0))
    inference, train = both()
    assert list(pairer.process(inference, 0)) == []
    assert list(pairer.tick(5 * NS - 1)) == []
    assert pairer.waiting == 1
    assert [o.reason for o in [*pairer.process(train, 5 * NS - 1), *pairer.tick(5 * NS - 1)]] == [
        PairReason.PAIRED
    ]


def test_end_of_input_gives_up_on_halves():
    parts = segments("train", [2])[:1]
    outcomes = run(Pairer(Compare()), [*both("a"), trace("inference", "b"), *parts])
    assert reasons(outcomes) == {PairReason.PAIRED: 1, PairReason.UNMATCHED: 2}
    assert {o.detail for o in outcomes if o.pair is None} == {
        "only inference was reported",
        "only train was reported",
    }


def test_a_reference_view_alone_is_no_pair():
    outcomes = run(Pairer(Compare()), [trace("reference"), trace("inference")])
    assert [o.detail for o in outcomes] == ["only inference, reference was reported"]


# ---- the labels of what is lost


def labelled(role, name, second, cuts=(), **labels):
    """Return a view, cut into segments, with the labels and the start that its kernel tells."""
    return segments(role, list(cuts), 6, name, attributes=labels, event_ns=second * NS)


def told(outcome):
    return outcome.reason, outcome.group_id, outcome.event_ns // NS, dict(outcome.attributes)


def without_a_segment():
    """Return what arrives of a sequence whose two views each lost a segment, and say other things."""
    first, _, last = labelled("inference", "a", 1, [2, 4], replica="r1", task="math")
    lead, *_ = labelled("train", "a", 2, [3], rank="7", task="code")
    return [first, replace(last, attributes={"replica": "r9"}), replace(lead, group_id="g")]


@given(st.permutations(range(3)))
def test_a_sequence_that_lost_a_segment_has_the_labels_it_would_have_had_as_a_pair(order):
    parts = without_a_segment()
    [outcome] = run(Pairer(Compare()), [parts[i] for i in order])
    labels = {"replica": "r1", "rank": "7", "task": "math"}
    assert told(outcome) == (PairReason.UNMATCHED, "g", 1, labels)
    assert outcome.detail == "only inference, train was reported"


@given(st.permutations(range(3)))
def test_a_follower_gives_up_on_what_it_follows_with_the_same_labels(order):
    parts, pairer = without_a_segment(), Pairer(Compare())
    matcher = Pairer(Compare()).matcher
    for i in order:
        taken = matcher.take(parts[i], 0)
        pairer.matcher.follow(taken, 0)
        assert list(pairer.cohorts.take(taken, 0)) == []
    [outcome] = pairer.flush(0)
    assert told(outcome) == told(run(Pairer(Compare()), parts)[0])
    assert (pairer.waiting, pairer.open_cohorts) == (0, 0)


@given(st.permutations(range(2)))
def test_views_that_do_not_match_have_the_labels_of_a_pair(order):
    views = [
        *labelled("inference", "a", 1, replica="r1", task="math"),
        *labelled("train", "a", 2, rank="7", task="code"),
    ]
    views[1] = replace(views[1], token=views[1].token + np.uint64(1), group_id="g")
    [outcome] = run(Pairer(Compare()), [views[i] for i in order])
    labels = {"replica": "r1", "rank": "7", "task": "math"}
    assert told(outcome) == (PairReason.TOKEN_MISMATCH, "g", 1, labels)


def test_the_label_of_a_view_that_is_not_compared_counts_least():
    parts = [
        labelled(role, "a", second, who=role, **{role: "1"})[0]
        for second, role in enumerate(("inference", "train", "reference"))
    ]
    lost = [replace(part, final=False) for part in parts]
    [outcome] = run(Pairer(Compare(against=Role.REFERENCE)), lost)
    labels = {"who": "reference", "inference": "1", "train": "1", "reference": "1"}
    assert told(outcome) == (PairReason.UNMATCHED, "", 2, labels)


# ---- order


def at(second, name, **more):
    """Return both views of a sequence that started at that second."""
    return both(name, event_ns=round(second * NS), **more)


def test_a_cohort_leaves_when_the_next_has_begun():
    pairer = Pairer(Compare())
    held = [o for t in at(0.2, "a") for o in pairer.process(t, 0)]
    assert (held, pairer.open_cohorts) == ([], 1)
    released = list(pairer.process(at(1.0, "b")[0], 0))
    assert (names(released), pairer.open_cohorts) == (["a"], 1)


def test_inside_a_cohort_the_order_is_canonical():
    traces = [*at(0.3, "z"), *at(0.1, "y"), *at(0.1, "x"), *at(0.9, "b", group_id="g"), *at(0.0, "a")]
    assert names(run(Pairer(Compare()), traces)) == ["a", "x", "y", "z", "b"]


def test_cohorts_leave_oldest_first():
    firsts = [at(second, name)[0] for second, name in ((3, "c"), (1, "a"), (2, "b"))]
    seconds = [at(second, name)[1] for second, name in ((2, "b"), (3, "c"), (1, "a"))]
    pairer = Pairer(Compare())
    waiting = [o for t in (*firsts, *seconds[:2]) for o in pairer.process(t, 0)]
    assert names(waiting) == ["b"]
    assert names([*pairer.process(seconds[2], 0), *pairer.flush(0)]) == ["a", "c"]


def test_a_group_leaves_together_in_its_first_members_cohort():
    traces = [*at(0.5, "b", group_id="g"), *at(7.5, "a", group_id="g"), *at(1.5, "c"), *at(9.0, "d")]
    assert names(run(Pairer(Compare()), traces)) == ["b", "a", "c", "d"]
    alone = [replace(t, group_id="") for t in traces]
    assert names(run(Pairer(Compare()), alone)) == ["b", "c", "a", "d"]


def test_a_lost_half_holds_its_cohort_back_no_longer_than_grace():
    pairer = Pairer(Compare(), PairerLimits(grace_s=10.0))
    traces = [trace("inference", "lost"), *at(0.1, "kept"), at(5.0, "next")[0]]
    assert [o for t in traces for o in pairer.process(t, 0)] == []
    assert list(pairer.tick(10 * NS)) == []
    assert names(pairer.tick(10 * NS + 1)) == ["kept"]
    later = [o for t in at(0.2, "slow") for o in pairer.process(t, 11 * NS)]
    assert names(later) == ["slow"]  # its cohort's grace is over
    assert names(pairer.flush(12 * NS)) == ["lost", "next"]


# ---- groups that are units


BY_GROUP = Compare(unit="group")


def group_of(second, group, members=3):
    """Return the views of a group: all that infer, then all that train."""
    both_views = [at(second + i / 10, f"{group}{i}", group_id=group) for i in range(members)]
    return [views[0] for views in both_views], [views[1] for views in both_views]


def begun(pairer, *some):
    """Give it first halves, and one that starts so much later that every cohort but its own is over."""
    for t in [*(t for ones in some for t in ones), at(99, "far")[0]]:
        assert not list(pairer.process(t, 0))


def test_a_group_that_is_a_unit_leaves_as_one_however_late_and_mixed_its_halves_come():
    """A trainer scores long after the rollouts, in an order of its own."""
    pairer, (ones, others) = Pairer(BY_GROUP), zip(group_of(0, "a"), group_of(5, "b"), strict=True)
    begun(pairer, *ones)
    left = [names(pairer.process(t, 60 * NS)) for pair in zip(*others, strict=True) for t in pair]
    assert left == [[], [], [], [], ["a0", "a1", "a2"], ["b0", "b1", "b2"]]
    assert names(pairer.flush(61 * NS)) == ["far"]


def test_where_sequences_are_units_no_group_is_waited_for():
    ones, others = group_of(0, "a")
    pairer = Pairer(Compare())
    begun(pairer, ones)
    assert [names(pairer.process(t, 60 * NS)) for t in others] == [["a0"], ["a1"], ["a2"]]


def test_a_lost_member_holds_back_its_group_alone_and_until_it_is_given_up():
    pairer, ones = Pairer(replace(BY_GROUP, pair_within_s=100.0)), group_of(0, "a")
    for t in (*ones[0], *ones[1][:2], *at(0.5, "alone")):
        assert not list(pairer.process(t, 0))
    assert names(pairer.tick(50 * NS)) == ["alone"]
    assert names(pairer.tick(101 * NS)) == ["a0", "a1", "a2"]


def test_no_more_is_held_back_for_groups_than_allowed(monkeypatch):
    monkeypatch.setattr(cohorts, "HELD_BACK", 4)
    pairer, halves = Pairer(BY_GROUP), [group_of(i, f"g{i}-") for i in range(3)]
    begun(pairer, *(ones for ones, _ in halves))
    left = [names(pairer.process(t, 60 * NS)) for _, others in halves for t in others[:2]]
    assert left == [[], [], [], [], ["g0-0", "g0-1"], []]
    rest = [name for _, others in halves for name in names(pairer.process(others[2], 60 * NS))]
    assert rest == ["g0-2", "g1-0", "g1-1", "g1-2", "g2-0", "g2-1", "g2-2"]
    assert pairer.open_cohorts == 1


def test_a_group_that_waits_stays_in_its_cohort_however_many_groups_pass():
    pairer = Pairer(BY_GROUP, PairerLimits(remembered=2))
    (first, second, third), others = group_of(0, "a")
    assert not [o for t in (first, second, others[1]) for o in pairer.process(t, 0)]
    passing = [
        o for i in range(4) for t in at(i + 1, f"s{i}", group_id=f"p{i}") for o in pairer.process(t, 0)
    ]
    late = replace(third, event_ns=5 * NS), replace(others[2], event_ns=5 * NS)
    assert names([*passing, *(o for t in late for o in pairer.process(t, 0))]) == ["s0", "s1", "s2", "s3"]
    assert names(pairer.process(others[0], 0)) == ["a0", "a1", "a2"]


def stream():
    """Traces of forty sequences: paired, half, segmented, grouped, duplicated and mismatched ones."""
    rng = np.random.default_rng(7)
    traces = []
    for i in range(40):
        name, second = f"s-{i:02}", float(rng.uniform(0, 6))
        more = {"event_ns": round(second * NS), "group_id": "g" if i % 10 == 0 else ""}
        inference, train = both(name, q=-rng.exponential(size=5), p=-rng.exponential(size=5), **more)
        match i % 8:
            case 0:
                traces += [inference]
            case 1:
                traces += [inference, replace(train, token=train.token + np.uint64(1))]
            case 2:
                traces += [
                    *segments("inference", [2], 6, name, **more),
                    segments("train", [], 6, name, **more)[0],
                ]
            case 3:
                traces += [inference, inference, train]
            case 4:
                traces += [replace(inference, weights_version="1"), replace(train, weights_version="2")]
            case _:
                traces += [inference, train]
    return traces


def ending(outcome):
    ratio = None if outcome.pair is None else outcome.pair.log_ratio.tobytes()
    return outcome.sequence_id, outcome.reason, outcome.detail if outcome.pair is None else "", ratio


@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.sampled_from([Compare(), BY_GROUP]))
def test_any_order_of_arrival_ends_every_sequence_the_same_way(random, compare):
    traces = stream()
    expected = Counter(ending(o) for o in run(Pairer(compare), traces))
    shuffled = traces[:]
    random.shuffle(shuffled)
    assert Counter(ending(o) for o in run(Pairer(compare), shuffled)) == expected


@settings(max_examples=40)
@given(st.integers(0, 70), st.sampled_from([Compare(), BY_GROUP]))
def test_a_restart_anywhere_changes_nothing(cut, compare):
    traces, pairer = stream(), Pairer(compare)
    expected = [ending(o) for o in run(Pairer(compare), traces)]
    before = [ending(o) for t in traces[:cut] for o in pairer.process(t, 0)]
    restored = pickle.loads(pickle.dumps(pairer))
    assert before + [ending(o) for o in run(restored, traces[cut:])] == expected


def test_every_sequence_ends_exactly_once():
    outcomes = run(Pairer(Compare()), stream())
    ended = Counter(o.sequence_id for o in outcomes if o.reason is not PairReason.DUPLICATE)
    assert len(ended) == 40
    assert set(ended.values()) == {1}


# ---- memory


def test_no_more_sequences_wait_than_allowed():
    pairer = Pairer(Compare(), PairerLimits(waiting=3))
    outcomes = [o for i in range(10) for o in pairer.process(trace("inference", f"s-{i}"), 0)]
    assert (outcomes, pairer.waiting) == ([], 3)
    assert reasons(pairer.flush(0)) == {PairReason.UNMATCHED: 10}
    assert (pairer.waiting, pairer.open_cohorts) == (0, 0)


def test_memory_of_finished_sequences_is_bounded():
    pairer = Pairer(Compare(), PairerLimits(remembered=5))
    done = [o for i in range(50) for t in at(i, f"s-{i}", group_id=f"g{i}") for o in pairer.process(t, 0)]
    assert len(done) == 49
    size = len(pickle.dumps(pairer))
    for i in range(50, 500):
        for t in at(i, f"s-{i}", group_id=f"g{i}"):
            list(pairer.process(t, 0))
    assert len(pickle.dumps(pairer)) < size + 200  # longer names, no more of them
    forgotten = list(pairer.process(at(0, "s-0")[0], 0))  # no longer known: waits again
    assert forgotten == []
    assert pairer.waiting == 1


def test_a_long_recording_read_side_by_side_stays_linear():
    """One cohort a sequence, all open until the second file is read: must not look at each for each."""
    pairer, looked = Pairer(Compare()), 0
    traces = [
        at(
            i,
            f"s-{i}",
        )
        for i in range(400)
    ]
    for side in (0, 1):
        for views in traces:
            before = pairer.open_cohorts
            looked += len(pairer.cohorts._whole.union(pairer.cohorts._overdue(0)))
            list(pairer.process(views[side], 0))
            assert pairer.open_cohorts <= before + 1
    assert looked <= 2 * 400
