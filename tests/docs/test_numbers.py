"""Every number a user sees says its definition, its unit, its source and what it cannot see.

The names come from what the commands print and from the records behind it, never from a list of ours.
"""

import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
from command_runs import recording, run, run_json
from google.protobuf.descriptor import FieldDescriptor
from toy_kernels import ToyModel

from paritas.collectors.kernels import LocalSampler, LocalScorer, Prompt, Suite, parse_spec
from paritas.collectors.scrape import EngineMetrics
from paritas.commands.certify_run import Kernels, Plan, certify_pair
from paritas.commands.experiments.registry import EXPERIMENTS, run_experiment
from paritas.commands.experiments.result import Setting
from paritas.commands.live_reading import Reading, otlp_metrics, prometheus_text
from paritas.commands.numbers import Number, groups, lacks
from paritas.contracts.attempts import GateLevel
from paritas.contracts.catalogue import CATALOGUE
from paritas.contracts.explain import explain
from paritas.contracts.floors import FloorValue
from paritas.contracts.load import load_named
from paritas.contracts.plausible import Implausible
from paritas.detectors.cap import CertifiedBias, Recommendation
from paritas.detectors.diagnosis.features import Features
from paritas.detectors.repair import Price
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Finding, Role, Sampling, Verdict

ROOT = Path(__file__).resolve().parents[2]
GROUPS = groups()
HEALTHY = ("--serve", recording("healthy.serve"), "--train", recording("healthy.train"))
STALE = ("--serve", recording("healthy.serve"), "--train", recording("stale.train"))
TOP_P = ("--serve", recording("top_p.serve"), "--train", recording("top_p.train"))
NUMERIC = ("float", "int", "paritas.collectors.scrape.Histogram")
F = FieldDescriptor
WIRE_NUMBERS = (F.CPPTYPE_DOUBLE, F.CPPTYPE_INT32, F.CPPTYPE_INT64, F.CPPTYPE_UINT32, F.CPPTYPE_UINT64)
# Records whose numbers are printed, under which prefix and in which group.
RECORDS = [
    (Verdict, "verdicts", ""),
    (Finding, "findings", ""),
    (Features, "findings", "facts."),
    (GateLevel, "judgement", "gate."),
    (Implausible, "judgement", "implausible[]."),
    (Recommendation, "judgement", "recommended_cap."),
    (Price, "repair", ""),
    (CertifiedBias, "repair", "bias."),
    (FloorValue, "floor", "values[]."),
    (EngineMetrics, "engine", ""),
]


@pytest.fixture(scope="module")
def tables():
    """The documentation's own module, which joins the texts of the registries."""
    sys.path.insert(0, str(ROOT / "docs"))
    yield import_module("tables_numbers")
    sys.path.remove(str(ROOT / "docs"))


def leaves(value, path=""):
    """Yield the path of every number in JSON, and of every null, which stands for one that is not there."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    elif value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        yield path


def number_fields(record):
    """Names of a record's fields that hold a number."""
    return [
        f.name
        for f in fields(record)
        if any(kind.strip() in NUMERIC for kind in getattr(f.type, "__name__", str(f.type)).split("|"))
    ]


def split(path):
    """Group and name of a path of a judgement's JSON."""
    for head, group in (
        ("verdicts[].", "verdicts"),
        ("diagnosis[].", "findings"),
        ("rosetta.", "rosetta"),
        ("certify.", "certify"),
    ):
        if path.startswith(head):
            return group, path.removeprefix(head)
    return "judgement", path


def assert_told(tables, pairs):
    """Assert that each (group, name) has all four texts."""
    told = {key: {n.name: n for n in tables.shown(group)} for key, group in GROUPS.items()}
    wrong = {}
    for key, name in sorted(set(pairs)):
        number = told[key].get(name) or GROUPS[key].find(name) or Number("", "", "", "", "")
        if missing := lacks(number):
            wrong[f"{key}: {name}"] = missing
    assert wrong == {}


def test_every_text_that_is_written_is_whole(tables):
    for group in GROUPS.values():
        for number in tables.shown(group):
            assert lacks(number) == (), f"{group.key}: {number.name}"


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_statistic_tells_all_four(tables, name):
    assert lacks(tables.number_of(CATALOGUE[name])) == ()
    page = explain(name)
    for title in ("blind to", "reference", "estimator"):
        assert f"\n{title}" in page
    assert not CATALOGUE[name].reference.startswith(("architecture", "statistics.md", "bounds.md"))


@pytest.mark.parametrize(("record", "group", "prefix"), RECORDS, ids=lambda v: getattr(v, "__name__", v))
def test_every_field_of_a_record_is_told(tables, record, group, prefix):
    names = number_fields(record)
    assert names
    assert_told(tables, [(group, prefix + name) for name in names])


@pytest.mark.parametrize(
    ("message", "group"),
    [
        ("Escalation", "escalations"),
        ("Incident", "escalations"),
        ("Verdict", "verdicts"),
        ("Finding", "findings"),
    ],
)
def test_every_number_of_an_escalation_is_told(tables, message, group):
    found = [
        f.name
        for f in pb.DESCRIPTOR.message_types_by_name[message].fields
        if f.cpp_type in WIRE_NUMBERS and f.enum_type is None
    ]
    assert found
    assert_told(tables, [(group, name) for name in found])


