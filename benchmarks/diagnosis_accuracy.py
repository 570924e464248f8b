"""How often the named cause is the right one, on faults of known cause that the detector alarms on.

Each case is a fault of one kind and severity in a part of the traffic, drawn from softmax laws
(`paritas.detectors.diagnosis.faults`), judged by the evaluator under the preset of its kernel.  A
case without an alarm asks for no name and is only counted.  Rules are developed on seeds 201 to
209, the calibration table is made with 211 to 219, and 301 and 302 are held out: docs/diagnosis.md
has the protocol.

With recordings of real engines (a folder with NAME.serve.jsonl.gz and NAME.train.jsonl.gz) their
sequences are drawn again with replacement, as a whole and as one replica of four among healthy ones.

Run: python benchmarks/diagnosis_accuracy.py [--seed 301] [--cases 2000] [--recordings FOLDER] [--json]
     python benchmarks/diagnosis_accuracy.py --out FOLDER   also draws confusion.png and reliability.png there
     python benchmarks/diagnosis_accuracy.py --calibrate    the numbers of calibration.py
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from paritas.collectors.dumps import ReadOptions, read_recorded
from paritas.contracts.load import load_named
from paritas.contracts.model import Stage
from paritas.detectors.diagnosis import Cause
from paritas.detectors.diagnosis.calibration import EDGES
from paritas.detectors.diagnosis.causes import MIN_CONFIDENCE
from paritas.detectors.diagnosis.faults import FAULTS, cases, outcomes
from paritas.detectors.diagnosis.scores import scores_of
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.explain import explain, scene_of, slices_by_evidence
from paritas.detectors.pairing import Pairer
from paritas.detectors.verdicts import verdicts
from paritas.records import Role, State, TokenTrace
from paritas.tokens import TokenHasher

HELD_OUT, TRAINING = 301, (211, 212)
GRID = 2  # every fault, severity, share and kernel so often
SUREST = 0.99  # reality has faults that nobody drew
LEVELS = ("mild", "middle", "bad")
BINS = (0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# recorded fault → serve file, train file, what is true
RECORDED = {
    "weights_plus1": ("bf16", "bf16_weights_plus1", Cause.STALE),
    "weights_plus4": ("bf16", "bf16_weights_plus4", Cause.STALE),
    "weights_plus8": ("bf16", "bf16_weights_plus8", Cause.STALE),
    "t06_processed": ("bf16_t06_processed", "bf16_t06_processed", Cause.TEMPERATURE),
    "topp09_processed": ("bf16_topp09_processed", "bf16_topp09_processed", Cause.SUPPORT),
    "t06_raw": ("bf16_t06_raw", "bf16_t06_raw", Cause.WRONG_LAW),
    "topp09_raw": ("bf16_topp09_raw", "bf16_topp09_raw", Cause.WRONG_LAW),
    "fp8_e4m3": ("fp8_e4m3", "fp8_e4m3", Cause.PRECISION),
    "int4_rtn": ("int4_rtn", "int4_rtn", Cause.PRECISION),
    "int8": ("int8", "int8", Cause.PRECISION),
    "rope_scaled": ("bf16", "bf16_rope_scaled_1_02", Cause.POSITION),
    "rope_scaled_more": ("bf16", "bf16_rope_scaled_1_02", Cause.POSITION),
}
REPLICAS, DRAWN = 4, 96
MORE = {"rope_scaled_more": 500}  # sequences: too little is seen in fewer


@cache
def preset(name):
    return load_named(name)


def evaluated(contract, found):
    """Return the evaluator and what it found violated."""
    evaluator = Evaluator(contract, stage=Stage.OFFLINE_CI, recover=False)
    for _ in evaluator.observe(found):
        pass
    return evaluator, [v for v in verdicts(evaluator) if v.state is State.VIOLATED]


def judged(contract, found, truth, place=""):
    """Judge the outcomes of one case: what was named first, with which confidence, and where."""
    evaluator, violated = evaluated(contract, found)
    told = {"truth": truth.value, "alarm": bool(violated), "place": place}
    if not violated:
        return told
    first, *rest = explain(evaluator, violated)
    at = {f.slice for f in (first, *rest) if f.cause == Cause.ISOLATED} | {first.facts.get("worst", "")}
    return {**told, "named": first.cause, "confidence": first.confidence, "located": place in at}


def measure_drawn(seed, count, kept=None):
    """Judge `count` cases, evenly over the whole grid; with a file, go on from the rows that are kept there."""
    rows = [] if kept is None or not kept.is_file() else list(map(json.loads, kept.read_text().splitlines()))
    yield from rows
    for case in evenly(list(cases(seed, GRID)), count)[len(rows) :]:
        row = judged_case(case)
        if kept is not None:
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
        yield row


def judged_case(case):
    """Judge one drawn case."""
    told = judged(preset(case.preset), outcomes(case), case.cause, case.slice)
    place = {"fault": case.fault, "level": level(case), "share": case.share, "kernel": case.kernel}
    return {**told, **place}


def level(case):
    """Say how bad a case is among the severities of its fault."""
    severities = FAULTS[case.fault].severities
    return LEVELS[severities.index(case.severity) * len(LEVELS) // len(severities)]


def evenly(items, count):
    """Return `count` of the items, evenly spaced."""
    places = np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int)
    return [items[i] for i in places]


# ---- recordings


@cache
def recorded(folder, serve, train):
    """Pairs of two recorded files."""
    contract, options = preset("dense-bf16"), ReadOptions(TokenHasher(b"diagnosis-accuracy"))
    pairer, paired = Pairer(contract.compare), []
    for name, role in ((f"{serve}.serve", Role.INFERENCE), (f"{train}.train", Role.TRAIN)):
        for trace in read_recorded(Path(folder) / f"{name}.jsonl.gz", role, options):
            assert isinstance(trace, TokenTrace), trace
            paired.extend(pairer.process(trace, 0))
    paired.extend(pairer.flush(0))
    return [o for o in paired if o.pair is not None]


def redrawn(rng, faulty, healthy, count=DRAWN):
    """Draw sequences again: the faulty ones as replica r1 if there are healthy ones, else as everything."""
    made = []
    for i in range(count):
        is_bad = not healthy or i % REPLICAS == 1
        pool = faulty if is_bad else healthy
        o = pool[int(rng.integers(len(pool)))]
        labels = {**o.attributes, "replica": f"r{i % REPLICAS}"}
        known = {"sequence_id": f"s{i:04}", "attributes": labels, "event_ns": i * 1_000_000_000}
        made.append(replace(o, **known, pair=replace(o.pair, **known)))
    return made


def measure_recorded(seed, folder, draws):
    """Judge recorded faults, drawn again."""
    for number, (fault, (serve, train, truth)) in enumerate(RECORDED.items()):
        if not (folder / f"{train}.train.jsonl.gz").is_file():
            continue
        for share in ("all", "replica"):
            healthy = recorded(str(folder), "bf16", "bf16") if share == "replica" else []
            rng = np.random.default_rng([seed, number, share == "all"])
            for _ in range(draws):
                pool = recorded(str(folder), serve, train)
                made = redrawn(rng, pool, healthy, MORE.get(fault, DRAWN))
                place = "replica=r1" if healthy else ""
                told = judged(preset("dense-bf16"), made, truth, place)
                yield {**told, "fault": fault, "level": "recorded", "share": share, "kernel": "bf16"}


# ---- what is made of it


def summary(rows):
    """Return counts, shares and tables of judged cases."""
    alarmed = [row for row in rows if row["alarm"]]
    named = [row for row in alarmed if row["named"] != Cause.UNKNOWN]
    right = sum(row["named"] == row["truth"] for row in alarmed)
    placed = [row for row in alarmed if row["place"]]
    return {
        "cases": len(rows),
        "alarmed": len(alarmed),
        "top1": ratio(right, len(alarmed)),
        "unknown": ratio(len(alarmed) - len(named), len(alarmed)),
        "wrong_name": ratio(sum(row["named"] != row["truth"] for row in named), len(alarmed)),
        "located": ratio(sum(row["located"] for row in placed), len(placed)),
        "below": sum(row["confidence"] < MIN_CONFIDENCE for row in named),
        "confusion": table(alarmed, "truth"),
        "by_fault": scores_by(alarmed, "fault"),
        "by_severity": scores_by(alarmed, "level"),
        "by_share": scores_by(alarmed, "share"),
        "by_kernel": scores_by(alarmed, "kernel"),
        "reliability": reliability(named),
        "calibration_error": calibration_error(named),
        "misses": misses(alarmed),
    }


def ratio(part, whole):
    return part / whole if whole else None


def table(rows, key):
    """Count names by `key`."""
    found = defaultdict(Counter)
    for row in rows:
        found[row[key]][row["named"]] += 1
    return {name: dict(counts.most_common()) for name, counts in sorted(found.items())}


def scores_by(rows, key):
    """Share named right by `key`, and of how many."""
    found = defaultdict(list)
    for row in rows:
        found[row[key]].append(row["named"] == row["truth"])
    return {str(name): [float(np.mean(right)), len(right)] for name, right in sorted(found.items())}


def reliability(named):
    """Return, by confidence, how often the name was right."""
    lines = []
    for low, high in zip(BINS, (*BINS[1:], 1.01), strict=True):
        inside = [row for row in named if low <= row["confidence"] < high]
        if inside:
            mean = float(np.mean([row["confidence"] for row in inside]))
            right = float(np.mean([row["named"] == row["truth"] for row in inside]))
            lines.append({"from": low, "cases": len(inside), "confidence": mean, "right": right})
    return lines


def calibration_error(named):
    """Return the mean distance of confidence and share right over `reliability`'s bins, each as heavy as its cases."""
    lines = reliability(named)
    cases = sum(line["cases"] for line in lines)
    return ratio(sum(line["cases"] * abs(line["confidence"] - line["right"]) for line in lines), cases)


