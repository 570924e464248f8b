"""Golden contract files: what is refused, in which words, and what the good ones mean."""

import json
from pathlib import Path

import pytest
from contract_cases import BAD, FOLDER, GOOD, HEAD, contract, expected_problems

from paritas.contracts.compose import LIMIT_BYTES
from paritas.contracts.load import load_contract, load_named, load_text
from paritas.contracts.model import Floor, Operator, Requirement, Stage
from paritas.errors import ContractError, UsageError
from paritas.records import Action, Role, State


def name_of(path: Path) -> str:
    return path.name.split(".")[0]


@pytest.mark.parametrize("path", BAD, ids=name_of)
def test_a_bad_file_says_exactly_what_is_wrong(path: Path) -> None:
    with pytest.raises(ContractError) as caught:
        load_text(path.read_bytes(), path.name)
    assert list(caught.value.problems) == expected_problems(path)
    assert str(caught.value) == "\n".join(message for message, _ in expected_problems(path))


def test_there_are_enough_bad_files_and_each_says_its_error() -> None:
    assert len(BAD) >= 100
    assert all(expected_problems(path) for path in BAD)


@pytest.mark.parametrize("path", GOOD, ids=name_of)
def test_a_good_file_loads_with_every_limit_filled_in(path: Path) -> None:
    loaded = load_contract(path)
    assert loaded.file == str(path)
    assert len(loaded.digest) == 32
    for clause in loaded.clauses:
        limits = [clause.at_most, clause.at_least]
        assert limits.count(None) == (2 if clause.statistic == "kernel_identity" else 1)


def test_the_example_of_the_documentation_means_what_it_says() -> None:
    full = load_contract(FOLDER / "full.good.yaml")
    assert (full.name, full.version, full.owner, full.policy) == (
        "qwen3-8b-rollout",
        "1.2.0",
        "rl-infra",
        "qwen3-8b",
    )
    assert full.kernels[Role.REFERENCE] == {"engine": "vllm", "dtype": "bfloat16", "batch_invariant": True}
    assert (full.compare.weights_within, full.compare.pair_within_s) == (0, 600.0)
    assert [s.name for s in full.slices] == ["all", "prompt", "replica", "long-context", "decode"]
    assert full.slices[2].at_most == 64
    assert full.slices[3].match is not None
    assert full.slices[3].match.tokens == (Requirement("position", Operator.GTE, (32768.0,)),)
    assert full.clause("token-tv").at_most == 0.02  # the preset says 0.04
    assert full.clause("mean-ratio").at_most == 1.002  # from the preset
    assert full.clause("ttft").at_most == 0.8
    assert full.clause("logit-osc").stages == (Stage.OFFLINE_CI,)
    assert full.clause("grad-bias").cap == 2.0
    assert full.escalation[0].levels[1].after_s == 120.0
    assert full.escalation[0].levels[1].actions == (
        Action("reroute", {"to": "reference", "share": 1.0}),
        Action("hold_refit", {}),
    )
    assert full.escalation[2].when.state == (State.VIOLATED, State.NO_DATA)
    assert [gate.stage for gate in full.promotion.gates] == list(Stage)
    assert full.promotion.gates[2].steps == (0.01, 0.05, 0.25)
    assert (full.tests[0].serve, full.tests[0].train) == ("fixtures/stale-replica.jsonl",) * 2
    assert full.tests[0].expect[0].at_most_sequences == 400


def test_yaml_1_2_is_read_as_yaml_1_2() -> None:
    loaded = load_contract(FOLDER / "yaml-1.2.good.yaml")
    assert loaded.policy == "on"
    assert loaded.kernels[Role.INFERENCE] == {
        "engine": "no",
        "gpu": "8",
        "tp": 8,
        "pp": 2,
        "extra.build": "1:30",
        "extra.flag": "yes",
    }
    assert loaded.clauses[0].at_most == 0.02


def test_json_with_tabs_and_escapes_is_accepted() -> None:
    text = json.dumps(
        {
            "apiVersion": "paritas.dev/v1",
            "kind": "KernelContract",
            "metadata": {"name": "j", "version": "1.0.0", "owner": "É 😀"},
            "spec": {"preset": "fp32"},
        },
        indent="\t",
    )
    assert "\\ud83d" in text
    assert load_text(text, "j.json").owner == "É 😀"


