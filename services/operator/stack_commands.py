"""Commands on the local stack: up, demo, stop, start, reset.

Owns what each of them prints and its exit code. Promises that with `--json` standard output
holds the JSON alone, and that a demo's last line is the last line. Must never touch a stack of
another home.
"""

import argparse
import ctypes
import json
import os
import signal
import sys
from typing import Any

from deploy.local.console import Console
from deploy.local.control import ask
from deploy.local.home import Home
from deploy.local.processes import PR_SET_PDEATHSIG, Waiting, drive
from deploy.local.remains import end_remains
from deploy.local.stack import Facts, Stack, forever
from services.operator.demo import Demo
from services.operator.showing import show_json
from services.operator.sources import Sources
from shared.domain.errors import Refused

DEMO_TIMEOUT_SECONDS = 900.0
REMAINS_TIMEOUT_SECONDS = 30.0


def up(options: argparse.Namespace) -> int:
    """`coatcheck up`: the whole stack, in the foreground, until a signal."""
    home, console = _home_and_console(options)

    def task(facts: Facts) -> Waiting:
        if options.json:
            print(json.dumps(facts), flush=True)
        console.say(f"facts for programs are in {home.stack_file}; Ctrl-C stops everything")
        yield from forever(facts)

    with home.held():
        Stack(home, console).run(task)
    return 0


def demo(options: argparse.Namespace) -> int:
    """`coatcheck demo`: the stack, then one real job; stays up unless `--once`."""
    home, console = _home_and_console(options)
    if home.is_held():
        return _demo_on_running(options, home, console)
    shown: list[Demo] = []

    def task(facts: Facts) -> Waiting:
        one = Demo(console, Sources(home), options.endpoint, options.input)
        yield from one.steps(facts)
        shown.append(one)
        if not options.once:
            console.say("the stack stays up; Ctrl-C stops everything")
            _show_demo(one, options)
            yield from forever(facts)

    with home.held():
        Stack(home, console).run(task)
    if not shown:
        raise Refused("stopped before the demo was done")
    if options.once:
        _show_demo(shown[0], options)
    return 0


def stop(options: argparse.Namespace) -> int:
    """`coatcheck stop PART…`: returns when the processes are gone."""
    return _asked(options, "stop", "stopped")


def start(options: argparse.Namespace) -> int:
    """`coatcheck start PART…`: returns when the parts are ready."""
    return _asked(options, "start", "started")


def reset(options: argparse.Namespace) -> int:
    """`coatcheck reset`: removes the home's data; refused while a stack runs on it."""
    home, console = _home_and_console(options)
    removed: list[str] = []
    if home.path.exists():
        with home.held_without_room():
            steps = console.spoken(end_remains(home))
            drive(steps, timeout_seconds=REMAINS_TIMEOUT_SECONDS)
            removed = home.remove()
    if options.json:
        show_json({"home": str(home.path), "removed": removed})
    else:
        console.say(f"removed {', '.join(removed) or 'nothing'} from {home.path}")
    return 0


def _demo_on_running(options: argparse.Namespace, home: Home, console: Console) -> int:
    facts: dict[str, Any] = home.read_json(home.stack_file.name)
    if not facts:
        raise Refused(f"the stack of {home.path} is not ready yet; try again when it is")
    console.say("using the stack that runs on this home")
    one = Demo(console, Sources(home), options.endpoint, options.input)
    drive(console.spoken(one.steps(facts)), timeout_seconds=DEMO_TIMEOUT_SECONDS)
    _show_demo(one, options)
    return 0


def _show_demo(one: Demo, options: argparse.Namespace) -> None:
    assert one.result is not None  # noqa: S101  # its steps ended well
    if options.json:
        show_json(one.result)
    else:
        print(one.result.last_line, flush=True)


def _asked(options: argparse.Namespace, command: str, done: str) -> int:
    home, console = _home_and_console(options)
    ask(home, command, options.parts, console)
    if options.json:
        show_json({done: options.parts})
    else:
        console.say(f"{done}: {', '.join(options.parts)}")
    return 0


def _home_and_console(options: argparse.Namespace) -> tuple[Home, Console]:
    if getattr(options, "stop_with_parent", False):
        _stop_with_parent()
    return Home.named(), Console(sys.stderr if options.json else sys.stdout)


def _stop_with_parent() -> None:
    """Be stopped when whoever started us dies: a `make` that is killed leaves nothing behind."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
