"""A stack that runs: what it writes down, what it takes down and up, what it starts again."""

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from deploy.local.ports import accepts, first_ephemeral_port, is_listening
from tests.system.local.conftest import Launch
from tests.system.path.stack import ROOMS, Stack, is_alive, wait_for

PARTS = ("postgres", "s3", "kafka", "fake_runpod", *ROOMS)


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1].split("/")[0])


def secrets_of(stack: Stack) -> set[str]:
    """Every secret of the stack, as text; the name that goes with the S3 secret is none."""
    minted: dict[str, str] = json.loads((stack.home / "secrets.json").read_text())
    return {value for name, value in minted.items() if name != "s3_access_key_id"}


def test_stack_json_has_the_contracts_shape(stack: Stack) -> None:
    facts = stack.facts
    assert set(facts) == {
        "gateway_url", "webhook_url", "database_url", "kafka_bootstrap_servers", "s3",
        "provider_urls", "owner", "api_key", "session_cookie", "app_origin", "machine_token",
        "admin_urls", "pids", "log_dir",
    }  # fmt: skip
    assert set(facts["pids"]) == set(PARTS)
    assert set(facts["admin_urls"]) == set(ROOMS)
    assert (facts["owner"], facts["app_origin"]) == ("demo", facts["gateway_url"])
    assert facts["api_key"].startswith("cck_")
    assert facts["session_cookie"].count(".") == 2
    assert all(is_alive(pid) for pid in facts["pids"].values())
    assert {path.name for path in Path(facts["log_dir"]).iterdir()} >= {
        f"{part}.log" for part in PARTS
    }


def test_every_file_with_a_secret_is_the_owners_alone(stack: Stack) -> None:
    secrets = secrets_of(stack)
    holders = [
        path
        for path in stack.home.iterdir()
        if path.is_file() and any(secret in path.read_text() for secret in secrets)
    ]
    assert {path.name for path in holders} >= {"stack.json", "secrets.json"}
    assert {path.stat().st_mode & 0o777 for path in holders} == {0o600}
    assert stack.home.stat().st_mode & 0o777 == 0o700


def test_no_secret_stands_on_a_command_line_or_in_a_log(stack: Stack) -> None:
    secrets = secrets_of(stack)
    for pid in stack.facts["pids"].values():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
        assert not [secret for secret in secrets if secret in words], words
    for log in Path(stack.facts["log_dir"]).iterdir():
        text = log.read_text(errors="replace")
        assert not [secret for secret in secrets if secret in text], log.name


def test_only_rooms_that_call_a_provider_have_its_key(stack: Stack) -> None:
    holders = set()
    for room in ROOMS:
        environ = Path(f"/proc/{stack.facts['pids'][room]}/environ").read_bytes()
        if b"COATCHECK_RUNPOD_API_KEY=" in environ:
            holders.add(room)
    assert holders == {"submitter", "reconciler", "archiver"}


def test_every_port_is_the_parts_own_and_on_loopback_below_the_ephemeral_ones(
    stack: Stack,
) -> None:
    facts = stack.facts
    served = {
        "postgres": port_of(facts["database_url"]),
        "kafka": port_of(facts["kafka_bootstrap_servers"]),
        "s3": port_of(facts["s3"]["endpoint_url"]),
        "fake_runpod": port_of(facts["provider_urls"]["runpod"].removesuffix("/v2")),
        "gateway": port_of(facts["gateway_url"]),
        "webhook": port_of(facts["webhook_url"]),
    }
    for part, port in served.items():
        assert is_listening(facts["pids"][part], port), part
        assert port < first_ephemeral_port()
    for port in served.values():
        with socket.socket() as elsewhere:
            assert elsewhere.connect_ex(("127.0.0.2", port)) != 0


@pytest.mark.parametrize("part", ["kafka", "gateway", "fake_runpod"])
def test_a_part_goes_down_and_comes_up_on_request(stack: Stack, part: str) -> None:
    before = stack.facts
    urls = {
        "kafka": before["kafka_bootstrap_servers"],
        "gateway": before["gateway_url"],
        "fake_runpod": before["provider_urls"]["runpod"].removesuffix("/v2"),
    }
    port = port_of(urls[part])
    assert stack.command("stop", part).returncode == 0
    assert not is_alive(before["pids"][part])
    assert not accepts(port)
    assert part not in stack.facts["pids"]

    started = stack.command("start", part, "--json")
    assert (started.returncode, json.loads(started.stdout)) == (0, {"started": [part]})
    after = stack.facts["pids"]
    assert is_listening(after[part], port)
    others = {name: pid for name, pid in after.items() if name != part}
    assert others == {name: pid for name, pid in before["pids"].items() if name != part}


