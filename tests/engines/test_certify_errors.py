"""`paritas certify` with folders, tokenizers and devices that do not do: one error each, with what to do."""

import json

import pytest
from engines.certify_scenes import Desk

from paritas.cli import main

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("desk"))


@pytest.fixture
def failing(capsys, desk):
    def ask(train, inference, *options):
        words = ["certify", desk.folder / "contract.yaml", "--train", train, "--inference", inference]
        code = main([str(word) for word in (*words, *options)])
        said = capsys.readouterr()
        assert (code, said.out) == (64, "")
        return said.err

    return ask


@pytest.fixture
def copied(small_model, tmp_path):
    """The model's folder without some files."""

    def copy(*without, name="copied"):
        folder = tmp_path / name
        folder.mkdir()
        for path in small_model.iterdir():
            if path.name not in without:
                (folder / path.name).symlink_to(path)
        return folder

    return copy


def error(message, hint):
    return f"[usage] {message}\n  hint: {hint}\n"


def test_folders_that_hold_no_kernel(failing, small_model, tmp_path):
    train = f"hf:{small_model}"
    assert failing(train, f"hf:{tmp_path}/none") == error(
        f"{tmp_path}/none: no such folder", "--inference hf:DIR takes a folder on this machine"
    )
    assert failing(train, f"hf:{tmp_path}") == error(
        f"{tmp_path}: holds no model", "config.json is missing: is it what save_pretrained wrote?"
    )
    (tmp_path / "config.json").write_text("{}")
    told = failing(train, f"hf:{tmp_path}")
    assert told.startswith(error(f"--inference {tmp_path}: cannot be loaded as asked", "ValueError: ")[:-1])
    assert told.count("\n") == 2


def test_a_folder_without_weights(failing, copied, small_model):
    folder = copied("model.safetensors")
    told = failing(f"hf:{folder}", f"hf:{small_model}")
    assert told.startswith(error(f"--train {folder}: cannot be loaded as asked", "OSError: ")[:-1])


def test_a_model_without_tokenizer(failing, copied):
    folder = copied(*TOKENIZER)
    hint = "save it beside the model, or give prompt_token_ids instead of texts"
    assert failing(f"hf:{folder}", f"hf:{folder}") == error(f"{folder}: holds no tokenizer", hint)


def test_a_chat_without_template(failing, copied, tmp_path):
    folder = copied("chat_template.jinja")
    chat = tmp_path / "chat.jsonl"
    chat.write_text(json.dumps({"messages": [{"role": "user", "content": "Why?"}]}) + "\n")
    hint = "give prompts as texts, or save the template beside the tokenizer"
    expected = error(f"{folder}: its tokenizer has no chat template", hint)
    assert failing(f"hf:{folder}", f"hf:{folder}", "--prompts", chat) == expected


def test_two_tokenizers(failing, desk, copied, small_model):
    folder = copied("tokenizer.json")
    told = json.loads((small_model / "tokenizer.json").read_text())
    told["model"]["merges"] = []
    (folder / "tokenizer.json").write_text(json.dumps(told))
    said = failing(f"hf:{small_model}", f"hf:{folder}")
    message = f"[usage] {desk.folder}/prompts.jsonl:1: the tokenizers make different tokens of it: "
    assert said.startswith(message)
    assert said.endswith(
        " by --inference, 8 by --train\n"
        "  hint: save one tokenizer beside both, or give prompt_token_ids, which pass by the tokenizers\n"
    )


def test_a_prompt_longer_than_the_context(failing, small_model, tmp_path):
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"prompt_token_ids": [5] * 8190}) + "\n")
    pair = f"hf:{small_model}", f"hf:{small_model}"
    message = "prompt 'p1' has 8190 tokens and its response up to 128: --inference takes 8192 together"
    assert failing(*pair, "--prompts", long) == error(message, "give --max-tokens 2 or less")


def test_ids_of_another_tokenizer(failing, small_model, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"prompt_token_ids": [60_000]}) + "\n")
    message = f"{other}:1: token id 60000 is outside the vocabulary of 49152"
    expected = error(message, "are these ids of another tokenizer?")
    assert failing(f"hf:{small_model}", f"hf:{small_model}", "--prompts", other) == expected


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("attention=magic", "ValueError: "),
        ("attention=flash_attention_2", "ImportError: "),
        ("device=magic", "RuntimeError: "),
    ],
)
def test_what_this_machine_cannot_do(failing, small_model, option, reason):
    told = failing(f"hf:{small_model}", f"hf:{small_model},{option}")
    assert told.startswith(error(f"--inference {small_model}: cannot be loaded as asked", reason)[:-1])
    assert told.count("\n") == 2


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # as compressed-tensors is imported
def test_a_checkpoint_that_is_quantised_is_not_quantised_again(failing, small_model):
    from engines.quantized_model import quantized_dir, why_not_made

    if reason := why_not_made("gptq"):
        pytest.skip(reason)
    folder = quantized_dir("gptq")
    hint = "leave quantization=… out: the checkpoint is loaded as it was quantised"
    expected = error(f"--inference {folder}: is quantised already", hint)
    assert failing(f"hf:{small_model}", f"hf:{folder},quantization=int4") == expected


@pytest.fixture
def tiny(tmp_path):
    """A random model of another vocabulary, whose layers are 48 wide."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1, "vocab_size": 64}
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=4, **sizes))
    model.save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def test_two_vocabularies(failing, small_model, tiny):
    message = "the kernels have vocabularies of 64 and 49152 tokens"
    expected = error(message, "do they hold the same policy?")
    assert failing(f"hf:{small_model}", f"hf:{tiny}") == expected


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_layer_that_does_not_divide_into_groups(failing, small_model, tiny):
    message = f"--inference {tiny}: a layer of width 48 does not divide into groups of 32"
    expected = error(message, "quantization=fp8_e4m3 and int8 take every width")
    assert failing(f"hf:{small_model}", f"hf:{tiny},quantization=int4") == expected
