"""The process: what it imports and weighs, how it re-reads its files, finds pods, and leaves."""

import contextlib
import http.server
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from gateway_calls import Connection, complete, completion, raw_request, request
from gateway_fakes import Behaviour, FakeEngine, pod
from gateway_process import gateway, wait_until
from steelyard.decide import slots
from steelyard.gateway.pods import Pod
from steelyard.gateway.watch import ApiServer, PodWatch


def test_the_process_imports_nothing_heavy() -> None:
    """All of its modules, discovery included, in a fresh interpreter."""
    code = (
        "import sys, pkgutil, importlib, steelyard.gateway as g\n"
        "for m in pkgutil.iter_modules(g.__path__): importlib.import_module('steelyard.gateway.' + m.name)\n"
        "print(' '.join(sorted(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    roots = {name.partition(".")[0] for name in loaded}
    assert "httptools" in roots
    assert not roots & {"kopf", "pydantic", "numpy", "yaml", "kubernetes", "urllib3", "requests", "aiohttp", "torch"}


def test_it_weighs_little() -> None:
    engine = FakeEngine()
    with gateway([pod(engine, "aggregated")], {"topology": "Aggregated"}) as process:
        assert complete(process.port).status == 200
        status = Path(f"/proc/{process.process.pid}/status").read_text()
        resident_kib = int(status.split("VmRSS:")[1].split()[0])
        assert resident_kib < 60 * 1024


def test_two_gateways_share_the_engines() -> None:
    """Both take requests at once; the bound on late binding and the decode slots are shared between them."""
    engines = [FakeEngine(Behaviour(tokens=3, interval=0.01)) for _ in range(4)]
    pods = [pod(e, role) for e, role in zip(engines, ["prefill", "prefill", "decode", "decode"], strict=True)]
    with gateway(pods, {"gateways": 2}) as one, gateway(pods, {"gateways": 2}) as two, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: complete((one, two)[i % 2].port, prompt=str(i), stream=True), range(60)))
        assert {a.text for a in answers} == {" t0 t1 t2"}
        assert [g.metric("steelyard_gateway_requests_total", outcome="completed") for g in (one, two)] == [30, 30]
        windows = [json.loads(g.admin("/demand")[1]) for g in (one, two)]
        assert all(w["end"] % 0.25 == 0 for w in windows), "aligned, so that they add up"


def test_settings_are_re_read_and_bad_ones_refused() -> None:
    engine = FakeEngine()
    with gateway([pod(engine, "aggregated")], {"topology": "Aggregated"}) as process:
        assert complete(process.port).status == 200
        process.write_settings(servedName="renamed")
        wait_until(lambda: request(process.port, "GET", "/v1/models").json["data"][0]["id"] == "renamed")
        assert complete(process.port).status == 404
        process.write_settings(servedName="smollm2", gateways=0)
        wait_until(lambda: process.metric("steelyard_gateway_settings_refused_total") == 1)
        assert "gateways is 0, and must be at least 1" in process.log()
        assert request(process.port, "GET", "/v1/models").json["data"][0]["id"] == "renamed"
        process.pods_file.write_text("[{")
        wait_until(lambda: "new pods refused" in process.log())
        process.write_settings(gateways=1)
        wait_until(lambda: complete(process.port).status == 200)


def test_adapters_are_models_of_their_own_and_their_name_reaches_the_engine() -> None:
    engine = FakeEngine()
    with gateway([pod(engine, "aggregated")], {"topology": "Aggregated", "adapters": ["legal"]}) as process:
        listed = request(process.port, "GET", "/v1/models").json["data"]
        assert [(model["id"], model.get("parent")) for model in listed] == [("smollm2", None), ("legal", "smollm2")]
        body = b'{"model":"legal","prompt":"x"}'
        assert request(process.port, "POST", "/v1/completions", body).status == 200
        assert engine.calls()[-1].body["model"] == "legal"
        refused = request(process.port, "POST", "/v1/completions", body.replace(b"legal", b"other"))
        assert "'smollm2', 'legal'" in refused.json["error"]["message"]
        process.write_settings(adapters=[])
        wait_until(lambda: request(process.port, "POST", "/v1/completions", body).status == 404)


def test_decode_slots_follow_the_autoscaler_and_never_pass_the_settings() -> None:
    """A second file beside the settings; it may come, change and make no sense at any time."""
    prefill, decode = FakeEngine(Behaviour()), FakeEngine(Behaviour(tokens=100_000, interval=0.05))
    with (
        gateway([pod(prefill, "prefill"), pod(decode, "decode")], {"decodeSlots": 6}) as process,
        contextlib.ExitStack() as held,
    ):

        def decide(content: str) -> None:
            fresh = process.folder / "decision.new"
            fresh.write_text(content)
            fresh.replace(process.folder / slots.FILE)

        def streams(number: int) -> None:
            wait_until(lambda: process.metric("steelyard_gateway_engine_calls", engine=decode_name) == number)

        decode_name = pod(decode, "decode")["name"]
        decide(slots.text(2))
        wait_until(lambda: "decode slots re-read" in process.log())
        for number in range(8):
            connection = Connection(process.port)
            held.callback(connection.close)
            connection.send(raw_request("POST", "/v1/completions", completion(str(number), stream=True)))
        streams(2)
        decide(slots.text(5))
        streams(5)
        decide("nonsense")
        wait_until(lambda: process.metric("steelyard_gateway_settings_refused_total") == 1)
        process.write_settings(servedName="renamed")  # new settings keep what was decided
        wait_until(lambda: request(process.port, "GET", "/v1/models").json["data"][0]["id"] == "renamed")
        streams(5)
        decide(slots.text(50))
        streams(6)


