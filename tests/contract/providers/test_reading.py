"""The readers that adapters share: lenient JSON, Retry-After, failure words, found artifacts."""

import base64
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import jsonpath_rfc9535 as jsonpath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.provider import FailureClass, FoundKind
from shared.providers.failure_words import failure_class_of
from shared.providers.found_artifacts import MAX_DEPTH, MAX_FOUND, find_artifacts
from shared.providers.lenient_json import (
    SCANNED_TOKENS,
    Document,
    Unreadable,
    read_json,
    top_level_id,
)
from shared.providers.retry_after import retry_after_seconds

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(40))).decode()
MP4 = base64.b64encode(b"\x00\x00\x00\x20ftypisom\x00\x00\x02\x00isom").decode()


def _id(body: bytes) -> str | None:
    return top_level_id(body, read_json(body))


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a":NaN,"b":[Infinity,-Infinity,1e999]}', {"a": None, "b": [None, None, None]}),
        (b'{"a":' + b"9" * 401 + b"}", {"a": None}),
        (b'{"a":' + b"9" * 400 + b"}", {"a": int("9" * 400)}),
        (b'{"a":"\xff"}', {"a": "\ufffd"}),
        (b'{"a":"tab\tand\x00"}', {"a": "tab\tand\x00"}),
        (b"\xef\xbb\xbf[1]", [1]),
    ],
)
def test_almost_json_is_read(body: bytes, value: Any) -> None:
    assert read_json(body) == Document(value)


@pytest.mark.parametrize("body", [b"", b"{", b"{'a':1}", b"[1] [2]", b"\x00\x01", b"undefined"])
def test_what_is_no_json(body: bytes) -> None:
    assert read_json(body) is Unreadable.not_json


def test_disputed_members_are_told_and_not_given() -> None:
    document = read_json(b'{"x":{"a":1,"a":2},"id":1,"id":2,"b":3,"b":3}')
    assert document == Document({"x": {"a": 2}, "id": 2, "b": 3}, frozenset({"id"}))
    assert isinstance(document, Document)
    assert document.named("id") is None
    assert document.named("b") == 3


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"id":"a"}', "a"),
        (b'{"x":{"id":"b"},"id":"a"}', "a"),
        (b'{"x":{"id":"b"}}', None),
        (b'{"output":{"id":"b"},"input":{"id":"c"}}', None),
        (b'{"status":"id","x":"a"}', None),
        (b'[{"id":"a"}]', None),
        # cut off
        (b' {"delayTime":4736, "id" : "a-1","input":{"x":"cut', "a-1"),
        (b'{"x":{"y":[1,{"id":"b"}]},"z":"{\\"id\\":\\"c\\"}","id":"a","in', "a"),
        (b'{"input":{"id":"b"', None),
        (b'{"id":"a', None),
        (b'{"id":17,"x":"a"', None),
        (b'{"id":null,"x":"a"', None),
        (b'{"id":17 "a"', None),
        (b'{"x":"\\"id\\":\\"a\\"', None),
        (b'{"id":["a"],"x":[', None),
        (b'junk{"id":"a"', None),
        (b'[{"id":"a"', None),
        (b'{"x":1}{"id":"a"', None),
        (b'}{{"id":"a"', None),
        (b'{"id":,"a"', None),
        (b'{"x":"\\', None),
        # too deep
        (b'{"id":"a","x":' + b"[" * 100_000, "a"),
        (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"id":"a"}', None),
    ],
)
def test_the_id_of_a_body_whole_or_not(body: bytes, found: str | None) -> None:
    assert _id(body) == found


def test_the_scan_of_an_endless_cut_off_body_is_bounded() -> None:
    escaped = b'{"x":"' + b'\\"id\\":' * 1_000_000
    assert _id(escaped) is None
    assert _id(b'{"x":[' + b'"a",' * SCANNED_TOKENS + b'"b"],"id":"a"') is None


@given(st.binary())
def test_reading_never_raises(body: bytes) -> None:
    _id(body)
    _id(b'{"id":"a",' + body)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 1.5 ", 1.5),
        ("99999999999", 900.0),
        ("-5", None),
        ("1e3", None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("\uff11\uff12", None),
        ("1, 2", None),
        ("Wed, 21 Oct 2026 07:29:00 GMT", 60.0),
        ("Wed, 21 Oct 2026 07:29:00 -0000", 60.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0.0),
        ("Wed, 21 Oct 2099 07:28:00 GMT", 900.0),
        ("Wed, 99 Oct 2026 07:28:00 GMT", None),
        ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", None),
    ],
)
def test_when_to_come_back(text: str, seconds: float | None) -> None:
    headers = {"retry-after": text, "date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    assert retry_after_seconds(headers) == seconds


def test_a_date_without_the_servers_clock_is_measured_against_ours() -> None:
    text = format_datetime(datetime.now(UTC) + timedelta(days=1))
    assert retry_after_seconds({"retry-after": text}, cap_seconds=30) == 30
    assert retry_after_seconds({"retry-after": text, "date": "today"}, cap_seconds=30) == 30
    assert retry_after_seconds({}) is None


@given(st.text())
def test_no_wish_raises(text: str) -> None:
    seconds = retry_after_seconds({"retry-after": text, "date": text})
    assert seconds is None or 0 <= seconds <= 900


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("executionTimeout exceeded", FailureClass.exec_timeout),
        ("TTL expired", FailureClass.queue_timeout),
        ("job expired while in queue", FailureClass.queue_timeout),
        ("torch.OutOfMemoryError: Allocation on device", FailureClass.oom),
        ("GPU out of memory", FailureClass.oom),
        ("Potential NSFW content was detected", FailureClass.content_policy),
        ("Input did not pass moderation", FailureClass.content_policy),
        ("Invalid duration: must be 4, 8, or 12 seconds", FailureClass.input),
        ("Audio format not supported", FailureClass.input),
        ("prompt is required", FailureClass.input),
        ("job timed out after 1 retries", FailureClass.worker_infra),
        ("ComfyUI server (127.0.0.1:8188) not reachable", FailureClass.worker_infra),
        ("CUDA error: invalid device function", FailureClass.worker_infra),
        ("Internal Server Error", FailureClass.platform),
        ("list index out of range", FailureClass.unknown),
        ("비디오를를 찾을 수 없습니다.", FailureClass.unknown),
        (["first", {"message": "CUDA out of memory"}], FailureClass.oom),
        ({"code": 400, "message": "bad input"}, FailureClass.input),
        ({"error": {"error": {"message": "unhealthy"}}}, FailureClass.worker_infra),
        ("{'message': 'worker is unhealthy', 'code': None}", FailureClass.worker_infra),
        ('{"error_type": "<class \'torch.cuda.OutOfMemoryError\'>"}', FailureClass.oom),
        ('[{"message": "out of memory"}]', FailureClass.oom),
        (None, FailureClass.unknown),
        (17, FailureClass.unknown),
        ("", FailureClass.unknown),
    ],
)
def test_what_an_error_is_about(error: Any, kind: FailureClass) -> None:
    assert failure_class_of(error) is kind


