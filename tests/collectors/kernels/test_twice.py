"""One kernel at two batch sizes: the same tokens, full batches, exact differences, and answers that part."""

import numpy as np
import pytest
from toy_kernels import STOP, ToyModel
from usage_errors import failing

from paritas.collectors.kernels import Answer, Ask, open_twice, parse_spec
from paritas.collectors.kernels.law import law_of
from paritas.collectors.kernels.twice import AskedTwice, Replayed, ScoredTwice
from paritas.records import KernelIdentity, LogprobSemantics, Role, Sampling

PLAIN = Sampling(1.0, 1.0, 0, 0.0)
ASKS = [Ask(f"p/{i}", "p", np.array([1, 2, 3 + i]), seed=100 + i, max_tokens=12) for i in range(5)]


def run(kernel, sizes, asks=ASKS, law=PLAIN):
    return list(kernel.run(asks, sizes, kernel.laws(law)))


@pytest.mark.parametrize("kind", ["engine", "trainer"])
def test_both_runs_tell_of_the_same_tokens_under_the_law_of_their_size(kind):
    model = ToyModel(batched=0.3)
    kernel = (
        Replayed(model, top_k=3)
        if kind == "engine"
        else ScoredTwice(model, Sampling(temperature=2.0), top_k=3)
    )
    law = kernel.laws(PLAIN)[1]
    assert law.temperature == (1.0 if kind == "engine" else 2.0)
    found = run(kernel, (1, 4))
    assert [answer.ask.sample_id for answer, _ in found] == [ask.sample_id for ask in ASKS]
    for answer, scored in found:
        before = np.concatenate([answer.ask.prompt[-1:], answer.token[:-1]])
        for size, told in ((1, answer.logprob), (4, scored.logprob)):
            model.size = size
            rows = law_of(model._after(before), law)
            assert told == pytest.approx(rows[np.arange(len(before)), answer.token])
        assert [len(row) for row in scored.top] == [3] * len(before)
        assert scored.exact.tv.min() > 0.0


@pytest.mark.parametrize(
    ("kernel", "batches"), [("engine", [1] * 5 + [4] * 2), ("trainer", [1] * 10 + [4] * 2)]
)
def test_every_batch_is_full(kernel, batches):
    model = ToyModel()
    run(Replayed(model, top_k=3) if kernel == "engine" else ScoredTwice(model, PLAIN, top_k=3), (1, 4))
    assert sorted(size for size, _ in model.started) == batches


def test_the_same_kernel_in_batches_that_change_nothing_drifts_by_nothing():
    for kernel in (Replayed(ToyModel(), top_k=3), ScoredTwice(ToyModel(), PLAIN, top_k=3)):
        for answer, scored in run(kernel, (2, 3)):
            assert scored.logprob.tolist() == answer.logprob.tolist()
            assert scored.exact.tv.max() == scored.exact.oscillation.max() == 0.0


def test_a_response_that_ends_early_is_replayed_beside_longer_ones():
    asks = [Ask(f"p/{i}", "p", np.array([1, 2]), seed=i, max_tokens=48) for i in range(8)]
    found = run(Replayed(ToyModel(), top_k=3), (1, 8), asks)
    assert len({answer.token.size for answer, _ in found}) > 1
    assert all(scored.logprob.size == answer.token.size for answer, scored in found)
    ended = [answer for answer, _ in found if answer.finish == "stop"]
    assert ended
    assert all(answer.token[-1] == STOP for answer in ended)


class Server:
    """A server that draws one token otherwise when it is asked for more than one response at once."""

    identity = KernelIdentity(Role.INFERENCE, engine="served")
    vocabulary, context = None, 64

    def __init__(self, one, many):
        self.answers = {1: one, 2: many}
        self.asked = []

    def law(self, asked):
        return asked

    def encode(self, text):
        return np.array([7]) if text == "known" else None

    def sample(self, asks, law):
        self.asked.append(len(asks))
        tokens, logprobs, top = self.answers[len(asks)]
        return [Answer(ask, np.array(tokens), np.array(logprobs), top, finish="length") for ask in asks]


ONE = ([5, 6, 7], [-0.1, -0.2, -0.3], [[(5, -0.1)], [(6, -0.2)], [(7, -0.3)]])


def test_answers_that_part_count_up_to_and_with_the_first_token_that_differs():
    many = ([5, 9, 8], [-0.11, -1.0, -0.5], [[(5, -0.11)], [(9, -1.0), (6, -0.25)], [(8, -0.5)]])
    server = Server(ONE, many)
    kernel = AskedTwice(server, "--kernel")
    ((answer, scored),) = run(kernel, (1, 2), ASKS[:1])
    assert (answer.token.tolist(), answer.logprob.tolist()) == ([5, 6], [-0.1, -0.2])
    assert (scored.logprob.tolist(), scored.exact) == ([-0.11, -0.25], None)
    assert (server.asked, kernel.apart) == ([1, 2], 1)


def test_a_token_that_the_other_answer_does_not_list_is_not_reported():
    many = ([9], [-1.0], [[(9, -1.0)]])
    ((answer, scored),) = run(AskedTwice(Server(ONE, many), "--kernel"), (1, 2), ASKS[:1])
    assert answer.token.tolist() == [5]
    assert np.isnan(scored.logprob).all()


def test_an_answer_that_is_shorter_counts_as_far_as_both_go():
    many = ([5], [-0.11], [[(5, -0.11)]])
    kernel = AskedTwice(Server(ONE, many), "--kernel")
    ((answer, scored),) = run(kernel, (1, 2), ASKS[:1])
    assert (answer.token.tolist(), scored.logprob.tolist(), kernel.apart) == ([5], [-0.11], 1)
    assert run(AskedTwice(Server(ONE, ([], [], [])), "--kernel"), (1, 2), ASKS[:1]) == []


def test_equal_answers_are_compared_whole():
    kernel = AskedTwice(Server(ONE, ONE), "--kernel")
    ((answer, scored),) = run(kernel, (1, 2), ASKS[:1])
    assert (answer.token.size, scored.logprob.tolist(), kernel.apart) == (3, ONE[1], 0)


@pytest.mark.parametrize(
    ("text", "messages", "what"),
    [("other", (), "a text"), ("", ({"role": "user", "content": "?"},), "a chat")],
)
def test_a_server_that_makes_no_tokens(text, messages, what):
    kernel = AskedTwice(Server(ONE, ONE), "--kernel")
    assert kernel.encode("known", ()).tolist() == [7]
    told = failing(lambda: kernel.encode(text, messages))
    assert told == (f"--kernel: the server makes no tokens of {what}", "give prompt_token_ids")


def test_llama_cpp_has_one_batch_size():
    spec = parse_spec("llamacpp:model.gguf", Role.INFERENCE, flag="--kernel")
    assert failing(lambda: open_twice(spec, top_k=5)) == (
        "--kernel llamacpp:model.gguf: decodes one sequence at a time in this process and has no other batch size",
        "record llama-server at two values of --parallel, and give the recordings with --one and --other",
    )


def test_the_laws_of_a_trainer_leave_truncation_out():
    drawn, told = ScoredTwice(ToyModel(), Sampling(), top_k=3).laws(Sampling(0.7, 0.9, 0, 0.0))
    assert (drawn.top_p, drawn.semantics) == (0.9, LogprobSemantics.PROCESSED)
    assert (told.temperature, told.top_p) == (0.7, 1.0)