def test_a_doubled_key_is_an_error_in_json_too() -> None:
    with pytest.raises(ContractError, match=r"a\.json:1:11: doubled key 'kind'"):
        load_text('{"kind":1,"kind":2}', "a.json")


def test_a_relative_limit_keeps_its_ceiling() -> None:
    loaded = load_contract(FOLDER / "floor.good.yaml")
    assert (loaded.clauses[0].at_most, loaded.clauses[0].floor) == (0.04, Floor("train-vs-train", 1.5))
    assert (loaded.clauses[1].at_most, loaded.clauses[1].floor) == (2.0, Floor("idle", 2.0))


def test_a_contract_without_slices_has_one_called_all() -> None:
    assert [s.name for s in load_contract(FOLDER / "minimal.good.yaml").slices] == ["all"]


def test_a_preset_is_overridden_by_id_and_name_and_by_section() -> None:
    loaded = load_contract(FOLDER / "override.good.yaml")
    assert (loaded.preset, loaded.owner) == ("dense-bf16", "")  # a preset's owner answers for the preset only
    assert [s.by for s in loaded.slices] == [(), ("slice",), ("replica", "zone")]
    assert [c.id for c in loaded.clauses[:5]] == ["token-tv", "ratio-tail", "mean-ratio", "law", "tail-5"]
    assert loaded.clause("token-tv").at_most == 0.03
    assert loaded.clause("token-tv").source == ""  # the preset's reason is not the user's
    quiet = contract("  preset: dense-bf16\n  escalation: []\n")
    assert quiet.escalation == ()


def test_crlf_and_a_byte_order_mark_change_nothing() -> None:
    text = HEAD + "spec: {preset: fp32}\n"
    plain = load_text(text, "a.yaml")
    assert load_text(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(), "a.yaml") == plain


def test_bytes_that_are_not_utf8_have_a_place() -> None:
    with pytest.raises(ContractError) as caught:
        load_text(b"apiVersion: x\nkind: \xff\n", "a.yaml")
    assert (
        caught.value.render()
        == "[contract] a.yaml:2:7: byte 0xff is not UTF-8\n  hint: save the file as UTF-8"
    )


def test_a_recording_is_not_a_contract() -> None:
    with pytest.raises(ContractError) as caught:
        load_text(b"#" * (LIMIT_BYTES + 1), "a.yaml")
    assert caught.value.render() == (
        "[contract] a.yaml:1:1: the file has 1048577 bytes, more than 1048576\n"
        "  hint: is this a contract? recordings belong in their own files"
    )


def test_files_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    missing = tmp_path / "no.yaml"
    with pytest.raises(UsageError) as caught:
        load_contract(missing)
    assert (
        caught.value.render()
        == f"[usage] {missing}: no such file\n  hint: paritas contract init -o FILE writes one"
    )
    with pytest.raises(UsageError) as caught:
        load_contract(tmp_path)
    assert (
        caught.value.render()
        == f"[usage] {tmp_path}: is a directory\n  hint: name the contract file inside it"
    )
    with pytest.raises(UsageError, match=r"cannot be read: Not a directory"):
        load_contract(Path(__file__) / "a.yaml")
    with pytest.raises(UsageError, match=r"cannot be read: embedded null byte"):
        load_contract("a\0.yaml")


def test_a_name_is_a_preset_unless_a_file_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_named("fp16").name == "fp16"
    assert load_named(str(FOLDER / "minimal.good.yaml")).name == "a"
    monkeypatch.chdir(tmp_path)
    Path("fp16").write_text(HEAD + "spec: {preset: int4}\n", encoding="utf-8")
    assert load_named("fp16").preset == "int4"


def test_an_unknown_name_gets_the_closest_preset() -> None:
    with pytest.raises(UsageError) as caught:
        load_named("fp-16")
    assert caught.value.render() == (
        "[usage] fp-16: neither a file nor a preset\n  hint: did you mean 'fp16'? paritas contract presets lists them"
    )
    with pytest.raises(UsageError, match=r"none\.yaml: no such file"):
        load_named("none.yaml")


def test_only_a_screenful_of_problems_is_shown() -> None:
    unknown = "".join(f"  x{i}: 1\n" for i in range(30))
    with pytest.raises(ContractError) as caught:
        contract("  preset: fp32\n" + unknown)
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1] == ("and 10 more problems", "mend the first ones and run again")
