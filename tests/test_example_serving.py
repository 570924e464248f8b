"""What the serving example says where something it starts does not come up."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "examples" / "proxy" / "serving.py"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("serving_example", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("print('one'); print('no such model'); print()", "the server did not start: no such model"),
        ("", "the server did not start"),
    ],
)
def test_a_server_that_ends_is_told_with_its_last_words(example, tmp_path, program, said):
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=log)
    process.wait(60)
    with pytest.raises(SystemExit) as ended:
        example.wait_until(lambda: False, process, "the server", tmp_path / "log")
    assert ended.value.code == said


def test_where_no_log_is_kept_the_name_alone_is_told(example):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    with pytest.raises(SystemExit) as ended:
        example.wait_until(lambda: False, process, "the server")
    assert ended.value.code == "the server did not start"
