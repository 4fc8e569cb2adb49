"""What counts as a result in an output, and what only looks like one."""

from base64 import b64encode, urlsafe_b64encode
from typing import Any

import pytest

from shared.domain.errors import Refused
from shared.domain.provider import FoundArtifact, FoundKind
from shared.domain.registry import ArtifactKind, ArtifactSpec
from shared.kit.jsonpaths import compile_path, find_nodes
from shared.media.artifacts import (
    TEXT_SLICE_CHARS,
    InlineMalformed,
    inline_chunks,
    inline_source,
    locate,
    stored_name,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 2
PNG_TEXT = b64encode(PNG).decode()
LINK = "https://bucket.s3.amazonaws.com/a/./b.mp4?X-Amz-Signature=%2f%2F+="


def declared(path: str, kind: str = "auto") -> ArtifactSpec:
    return ArtifactSpec(name="master", path=path, kind=ArtifactKind(kind), hosts=("*",))


def kinds(output: Any, path: str = "$.v", kind: str = "auto") -> list[str]:
    return [found.kind.value for found in locate(output, declared(path, kind))]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (LINK, "auto", ["url"]),
        ("HTTP://cdn.example.com/x", "url", ["url"]),
        (LINK, "base64", []),
        (LINK, "data_uri", []),
        ("data:image/png;base64," + PNG_TEXT, "auto", ["data_uri"]),
        ("data:text/plain,hello", "data_uri", ["data_uri"]),
        ("data:image/png;base64," + PNG_TEXT, "base64", ["data_uri"]),
        ("data:image/png;base64,", "auto", []),
        ("data: image", "auto", []),
        (PNG_TEXT, "auto", ["base64"]),
        (PNG_TEXT, "data_uri", ["base64"]),
        (PNG_TEXT, "url", []),
        (PNG_TEXT.rstrip("="), "auto", ["base64"]),
        (PNG_TEXT[:40] + "\r\n" + PNG_TEXT[40:] + "\n", "auto", ["base64"]),
        (b64encode(b"?" * 300).decode(), "auto", []),
        (b64encode(b"?" * 300).decode(), "base64", ["base64"]),
        ("doneDONE", "base64", []),
        ("A" * 41, "base64", []),
        (PNG_TEXT.rstrip("=") + "AAA", "auto", []),
        ("\n" * 300, "base64", []),
        ("workspace/outputs/2026/11/30/clip00001234", "auto", []),
        ("/runpod-volume/outputs/2026/clip/0001/xyz/0123456789abcd", "auto", []),
        ("/workspace/out.mp4", "auto", []),
        ("file:///tmp/out.mp4", "auto", []),
        ("simulated_uploaded/x.png", "auto", []),
        ("Your video is at https://cdn.example.com/v.mp4", "auto", []),
        ("https://cdn.example.com/v.mp4 is ready", "auto", []),
        ("http://localhost:8188/view?filename=x.png", "auto", []),
        ("http://comfy.localhost./view", "auto", []),
        ("https://127.0.0.1/x.png", "auto", []),
        ("http://127.8.8.8:3000/x.png", "auto", []),
        ("http://0.0.0.0:8000/x.png", "auto", []),
        ("http://[::1]:8000/x.png", "auto", []),
        ("https://", "auto", []),
        ("", "auto", []),
        (None, "auto", []),
        (7, "auto", []),
        (True, "url", []),
        ({"url": LINK}, "auto", []),
        ([LINK, PNG_TEXT, "prose", None, [LINK]], "auto", ["url", "base64"]),
        ([], "auto", []),
        ({"caption": "x"}, "json", ["json"]),
        ([LINK], "json", ["json"]),
        (0, "json", ["json"]),
        (None, "json", []),
    ],
)
def test_a_value_is_an_artifact_only_in_a_usable_shape(
    value: Any, kind: str, expected: list[str]
) -> None:
    assert kinds({"v": value}, kind=kind) == expected


def test_a_link_is_kept_byte_for_byte_and_tells_where_it_stood() -> None:
    images = [{"data": LINK}, {"data": "/workspace/x.png"}, {"data": LINK}]
    output = {"images": images, "odd name": LINK}
    found = locate(output, declared("$.images[*].data"))
    assert found == (
        FoundArtifact(FoundKind.url, "$.images[0].data", LINK),
        FoundArtifact(FoundKind.url, "$.images[2].data", LINK),
    )
    (odd,) = locate(output, declared("$['odd name']"))
    assert odd.where == "$['odd name']"
    assert [node.value for node in find_nodes(odd.where, output)] == [LINK]


