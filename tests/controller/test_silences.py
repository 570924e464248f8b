"""What a silence covers and for how long, and silences that are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritas.contracts.model import Operator, Requirement
from paritas.controller.model import Subject, Suppression
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.silences import FIELDS, OPERATORS, Silence, SilenceBook, check, covers, suppression

NAMES = st.sampled_from(["", "a", "b"])
SUBJECTS = st.builds(Subject, contract=NAMES, clause=NAMES, slice=NAMES)
MATCHERS = st.builds(
    Requirement,
    field=st.sampled_from(["contract", "clause", "slice"]),
    op=st.sampled_from(OPERATORS),
    values=st.lists(NAMES, max_size=2).map(tuple),
)
TIMES = st.integers(0, 5)
SILENCES = st.builds(
    Silence,
    silence_id=st.text("xyz", min_size=1, max_size=2),
    matchers=st.lists(MATCHERS, max_size=3).map(tuple),
    starts_ns=TIMES,
    ends_ns=TIMES,
    author=st.just("ana"),
    comment=st.just("why"),
)


def silence(**changes):
    values = {
        "silence_id": "s1",
        "matchers": (Requirement("clause", Operator.IN, ("token-tv",)),),
        "starts_ns": 100,
        "ends_ns": 200,
        "author": "ana",
        "comment": "replica swap",
    }
    return Silence(**{**values, **changes})


def holds(matcher, subject):
    value = getattr(subject, matcher.field)
    return {
        Operator.IN: value in matcher.values,
        Operator.NOT_IN: value not in matcher.values,
        Operator.EXISTS: value != "",
        Operator.DOES_NOT_EXIST: value == "",
    }[matcher.op]


@given(SILENCES, SUBJECTS, TIMES)
def test_a_silence_covers_what_all_its_matchers_do_while_it_lasts(one, subject, now_ns):
    active = one.starts_ns <= now_ns < one.ends_ns
    assert covers(one, subject, now_ns=now_ns) is (active and all(holds(m, subject) for m in one.matchers))


@given(st.lists(SILENCES, max_size=4), SUBJECTS, TIMES)
def test_the_covering_silence_that_ends_last_is_named(silences, subject, now_ns):
    found = suppression(silences, subject, now_ns=now_ns)
    covering = [s for s in silences if covers(s, subject, now_ns=now_ns)]
    assert (found is None) is (covering == [])
    if found:
        assert found.ends_ns == max(s.ends_ns for s in covering)
        assert found.silence_id in {s.silence_id for s in covering}


@given(SILENCES, SUBJECTS)
def test_nothing_is_silenced_for_ever(one, subject):
    assert not covers(one, subject, now_ns=one.ends_ns)


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_can_be_matched(field):
    value = "critical" if field == "severity" else "v"
    from paritas.records import Severity

    subject = Subject(**{field: Severity.CRITICAL if field == "severity" else value})
    one = silence(matchers=(Requirement(field, Operator.IN, (value,)),))
    assert covers(one, subject, now_ns=150)
    assert not covers(one, Subject(), now_ns=150)


MISTAKES = {
    "author: must not be empty": {"author": " "},
    "comment: must not be empty": {"comment": ""},
    "ends_ns: must be later than starts_ns and now": {"ends_ns": 100},
    "ends_ns: a silence lasts at most 10s": {"ends_ns": 10_000_000_151},
    "matchers: must not be empty": {"matchers": ()},
    "matchers[0].field: unknown field 'clauze'": {"matchers": (Requirement("clauze", Operator.IN, ("a",)),)},
    "matchers[0].values: In takes at least one value": {"matchers": (Requirement("clause", Operator.IN),)},
    "matchers[0].values: Exists takes no values": {
        "matchers": (Requirement("clause", Operator.EXISTS, ("a",)),)
    },
}


@pytest.mark.parametrize(("text", "changes"), MISTAKES.items(), ids=MISTAKES)
def test_mistakes_are_refused_with_their_place(text, changes):
    with pytest.raises(RefusalError) as caught:
        check(silence(**changes), now_ns=150, max_silence_s=10)
    assert (str(caught.value), caught.value.reason) == (text, Refused.INVALID)


def test_a_silence_that_is_over_already_is_refused():
    with pytest.raises(RefusalError, match="ends_ns: must be later than starts_ns and now"):
        check(silence(), now_ns=200, max_silence_s=10)


def test_a_good_silence_passes():
    check(silence(ends_ns=10_000_000_150), now_ns=150, max_silence_s=10)


def test_the_book_keeps_what_has_not_ended():
    book = SilenceBook([silence(), silence(silence_id="s2", ends_ns=300)])
    subject = Subject(clause="token-tv")
    assert book.suppression(subject, now_ns=150) == Suppression("s2", "ana", "replica swap", 300)
    book.forget_ended(now_ns=200)
    assert len(book) == 1
    book.put(silence(silence_id="s2", ends_ns=160))
    assert book.suppression(subject, now_ns=160) is None
