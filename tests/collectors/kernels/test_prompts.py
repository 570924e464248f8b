"""The prompt suite: both formats, and every line that is wrong, with its place."""

import gzip
import json

import pytest

from paritas.collectors.kernels import read_prompts
from paritas.errors import UsageError

SHAPE = "each line needs one of prompt (a text), messages (a chat) or prompt_token_ids"
SUFFIX = "name it .jsonl (one JSON object a line) or .txt (one prompt a line)"
CHAT = [{"role": "user", "content": "Why?"}]


def written(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_json_lines(tmp_path):
    rows = (
        {"prompt": "Once", "slice": "story", "turn": 2},
        {"id": 7, "messages": CHAT},
        {"prompt_token_ids": [5, 6], "temperature": 0.3},
    )
    first, second, third = read_prompts(written(tmp_path / "a.jsonl", *rows))
    assert (first.id, first.text, first.labels) == ("p1", "Once", {"slice": "story", "turn": "2"})
    assert (second.id, second.messages, second.place) == ("7", tuple(CHAT), f"{tmp_path}/a.jsonl:2")
    # a label that would be read as how tokens were drawn is none
    assert (third.id, third.token_ids, third.labels) == ("p3", (5, 6), {})


def test_compressed(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"prompt": "Once"}\n'))
    assert [p.text for p in read_prompts(path)] == ["Once"]


def test_plain_text_passes_over_blank_lines(tmp_path):
    prompts = read_prompts(written(tmp_path / "a.txt", "Once upon", "", "  a time"))
    assert [(p.id, p.text) for p in prompts] == [("p1", "Once upon"), ("p3", "  a time")]


WRONG = {
    '{"prompt": "a"': ("not JSON", "each line must be one JSON object (JSON Lines)"),
    "[1]": ("a list, not an object", "each line must be one JSON object (JSON Lines)"),
    '{"text": "a"}': ("holds no prompt", SHAPE),
    '{"prompt": "a", "prompt_token_ids": [1]}': ("holds prompt and prompt_token_ids", SHAPE),
    '{"prompt": " "}': ("'prompt' is empty", SHAPE),
    '{"prompt": 3}': ("'prompt' is an integer, expected text", SHAPE),
    '{"prompt_token_ids": []}': ("'prompt_token_ids' is empty", SHAPE),
    '{"prompt_token_ids": [-1]}': (
        "'prompt_token_ids[0]' is no token id: negative",
        "cut padding and labels such as -100",
    ),
    '{"messages": [{"role": "user"}]}': ("'messages' is no list of objects with role and content", SHAPE),
    '{"messages": "hi"}': ("'messages' is text, expected a list", SHAPE),
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_has_its_place(tmp_path, line):
    path = written(tmp_path / "a.jsonl", {"prompt": "fine"}, line)
    with pytest.raises(UsageError) as caught:
        read_prompts(path)
    message, hint = WRONG[line]
    column = str(caught.value).removeprefix(f"{path}:2").partition(": ")[0]
    assert str(caught.value) == f"{path}:2{column}: {message}"
    assert caught.value.hint == hint


def test_ids_are_unique(tmp_path):
    path = written(tmp_path / "a.jsonl", {"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"})
    with pytest.raises(UsageError) as caught:
        read_prompts(path)
    assert (str(caught.value), caught.value.hint) == (
        f"{path}:2: the id 'a' is taken",
        f"by {path}:1; ids are unique",
    )


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
@pytest.mark.parametrize("content", ["", "\n\n"])
def test_no_prompts(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_prompts(path)
    hint = SHAPE if name == "a.jsonl" else "each line that is not blank is a prompt"
    assert (str(caught.value), caught.value.hint) == (f"{path}: holds no prompt", hint)


def test_the_suffix_declares_the_format(tmp_path):
    path = written(tmp_path / "a.csv", "x")
    with pytest.raises(UsageError) as caught:
        read_prompts(path)
    assert (str(caught.value), caught.value.hint) == (f"{path}: unknown kind of prompt file", SUFFIX)


@pytest.mark.parametrize(
    ("name", "message"), [("a.jsonl", "no such file"), ("", "is a folder, expected a file")]
)
def test_no_such_file(tmp_path, name, message):
    path = tmp_path / name
    with pytest.raises(UsageError) as caught:
        read_prompts(path)
    assert (str(caught.value), caught.value.hint) == (
        f"{path}: {message}",
        "give the suite with --prompts FILE",
    )


def test_text_that_is_no_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\n\xff\n")
    with pytest.raises(UsageError) as caught:
        read_prompts(path)
    assert str(caught.value) == f"{path}:2: not UTF-8 text at byte 1"
    assert caught.value.hint == "save the file as UTF-8, one prompt a line"


def test_a_compressed_file_that_was_cut(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"prompt": "Once"}\n' * 500)[:-8])
    with pytest.raises(UsageError) as caught:
        read_prompts(path)
    assert str(caught.value) == f"{path}:501: the gzip stream ends early"
    assert caught.value.hint == "whole lines before this were read; copy the file again"
