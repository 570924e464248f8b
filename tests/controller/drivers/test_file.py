"""Routes in a file: read back as written, or refused with the reason."""

import asyncio

import pytest
from fleets import ALL, GOLD, fleet_of, route

from paritas.clock import SystemClock
from paritas.controller.drivers.driver import Outcome
from paritas.controller.drivers.file import FileDriver, FileSettings
from paritas.controller.routing.model import Hold
from paritas.errors import TransientError


def driver(path):
    return FileDriver(FileSettings(path), fleet_of(), SystemClock())


async def moved(path, routes):
    async with driver(path) as opened:
        return await opened.apply(routes), await opened.observe()


def test_what_was_written_is_what_is_read_back(tmp_path):
    routes = [route(inference=0.75, drained=("r1",), holds={Hold.CAP: "2.0"}), route(GOLD)]
    applied, observed = asyncio.run(moved(tmp_path / "routes.json", routes))
    assert [a.outcome for a in applied] == [Outcome.APPLIED] * 2
    assert observed.weights[ALL] == {"inference": 0.75, "reference": 0.25}
    assert observed.serving == {"r0", "r1", "ref"}, "r1 is drained in one slice only"
    assert list(tmp_path.iterdir()) == [tmp_path / "routes.json"], "nothing is left beside it"


def test_equal_routes_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        asyncio.run(moved(tmp_path / name, [route(inference=0.5, shadow={"reference": 0.25})]))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_folder_that_went_away_is_a_failure_with_its_reason(tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    opened = driver(folder / "routes.json")
    folder.rmdir()
    (applied,) = asyncio.run(opened.apply([route()]))
    assert applied.outcome is Outcome.FAILED
    assert applied.detail == f"cannot write {str(folder / 'routes.json')!r}: No such file or directory"


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (None, "cannot read {path!r}: No such file or directory"),
        (
            "{",
            "{path!r} holds no routes: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        ("{}", "{path!r} holds no routes: KeyError: 'version'"),
        (
            '{"version":1,"policy":"other","routes":[]}',
            "{path!r} holds no routes: version 1 of policy 'other'",
        ),
        ("[]", "{path!r} holds no routes: TypeError: list indices must be integers or slices, not str"),
    ],
)
def test_a_file_of_somebody_else_is_not_taken_for_routes(tmp_path, held, why):
    path = tmp_path / "routes.json"
    if held is not None:
        path.write_text(held)
    with pytest.raises(TransientError) as refused:
        asyncio.run(driver(path).observe())
    assert str(refused.value) == "file: " + why.format(path=str(path))
