"""Kernels as a command line names them, and every mistake in one."""

import pytest

from paritas.collectors.kernels import parse_spec
from paritas.errors import UsageError
from paritas.records import Role

KINDS = "hf:DIR, vllm:URL or llamacpp:FILE, each with ,NAME=VALUE options"
NO_VALUE = "options are NAME=VALUE, separated by commas; a path may hold no comma"


def test_a_folder_with_options():
    spec = parse_spec("hf:models/a,dtype=bfloat16,attention=eager,kv_cache=fp8_e4m3", Role.INFERENCE)
    assert (spec.kind, spec.target, spec.flag) == ("hf", "models/a", "--inference")
    assert spec.options == {"dtype": "bfloat16", "attention": "eager", "kv_cache": "fp8_e4m3"}


def test_an_address_keeps_its_colons():
    spec = parse_spec("vllm:http://[::1]:8000/,model=a/b", Role.INFERENCE)
    assert (spec.target, spec.options) == ("http://[::1]:8000/", {"model": "a/b"})


def test_numbers_of_the_scoring_law():
    spec = parse_spec("hf:a,temperature=0.6", Role.TRAIN)
    assert (spec.number("temperature"), spec.number("top_p")) == (0.6, None)


WRONG = {
    "foo:bar": ("--inference foo:bar: no such kind of kernel", KINDS),
    "models/a": ("--inference models/a: no such kind of kernel", KINDS),
    "hf": ("--inference hf: no such kind of kernel", KINDS),
    "": ("--inference : no such kind of kernel", KINDS),
    "hf:": ("--inference hf:: names no kernel after hf:", KINDS),
    "hf:a,b": ("--inference: option 'b' has no value", NO_VALUE),
    "hf:a,dtype=": ("--inference: option 'dtype=' has no value", NO_VALUE),
    "hf:a,dtpye=float32": (
        "--inference: hf takes no option 'dtpye'",
        "did you mean 'dtype'? it takes dtype, attention, quantization, device, kv_cache",
    ),
    "vllm:http://a,seed=1": ("--inference: vllm takes no option 'seed'", "it takes model, logprobs_mode"),
    "hf:a,dtype=fp8": ("--inference: unknown dtype 'fp8'", "known are float32, bfloat16, float16"),
    "hf:a,dtype=float32,dtype=float16": (
        "--inference hf:a,dtype=float32,dtype=float16: an option is given twice",
        "",
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_texts(text):
    with pytest.raises(UsageError) as caught:
        parse_spec(text, Role.INFERENCE)
    assert (str(caught.value), caught.value.hint) == WRONG[text]


def test_only_a_local_model_scores():
    with pytest.raises(UsageError) as caught:
        parse_spec("vllm:http://a", Role.TRAIN)
    assert str(caught.value) == "--train vllm:http://a: vllm is for --inference"
    assert caught.value.hint == "hf:DIR: only a kernel in this process scores tokens as a trainer does"


def test_a_number_that_is_none():
    with pytest.raises(UsageError, match=r"^--train: temperature=warm is no number$"):
        parse_spec("hf:a,temperature=warm", Role.TRAIN).number("temperature")
