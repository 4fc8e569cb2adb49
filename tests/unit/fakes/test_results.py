"""Result files: real films, true digests in the journal, and every misbehaviour of a file host."""

import asyncio
import base64
import hashlib
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import imageio_ffmpeg
import pytest

from tests.fakes.runpod import film
from tests.fakes.runpod.film import EncoderFailed, draw_frames, make_film
from tests.unit.fakes.conftest import NOW, Running, Start, until

MIB = 1024 * 1024


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def finished(fake: Running, **result: Any) -> str:
    """A job that has completed; the path of its result."""
    return f"/results/{await fake.scripted(job=NOW, result=result)}.mp4"


def decoded(path: Path) -> str:
    """What the decoder says about the whole file; fails where it does not play to its end."""
    done = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-xerror", "-i", path, "-f", "null", "-"],
        capture_output=True,
        check=True,
    )
    return done.stderr.decode()


async def test_a_result_is_a_playable_film_with_the_id_in_it(fake: Running, tmp_path: Path) -> None:
    path = await finished(fake)
    answer = await fake.http.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "video/mp4"
    assert int(answer.headers["content-length"]) == len(answer.content) >= MIB
    kept = tmp_path / "film.mp4"
    kept.write_bytes(answer.content)
    said = decoded(kept)
    assert re.search(r"Video: h264 \(Constrained Baseline\).*yuv420p.*480x272", said)
    assert "Duration: 00:00:02.00" in said
    job_id = path.removeprefix("/results/").removesuffix(".mp4")
    assert f"title           : {job_id}" in said
    # The index comes before the media, so a browser can start at once.
    assert answer.content.index(b"moov") < answer.content.index(b"mdat")


async def test_the_journal_and_the_control_api_name_what_was_served(fake: Running) -> None:
    path = await finished(fake)
    answer = await fake.http.get(path)
    [entry] = await fake.entries("result")
    expected = {"sha256": sha256(answer.content), "bytes": len(answer.content), "status": 200}
    assert {name: entry[name] for name in expected} == expected
    shown = await fake.control("GET", f"jobs/{entry['job_id']}")
    assert shown["result"] == {"sha256": expected["sha256"], "bytes": expected["bytes"]}


async def test_two_jobs_have_two_films_and_one_job_has_one(fake: Running) -> None:
    paths = [await finished(fake), await finished(fake)]
    answers = await asyncio.gather(*(fake.http.get(path) for path in paths * 4))
    assert len({sha256(answer.content) for answer in answers}) == 2
    assert (await fake.control("GET", "stats"))["films_encoded"] == 2


async def test_the_same_job_gives_the_same_bytes_after_the_file_is_gone(
    start: Start, tmp_path: Path
) -> None:
    first = await start(media_dir=tmp_path / "one")
    path = await finished(first)
    before = (await first.http.get(path)).content
    again = make_film(path.removeprefix("/results/").removesuffix(".mp4"), tmp_path / "again.mp4")
    assert again.sha256 == sha256(before)


async def test_a_film_file_that_survived_is_served_as_it_is(fake: Running) -> None:
    path = await finished(fake)
    kept = fake.settings.media_dir / path.removeprefix("/results/")
    kept.write_bytes(b"kept")
    assert (await fake.http.get(path)).content == b"kept"
    assert (await fake.control("GET", "stats"))["films_encoded"] == 0


async def test_there_is_no_result_before_the_end_or_without_a_good_end(fake: Running) -> None:
    running = await fake.scripted(job={"queue_s": 0, "run_s": "forever"})
    cancelled = await fake.scripted(job={"queue_s": "forever"})
    await fake.http.post(f"/v2/demo/cancel/{cancelled}")
    failed = await fake.scripted(job=NOW | {"outcome": "FAILED"})
    for job_id in (running, cancelled, failed, "nobody-u1", "../journal"):
        answer = await fake.http.get(f"/results/{job_id}.mp4")
        assert answer.status_code == 404
    assert (await fake.control("GET", f"jobs/{running}"))["result"] is None


async def test_results_past_their_retention_are_gone_from_disk_too(start: Start) -> None:
    fake = await start()
    path = await finished(fake)
    await fake.http.get(path)
    kept = fake.settings.media_dir / path.removeprefix("/results/")
    assert kept.exists()
    (fake.settings.media_dir / ".half-left.mp4").touch()
    late = await start(journal=fake.settings.journal.with_name("other"), time_scale=1e12)
    assert (await late.http.get(path)).status_code == 404

    async def swept() -> bool:
        return not kept.exists()

    await until(swept)
    assert list(fake.settings.media_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "status", "first", "end"),
    [
        ("bytes=0-99", 206, 0, 100),
        ("bytes=100-", 206, 100, None),
        ("bytes=-10", 206, -10, None),
        ("bytes=5-99999999", 206, 5, None),
        ("bytes=1-2,4-5", 206, 0, None),
        ("bytes=99999999-", 416, 0, 0),
        ("bytes=9-3", 416, 0, 0),
    ],
)
async def test_ranges(fake: Running, asked: str, status: int, first: int, end: int | None) -> None:
    path = await finished(fake)
    whole = await fake.http.get(path)
    part = await fake.http.get(path, headers={"Range": asked})
    assert part.status_code == status
    assert part.content == whole.content[first:end]
    changed = await fake.http.get(path, headers={"Range": asked, "If-Range": '"other"'})
    assert (changed.status_code, changed.content) == (200, whole.content)
    same = {"Range": "bytes=0-0", "If-Range": whole.headers["etag"]}
    assert (await fake.http.get(path, headers=same)).status_code == 206


