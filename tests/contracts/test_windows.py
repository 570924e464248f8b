"""Windows as a contract writes them, there and back."""

import pytest
from contract_cases import FOLDER, clause_contract
from hypothesis import given
from hypothesis import strategies as st

from paritas.contracts.catalogue import find
from paritas.contracts.dump import resolved
from paritas.contracts.lint import lint
from paritas.contracts.load import load_contract
from paritas.contracts.model import Clause, Family
from paritas.contracts.windows import parse_window, window_text


def asked(**window):
    return Clause("a", Family.RUNTIME, "time_to_first_token", **window)


@given(st.integers(1, 10**9 - 1))
def test_steps_go_there_and_back(steps):
    assert parse_window(window_text(asked(window_steps=steps))) == (None, steps)


@given(st.integers(1, 10**6))
def test_times_go_there_and_back(millis):
    assert parse_window(window_text(asked(window_s=millis / 1000))) == (millis / 1000, None)


@pytest.mark.parametrize("text", ["", "0s", "0 steps", "1", "1 s", "-1s", "1000steps", "1 request", "1s "])
def test_what_is_no_window_is_refused(text):
    with pytest.raises(ValueError, match=r" is no window$"):
        parse_window(text)


def test_the_catalogue_declares_the_window_of_a_clause_that_names_none():
    clauses = {c.id: c for c in load_contract(FOLDER / "service.good.yaml").clauses}
    assert window_text(clauses["ttft"]) == find("time_to_first_token").window == "1s"
    assert [window_text(clauses[name]) for name in ("itl", "itl-now")] == ["1000 steps", "500ms"]
    assert clauses["agents"].agents == ("pod-1", "host:2")


def test_the_resolved_form_writes_the_window_out():
    runtime = resolved(load_contract(FOLDER / "service.good.yaml"))["spec"]["clauses"]["runtime"]
    assert [clause["window"] for clause in runtime] == ["1s", "1000 steps", "500ms"]


def test_a_short_window_is_warned_of_with_a_way_out():
    (warning,) = lint(
        clause_contract(
            "{id: a, statistic: time_to_first_token, quantile: 0.9, at_most: 1s, window: 10ms}",
            "runtime",
            "  escalation: [{when: {}, levels: [{severity: info}]}]\n",
        )
    )
    assert str(warning) == (
        "a.yaml:8:9: [window-short] clause a: requests 10ms apart share their load, and the test takes them "
        "for independent\n  hint: write window: 1s or longer, or window: 1000 steps or more"
    )
