"""The timer that ends a process before it can send late. In processes of their own."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from services.submitter.deadman import DeadMansTimer
from shared.domain.errors import Refused

PRELUDE = """
import os, signal, sys, time
from uuid import UUID
from services.submitter.deadman import DeadMansTimer
from shared.kit.http import boottime_seconds
timer = DeadMansTimer()
one, two = UUID(int=1), UUID(int=2)
def say(word):
    print(word, flush=True)
"""


def run(body: str) -> "subprocess.Popen[str]":
    """A process that has a timer and does this."""
    program = PRELUDE + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


def end_of(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code (negative: the signal) and what it printed."""
    out, _ = process.communicate()
    return process.returncode, out


def is_pending(pid: int, number: int) -> bool:
    """Whether the signal waits for the process to go on."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_a_process_paused_past_its_deadline_never_runs_another_line() -> None:
    process = run(
        """
        timer.arm(one, boottime_seconds() + 0.3)
        say("armed")
        os.kill(os.getpid(), signal.SIGSTOP)
        say("sent late")
        """
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "armed\n"
    # The timer runs on while the process stands still; its signal waits for it.
    while not is_pending(process.pid, signal.SIGALRM):
        time.sleep(0.01)
    process.send_signal(signal.SIGCONT)
    assert end_of(process) == (-signal.SIGALRM, "")


def test_a_deadline_that_has_passed_ends_the_process_at_once() -> None:
    process = run("timer.arm(one, boottime_seconds() - 1)\ntime.sleep(60)\nsay('sent late')")
    assert end_of(process) == (-signal.SIGALRM, "")


def test_the_earliest_deadline_counts() -> None:
    process = run(
        """
        timer.arm(one, boottime_seconds() + 600)
        timer.arm(two, boottime_seconds() + 0.05)
        time.sleep(60)
        say("sent late")
        """
    )
    assert end_of(process) == (-signal.SIGALRM, "")


def test_a_process_without_unsent_claims_lives() -> None:
    process = run(
        """
        timer.arm(one, boottime_seconds() + 600)
        timer.arm(two, boottime_seconds() + 0.2)
        timer.disarm(two)
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        say(500 < left <= 600)
        timer.disarm(one)
        timer.disarm(one)
        say(signal.getitimer(signal.ITIMER_REAL)[0])
        """
    )
    assert end_of(process) == (0, "True\n0.0\n")


def test_a_handler_that_somebody_left_behind_does_not_catch_it() -> None:
    process = run(
        """
        signal.signal(signal.SIGALRM, lambda *_: None)
        timer = DeadMansTimer()
        timer.arm(one, boottime_seconds() - 1)
        time.sleep(60)
        """
    )
    assert end_of(process) == (-signal.SIGALRM, "")


def test_process_one_is_refused_for_the_kernel_spares_it() -> None:
    with pytest.raises(Refused, match="process 1"):
        DeadMansTimer(pid=1)
