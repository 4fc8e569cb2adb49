"""SeaweedFS out of a wheel: a real S3 store as one child process on loopback ports.

Owns a data directory, one bucket and the server on them. Promises: no telemetry, loopback only,
a memory limit, and that the S3 port is really ours: the program would silently take the next
free port, so a taken one is refused here before it is started and checked afterwards. Must
never count the store as ready before a signed write went through.
"""

import errno
import hashlib
import hmac
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from deploy.local import ports as tcp
from deploy.local.processes import (
    PartFailed,
    Waiting,
    drive,
    has_ended,
    last_words,
    spawn,
    stop_child,
)

REGION = "us-east-1"
PORT_VARIABLE = "COATCHECK_LOCAL_S3_PORT"
INTERNAL = f"{PORT_VARIABLE} (an internal port beside it)"
START_TIMEOUT_SECONDS = 60.0
STOP_GRACE_SECONDS = 15.0
EVERY_ADDRESS = ""
SOCKET_DIR = Path("/tmp")  # noqa: S108  # the program knows no other
PROBE_KEY = "started"
PROBE_TIMEOUT_SECONDS = 2.0

PORT_FLAGS = (
    "-s3.port", "-s3.port.grpc", "-master.port", "-master.port.grpc", "-volume.port",
    "-volume.port.grpc", "-filer.port", "-filer.port.grpc", "-admin.port", "-admin.port.grpc",
)  # fmt: skip
_FLAGS = (
    "-dir=.", f"-ip={tcp.LOOPBACK}", f"-ip.bind={tcp.LOOPBACK}", "-master.telemetry=false",
    "-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
    "-volume.preStopSeconds=0",
    # Relative, for the working directory is the data directory: no path is too long for them.
    "-s3.localSocket=s3.sock", "-filer.localSocket=filer.sock",
)  # fmt: skip


class LocalSeaweed:
    """One store with one bucket. `ports[0]` serves S3; the others are internal."""

    name = "s3"
    stop_signal = signal.SIGTERM

    def __init__(
        self,
        data_dir: Path,
        ports: Sequence[int],
        access_key: str,
        secret_key: str,
        bucket: str,
        log_path: Path,
    ) -> None:
        if len(ports) != len(PORT_FLAGS):
            raise ValueError(f"SeaweedFS needs {len(PORT_FLAGS)} ports")
        self.data_dir = data_dir
        self.ports = tuple(ports)
        self.served: tuple[tcp.NamedPort, ...] = (tcp.NamedPort(ports[0], PORT_VARIABLE),)
        self.bucket = bucket
        self.access_key = access_key
        self.log_path = log_path
        self.process: subprocess.Popen[bytes] | None = None
        self._secret_key = secret_key

    @property
    def port(self) -> int:
        """The port of the S3 interface."""
        return self.ports[0]

    @property
    def endpoint_url(self) -> str:
        """Where S3 clients connect."""
        return f"http://{tcp.LOOPBACK}:{self.port}"

    def start(self) -> int:
        """Start and wait until a signed write works; the server's pid."""
        drive(self.begin(), timeout_seconds=START_TIMEOUT_SECONDS)
        assert self.process is not None  # noqa: S101  # begin() ended well
        return self.process.pid

    def begin(self) -> Waiting:
        """The start, step by step. Raises `PartFailed` or `PortTaken`."""
        program = weed_program()
        internal = [tcp.NamedPort(port, INTERNAL) for port in self.ports[1:]]
        # On every address: it gives way to a listener on any 127.x address too.
        tcp.require_free([*self.served, *internal], host=EVERY_ADDRESS)
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise PartFailed(f"cannot make {self.data_dir}: {error.strerror}") from error
        port_words = [f"{flag}={port}" for flag, port in zip(PORT_FLAGS, self.ports, strict=True)]
        self.process = spawn(
            [program, "-logtostderr=true", "mini", *_FLAGS, *port_words],
            log_path=self.log_path,
            cwd=self.data_dir,
            env=self._environment(),
        )
        while not self._takes_writes():
            if has_ended(self.process):
                raise PartFailed(f"SeaweedFS ended at once: {last_words(self.log_path)}")
            yield "the S3 store to take a write"
        if not tcp.is_listening(self.process.pid, self.port):
            raise tcp.PortTaken(self.served[0])

    def stop(self) -> None:
        """Returns when the server is gone. May be called twice."""
        drive(self.end(), timeout_seconds=STOP_GRACE_SECONDS + 10)

    def end(self) -> Waiting:
        """The stop, step by step; the sockets that the program leaves behind go too."""
        if self.process is None:
            return
        yield from stop_child(self.process, self.stop_signal, grace_seconds=STOP_GRACE_SECONDS)
        remove_sockets(self.ports)

    def _environment(self) -> dict[str, str]:
        foreign = ("AWS_", "S3_", "WEED_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        return {
            **kept,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self._secret_key,
            "S3_BUCKET": self.bucket,
            "GOMEMLIMIT": "400MiB",
        }

    def _takes_writes(self) -> bool:
        """A write and its removal: the port answers well before the store can keep anything."""
        return (
            tcp.accepts(self.port)
            and self._signed_status("PUT") == http.client.OK
            and self._signed_status("DELETE") == http.client.NO_CONTENT
        )

    def _signed_status(self, method: str) -> int:
        path = f"/{self.bucket}/{PROBE_KEY}"
        headers = sign_empty_request(
            method, f"{tcp.LOOPBACK}:{self.port}", path, self.access_key, self._secret_key
        )
        connection = http.client.HTTPConnection(
            tcp.LOOPBACK, self.port, timeout=PROBE_TIMEOUT_SECONDS
        )
        try:
            connection.request(method, path, body=b"", headers=headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


def remove_sockets(ports: Iterable[int]) -> None:
    """Remove the sockets that a store on these ports left, where nobody listens any more."""
    for port in ports:
        for path in SOCKET_DIR.glob(f"seaweedfs-*-grpc-{port}.sock"):
            if not _is_left(path):
                continue
            try:
                path.unlink(missing_ok=True)
            except OSError:
                continue  # somebody else's, in a folder that all may write


def _is_left(path: Path) -> bool:
    """Is it a socket that refuses connections? Any other answer means that it has an owner."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return path.is_socket() and probe.connect_ex(str(path)) == errno.ECONNREFUSED


def sign_empty_request(
    method: str, host: str, path: str, access_key: str, secret_key: str
) -> dict[str, str]:
    """Headers of an AWS Signature Version 4 request without body and query."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    body_digest = hashlib.sha256(b"").hexdigest()
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    names = "host;x-amz-content-sha256;x-amz-date"
    canonical = (
        f"{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:{body_digest}\n"
        f"x-amz-date:{now}\n\n{names}\n{body_digest}"
    )
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{secret_key}".encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    to_sign = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    credential = f"Credential={access_key}/{scope}"
    return {
        "Host": host,
        "x-amz-content-sha256": body_digest,
        "x-amz-date": now,
        "Authorization": (
            f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"
        ),
    }


def weed_program() -> Path:
    """The program of the wheel stands beside the interpreter; else one on the PATH."""
    beside = Path(sys.prefix) / "bin" / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise PartFailed("SeaweedFS is not installed: install coatcheck[local]")
    return Path(found)