def test_refused_settings_change_no_part(tmp_path: Path) -> None:
    """With a new key file that is not there the old one stays in use, and its rotation is still seen."""
    keys, engine = tmp_path / "keys", FakeEngine()
    keys.write_text("old\n")

    def status(key: str) -> int:
        return request(process.port, "GET", "/v1/models", authorization=f"Bearer {key}").status

    with gateway([pod(engine, "aggregated")], {"topology": "Aggregated", "apiKeysFile": str(keys)}) as process:
        process.write_settings(apiKeysFile=str(tmp_path / "nowhere"), servedName="other")
        wait_until(lambda: process.metric("steelyard_gateway_settings_refused_total") == 1)
        assert status("old") == 200
        keys.write_text("new\n")
        wait_until(lambda: status("new") == 200)
        assert status("old") == 401
        (tmp_path / "nowhere").write_text("stranger\n")
        keys.write_text("newer\n")
        wait_until(lambda: status("newer") == 200)
        assert status("stranger") == 401


def test_a_pod_with_an_address_that_nobody_can_have_is_a_pod_that_cannot_be_reached() -> None:
    engine = FakeEngine()
    pods = [pod(engine, "aggregated", "odd", address="x" * 300), pod(engine, "aggregated", "other", address="a\0b")]
    with gateway(pods, {"topology": "Aggregated"}) as process:
        assert complete(process.port).status in (502, 503)
        process.write_pods([pod(engine, "aggregated")])
        wait_until(lambda: complete(process.port).status == 200)


