"""What the statistics promise, measured in one run: false alarms, delay beside peers, recordings, faults.

The experiments `false-alarms`, `delay`, `recorded-delay` and `precision-ladder` of `paritas experiment` and
`null_streams.py`, with one seed and CPU times, and one table of every criterion at the end.  `--only NAME`
runs one of them.
Recordings come from --recordings, else $PARITAS_RECORDINGS or $PARITAS_SHARED_DATA,
else a folder shared/data beside the repository, else those shipped with the package.
Exit code 1 where a promise did not hold; a missed goal is printed with its number.

Run: python benchmarks/statistics_all.py [--seed 0] [--quick] [--only NAME] [--recordings FOLDER] [--json]
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from paritas.commands.experiments.registry import run_experiment
from paritas.commands.experiments.result import Setting
from paritas.commands.experiments.writing import show, show_summary
from paritas.commands.report import wide_console

EXPERIMENTS = ("false-alarms", "null-streams", "delay", "recorded-delay", "precision-ladder")
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def recordings(told):
    """Folder of recordings, or None for the shipped ones."""
    known = (told, os.environ.get("PARITAS_RECORDINGS"), os.environ.get("PARITAS_SHARED_DATA"), BESIDE)
    return next((Path(folder) for folder in known if folder and Path(folder).is_dir()), None)


def measure(setting, *, names=EXPERIMENTS):
    """Yield each result and the CPU seconds it took."""
    for name in names:
        start = time.process_time()
        yield run_one(name, setting), time.process_time() - start


def run_one(name, setting):
    """Run an experiment, or the benchmark beside this file."""
    if name != "null-streams":
        return run_experiment(name, setting)
    from null_streams import run

    return run(setting)


def show_all(told, console):
    """Print every table, then every criterion in one."""
    results = []
    for result, cpu_s in told:
        show(result, console)
        console.print(f"{cpu_s:.0f} s of CPU time\n")
        results.append(result)
    show_summary(results, console)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a small run")
    parser.add_argument("--only", choices=EXPERIMENTS, help="run one of them")
    parser.add_argument("--recordings", type=Path)
    parser.add_argument("--json", action="store_true", help="print one JSON list instead")
    arguments = parser.parse_args()
    names = (arguments.only,) if arguments.only else EXPERIMENTS
    told = measure(Setting(arguments.seed, arguments.quick, recordings(arguments.recordings)), names=names)
    if arguments.json:
        results = [result for result, _ in told]
        print(json.dumps([result.as_dict() for result in results]))
    else:
        results = show_all(told, wide_console())
    return max(result.exit_code for result in results)


if __name__ == "__main__":
    sys.exit(main())
