"""Ports of the local stack: is one free, and who listens on it.

Owns the questions about TCP ports on 127.0.0.1. Promises that a taken port is named together
with the variable that would move it. Must never pick another port in place of a taken one:
choosing free ones happens only where the caller asks for it.
"""

import os
import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.domain.errors import Refused

LOOPBACK = "127.0.0.1"
LOWEST_PORT = 10_000
BLOCK_PORTS = 32
TCP_LISTEN = "0A"


@dataclass(frozen=True)
class NamedPort:
    """A port with the variable that moves it."""

    number: int
    variable: str


class PortTaken(Refused):
    """Another process listens on a port that the stack needs."""

    def __init__(self, port: NamedPort) -> None:
        super().__init__(
            f"port {port.number} is taken by another process: free it, "
            f"or set {port.variable} to a free port, or COATCHECK_PORTS=auto for all of them"
        )
        self.port = port


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """May we listen on this port of the address now?"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Does anybody answer a connection on this port?"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def first_ephemeral_port() -> int:
    """Where the kernel's ports for outgoing connections begin."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 32_768


def free_block(count: int = BLOCK_PORTS) -> list[int]:
    """An aligned run of free ports below the ephemeral range.

    Whole aligned blocks, picked at random: two stacks that pick at the same time, or while the
    other is down, hardly ever meet, and never by one port only.
    """
    starts = list(range(LOWEST_PORT, first_ephemeral_port() - BLOCK_PORTS, BLOCK_PORTS))
    random.SystemRandom().shuffle(starts)
    for start in starts:
        block = list(range(start, start + BLOCK_PORTS))
        if all(is_free(port) for port in block):
            return block[:count]
    raise Refused("no run of free ports is left below the ephemeral range")


def is_listening(pid: int, port: int) -> bool:
    """Does exactly this process listen on the port?"""
    inodes = _listening_inodes(port)
    return bool(inodes) and _holds_socket(Path(f"/proc/{pid}"), inodes)


def _listening_inodes(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _holds_socket(process: Path, inodes: set[str]) -> bool:
    try:
        for handle in (process / "fd").iterdir():
            try:
                if os.readlink(handle) in inodes:
                    return True
            except OSError:
                continue  # closed meanwhile
    except OSError:
        return False  # ended meanwhile, or somebody else's
    return False


def require_free(wanted: Sequence[NamedPort], host: str = LOOPBACK) -> None:
    """Raise `PortTaken` for the first of these that is in use."""
    for port in wanted:
        if not is_free(port.number, host):
            raise PortTaken(port)