async def test_head_has_the_headers_and_no_bytes(fake: Running) -> None:
    path = await finished(fake)
    whole = await fake.http.get(path)
    head = await fake.http.head(path)
    assert head.headers == whole.headers
    assert [entry["bytes"] for entry in await fake.entries("result")] == [len(whole.content), 0]


async def test_a_host_without_ranges_sends_the_whole(fake: Running) -> None:
    path = await finished(fake, ranges=False)
    answer = await fake.http.get(path, headers={"Range": "bytes=0-9"})
    assert (answer.status_code, len(answer.content) >= MIB) == (200, True)
    assert "accept-ranges" not in answer.headers


async def test_refusals_redirects_and_wrong_types(fake: Running) -> None:
    refused = await fake.http.get(await finished(fake, status=403, body="<Error/>"))
    assert (refused.status_code, refused.text) == (403, "<Error/>")
    moved = await fake.http.get(await finished(fake, redirect_to="http://10.0.0.1/x"))
    assert (moved.status_code, moved.headers["location"]) == (302, "http://10.0.0.1/x")
    kept = await fake.http.get(await finished(fake, redirect_to="http://[::1]/", status=307))
    assert kept.status_code == 307
    empty = await fake.http.get(await finished(fake, content="empty"))
    assert (empty.status_code, empty.content) == (200, b"")
    page = await fake.http.get(await finished(fake, content="html"))
    assert (page.headers["content-type"], page.text[:9]) == ("text/html", "<!doctype")
    typed = await fake.http.get(await finished(fake, media_type="application/octet-stream"))
    assert typed.headers["content-type"] == "application/octet-stream"


async def test_a_presigned_link_is_compared_byte_for_byte(fake: Running) -> None:
    query = "X-Amz-Signature=a%2Fb+c%3D&n=1"
    job_id = await fake.scripted(job=NOW, result={"query": query})
    link = (await fake.record(job_id))["output"]["video_url"]
    assert link == f"{fake.url}/results/{job_id}.mp4?{query}"
    # httpx rewrites queries; curl-like bytes need the raw target.
    for raw, status in ((query, 200), (query.replace("%2F", "/"), 403), ("", 403)):
        target = f"/results/{job_id}.mp4?{raw}".encode()
        request = fake.http.build_request("GET", link)
        request.extensions["target"] = target
        assert (await fake.http.send(request)).status_code == status


async def test_a_length_that_lies(fake: Running) -> None:
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
        await fake.http.get(await finished(fake, length_lie=10))
    short = await fake.http.get(await finished(fake, length_lie=-10))
    assert len(short.content) == int(short.headers["content-length"])


async def test_a_body_that_stops_in_the_middle(fake: Running) -> None:
    path = await finished(fake, cut_after_bytes=1000)
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        await fake.http.get(path)
    [entry] = await fake.entries("result")
    assert entry["status"] == 200


async def test_slow_results_arrive_whole(fake: Running) -> None:
    await fake.control("POST", "gates/result/open")
    path = await finished(fake, delay_s=0.01, gate="result", drip_bytes_per_s=20 * MIB)
    assert len((await fake.http.get(path)).content) >= MIB


async def test_a_client_that_leaves_in_the_middle_harms_nobody(fake: Running) -> None:
    path = await finished(fake, bytes=64 * MIB)
    async with fake.http.stream("GET", path) as answer:
        assert answer.status_code == 200
    whole = await fake.http.get(path)
    assert len(whole.content) == 64 * MIB


async def test_a_padded_result_is_still_a_film_and_its_digest_is_true(
    fake: Running, tmp_path: Path
) -> None:
    path = await finished(fake, bytes=5 * MIB + 3)
    answer = await fake.http.get(path)
    assert len(answer.content) == 5 * MIB + 3
    [entry] = await fake.entries("result")
    assert entry["sha256"] == sha256(answer.content)
    kept = tmp_path / "film.mp4"
    kept.write_bytes(answer.content)
    assert "Duration: 00:00:02.00" in decoded(kept)
    middle = await fake.http.get(path, headers={"Range": f"bytes={2 * MIB - 5}-{3 * MIB}"})
    assert middle.content == answer.content[2 * MIB - 5 : 3 * MIB + 1]


async def test_an_output_can_hold_the_film_itself(fake: Running) -> None:
    output = {"video": "data:video/mp4;base64,{result_base64}"}
    job_id = await fake.scripted(job={**NOW, "output": output}, result={"bytes": 3 * MIB})
    text = (await fake.record(job_id))["output"]["video"].removeprefix("data:video/mp4;base64,")
    served = await fake.http.get(f"/results/{job_id}.mp4")
    assert base64.b64decode(text) == served.content
    assert len(served.content) == 3 * MIB


async def test_an_outage_of_results(fake: Running) -> None:
    path = await finished(fake)
    await fake.control("POST", "scripts", {"times": 1, "calls": {"kinds": ["result"]}})
    assert (await fake.http.get(path)).status_code == 503
    assert (await fake.http.get(path)).status_code == 200


async def test_an_encoder_that_fails_is_a_500_and_is_tried_again(
    fake: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = await finished(fake)
    with monkeypatch.context() as broken:
        broken.setattr(film, "WIDTH", 1)
        assert (await fake.http.get(path)).status_code == 500
    assert "no film for" in capsys.readouterr().err
    assert [item.name for item in fake.settings.media_dir.iterdir()] == []
    assert (await fake.http.get(path)).status_code == 200


def test_an_encoder_says_why_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "FRAMES", 2)
    with pytest.raises(EncoderFailed, match=r"the film has \d+ bytes"):
        make_film("a-u1", tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


def test_an_id_of_any_signs_can_be_drawn() -> None:
    assert draw_frames("J/ü" * 30) != draw_frames("J/ö" * 30)
