"""The texts of the numbers: names and patterns, common source and blind spot, what is missing."""

import pytest
from command_runs import run

from paritas.commands.numbers import Group, Number, groups, lacks, number_page

ONE, MANY = Number("a[].x", "1", "u", "s", "b"), Number("a[].*", "2", "u", "s", "b")


@pytest.mark.parametrize(
    ("name", "found"), [("a[].x", ONE), ("a[].y", MANY), ("a[].", MANY), ("a.x", None), ("ba[].x", None)]
)
def test_a_name_of_its_own_wins_over_a_pattern(name, found):
    assert Group("k", "t", "w", (MANY, ONE)).find(name) == found


def test_the_first_pattern_that_fits_counts():
    narrow, wide = Number("*_ppl", "", "u", "s", "b"), Number("*", "", "v", "s", "b")
    assert Group("k", "t", "w", (narrow, wide)).find("x_ppl").unit == "u"
    assert Group("k", "t", "w", (wide, narrow)).find("x_ppl").unit == "v"


def test_a_number_inherits_source_and_blind_spot_of_its_group():
    told = groups()["verdicts"]
    assert told.find("estimate").source == "docs/how-it-decides.md"
    assert told.find("limit").source == "the contract"


def test_what_is_missing_is_named():
    assert lacks(ONE) == ()
    assert lacks(Number("n", "", " ", "", "")) == ("says", "unit", "source", "blind")


UPPER = """upper (Verdicts; unit: that of the statistic)

always-valid upper limit of the mean; both limits hold together with 95 % at every moment

shown in   `paritas check`, `certify`, `watch`, `GetVerdict`, escalations: `verdicts[]` and
           the columns of the table
source     docs/mathematics.md D16
blind to   statistics without an upper end (no limits there)
"""


def test_a_page_tells_all_of_a_number_wherever_it_is_shown():
    assert number_page("upper") == UPPER
    assert [line for line in number_page("tokens").splitlines() if "unit: token" in line] == [
        "tokens (Verdicts; unit: token)",
        "tokens (Repairs; unit: token)",
    ]
    assert number_page("records_queued").splitlines()[:3] == [
        "records_queued (Metrics of the agent; unit: record)",
        "",
        "shown in   `/metrics` of `paritas agent`, with the prefix `paritas_agent_`; its help text",
    ]
    assert number_page("surprise") == ""


def test_the_command_explains_a_number_as_it_explains_a_statistic():
    done = run("contract", "explain", "upper")
    assert (done.returncode, done.stdout, done.stderr) == (0, UPPER, "")
    done = run("contract", "explain", "uper")
    assert done.returncode == 64
    assert done.stderr.startswith("[usage] unknown statistic 'uper'")


def test_no_pattern_is_so_wide_that_it_hides_a_missing_text():
    for group in groups().values():
        for number in group.numbers:
            assert number.name.replace("*", "").strip("./"), f"{group.key}: {number.name}"
