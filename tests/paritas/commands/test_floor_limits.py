"""`--floors` of the commands that judge: which limit binds, and which floors are refused."""

import shutil

import pytest
from command_runs import recording, run, run_json
from floor_desk import CONTRACT, laid_desk

from paritas.cli import parser
from paritas.commands.floor_limits import contract_watch
from paritas.errors import UsageError

HEALTHY = ("--serve", recording("healthy.serve"), "--train", recording("healthy.train"))


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a contract, a key pair, two recordings and the floor they make."""
    return laid_desk(tmp_path_factory.mktemp("floor"))


@pytest.fixture
def floors(desk):
    return ("--floors", desk / "engine.json", "--floors-key", desk / "p.pem")


def test_check_binds_the_limit_to_the_floor_and_says_so(desk, floors):
    code, told = run_json("floor", "verify", desk / "engine.json", "--key", desk / "p.pem")
    upper = told["values"][0]["upper"]
    code, judged = run_json("check", desk / "mine.yaml", *HEALTHY, *floors)
    assert code in (0, 3)
    (tv,) = (v for v in judged["verdicts"] if v["clause"] == "token-tv")
    assert tv["limit"] == pytest.approx(1.5 * upper)
    assert judged["floors"] == [
        f"token-tv: 1.5 times the floor engine of {upper:.4g} binds: {1.5 * upper:.4g}"
    ]
    shown = run("check", desk / "mine.yaml", *HEALTHY, *floors)
    assert f"floor  {judged['floors'][0]}" in shown.stdout


def test_without_a_floor_the_ceiling_binds_and_check_says_so(desk):
    _, judged = run_json("check", desk / "mine.yaml", *HEALTHY)
    assert judged["floors"] == ["token-tv: no floor engine was given, so its ceiling 0.9 binds"]
    assert judged["verdicts"][0]["limit"] == 0.9


@pytest.mark.parametrize("command", ["certify", "detect", "up"])
def test_the_other_commands_take_floors_too(desk, command, tmp_path):
    wanted = {
        "certify": (desk / "mine.yaml", "--train", "hf:no", "--inference", "hf:no", "--prompts", "no.txt"),
        "detect": ("--log", tmp_path, "--contract", desk / "mine.yaml", "--controller", "127.0.0.1:1"),
        "up": ("--contract", desk / "mine.yaml", "--data", tmp_path / "d"),
    }
    done = run(command, *wanted[command], "--floors", desk / "engine.json")
    assert (done.returncode, done.stderr) == (
        64,
        (
            "[usage] --floors needs --floors-key FILE\n"
            "  hint: the public key they were signed by: an unverified floor loosens limits for anybody\n"
        ),
    )


def test_a_floor_that_changes_under_a_running_detector_is_another_contract(desk, tmp_path):
    """Contract, floor and key are watched; a floor that was tampered with is refused and the old limits stay."""
    for name in ("mine.yaml", "engine.json", "p.pem"):
        shutil.copy(desk / name, tmp_path / name)
    floor, good = tmp_path / "engine.json", (desk / "engine.json").read_bytes()
    words = ["detect", "--log", "x", "--contract", tmp_path / "mine.yaml", "--floors", floor]
    arguments = parser().parse_args([*map(str, words), "--floors-key", str(tmp_path / "p.pem")])
    watch = contract_watch(arguments)
    first = watch.contract
    assert watch.look() is None

    floor.write_bytes(good.replace(b"A", b"B", 1))
    told = watch.look()
    assert isinstance(told, UsageError)
    assert str(told).startswith(f"{floor}: ")
    assert watch.contract is first

    floor.write_bytes(good)
    again = watch.look()
    assert (again.digest, again == first) == (first.digest, True)

    text = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("times: 1.5", "times: 2.0"))
    wider = watch.look()
    assert wider.clause("token-tv").at_most == pytest.approx(first.clause("token-tv").at_most / 1.5 * 2.0)
    assert wider.digest != first.digest


def test_a_key_without_a_floor_is_a_mistake(desk):
    done = run("check", desk / "mine.yaml", *HEALTHY, "--floors-key", desk / "p.pem")
    assert (done.returncode, done.stderr) == (
        64,
        "[usage] --floors-key verifies floors: give it with --floors FILE\n",
    )


def test_a_floor_by_another_key_is_refused(desk, tmp_path):
    run("floor", "key", tmp_path / "k.pem", tmp_path / "p.pem")
    done = run(
        "check",
        desk / "mine.yaml",
        *HEALTHY,
        "--floors",
        desk / "engine.json",
        "--floors-key",
        tmp_path / "p.pem",
    )
    assert (done.returncode, done.stderr) == (
        64,
        (
            f"[usage] {desk}/engine.json: is not signed by this key, or was changed since\n"
            "  hint: paritas floor measure writes one\n"
        ),
    )


def test_a_floor_of_another_kernel_is_refused(desk, floors, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(CONTRACT.replace("dtype: bfloat16", "dtype: float16"))
    done = run("check", path, *HEALTHY, *floors)
    assert (done.returncode, done.stderr) == (
        64,
        (
            f"[usage] {desk}/engine.json: the floor engine is of another kernel: dtype was bfloat16, "
            "the contract declares float16\n  hint: measure it again: paritas floor measure\n"
        ),
    )