def misses(rows):
    """Return what was not named right, by fault, how bad it is, kernel and share, with what it was called."""
    found = Counter(
        (row["fault"], row["level"], row["kernel"], row["share"], row["named"])
        for row in rows
        if row["named"] != row["truth"]
    )
    return [[*place, count] for place, count in sorted(found.items())]


# ---- calibration


def calibrate(seeds, count):
    """Return, by cause and range of its score, how often it was right when it scored highest."""
    right, seen = defaultdict(Counter), defaultdict(Counter)
    for seed in seeds:
        for case in evenly(list(cases(seed, 1)), count):
            evaluator, violated = evaluated(preset(case.preset), outcomes(case))
            for name in islice(slices_by_evidence(evaluator, violated), 1):
                scores = scores_of(scene_of(evaluator.states[name], [v for v in violated if v.slice == name]))
                cause = max(scores, key=scores.get)
                place = int(np.searchsorted(EDGES, scores[cause], side="right"))
                seen[cause][place] += 1
                right[cause][place] += cause == case.cause
    bins = range(len(EDGES) + 1)
    every = [[sum(table[cause][i] for cause in seen) for i in bins] for table in (right, seen)]
    usual = [(a + 1.0) / (n + 2.0) for a, n in zip(*every, strict=True)]
    return {cause.value: rising(right[cause], seen[cause], usual) for cause in Cause if cause in seen}