def test_a_list_at_the_path_gives_each_of_its_values() -> None:
    found = locate({"files": [LINK, LINK]}, declared("$.files"))
    assert [one.where for one in found] == ["$.files[0]", "$.files[1]"]
    assert [stored_name("master", index) for index in range(3)] == [
        "master",
        "master-2",
        "master-3",
    ]


def test_a_missing_path_and_a_bare_output_are_read_as_they_are() -> None:
    assert kinds({"other": LINK}) == []
    assert kinds(None) == []
    assert kinds(LINK, path="$") == ["url"]
    assert kinds({"caption": "x"}, path="$", kind="json") == ["json"]


def test_private_targets_count_although_they_lead_to_this_machine() -> None:
    spec = declared("$.v")
    private = frozenset({"127.0.0.1:9000", "localhost:80"})
    assert locate({"v": "http://127.0.0.1:9000/x"}, spec, private)
    assert locate({"v": "http://localhost/x"}, spec, private)
    assert not locate({"v": "http://127.0.0.1:9001/x"}, spec, private)
    assert not locate({"v": "https://localhost/x"}, spec, private)


@pytest.mark.parametrize(
    "value",
    [
        "data:image/png;base64," + PNG_TEXT,
        PNG_TEXT,
        PNG_TEXT.rstrip("="),
        urlsafe_b64encode(PNG).decode(),
        PNG_TEXT[:76] + "\n" + PNG_TEXT[76:],
    ],
)
def test_inline_bytes_come_back_as_they_were(value: str) -> None:
    (found,) = locate({"v": value}, declared("$.v"))
    assert b"".join(inline_chunks(found)) == PNG


async def test_a_long_inline_text_is_decoded_slice_by_slice() -> None:
    content = PNG * 4_000
    found = FoundArtifact(FoundKind.base64, "$", b64encode(content).decode())
    chunks = [chunk async for chunk in inline_source(found)]
    assert b"".join(chunks) == content
    assert max(map(len, chunks)) <= TEXT_SLICE_CHARS


def test_a_data_uri_without_base64_is_unescaped() -> None:
    found = FoundArtifact(FoundKind.data_uri, "$", "data:text/plain,a%20b%00")
    assert b"".join(inline_chunks(found)) == b"a b\x00"


def test_a_json_value_is_written_compactly_in_utf_8() -> None:
    found = FoundArtifact(FoundKind.json, "$", {"caption": "кот", "n": [1, 2]})
    assert b"".join(inline_chunks(found)) == '{"caption":"кот","n":[1,2]}'.encode()


@pytest.mark.parametrize("text", ["A", "AAAA=AAA", "AA*A"])
def test_broken_base64_is_named_and_not_guessed(text: str) -> None:
    with pytest.raises(InlineMalformed):
        list(inline_chunks(FoundArtifact(FoundKind.data_uri, "$", "data:x;base64," + text)))


def test_a_url_has_no_bytes_inside_the_output() -> None:
    with pytest.raises(InlineMalformed):
        list(inline_chunks(FoundArtifact(FoundKind.url, "$", LINK)))


@pytest.mark.parametrize("path", ["$[?match(@.a, 'x')]", "$..[?search(@, '(a|aa)+b')]", "v", "$.["])
def test_a_path_that_can_hang_or_is_none_is_refused(path: str) -> None:
    with pytest.raises(Refused):
        compile_path(path)


def test_an_output_nested_beyond_all_measure_has_no_nodes() -> None:
    def nested(depth: int) -> Any:
        value: Any = {"v": LINK}
        for _ in range(depth):
            value = [value]
        return value

    assert kinds(nested(50), path="$..v") == ["url"]
    assert kinds(nested(5_000), path="$..v") == []


def test_names_with_quotes_lead_back_to_their_node() -> None:
    output = {"it's\\": LINK}
    (node,) = find_nodes("$.*", output)
    assert [found.value for found in find_nodes(node.where, output)] == [LINK]
