"""What a killed supervisor left behind, found again and ended.

Owns the note of every child's number and start time. Promises that a new stack begins only
when the old one's processes are gone. Must never signal a process that merely has the number of
an old child: the start time, which the kernel keeps to a hundredth of a second, must agree.
"""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from deploy.local.home import Home
from deploy.local.port_plan import chosen_internal
from deploy.local.processes import Waiting
from deploy.local.seaweedfs import remove_sockets

NOTE_NAME = "children.json"
PATIENCE_SECONDS = 8.0


def note_children(home: Home, pids: Mapping[str, int]) -> None:
    """Write down who runs now. Raises HomeUnusable."""
    known = {name: [pid, started] for name, pid in pids.items() if (started := start_ticks(pid))}
    home.write_json(NOTE_NAME, known)


def end_remains(home: Home) -> Waiting:
    """Wait for what an earlier supervisor left, and kill what does not end by itself.

    The files that a killed store leaves outside the home go too.
    """
    kill_at = time.monotonic() + PATIENCE_SECONDS
    while remains := _running(home):
        for pid in remains.values():
            if time.monotonic() > kill_at:
                _kill(pid)
        names = ", ".join(f"{name} (process {pid})" for name, pid in sorted(remains.items()))
        yield f"the end of what an earlier stack left: {names}"
    remove_sockets(chosen_internal(home))
    home.forget_stack()


def _running(home: Home) -> dict[str, int]:
    return {
        name: pid
        for name, (pid, started) in home.read_json(NOTE_NAME).items()
        if start_ticks(pid) == started
    }


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it is gone or a zombie."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = facts.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
