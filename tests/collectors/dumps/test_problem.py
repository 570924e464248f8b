"""A problem says where, what, and what to do."""

import pytest

from paritas.collectors.dumps import Problem, ProblemReason
from paritas.errors import RecordError


@pytest.mark.parametrize(
    ("line", "column", "place"), [(0, 0, "a.jsonl"), (3, 0, "a.jsonl:3"), (3, 7, "a.jsonl:3:7")]
)
def test_place(line: int, column: int, place: str) -> None:
    problem = Problem("a.jsonl", line, ProblemReason.BAD_JSON, "not JSON", "mend it", column)
    assert problem.place == place
    assert problem.render() == f"{place}: not JSON\n  hint: mend it"
    assert (
        Problem("a.jsonl", line, ProblemReason.BAD_JSON, "not JSON", "", column).render()
        == f"{place}: not JSON"
    )


def test_as_an_error() -> None:
    error = Problem("a.jsonl", 3, ProblemReason.BAD_JSON, "not JSON", "mend it", 7).error()
    assert isinstance(error, RecordError)
    assert error.render() == "[record] a.jsonl:3:7: not JSON\n  hint: mend it"
    assert error.reason == "bad_json"