@pytest.mark.parametrize(("config", "message"), [("{}", "service"), ("nonsense", "malformed"), (None, "No such file")])
def test_it_does_not_start_without_good_settings(tmp_path: Path, config: str | None, message: str) -> None:
    path = tmp_path / "gateway.json"
    if config is not None:
        path.write_text(config)
    command = [sys.executable, "-m", "steelyard.gateway.main", "--config", str(path), "--pods", "/nowhere"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert ended.returncode == 2
    assert message in ended.stderr


def test_it_does_not_start_without_a_way_to_find_pods(tmp_path: Path) -> None:
    path = tmp_path / "gateway.json"
    path.write_text(json.dumps({"service": "chat", "namespace": "team-a", "servedName": "m"}))
    command = [sys.executable, "-m", "steelyard.gateway.main", "--config", str(path), "--host", "127.0.0.1"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, env=environment)
    assert ended.returncode == 2
    assert "--pods FILE" in ended.stderr


def test_sigterm_lets_streams_finish_and_ends_well() -> None:
    engine = FakeEngine(Behaviour(tokens=15, interval=0.1))
    with gateway([pod(engine, "aggregated")], {"topology": "Aggregated"}, args=("--drain-delay", "0.6")) as process:
        stream, idle = Connection(process.port), Connection(process.port)
        stream.send(raw_request("POST", "/v1/completions", completion(stream=True)))
        stream.head()
        idle.send(raw_request("GET", "/v1/models"))
        assert idle.answer().status == 200
        process.process.terminate()
        wait_until(lambda: process.admin("/ready") == (503, b"draining\n"))
        assert process.admin("/live")[0] == 200
        late = request(process.port, "GET", "/v1/models")
        assert late.status == 200, "whoever has not heard of it yet is still served"
        assert late.headers["connection"] == "close"
        assert idle.closed()
        assert b"t14" in stream.answer_body()
        assert process.process.wait(10) == 0


def test_sigterm_bounds_how_long_it_waits() -> None:
    engine = FakeEngine(Behaviour(tokens=10_000, interval=0.05))
    arguments = ("--drain-timeout", "0.5")
    with gateway([pod(engine, "aggregated")], {"topology": "Aggregated"}, args=arguments) as process:
        connection = Connection(process.port)
        connection.send(raw_request("POST", "/v1/completions", completion(stream=True)))
        connection.head()
        process.process.terminate()
        assert b"shutting down" in connection.answer_body()
        assert process.process.wait(10) == 0


# --- discovery from an API server


class FakeApi:
    """List and watch of pods, one event at a time, with interruptions on demand."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.events: queue.Queue[dict[str, Any] | None] = queue.Queue()  # None ends the watch
        self.asked: list[str] = []
        self.broken = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if outer.broken:
                    self.send_error(500)
                    return
                if "watch=1" not in self.path:
                    listed = {"metadata": {"resourceVersion": str(outer.version)}, "items": list(outer.items.values())}
                    body = json.dumps(listed).encode()
                    self.send_response(200)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                    return
                self.send_response(200)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                while (event := outer.events.get()) is not None:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
                self.wfile.write(b"0\r\n\r\n")

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def pod(self, name: str, role: str = "prefill", ready: bool = True, **metadata: Any) -> dict[str, Any]:
        self.version += 1
        labels = {"serving.steelyard.dev/role": role, "serving.steelyard.dev/kv-group": "g"}
        return {
            "metadata": {"name": name, "labels": labels, "resourceVersion": str(self.version), **metadata},
            "status": {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
        }

    def event(self, kind: str, obj: dict[str, Any]) -> None:
        self.events.put({"type": kind, "object": obj})


Watched = tuple[FakeApi, list[tuple[Pod, ...]], Callable[[], None]]


@pytest.fixture
def watched() -> Watched:
    api = FakeApi()
    found: list[tuple[Pod, ...]] = []
    server = ApiServer("127.0.0.1", api.server.server_address[1], tls=False, account=Path("/nonexistent"))
    watch = PodWatch(server, "team-a", "chat", found.append)
    return api, found, watch.start


def facts(found: list[tuple[Pod, ...]]) -> dict[str, tuple[str, bool]]:
    return {p.name: (p.role, p.ready) for p in found[-1]} if found else {}


def test_pods_come_from_list_and_watch(watched: Watched) -> None:
    api, found, start = watched
    api.items["a"] = api.pod("a")
    start()
    wait_until(lambda: facts(found) == {"a": ("prefill", True)})
    api.event("ADDED", api.pod("b", "decode", ready=False))
    wait_until(lambda: facts(found) == {"a": ("prefill", True), "b": ("decode", False)})
    api.event("MODIFIED", api.pod("b", "decode"))
    api.event("MODIFIED", api.pod("a", "decode"))
    wait_until(lambda: facts(found) == {"a": ("decode", True), "b": ("decode", True)})
    api.event("MODIFIED", api.pod("a", "decode", deletionTimestamp="2026-01-01T00:00:00Z"))
    wait_until(lambda: facts(found)["a"] == ("decode", False))
    api.event("DELETED", api.pod("a"))
    wait_until(lambda: facts(found) == {"b": ("decode", True)})
    assert (
        "labelSelector=serving.steelyard.dev%2Fservice%3Dchat%2Capp.kubernetes.io%2Fcomponent%3Dengine" in api.asked[0]
    )
    assert "/namespaces/team-a/pods" in api.asked[0]


def test_a_watch_that_ends_is_resumed_where_it_was(
    watched: Watched,
) -> None:
    api, found, start = watched
    start()
    api.event("ADDED", api.pod("a"))
    wait_until(lambda: "a" in facts(found))
    api.event("BOOKMARK", {"metadata": {"resourceVersion": "777"}})
    api.events.put(None)
    wait_until(lambda: len(api.asked) == 3)
    assert "resourceVersion=777" in api.asked[-1]
    assert sum("watch=1" not in path for path in api.asked) == 1, "no second list"
    api.event("DELETED", api.pod("a"))
    wait_until(lambda: facts(found) == {})


def test_a_version_that_is_too_old_begins_again_with_a_list(
    watched: Watched,
) -> None:
    api, found, start = watched
    api.items["ghost"] = api.pod("ghost")
    start()
    wait_until(lambda: "ghost" in facts(found))
    api.items = {"a": api.pod("a")}  # the ghost's deletion was missed
    api.event("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
    wait_until(lambda: facts(found) == {"a": ("prefill", True)})


def test_the_last_known_pods_stay_while_the_api_server_is_away(
    watched: Watched,
) -> None:
    api, found, start = watched
    api.items["a"] = api.pod("a")
    start()
    wait_until(lambda: "a" in facts(found))
    api.broken = True
    api.events.put(None)
    asked = len(api.asked)
    wait_until(lambda: len(api.asked) >= asked + 2)
    assert facts(found) == {"a": ("prefill", True)}
    api.broken = False
    api.event("ADDED", api.pod("b"))
    wait_until(lambda: "b" in facts(found))


def test_an_error_of_any_kind_does_not_end_the_watch(watched: Watched, tmp_path: Path) -> None:
    """Here a token that is no text. Had the thread ended, the pods would stay as they are for ever."""
    api, found, _ = watched
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    server = ApiServer("127.0.0.1", api.server.server_address[1], tls=False, account=tmp_path)
    api.items["a"] = api.pod("a")
    PodWatch(server, "team-a", "chat", found.append).start()
    time.sleep(0.2)
    (tmp_path / "token").write_text("good")
    wait_until(lambda: "a" in facts(found))


def test_a_watch_that_never_says_anything_costs_nothing() -> None:
    """An API server that does not exist: tried with growing pauses, not in a loop."""
    server = ApiServer("127.0.0.1", 1, tls=False, account=Path("/nonexistent"))
    found: list[tuple[Pod, ...]] = []
    watch = PodWatch(server, "team-a", "chat", found.append)
    before = time.process_time()
    watch.start()
    time.sleep(1.0)
    watch.stop()
    assert time.process_time() - before < 0.5
    assert found == []
