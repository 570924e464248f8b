"""`paritas contract explain`: every page answers, and its examples load."""

import pytest
from contract_cases import contract

from paritas.contracts.catalogue import CATALOGUE, Need
from paritas.contracts.explain import WIDTH, example_of, explain, overview
from paritas.errors import UsageError


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_example_loads_as_it_stands(name: str) -> None:
    entry = CATALOGUE[name]
    unit = "  compare: {unit: group}\n" if entry.need is Need.PREFERENCE else ""
    loaded = contract(f"{unit}  clauses:\n    {entry.family}:\n      {example_of(entry)}\n")
    assert loaded.clauses[0].statistic == name


def test_a_page_answers_what_a_person_asks() -> None:
    assert (
        explain("kl_k3")
        == """\
kl_k3 (statistical, in nats, 0 to no upper end)

KL(q||p) by the k3 estimator; can be refuted, never certified.

estimator  mean over tokens of w - 1 - ell
limit      at_most
judged as  mean that data can show to be above the limit, and nothing can certify
can pass   no: keep it out of promotion gates (stages: [full])
needs      log-probabilities of both kernels for the same tokens
blind to   missing support: truncation makes it smaller
reference  A4, B4; NeMo-RL gen_kl_error, prime-rl mismatch_kl
example    - {id: kl-k3, statistic: kl_k3, at_most: 0.05}
"""
    )


@pytest.mark.parametrize("name", CATALOGUE)
def test_pages_fit_a_terminal(name: str) -> None:
    assert all(len(line) <= WIDTH + 8 or line.startswith("example") for line in explain(name).splitlines())


def test_the_overview_has_a_line_each() -> None:
    assert [line.split()[0] for line in overview().splitlines()] == list(CATALOGUE)


def test_an_unknown_statistic_gets_the_closest() -> None:
    with pytest.raises(UsageError) as caught:
        explain("ratio-tail")
    assert (
        caught.value.render() == "[usage] unknown statistic 'ratio-tail'\n  hint: did you mean 'ratio_tail'?"
    )