def rising(right, seen, usual):
    """Shares that never fall with the score; two imaginary cases, right as often as usual there, stand in each range."""
    pools = [[right[i] + 2.0 * share, seen[i] + 2.0, 1] for i, share in enumerate(usual)]
    i = 0
    while i + 1 < len(pools):
        if pools[i][0] / pools[i][1] > pools[i + 1][0] / pools[i + 1][1]:
            pools[i] = [a + b for a, b in zip(pools[i], pools.pop(i + 1), strict=True)]
            i = max(i - 1, 0)
        else:
            i += 1
    return [round(min(a / n, SUREST), 3) for a, n, width in pools for _ in range(int(width))]


def measure(seed, *, count=2000, folder=None, draws=10, kept=None):
    """Return the summaries of drawn and of recorded faults."""
    told = {"seed": seed, "drawn": summary(list(measure_drawn(seed, count, kept)))}
    if folder is not None:
        told["recorded"] = summary(list(measure_recorded(seed, folder, draws)))
    return told


def show(told):
    """Print the lines a person reads."""
    for kind in ("drawn", "recorded"):
        if kind in told:
            show_one(kind, told[kind], told["seed"])


def show_one(kind, s, seed):
    print(f"{kind} faults, seed {seed}: {s['cases']} cases, {s['alarmed']} with an alarm; of these")
    print(f"  named right {s['top1']:.3f}, unknown {s['unknown']:.3f}, a wrong name {s['wrong_name']:.3f}")
    if s["located"] is not None:
        print(f"  the one bad replica or kind of prompt is pointed out in {s['located']:.3f}")
    print("  what is true: what was named")
    for truth, names in s["confusion"].items():
        print(f"    {truth:22s}" + ", ".join(f"{name} {n}" for name, n in names.items()))
    for key in ("by_fault", "by_severity", "by_share", "by_kernel"):
        print(f"  {key[3:]}: " + ", ".join(f"{k} {share:.2f} of {n}" for k, (share, n) in s[key].items()))
    print("  confidence: cases, mean confidence, share right")
    for line in s["reliability"]:
        print(f"    from {line['from']:.2f}: {line['cases']:5d} {line['confidence']:.3f} {line['right']:.3f}")
    if s["calibration_error"] is not None:
        print(f"  mean distance of the two {s['calibration_error']:.3f}; names below 0.6: {s['below']}")
    print("  not named right, by fault, how bad, kernel, share: what was named")
    for fault, how_bad, kernel, share, named, count in s["misses"]:
        print(f"    {fault:18s} {how_bad:8s} {kernel:5s} {share:12s} {named} {count}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=HELD_OUT)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--recordings", type=Path, help="folder of recordings of real engines")
    parser.add_argument(
        "--calibrate", action="store_true", help="print the numbers of calibration.py instead"
    )
    parser.add_argument("--rows", type=Path, help="file of judged cases: kept there, and gone on from")
    parser.add_argument("--out", type=Path, help="folder for figures; needs matplotlib")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    arguments = parser.parse_args()
    if arguments.calibrate:
        told = calibrate(TRAINING, arguments.cases)
        sys.stdout.writelines(f"{cause}: {numbers}\n" for cause, numbers in told.items())
        return
    told = measure(arguments.seed, count=arguments.cases, folder=arguments.recordings, kept=arguments.rows)
    if arguments.out is not None:
        from diagnosis_figures import draw

        draw(told["drawn"], arguments.out)
    print(json.dumps(told)) if arguments.json else show(told)


if __name__ == "__main__":
    main()