def test_the_second_error_counts_where_the_first_says_nothing() -> None:
    assert failure_class_of("failed", ["out of memory"]) is FailureClass.oom
    assert failure_class_of("unhealthy", ["out of memory"]) is FailureClass.worker_infra


def test_a_traceback_and_the_workers_names_do_not_count() -> None:
    trace = "Traceback (most recent call last)\n  File 'validation.py' invalid\nKeyError: 'a'\n"
    assert failure_class_of(f"boom {trace}") is FailureClass.unknown
    last = trace + "RuntimeError: CUDA out of memory"
    assert failure_class_of(last) is FailureClass.oom
    document = json.dumps(
        {
            "error_message": "KeyError: 'a'",
            "error_traceback": "invalid",
            "hostname": "invalid",
            "worker_id": "nsfw",
            "url": "https://x/invalid",
        }
    )
    assert failure_class_of(document) is FailureClass.unknown


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("https://cdn.example.net/a.mp4?X-Sig=a%2Fb+c", [("url", "$")]),
        ({"result": "http://cdn.example.net:8443/a"}, [("url", "$.result")]),
        ([{"image": "https://image.url"}], [("url", "$[0].image")]),
        ({"outputs": {"9": {"images": [PNG]}}}, [("base64", "$.outputs['9'].images[0]")]),
        ({"message": PNG, "status": "success"}, [("base64", "$.message")]),
        ({"images": [{"data": MP4.replace("+", "-")}]}, [("base64", "$.images[0].data")]),
        ({"v": "data:video/mp4;base64,AAAA"}, [("data_uri", "$.v")]),
        ({"v": "DATA:;BASE64,AAAA"}, [("data_uri", "$.v")]),
        ({"a'b\\c\n": "https://x.example.net/"}, [("url", "$['a\\'b\\\\c\\u000a']")]),
        (
            {"z": "https://b.example.net/1", "a": ["https://a.example.net/2", PNG]},
            [("url", "$.z"), ("url", "$.a[0]"), ("base64", "$.a[1]")],
        ),
    ],
)
def test_what_is_an_artifact(output: Any, found: list[tuple[str, str]]) -> None:
    artifacts = find_artifacts(output)
    assert [(artifact.kind.value, artifact.where) for artifact in artifacts] == found
    for artifact in artifacts:
        assert jsonpath.find(artifact.where, output).values() == [artifact.value]


@pytest.mark.parametrize(
    "text",
    [
        "/runpod-volume/out/clip.mp4",
        "simulated_uploaded/ab12cd34.png",
        "s3://bucket/key.png",
        "file:///workspace/x.png",
        "http://127.0.0.1:8188/view?filename=a.png",
        "http://localhost:8188/a.png",
        "http://worker.local/a.png",
        "http://minio:9000/bucket/a.png",
        "http://[::1]/a.png",
        "https://8.8.8.8/a.png",
        "https://user:pw@cdn.example.net/a.png",
        "https://cdn.example.net/a b.png",
        "https://cdn.example.net/a.png#t=1",
        "https://cdn.example.net/" + "a" * 9_000,
        "https://github.com/o/r.git",
        "https://cdn.example.net/model.safetensors?download=true",
        "see https://cdn.example.net/a.png",
        "https://cdn.example.net/a.png\n",
        "data:image/png,raw",
        "data:image/png;base64,",
        "Hello, this is a transcription.",
        "aGVsbG8gd29ybGQsIHRoaXMgaXMgdGV4dA==",
        "iVBORw0KGgo",
        "",
    ],
)
def test_what_is_no_artifact(text: str) -> None:
    assert find_artifacts({"video_url": text, "images": [text]}) == ()


@pytest.mark.parametrize(
    "key", ["input", "inputs", "webhook", "webhook_url", "input_image", "status_url", "params"]
)
def test_an_echo_of_the_request_is_no_artifact(key: str) -> None:
    url = "https://cdn.example.net/a.png"
    assert find_artifacts({key: url}) == ()
    assert find_artifacts({key: {"image": [url]}}) == ()


def test_the_search_is_bounded() -> None:
    assert len(find_artifacts(["https://a.example.net/x"] * 5_000)) == MAX_FOUND
    assert find_artifacts([0] * 300_000 + ["https://a.example.net/x"]) == ()
    deep: Any = "https://a.example.net/x"
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert find_artifacts(deep)[0].kind is FoundKind.url
    assert find_artifacts([deep]) == ()