@pytest.mark.parametrize("part", ["kafka", "s3", "postgres", "relay"])
def test_a_part_that_is_killed_is_started_again(stack: Stack, part: str) -> None:
    pid = stack.kill(part)
    assert not is_alive(pid)
    wait_for(lambda: is_alive(stack.facts["pids"][part]) or None, f"{part} to live")
    for room in ROOMS:
        stack.wait_ready(room)


def test_an_unknown_part_is_wrong_usage(stack: Stack) -> None:
    for word in ("stop", "start"):
        answer = stack.command(word, "nonsense")
        assert answer.returncode == 2
        assert "no part nonsense" in answer.stderr


def test_a_second_start_on_the_same_home_is_refused(stack: Stack) -> None:
    before = stack.facts
    for word in ("up", "reset"):
        answer = stack.command(word)
        assert answer.returncode == 1
        assert "a stack already runs on" in answer.stderr
    assert stack.facts == before


def test_commands_find_the_running_stack(stack: Stack) -> None:
    made = json.loads(stack.command("keys", "create", "--owner", "ann", "--json").stdout)
    assert set(made) == {"id", "key", "owner"}
    headers = {"Authorization": f"Bearer {made['key']}"}
    listing = f"{stack.facts['gateway_url']}/v1/jobs/00000000-0000-7000-8000-000000000000"
    assert stack.client.get(listing, headers=headers).status_code == 404
    assert stack.command("keys", "revoke", made["id"]).returncode == 0
    assert stack.command("keys", "revoke", made["id"]).returncode == 1
    session = json.loads(stack.command("session", "--owner", "ann", "--json").stdout)
    assert set(session) == {"cookie", "expires_at"}
    cookies = {"Cookie": f"coatcheck_session={session['cookie']}"}
    assert stack.client.get(listing, headers=cookies).status_code == 404
    assert json.loads(stack.command("migrate", "--json").stdout) == {"applied": []}


def test_a_demo_uses_the_stack_that_runs(stack: Stack) -> None:
    before = stack.facts["pids"]
    answers = [stack.command("demo", "--once") for _ in range(2)]
    assert [answer.returncode for answer in answers] == [0, 0]
    last = [answer.stdout.splitlines()[-1].split() for answer in answers]
    assert [line[:2] for line in last] == [["DEMO", "OK"]] * 2
    assert len({line[4] for line in last}) == 2, "two demos have two digests"
    assert "result_stored" in answers[0].stdout
    assert stack.facts["pids"] == before

    told = json.loads(stack.command("demo", "--json").stdout)
    assert set(told) == {"job", "bytes", "sha256", "timeline"}
    timeline = json.loads(stack.command("jobs", "timeline", told["job"], "--json").stdout)
    assert timeline["timeline"] == told["timeline"]
    assert stack.command("demo", "--endpoint", "nothing").returncode == 1


def test_rooms_in_one_process_take_the_stacks_settings(stack: Stack, launch: Launch) -> None:
    rooms = ("submitter", "reconciler")
    assert stack.command("stop", *rooms).returncode == 0
    process = launch(stack.home, "service", ",".join(rooms))
    for room in rooms:
        stack.wait_ready(room)
        port = port_of(stack.facts["admin_urls"][room])
        assert is_listening(process.pid, port)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0
    assert stack.command("start", *rooms).returncode == 0


def test_the_environment_says_what_is_used_and_not_started(
    stack: Stack, launch: Launch, tmp_path: Path
) -> None:
    facts: dict[str, Any] = stack.facts
    given = {
        "DATABASE_URL": facts["database_url"],
        "KAFKA_BOOTSTRAP_SERVERS": facts["kafka_bootstrap_servers"],
        "RUNPOD_BASE_URL": facts["provider_urls"]["runpod"],
        "RUNPOD_API_KEY": json.loads((stack.home / "secrets.json").read_text())["runpod_api_key"],
        **{f"S3_{name.upper()}": value for name, value in facts["s3"].items()},
    }
    second = launch(tmp_path / "home", "up", "--json", **given)
    assert second.stdout is not None
    told = next(json.loads(line) for line in second.stdout if line.startswith("{"))
    assert set(told["pids"]) == set(ROOMS)
    assert told["database_url"] == facts["database_url"]
    os.kill(second.pid, signal.SIGTERM)
    second.communicate()
    assert second.returncode == 0
    assert not any(is_alive(pid) for pid in told["pids"].values())
    assert all(is_alive(pid) for pid in facts["pids"].values())
