"""Where a page of health and metrics is served: what is no address is said with the option's name."""

import pytest

from paritas.cli import main

COMMANDS = {
    "control": ("control", "--health"),
    "roster": ("roster", "--namespace", "serving", "--agent", "unix:/none", "--health"),
    "detect": ("detect", "--log", "none", "--contract", "dense-bf16", "--metrics"),
    "up": ("up", "--metrics"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("given", ["nonsense", "4318", ":4318", "127.0.0.1:", "127.0.0.1:65536", "[::1]"])
def test_what_is_no_address_is_said_with_the_options_name(command, given, capsys):
    *words, option = COMMANDS[command]
    assert main([*words, option, given]) == 64
    told = f"argument {option}: {given!r} is not HOST:PORT; port 0 picks a free one"
    hint = f"paritas {command} --help shows what it takes"
    assert capsys.readouterr() == ("", f"[usage] {told}\n  hint: {hint}\n")
