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
        "give each option once",
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


NUMBERS = {
    "temperature=warm": ("temperature=warm is no number", "temperature is a number above 0, at most 100"),
    "temperature=0": ("temperature=0 is out of range", "temperature is a number above 0, at most 100"),
    "temperature=nan": ("temperature=nan is out of range", "temperature is a number above 0, at most 100"),
    "temperature=inf": ("temperature=inf is out of range", "temperature is a number above 0, at most 100"),
    "top_p=-1": ("top_p=-1 is out of range", "top_p is a number above 0, at most 1"),
    "top_p=2": ("top_p=2 is out of range", "top_p is a number above 0, at most 1"),
    "top_k=1.5": ("top_k=1.5 is out of range", "top_k is a whole number from 0"),
    "top_k=-1": ("top_k=-1 is out of range", "top_k is a whole number from 0"),
    "min_p=1.01": ("min_p=1.01 is out of range", "min_p is a number from 0 to 1"),
}


@pytest.mark.parametrize("option", NUMBERS)
def test_numbers_that_are_none_or_out_of_range(option):
    with pytest.raises(UsageError) as caught:
        parse_spec(f"hf:a,{option}", Role.TRAIN)
    message, hint = NUMBERS[option]
    assert (str(caught.value), caught.value.hint) == (f"--train: {message}", hint)


@pytest.mark.parametrize("threads", ["0", "1.5"])
def test_threads_are_counted(threads):
    with pytest.raises(UsageError) as caught:
        parse_spec(f"llamacpp:a.gguf,threads={threads}", Role.INFERENCE)
    expected = f"--inference: threads={threads} is out of range", "threads is a whole number from 1"
    assert (str(caught.value), caught.value.hint) == expected


def test_numbers_at_the_ends_of_their_ranges():
    spec = parse_spec("hf:a,temperature=100,top_p=1,top_k=0,min_p=1", Role.TRAIN)
    assert [spec.number(name) for name in ("temperature", "top_p", "top_k", "min_p")] == [
        100.0,
        1.0,
        0.0,
        1.0,
    ]
