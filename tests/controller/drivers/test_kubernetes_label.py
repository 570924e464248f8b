"""What a real API server cannot show (that is in tests/system/test_driver_kubernetes.py): answers that are none.

The server here is a small real HTTPS server that gives the answers of the test, in turn.
"""

import asyncio
import json
import ssl
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from certificates import self_signed
from fleets import fleet_of, route

from paritas.clock import ManualClock
from paritas.controller.drivers.driver import Outcome
from paritas.controller.drivers.kubernetes_label import KubernetesLabelDriver, KubernetesSettings
from paritas.errors import TransientError, UsageError

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
EMPTY = {"items": []}


def pod(name, **labels):
    return {"metadata": {"name": name, "labels": labels}, "status": READY}


@asynccontextmanager
async def answering(folder, answers):
    """Serve `answers`, the last one for ever; yields the settings of a driver and the requests it made."""
    files, asked, left = self_signed(folder), [], list(answers)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.certificate, files.key)

    async def answer(request):
        asked.append((request.method, request.path_qs, request.headers["authorization"]))
        said = left.pop(0) if len(left) > 1 else left[0]
        return said if isinstance(said, web.Response) else web.Response(text=said)

    application = web.Application()
    application.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    (folder / "token").write_text("the token")
    url = f"https://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield KubernetesSettings("a/b", server=url, token_file=folder / "token", ca_file=files.ca), asked
    finally:
        await runner.cleanup()


def told(folder, *answers):
    """Apply one state; return what became of it and the requests."""

    async def scene():
        async with (
            answering(folder, answers) as (settings, asked),
            KubernetesLabelDriver(settings, fleet_of(), ManualClock()) as driver,
        ):
            (applied,) = await driver.apply([route()])
            return applied, asked

    return asyncio.run(scene())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("{}", "the answer is no list of pods"),
        ("[]", "the answer is no list of pods"),
        ("null", "the answer is no list of pods"),
        ('{"items": [{}]}', "the answer is no list of pods"),
        ('{"items": [{"metadata": {"name": "r0"}}]}', "the answer is no list of pods"),
        (
            '{"items": [{"metadata": {"name": "r0", "labels": "x"}, "status": {}}]}',
            "the answer is no list of pods",
        ),
        ("<html>", "GET pods failed: Expecting value: line 1 column 1 (char 0)"),
        (web.Response(status=502), "GET pods gave 502: no reason given"),
        (web.Response(status=503, text="no\nupstream"), "GET pods gave 503: no upstream"),
        (web.Response(status=500, text='{"message": "etcd is away"}'), "GET pods gave 500: etcd is away"),
        (web.Response(status=500, text="[]"), "GET pods gave 500: []"),
        (web.Response(status=404, text="404 page not found"), "GET pods gave 404: 404 page not found"),
    ],
)
def test_an_answer_that_is_no_list_of_pods_changes_nothing(tmp_path, answer, said):
    applied, asked = told(tmp_path, answer)
    assert (applied.outcome, applied.detail) == (Outcome.FAILED, f"kubernetes-label: {said}")
    assert [method for method, *_ in asked] == ["GET"]


def test_the_token_does_not_follow_a_redirect(tmp_path):
    applied, asked = told(tmp_path, web.Response(status=307, headers={"location": "/elsewhere"}))
    assert applied.detail == "kubernetes-label: GET pods gave 307: no reason given"
    assert asked == [
        ("GET", "/api/v1/namespaces/a%2Fb/pods?fieldSelector=metadata.name%3Dr0", "Bearer the token")
    ]


def test_an_answer_that_is_no_pod_is_not_taken_for_a_label(tmp_path):
    lists = [json.dumps({"items": [pod("r0")]}), json.dumps(EMPTY), json.dumps(EMPTY)]
    applied, asked = told(tmp_path, *lists, "{}")
    assert (applied.outcome, applied.detail) == (Outcome.FAILED, "kubernetes-label: the answer is no pod")
    assert asked[-1][:2] == ("PATCH", "/api/v1/namespaces/a%2Fb/pods/r0")


def test_a_driver_that_is_not_open_says_so(tmp_path):
    (tmp_path / "token").write_text("the token")
    settings = KubernetesSettings("serving", ca_file=self_signed(tmp_path).ca)
    driver = KubernetesLabelDriver(settings, fleet_of(), ManualClock())
    with pytest.raises(TransientError, match=r"^kubernetes-label: the driver is not open$"):
        asyncio.run(driver.observe())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"namespace": ""}, "namespace: must not be empty"),
        ({"namespace": "serving", "label": ""}, "label: must not be empty"),
        ({"namespace": "serving", "server": "http://api"}, "server: 'http://api' is not an https URL"),
        ({"namespace": "serving", "request_s": 0.0}, "request_s: must be positive, got 0.0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, said):
    with pytest.raises(UsageError) as caught:
        KubernetesSettings(**settings)
    assert str(caught.value) == said
