"""The journal: nothing answered is lost, nothing torn is kept, one process holds it."""

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.runpod.journal import Journal, JournalRefused
from tests.unit.fakes.conftest import NOW, Running, Start, fail_loudly


def copied(fake: Running) -> Path:
    """The journal as a process killed now would leave it."""
    copy = fake.settings.journal.with_suffix(".copy" + fake.settings.journal.suffix)
    copy.write_bytes(fake.settings.journal.read_bytes())
    return copy


async def test_a_restart_knows_every_job_script_and_step(start: Start) -> None:
    first = await start(queue_seconds=3600)
    queued = await first.create(input={"deep": {"a": [1, None]}}, webhook="http://127.0.0.1:9/t")
    steps = {"sequence": [{"http": 404}, {"http": 500}]}
    stepped = await first.scripted(job={**NOW, "price_usd": "1.5"}, status=steps)
    await first.http.get(f"/v2/demo/status/{stepped}")
    await first.http.post(f"/v2/demo/cancel/{queued}")
    ended = await first.create()
    await first.control("POST", f"jobs/{ended}/end", {"outcome": "FAILED"})
    await first.control("POST", "scripts", {"times": 2, "create": {"status": 503}})
    await first.control("POST", "scripts", {"create": {"status": 504}})
    await first.http.post("/v2/demo/run", json={"input": {"a": 1}})
    film = (await first.http.get(f"/results/{stepped}.mp4")).content

    # The same links, though it listens on another port.
    second = await start(journal=copied(first), queue_seconds=3600, public_url=first.url + "/")
    for path in ("jobs", "scripts", "stats", f"jobs/{stepped}"):
        shown = await second.control("GET", path)
        if path == "stats":
            shown["films_encoded"] = 1
        assert shown == await first.control("GET", path)
    assert (await second.http.get(f"/v2/demo/status/{stepped}")).status_code == 500
    assert (await second.record(stepped))["output"]["cost"] == 1.5
    assert (await second.http.get(f"/results/{stepped}.mp4")).content == film
    answer = await second.http.post("/v2/demo/run", json={"input": {"a": 1}})
    assert answer.status_code == 503
    answer = await second.http.post("/v2/demo/run", json={"input": {"a": 1}})
    assert answer.status_code == 504
    assert (await second.control("POST", "scripts", {}))["id"] == 3
    await second.control("DELETE", "scripts")
    third = await start(journal=copied(second))
    assert await third.control("GET", "scripts") == {"scripts": []}


async def test_entries_of_one_moment_share_a_sync_and_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    real = os.fdatasync

    def counted(handle: int) -> None:
        syncs.append(handle)
        real(handle)

    monkeypatch.setattr(os, "fdatasync", counted)
    journal = Journal(tmp_path / "deep" / "j", fail_loudly)
    await asyncio.gather(*(journal.append({"kind": "x", "n": n}) for n in range(500)))
    assert len(syncs) == 1
    await journal.append({"kind": "x", "n": 500})
    assert len(syncs) == 2
    lines = (tmp_path / "deep" / "j").read_text().splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(501))
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 502))
    await journal.close()


async def test_a_close_writes_what_waits(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", fail_loudly)
    waiting = journal.append({"kind": "x"})
    await journal.close()
    assert waiting.done()
    assert (tmp_path / "j").read_text().count("\n") == 1


async def test_an_answer_waits_for_the_disk(fake: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = threading.Event()
    entered = threading.Event()

    def slow(_: int) -> None:
        entered.set()
        disk.wait(60)

    monkeypatch.setattr(os, "fdatasync", slow)
    create = asyncio.create_task(fake.create())
    await asyncio.to_thread(entered.wait, 60)
    # Control reads are served meanwhile, so the server had every chance to answer.
    for _ in range(3):
        await fake.control("GET", "ready")
    assert not create.done()
    disk.set()
    assert await create


@pytest.mark.parametrize("tail", [b'{"seq":9,"kind":"ru', b"\x00\x00\x00"])
async def test_a_torn_last_line_is_dropped(start: Start, tail: bytes) -> None:
    first = await start()
    job_id = await first.create()
    journal = copied(first)
    whole = journal.read_bytes()
    journal.write_bytes(whole + tail)
    second = await start(journal=journal)
    assert [job["id"] for job in (await second.control("GET", "jobs"))["jobs"]] == [job_id]
    assert journal.read_bytes() == whole
    await second.create()
    assert [entry["seq"] for entry in await second.entries("run")] == [1, 2]


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"kind":"run"}\n', b"[]\n"])
async def test_damage_in_the_middle_is_refused(start: Start, line: bytes) -> None:
    first = await start()
    await first.create()
    journal = copied(first)
    journal.write_bytes(line + journal.read_bytes())
    with pytest.raises(JournalRefused, match="line 1 is damaged"):
        await start(journal=journal)


async def test_a_journal_has_one_holder(fake: Running) -> None:
    with pytest.raises(JournalRefused, match="held by another process"):
        Journal(fake.settings.journal, fail_loudly)


async def test_a_disk_that_refuses_fails_the_entry_and_every_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[OSError] = []
    journal = Journal(tmp_path / "j", broken.append)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(OSError, match="No space left"):
        await journal.append({"kind": "x"})
    assert [error.errno for error in broken] == [28]
    # Nothing is ever written behind a line that may be torn.
    later = journal.append({"kind": "x"})
    monkeypatch.undo()
    await asyncio.sleep(0)
    assert not later.done()
    later.cancel()
    await journal.close()


async def test_callers_that_left_do_not_stop_the_writer(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", fail_loudly)
    left, stays = journal.append({"kind": "x"}), journal.append({"kind": "y"})
    left.cancel()
    await stays
    assert (tmp_path / "j").read_text().count("\n") == 2
    await journal.close()


async def test_what_was_answered_is_in_the_file_before_the_answer(fake: Running) -> None:
    def on_disk() -> list[dict[str, Any]]:
        return [json.loads(line) for line in fake.settings.journal.read_text().splitlines()]

    job_id = await fake.create()
    assert on_disk()[-1]["job_id"] == job_id
    await fake.scripted(create={"delay_s": 0.01})
    assert on_disk()[-1]["created"] is True
    with pytest.raises(httpx.ReadError):
        await fake.scripted(create={"cut": "after_create"})
    assert on_disk()[-1]["status"] is None
