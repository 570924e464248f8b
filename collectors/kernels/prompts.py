"""The prompt suite: JSON Lines or plain text in, prompts out; a bad line is an error with its place.

``FILE.jsonl`` (or ``.jsonl.gz``): one object a line with exactly one of

- ``prompt``: a text, tokenised as it stands;
- ``messages``: a chat, put through the tokenizer's chat template;
- ``prompt_token_ids``: token ids, used as they are,

optionally ``id`` (unique; else ``p1``, ``p2`` … by line), and labels: every other short scalar,
such as ``slice``, is carried to the recording and can be named by the contract's slices.

``FILE.txt``: one prompt a line; blank lines are passed over.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paritas.collectors.dumps.fields import Row, label, parse_row, sequence, text, token_ids
from paritas.collectors.dumps.lines import Line, read_lines
from paritas.collectors.dumps.problem import LineError, Problem, ProblemReason
from paritas.collectors.dumps.recorded_fields import RESERVED as RECORDED
from paritas.collectors.dumps.traces import labels_of
from paritas.errors import UsageError

__all__ = ["Prompt", "read_prompts"]

LIMIT_LINE_BYTES = 8 << 20
CONTENT = ("prompt", "messages", "prompt_token_ids")
# A label must not be taken for a field of the recording that it is carried to.
RESERVED = RECORDED | {"id", "finish_reason", *CONTENT}
SHAPE_HINT = "each line needs one of prompt (a text), messages (a chat) or prompt_token_ids"
MISSING_HINT = "give the suite with --prompts FILE"
SUFFIX_HINT = "name it .jsonl (one JSON object a line) or .txt (one prompt a line)"


TEXT_HINT = "save the file as UTF-8, one prompt a line"
EMPTY_HINT = {"jsonl": SHAPE_HINT, "txt": "each line that is not blank is a prompt"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt; exactly one of text, messages and token_ids is set.

    Attributes
    ----------
    place : str
        ``file:line``.
    """

    id: str
    place: str
    text: str = ""
    messages: tuple[Mapping[str, str], ...] = ()
    token_ids: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def read_prompts(path: Path, *, missing_hint: str = MISSING_HINT) -> tuple[Prompt, ...]:
    """Read a whole suite.

    Parameters
    ----------
    missing_hint : str
        What to do where there is no such file; who named it knows.

    Raises
    ------
    UsageError
        No such file, unknown suffix, no prompt in it, or the first line that is wrong.
    """
    if not path.is_file():
        told = "is a folder, expected a file" if path.is_dir() else "no such file"
        raise UsageError(f"{path}: {told}", hint=missing_hint)
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind not in ("jsonl", "txt"):
        raise UsageError(f"{path}: unknown kind of prompt file", hint=SUFFIX_HINT)
    prompts = tuple(_prompts(path, is_text=kind == "txt"))
    if not prompts:
        raise UsageError(f"{path}: holds no prompt", hint=EMPTY_HINT[kind])
    _check_ids(prompts)
    return prompts


def _prompts(path: Path, *, is_text: bool) -> Iterator[Prompt]:
    for line in read_lines(path, limit_bytes=LIMIT_LINE_BYTES):
        if isinstance(line, Problem):
            if line.reason is ProblemReason.EMPTY_FILE:
                return
            raise UsageError(f"{line.place}: {line.message}", hint=line.hint)
        try:
            yield _plain(line, path) if is_text else _decoded(line, path)
        except LineError as error:
            problem = error.at(str(path), line.number)
            hint = problem.hint or (TEXT_HINT if is_text else SHAPE_HINT)
            raise UsageError(f"{problem.place}: {problem.message}", hint=hint) from error


def _content(line: Line) -> bytes:
    if line.content is None:
        raise LineError(ProblemReason.LINE_TOO_LONG, f"longer than {LIMIT_LINE_BYTES >> 20} MiB")
    return line.content


def _plain(line: Line, path: Path) -> Prompt:
    try:
        told = _content(line).decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise LineError(ProblemReason.NOT_TEXT, f"not UTF-8 text at byte {error.start + 1}") from error
    return Prompt(f"p{line.number}", f"{path}:{line.number}", text=told)


def _decoded(line: Line, path: Path) -> Prompt:
    row = parse_row(_content(line))
    told = [name for name in CONTENT if row.get(name) is not None]
    if len(told) != 1:
        message = f"holds {' and '.join(told)}" if told else "holds no prompt"
        raise LineError(ProblemReason.BAD_VALUE, message, hint=SHAPE_HINT)
    return Prompt(
        id=label(row, "id") or f"p{line.number}",
        place=f"{path}:{line.number}",
        text=_filled(row) if told == ["prompt"] else "",
        messages=_messages(row) if told == ["messages"] else (),
        token_ids=_ids(row) if told == ["prompt_token_ids"] else (),
        labels=labels_of(row, RESERVED),
    )


def _filled(row: Row) -> str:
    told = text(row, "prompt")
    if not told.strip():
        raise LineError(ProblemReason.BAD_VALUE, "'prompt' is empty")
    return told


def _ids(row: Row) -> tuple[int, ...]:
    ids = token_ids("prompt_token_ids", row["prompt_token_ids"])
    if not ids.size:
        raise LineError(ProblemReason.BAD_VALUE, "'prompt_token_ids' is empty")
    return tuple(ids.tolist())


def _messages(row: Row) -> tuple[Mapping[str, str], ...]:
    entries = sequence("messages", row["messages"])
    told = [e for e in entries if isinstance(e, dict) and {"role", "content"} <= e.keys()]
    if not entries or len(told) < len(entries):
        message = "'messages' is no list of objects with role and content"
        raise LineError(ProblemReason.BAD_TYPE, message)
    return tuple({"role": text(e, "role"), "content": text(e, "content")} for e in told)


def _check_ids(prompts: tuple[Prompt, ...]) -> None:
    first: dict[str, str] = {}
    for prompt in prompts:
        if prompt.id in first:
            raise UsageError(
                f"{prompt.place}: the id {prompt.id!r} is taken",
                hint=f"by {first[prompt.id]}; ids are unique",
            )
        first[prompt.id] = prompt.place
