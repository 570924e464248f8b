"""Make the recordings that `paritas demo` ships, from the full ones (README beside them says what is true).

    python tests/data/make_demo.py RECORDINGS src/paritas/data

RECORDINGS is a folder with the recordings of SmolLM2-135M-Instruct named in src/paritas/data/README.md.
Nothing is invented: lines are chosen, top-20 lists are cut to the best entry, and a replica name is
added by position, as a load balancer would hand requests out in turn.
"""

import gzip
import json
import sys
from pathlib import Path

SEQUENCES = 48
REPLICAS = ("r0", "r1", "r2", "r3")
STALE = "r2"


def read(folder, name):
    with gzip.open(folder / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def write(folder, name, lines):
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    # No time stamp in the header: the same input gives the same bytes.
    (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def chosen(lines):
    """The first eight sequences of each of the six prompt slices, in recorded order."""
    taken = {}
    return [
        line
        for line in lines
        if taken.setdefault(line["slice"], []).append(0) or len(taken[line["slice"]]) <= 8
    ]


def slim(line, replica=None):
    """Drop prompts and long lists; keep the best top entry beside the sampled one."""
    kept = {k: v for k, v in line.items() if k not in ("prompt_token_ids", "top_logprobs", "metrics")}
    if "top_logprobs" in line and "engine_version" in line:
        kept["top_logprobs"] = [cut(entries) for entries in line["top_logprobs"]]
    return {**kept, "replica": replica} if replica else kept


def cut(entries):
    """Sampled entry first, then the best one where it is another."""
    best = max(entries, key=lambda e: e[1])
    return [entries[0]] if best[0] == entries[0][0] else [entries[0], best]


def main(source, target):
    serve, train = chosen(read(source, "bf16.serve")), chosen(read(source, "bf16.train"))
    ahead = chosen(read(source, "bf16_weights_plus4.train"))
    replicas = [REPLICAS[i % len(REPLICAS)] for i in range(SEQUENCES)]
    write(target, "healthy.serve", [slim(line, r) for line, r in zip(serve, replicas, strict=True)])
    write(target, "healthy.train", [slim(line) for line in train])
    stale = [b if r == STALE else a for a, b, r in zip(train, ahead, replicas, strict=True)]
    write(target, "stale.train", [slim(line) for line in stale])
    cut_serve, cut_train = (
        chosen(read(source, f"bf16_topp09_processed.{side}")) for side in ("serve", "train")
    )
    write(target, "top_p.serve", [slim(line, r) for line, r in zip(cut_serve, replicas, strict=True)])
    write(target, "top_p.train", [slim(line) for line in cut_train])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
