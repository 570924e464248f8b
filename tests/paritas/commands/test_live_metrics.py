"""Live numbers: the page, the push, and what `watch --peers` makes of them."""

import math
import urllib.error
import urllib.request
from dataclasses import replace
from http import HTTPStatus
from types import SimpleNamespace

import pytest
from command_runs import recording, run, service, until
from odd_servers import NO_HTTP, speaking
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from pair_factory import BY_REPLICA, EVERYTHING, both, clause, contract

from paritas.agent.http_message import response
from paritas.agent.receivers.http_server import HttpServer
from paritas.agent.receivers.listening import listen_tcp
from paritas.clock import ManualClock, SystemClock
from paritas.commands.detect_health import Stage
from paritas.commands.live_metrics import MetricsDesk, MetricsPusher, metrics_page
from paritas.commands.live_options import NOWHERE, MetricsPlaces, exposed
from paritas.commands.live_reading import (
    Reading,
    instrument_name,
    otlp_metrics,
    prometheus_text,
    reading_of,
)
from paritas.commands.offline import judge
from paritas.commands.peer_view import follow_peers, page_of, peer_values
from paritas.commands.places import DataFolder
from paritas.contracts.model import Refit
from paritas.detectors.pipeline import Detector
from paritas.detectors.rosetta import METRICS
from paritas.errors import TransientError, UsageError
from paritas.otlp_http import target_of


def judged(n=5):
    detector = Detector(contract(clause("tv", 0.1)))
    traces = [t for i in range(n) for t in both(f"s-{i}", p=(-1.1, -2.1, -0.6))]
    list(detector.process(traces, 1))
    list(detector.flush(2))
    return detector


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def test_a_reading_holds_what_the_detector_saw():
    told = reading_of(judged())
    assert told.contract == "c"
    assert told.sequences == {"paired": 5}
    assert told.tokens["inference", "valid"] == 15
    assert told.peer_sequences == 5
    assert set(told.peers) == set(METRICS)
    assert told.peers["trl:sampling/sampling_logp_difference/mean"] == pytest.approx(0.1, rel=1e-5)


def test_the_page_can_be_read_back():
    told = Reading(
        'a"b', peers={"trl:x/y": 0.25, "verl:z": math.inf, 'prime_rl:mismatch_kl/e"\n\\v/mean': math.nan}
    )
    back = peer_values(prometheus_text(told))
    assert back["trl", "x/y"] == 0.25
    assert back["verl", "z"] == math.inf
    assert math.isnan(back["prime_rl", 'mismatch_kl/e"\n\\v/mean'])


def test_the_page_is_what_prometheus_reads():
    parser = pytest.importorskip("prometheus_client.parser")
    told = prometheus_text(reading_of(judged()))
    families = {f.name: f for f in parser.text_string_to_metric_families(told)}
    assert families["paritas_rosetta"].type == "gauge"
    assert len(families["paritas_rosetta"].samples) == len(METRICS)
    assert families["paritas_detect_sequences"].samples[0].labels == {"contract": "c", "outcome": "paired"}


def test_otlp_gauges_carry_the_peers_names_and_leave_out_what_is_no_number():
    told = Reading(
        "c", {"paired": 3}, {("train", "valid"): 7}, {"verl:rollout_corr/kl": 0.5, "trl:x": math.nan}, 3
    )
    request = ExportMetricsServiceRequest.FromString(
        otlp_metrics(told, start_ns=1, now_ns=2).SerializeToString()
    )
    (resource,) = request.resource_metrics
    assert {a.key: a.value.string_value for a in resource.resource.attributes} == {
        "service.name": "paritas",
        "paritas.contract": "c",
    }
    metrics = {m.name: m for m in resource.scope_metrics[0].metrics}
    assert set(metrics) == {
        *("paritas.detect.sequences", "paritas.detect.tokens"),
        *("paritas.rosetta.sequences", "paritas.rosetta.verl.rollout_corr/kl"),
    }
    assert metrics["paritas.rosetta.verl.rollout_corr/kl"].gauge.data_points[0].as_double == 0.5
    (point,) = metrics["paritas.detect.tokens"].sum.data_points
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (7, 1, 2)


def test_the_desk_reads_at_most_once_a_period():
    clock = ManualClock()
    desk, detector = MetricsDesk("c", clock=clock, period_s=5.0), judged(2)
    other = Detector(replace(detector.contract, digest="1" * 32))
    desk.note(detector)
    first = desk.latest
    assert first.peer_sequences == 2
    clock.advance(seconds=4.9)
    desk.note(detector)
    assert desk.latest is first
    clock.advance(seconds=0.1)
    desk.note(detector)
    second = desk.latest
    assert second is not first
    desk.note(other)
    assert desk.latest.digest == "1" * 32, "another contract is read at once"


