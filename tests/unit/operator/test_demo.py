"""What makes a demo fail, and the calls it makes."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy.local.home import Home
from deploy.local.processes import drive
from services.operator import demo as demo_module
from services.operator.calls import CallFailed, call, download
from services.operator.demo import Demo, DemoFailed
from services.operator.sources import Sources
from shared.domain.errors import Refused
from tests.unit.local.stubs import quiet_console

FACTS: dict[str, Any] = {
    "gateway_url": "http://gateway.test",
    "api_key": "cck_key",
    "provider_urls": {"runpod": "http://provider.test/v2"},
    "pids": {"fake_runpod": 1},
}
SHA256_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


class Door(BaseHTTPRequestHandler):
    """Answers by path: /STATUS/WORD."""

    def do_GET(self) -> None:
        _, status, word = self.path.split("/")
        body = json.dumps({"word": word}).encode() if word != "text" else b"no json"
        self.send_response(int(status))
        self.send_header("Location", "/200/moved")
        self.send_header("Content-Length", str(len(body) + (5 if word == "short" else 0)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


def a_demo(tmp_path: Path, given: Any = None) -> Demo:
    return Demo(quiet_console()[0], Sources(Home(tmp_path), {}), "demo-video", given)


def test_every_status_is_an_answer_and_no_proxy_is_asked(door: str) -> None:
    assert call("GET", f"{door}/200/a", headers={}).json == {"word": "a"}
    answer = call("POST", f"{door}/409/b", headers={}, body={})
    assert (answer.status, answer.json) == (409, {"word": "b"})
    assert call("GET", f"{door}/302/c", headers={}).status == 302
    assert call("GET", f"{door}/200/text", headers={}).json == {}


def test_silence_is_told() -> None:
    with pytest.raises(CallFailed, match=r"127\.0\.0\.1:9 does not answer"):
        call("GET", "http://127.0.0.1:9/", headers={})
    with pytest.raises(CallFailed, match="broke off"):
        list(download("http://127.0.0.1:9/", headers={}))


def test_a_download_is_whole_or_told(door: str) -> None:
    assert b"".join(download(f"{door}/200/a", headers={})) == b'{"word": "a"}'
    with pytest.raises(CallFailed, match="answered 404"):
        list(download(f"{door}/404/a", headers={}))
    with pytest.raises(CallFailed, match="broke off with 5 bytes missing"):
        list(download(f"{door}/200/short", headers={}))


def test_an_unexpected_answer_is_told(door: str) -> None:
    with pytest.raises(CallFailed, match=r"posting was answered 409 \(no code\)"):
        demo_module._expected(call("GET", f"{door}/409/b", headers={}), 202, "posting")
    with pytest.raises(CallFailed, match=r"posting was answered 500 \(no body\)"):
        demo_module._expected(call("GET", f"{door}/500/text", headers={}), 202, "posting")


@pytest.mark.parametrize(
    ("bytes_told", "sha256_told", "sentence"),
    [
        (3, "00" * 32, "not the ones that the job names"),
        (4, SHA256_OF_ABC, "not the ones that the job names"),
        (3, SHA256_OF_ABC, "less than a MiB"),
    ],
)
def test_other_bytes_fail_the_demo(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bytes_told: int,
    sha256_told: str,
    sentence: str,
) -> None:
    monkeypatch.setattr(demo_module, "download", lambda _url, headers: iter([b"a", b"bc"]))
    artifact = {"href": "/a", "bytes": bytes_told, "sha256": sha256_told}
    steps = a_demo(tmp_path)._fetch(FACTS, artifact, tmp_path / "clip")
    with pytest.raises(DemoFailed, match=sentence):
        drive(steps, timeout_seconds=60)


def test_a_result_that_does_not_play_fails_the_demo(tmp_path: Path) -> None:
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"#EXTM3U\n/etc/passwd\n" * 100)
    with pytest.raises(DemoFailed, match="does not play"):
        drive(a_demo(tmp_path)._play("video/mp4", clip, tmp_path / "log"), timeout_seconds=60)


def test_what_is_no_film_is_not_played(tmp_path: Path) -> None:
    steps = a_demo(tmp_path)._play("application/json", tmp_path / "missing", tmp_path / "log")
    drive(steps, timeout_seconds=60)


def test_without_a_player_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(Refused, match="player is not installed"):
        demo_module._decoder()


def test_a_real_provider_is_not_asked_for_a_digest(tmp_path: Path) -> None:
    facts = FACTS | {"pids": {}}
    drive(a_demo(tmp_path)._compare(facts, "id", "digest"), timeout_seconds=60)


def test_the_input_is_the_callers_or_the_schemas_example(tmp_path: Path) -> None:
    assert a_demo(tmp_path, {"a": 1})._input() == {"a": 1}
    assert "prompt" in a_demo(tmp_path)._input()


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ({"error": {"message": "it broke"}}, "it broke"),
        ({"attention": {"reason": "submission_outcome_unknown"}}, "submission_outcome_unknown"),
        ({}, "unknown"),
    ],
)
def test_a_jobs_reason_is_told(job: dict[str, Any], sentence: str) -> None:
    assert demo_module._reason(job) == sentence
