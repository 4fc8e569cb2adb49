"""The health check of the containers, as the program that they run."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.contract.compose_file import ROOT


class Answers(BaseHTTPRequestHandler):
    """200 on /well, 503 with a reason elsewhere."""

    def do_GET(self) -> None:
        is_well = self.path == "/well"
        body = b'{"ready": %s}' % (b"true" if is_well else b"false")
        self.send_response(200 if is_well else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


@pytest.fixture
def origin() -> Iterator[str]:
    """A server's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join()


def ask(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs the check; the environment comes on top of ours."""
    return subprocess.run(
        [sys.executable, "-m", "deploy.health", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_good_answer_is_well(origin: str) -> None:
    answer = ask(f"{origin}/well")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_another_answer_is_unwell_and_shown(origin: str) -> None:
    answer = ask(f"{origin}/readyz")
    assert answer.returncode == 1
    assert answer.stderr == '503: {"ready": false}\n'


def test_no_answer_is_unwell() -> None:
    answer = ask("http://127.0.0.1:1/readyz")
    assert answer.returncode == 1
    assert "no answer" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_proxy_of_the_environment_is_not_asked(origin: str) -> None:
    proxies = {name: "http://127.0.0.1:1" for name in ("http_proxy", "HTTP_PROXY", "all_proxy")}
    assert ask(f"{origin}/well", no_proxy="", NO_PROXY="", **proxies).returncode == 0


@pytest.mark.parametrize("arguments", [(), ("file:///etc/hostname",), ("http://a", "http://b")])
def test_wrong_usage_is_told_apart(arguments: tuple[str, ...]) -> None:
    assert ask(*arguments).returncode == 2