def test_the_page_is_served_and_nothing_else():
    desk = MetricsDesk("c", clock=ManualClock())
    desk.note(judged())
    with metrics_page("127.0.0.1:0", desk) as server:
        page = get(f"http://{server.address}/metrics")
        assert page == desk.page()
        assert page.startswith(prometheus_text(desk.latest))
        assert get(f"http://{server.address}/healthz") == "alive\n"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get(f"http://{server.address}/readyz")  # there is no loop yet
        desk.state.stage = Stage.RUNNING
        assert get(f"http://{server.address}/readyz") == "ready\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"http://{server.address}/")


def receiver(taken, status=HTTPStatus.OK):
    def answer(request, stream):
        taken.append((request.path, stream.read(int(request.headers["content-length"]))))
        return response(status, b"", "application/x-protobuf")

    return HttpServer(listen_tcp("127.0.0.1:0"), answer, name="test-receiver")


def test_the_pusher_posts_and_posts_once_more_at_the_end():
    taken, desk = [], MetricsDesk("c", clock=ManualClock())
    desk.note(judged())
    with receiver(taken) as server:
        target = target_of(f"http://{server.address}")
        with MetricsPusher(target, desk, clock=SystemClock(), period_s=60.0) as pusher:
            pusher.push()
        assert (pusher.sent, pusher.failed) == (2, 0)
    assert {path for path, _ in taken} == {"/v1/metrics"}
    request = ExportMetricsServiceRequest.FromString(taken[-1][1])
    assert len(request.resource_metrics[0].scope_metrics[0].metrics) == len(METRICS) + 3


def test_a_receiver_that_refuses_or_is_away_is_counted():
    desk, clock = MetricsDesk("c", clock=ManualClock()), SystemClock()
    with receiver([], HTTPStatus.BAD_REQUEST) as server:
        address = f"http://{server.address}"
        pusher = MetricsPusher(target_of(address), desk, clock=clock)
        pusher.push()
    pusher.push()
    assert (pusher.sent, pusher.failed) == (0, 2)
    pusher.close()
    pusher.close()


def test_a_running_instance_tells_its_numbers_to_watch(tmp_path):
    with service(tmp_path, "--metrics", "127.0.0.1:0"):
        fed = run("ingest", "--data", tmp_path, recording("healthy.serve"), recording("healthy.train"))
        assert fed.returncode == 0, fed.stderr
        seen = until(lambda: watched(tmp_path))
    lines = seen.splitlines()
    assert [line for line in lines if line and not line.startswith((" ", "as "))] == list(
        dict.fromkeys(name.partition(":")[0] for name in METRICS)
    )
    assert lines[0] == "as others would print the latest 48 sequences"


def watched(folder):
    """What `watch --peers` prints once everything was judged."""
    done = run("watch", "--peers", "--data", folder, "--count", 1)
    assert done.returncode == 0, done.stderr
    return done.stdout if "latest 48 sequences" in done.stdout else ""


def test_an_instance_without_metrics_says_how_to_start_one(tmp_path):
    with service(tmp_path):
        done = run("watch", "--peers", "--data", tmp_path)
    assert done.returncode == 64
    assert done.stderr == (
        f"[usage] the instance on {tmp_path} serves no metrics\n"
        "  hint: start it with `paritas up --metrics 127.0.0.1:0`\n"
    )


def test_an_address_is_completed(tmp_path):
    folder = DataFolder(tmp_path)
    assert page_of("127.0.0.1:9", folder) == "http://127.0.0.1:9/metrics"
    assert page_of("https://h/x", folder) == "https://h/x"
    with pytest.raises(UsageError, match="nothing runs on"):
        page_of("", folder)


def test_flink_has_metrics_of_its_own(tmp_path):
    done = run("detect", "--log", tmp_path, "--engine", "flink", "--metrics", "127.0.0.1:0")
    assert done.returncode == 64
    assert done.stderr == (
        "[usage] --metrics and --otlp-metrics need --engine process\n"
        "  hint: on Flink read the metrics of the job itself\n"
    )


def test_a_metrics_address_that_is_taken_or_no_target_is_a_usage_error(tmp_path):
    done = run("up", "--data", tmp_path, "--listen", "127.0.0.1:0", "--otlp-metrics", "ftp://x")
    assert done.returncode == 64
    assert done.stderr.startswith("[usage] --otlp-metrics is 'ftp://x'\n  hint: write unix:/")


def test_a_loop_is_exposed_only_where_somebody_asked():
    loop = SimpleNamespace(on_step=None)
    with exposed(NOWHERE, contract="c", clock=SystemClock()) as numbers:
        numbers.follow(loop)
        assert (numbers.page, loop.on_step) == ("", None)
    taken = []
    with receiver(taken) as server:
        places = MetricsPlaces(page="127.0.0.1:0", push=f"http://{server.address}")
        with exposed(places, contract="c", clock=SystemClock()) as numbers:
            numbers.desk.note(judged(3))
            assert 'paritas_rosetta_sequences{contract="c"} 3' in get(f"http://{numbers.page}/metrics")
    assert len(taken) == 1  # at the end: the period had not passed


