"""Make tests/data/recordings from the full recordings: few lines, and only the top-1 token.

    PARITAS_SHARED_DATA=/path/to/data python tests/data/make_subset.py

From ``smollm2/bf16.serve.jsonl.gz`` and ``bf16.train.jsonl.gz`` (the first two lines of each
of the six slices, the same lines of both files) it keeps every field as it was recorded,
except ``top_logprobs``: of the top-20 lists only what an engine asked for the top-1 token
would have written remains.  On the serving side that is the sampled token and, where it is
another, the most likely one; on the training side the most likely one.  The output is byte
for byte the same on every run.
"""

import gzip
import json
import os
import sys
from pathlib import Path

SLICES = ("chat", "explain", "math", "code", "multilingual", "long")
LINES_PER_SLICE = 2
OUTPUT = Path(__file__).parent / "recordings"


def lines_of(path: Path) -> list[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def chosen(lines: list[dict]) -> list[dict]:
    by_slice = {name: [line for line in lines if line["slice"] == name] for name in SLICES}
    return [line for name in SLICES for line in by_slice[name][:LINES_PER_SLICE]]


def top_one(entries: list, sampled: int, *, sampled_first: bool) -> list:
    """Cut one list; among equals the smallest id stays, whichever was sampled."""
    best = min(entries, key=lambda entry: (-entry[1], entry[0]))
    if sampled_first and best[0] != sampled:
        return [entries[0], best]
    return [best]


def stripped(line: dict, *, sampled_first: bool) -> dict:
    lists = zip(line["top_logprobs"], line["token_ids"], strict=True)
    return {
        **line,
        "top_logprobs": [
            top_one(entries, sampled, sampled_first=sampled_first) for entries, sampled in lists
        ],
    }


def write(path: Path, lines: list[dict]) -> None:
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> None:
    source = Path(os.environ["PARITAS_SHARED_DATA"]) / "smollm2"
    OUTPUT.mkdir(exist_ok=True)
    for side in ("serve", "train"):
        name = f"bf16.{side}.jsonl.gz"
        lines = chosen(lines_of(source / name))
        write(OUTPUT / name, [stripped(line, sampled_first=side == "serve") for line in lines])
        sys.stdout.write(f"{OUTPUT / name}: {len(lines)} lines\n")


if __name__ == "__main__":
    main()