@pytest.mark.parametrize("inputs", [HEALTHY, STALE, TOP_P], ids=["healthy", "stale", "top-p"])
@pytest.mark.parametrize("contract", ["dense-bf16", "rlhf-reward"])
def test_every_number_of_a_judgement_is_told(tables, contract, inputs):
    path = ROOT / f"examples/contracts/{contract}.yaml"
    _, found = run_json("check", path if path.exists() else contract, *inputs)
    assert_told(tables, map(split, leaves(found)))
    assert found["verdicts"]


BIASED = """apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: mine, version: 1.0.0}
spec:
  policy: p
  clauses:
    statistical:
      - {id: bias, statistic: gradient_bias, cap: 1.0, at_most: 0.001}
"""


@pytest.fixture
def biased(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(BIASED)
    return path


def test_every_number_of_a_recommended_cap_is_told(tables, biased):
    _, found = run_json("check", biased, *TOP_P)
    assert found["recommended_cap"]["caps"]
    assert_told(tables, map(split, leaves(found)))


def test_every_number_of_a_repair_is_told(tables, biased):
    _, found = run_json("repair", biased, *TOP_P)
    pairs = [
        ("repair", path.removeprefix("repairs[].")) if path.startswith("repairs") else split(path)
        for path in leaves(found)
    ]
    assert_told(tables, pairs)


def test_every_number_of_a_certification_is_told(tables):
    specs = parse_spec("hf:a", Role.TRAIN), parse_spec("hf:b", Role.INFERENCE)
    prompts = tuple(Prompt(f"p{n}", f"f:{n}", token_ids=(n + 1, 7), labels={}) for n in range(4))
    plan = Plan(*specs, Suite(prompts, 2, 5), Sampling(1.0, 1.0, 0, 0.0), 5)
    trained, served = ToyModel(Role.TRAIN), ToyModel(noise=2.0)
    pair = Kernels(LocalSampler(served, top_k=5), LocalScorer(trained, top_k=5))
    found = certify_pair(load_named("dense-bf16"), plan, pair, out=None).as_dict()
    assert found["certify"]["divergence"]["max_oscillation_logits"] > 0
    assert_told(tables, map(split, leaves(found)))


def test_every_number_of_a_floor_is_told(tables, tmp_path):
    key, public, out = (tmp_path / name for name in ("k.pem", "p.pem", "floor.json"))
    assert run("floor", "key", key, public).returncode == 0
    one = recording("healthy.train")
    done = run(
        *("floor", "measure", "dense-bf16", "train_vs_train", "--role", "train"),
        *("--one", one, "--other", one, "--key", key, "-o", out),
    )
    assert (done.returncode, done.stderr) == (0, "")
    _, found = run_json("floor", "verify", out, "--key", public)
    assert found["values"]
    assert_told(tables, [("floor", path) for path in leaves(found)])


def test_every_metric_is_told(tables):
    coded = tables.told_by_code()
    live = {f"{name}-metrics" for name in ("agent", "proxy", "detect", "control", "operator", "roster")}
    assert live | {"rosetta"} == set(coded)
    assert len(coded["agent-metrics"]) > 20
    assert_told(tables, [(key, name) for key, names in coded.items() for name in names])


def test_no_text_is_about_a_number_that_nobody_shows(tables):
    for key, names in tables.told_by_code().items():
        for number in GROUPS[key].numbers:
            assert any(map(number.fits, names)), f"{key}: {number.name}"


def test_every_opentelemetry_metric_is_told_with_its_unit(tables):
    reading = Reading("c", {"paired": 1}, {("train", "valid"): 3}, {"openrlhf:vllm_kl": 0.5}, 1)
    request = otlp_metrics(reading, start_ns=0, now_ns=1)
    found = {m.name: m.unit for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert set(found) > {"paritas.detect.sequences", "paritas.rosetta.openrlhf.vllm_kl"}
    assert all(found.values())
    assert_told(tables, [("otel-metrics", name) for name in found])
    names = {line.partition("{")[0] for line in prometheus_text(reading).splitlines() if line[0] != "#"}
    assert_told(tables, [("detect-metrics", name) for name in names])


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_column_of_an_experiment_is_told(tables, name):
    found = run_experiment(name, Setting(is_quick=True))
    numeric = [
        f"{name}/{table.name}/{column}"
        for table in found.tables
        for column in table.columns
        if any(isinstance(c, (int, float)) and not isinstance(c, bool) for c in table.column(column))
    ]
    assert numeric
    assert_told(tables, [("experiments", column) for column in numeric])


def test_the_walk_sees_what_is_not_told(tables):
    with pytest.raises(AssertionError, match="verdicts: surprise"):
        assert_told(tables, [("verdicts", "surprise")])
    assert list(leaves({"a": [{"b": 1.5, "c": True, "d": "2"}], "e": None})) == ["a[].b", "e"]
    assert number_fields(Price)[:2] == ["tokens", "touched"]
    assert "correct" in number_fields(Price)