def test_detect_says_where_its_metrics_are(tmp_path):
    with service(tmp_path):
        target = DataFolder(tmp_path).running().target
        done = run(
            *("detect", "--log", tmp_path / "log", "--controller", target, "--to-end"),
            *("--state", tmp_path / "state", "--metrics", "127.0.0.1:0"),
        )
    assert done.returncode == 0, done.stderr
    assert "metrics on http://127.0.0.1:" in done.stdout


# ---- the refit gate

GATED = replace(contract(clause("tv", 0.1), slices=(EVERYTHING, BY_REPLICA)), refit=Refit(tokens=60))


def gated():
    """A detector that accepted weights 1 on r0, rejected 2 on r1 and still holds 3 on r2."""
    detector = Detector(GATED)
    sound, broken = (-1.0, -2.0, -0.5), (-9.0, -9.0, -9.0)
    views = [("1", "r0", sound, 21), ("2", "r1", broken, 40), ("3", "r2", sound, 1)]
    traces = [
        t
        for version, replica, p, n in views
        for i in range(n)
        for t in both(f"{version}-{i}", p=p, weights_version=version, attributes={"replica": replica})
    ]
    list(detector.process(traces, 1))
    list(detector.flush(2))
    return detector


def test_a_reading_holds_what_the_refit_gate_did():
    told = reading_of(gated()).refit
    assert (told.started, told.held) == (3, 1)
    assert told.versions == {("accepted", "not_refuted"): 1, ("rejected", "refuted"): 1}
    assert told.sequences["accepted"] == 1
    assert told.sequences["held"] + told.sequences["rejected"] == 61
    assert reading_of(judged()).refit is None


def test_the_page_shows_the_refit_gate_by_reason():
    page = prometheus_text(reading_of(gated())).splitlines()
    assert 'paritas_refit_tests_total{contract="c"} 3' in page
    assert 'paritas_refit_held{contract="c"} 1' in page
    assert 'paritas_refit_versions_total{contract="c",state="accepted",reason="not_refuted"} 1' in page
    assert 'paritas_refit_versions_total{contract="c",state="rejected",reason="refuted"} 1' in page
    assert 'paritas_refit_sequences_total{contract="c",state="accepted"} 1' in page
    assert "refit" not in prometheus_text(reading_of(judged()))


def test_the_push_has_the_refit_gate_by_reason():
    request = otlp_metrics(reading_of(gated()), start_ns=1, now_ns=2)
    (scope,) = request.resource_metrics[0].scope_metrics
    metrics = {m.name: m for m in scope.metrics}
    points = metrics["paritas.refit.versions"].sum.data_points
    told = {tuple(a.value.string_value for a in p.attributes): p.as_int for p in points}
    assert told == {("accepted", "not_refuted"): 1, ("rejected", "refuted"): 1}
    assert metrics["paritas.refit.held"].gauge.data_points[0].as_double == 1.0
    assert metrics["paritas.refit.tests"].sum.data_points[0].as_int == 3


def test_a_page_that_speaks_no_http_is_one_clear_error():
    with speaking(NO_HTTP[0]) as url, pytest.raises(TransientError) as caught:
        follow_peers(url, clock=ManualClock(), every_s=1.0, count=1)
    assert caught.value.render() == f"[transient] {url}: SSH-2.0-somewhere\n  hint: is it up, with --metrics?"


# ---- the peers, each way they are shown

PEERS = ("verl", "trl", "nemo_rl", "prime_rl", "slime", "skyrl", "ms_swift", "openrlhf")


@pytest.mark.parametrize("peer", PEERS)
def test_every_peer_is_in_check_watch_and_otel(peer, shown_peers):
    checked, watched, pushed = shown_peers
    names = {name for name in METRICS if name.startswith(f"{peer}:")}
    assert names
    assert names <= checked.keys()
    assert {tuple(name.split(":", 1)) for name in names} <= watched.keys()
    for name in names:
        value = checked[name]
        assert watched[tuple(name.split(":", 1))] == pytest.approx(value, rel=1e-9)
        assert pushed[instrument_name(name)] == pytest.approx(value, rel=1e-9)


@pytest.fixture(scope="module")
def shown_peers():
    """The same sequences as `check`, the page that `watch --peers` reads, and the OTLP push tell them."""
    traces = [t for i in range(5) for t in both(f"s-{i}", p=(-1.1, -2.1, -0.6))]
    reading = reading_of(judged())
    request = otlp_metrics(reading, start_ns=1, now_ns=2)
    (scope,) = request.resource_metrics[0].scope_metrics
    pushed = {m.name: m.gauge.data_points[0].as_double for m in scope.metrics if m.HasField("gauge")}
    return judge(contract(clause("tv", 0.1)), traces).rosetta, peer_values(prometheus_text(reading)), pushed
