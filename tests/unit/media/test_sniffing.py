"""The first bytes decide, whatever a file calls itself."""

import pytest

from shared.media.sniffing import JSON, OCTETS, sniff


def mp4(brand: bytes) -> bytes:
    return b"\x00\x00\x00\x20ftyp" + brand + b"\x00\x00\x02\x00isomiso2avc1mp41"


def ebml(doctype: bytes) -> bytes:
    size = bytes([0x80 | len(doctype)])
    return (
        b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\xf7\x81\x01\x42\x82" + size + doctype + b"B\x87\x81\x04"
    )


CASES = [
    (mp4(b"isom"), "video/mp4", "mp4"),
    (mp4(b"mp42"), "video/mp4", "mp4"),
    (mp4(b"iso5"), "video/mp4", "mp4"),
    (mp4(b"qt  "), "video/quicktime", "mov"),
    (b"\x00\x00\x00\x08wide\x00\x10\x00\x00mdat", "video/quicktime", "mov"),
    (mp4(b"M4A "), "audio/mp4", "m4a"),
    (mp4(b"avif"), "image/avif", "avif"),
    (mp4(b"heic"), "image/heic", "heic"),
    (ebml(b"webm"), "video/webm", "webm"),
    (ebml(b"matroska"), "video/x-matroska", "mkv"),
    (ebml(b"other"), "application/octet-stream", "bin"),
    (b"\x1aE\xdf\xa3\x80", "application/octet-stream", "bin"),
    (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "image/png", "png"),
    (b"\xff\xd8\xff\xe0\x00\x10JFIF", "image/jpeg", "jpg"),
    (b"GIF89a\x01\x00", "image/gif", "gif"),
    (b"GIF87a\x01\x00", "image/gif", "gif"),
    (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/webp", "webp"),
    (b"RIFF\x10\x00\x00\x00WAVEfmt ", "audio/wav", "wav"),
    (b"RIFF\x10\x00\x00\x00AVI LIST", "video/x-msvideo", "avi"),
    (b"RIFF\x10\x00\x00\x00XXXX", "application/octet-stream", "bin"),
    (b"ID3\x04\x00\x00", "audio/mpeg", "mp3"),
    (b"\xff\xfb\x90\x64", "audio/mpeg", "mp3"),
    (b"\xff\xf3\x48\xc4", "audio/mpeg", "mp3"),
    (b"\xff\xf1\x50\x80", "audio/aac", "aac"),
    (b"\xff\xf9\x50\x80", "audio/aac", "aac"),
    (b"\xff\xfd\x50\x80", "application/octet-stream", "bin"),
    (b"\xff\x00\x50\x80", "application/octet-stream", "bin"),
    (b"OggS\x00\x02" + b"\x00" * 22 + b"OpusHead", "audio/ogg", "ogg"),
    (b"OggS\x00\x02" + b"\x00" * 22 + b"\x80theora", "video/ogg", "ogv"),
    (b"fLaC\x00\x00\x00\x22", "audio/flac", "flac"),
    (b"II*\x00\x08\x00", "image/tiff", "tiff"),
    (b"glTF\x02\x00", "model/gltf-binary", "glb"),
    (b"PK\x03\x04\x14\x00", "application/zip", "zip"),
    (b"%PDF-1.7", "application/pdf", "pdf"),
    (b"\x00\x00\x01\xba\x44", "video/mpeg", "mpg"),
    (b'{"caption":"a cat"}', "application/json", "json"),
    (b"  [1, 2]", "application/json", "json"),
    ('{"caption":"кот'.encode()[:-1], "application/json", "json"),
    (b'{"caption":"\xff\xff\xff\xff and more text"}', "application/octet-stream", "bin"),
    (b"{not json", "application/octet-stream", "bin"),
    (b"<!doctype html><script>", "application/octet-stream", "bin"),
    (b'<svg xmlns="http://www.w3.org/2000/svg">', "application/octet-stream", "bin"),
    (b"#EXTM3U\n/etc/passwd", "application/octet-stream", "bin"),
    (b"hello", "application/octet-stream", "bin"),
    (b"\xff", "application/octet-stream", "bin"),
    (b"", "application/octet-stream", "bin"),
]


@pytest.mark.parametrize(("head", "name", "extension"), CASES)
def test_a_beginning_names_its_type(head: bytes, name: str, extension: str) -> None:
    media_type = sniff(head)
    assert (media_type.name, media_type.extension) == (name, extension)


def test_the_shared_types_are_the_ones_that_sniffing_gives() -> None:
    assert sniff(b"?") is OCTETS
    assert sniff(b"{}") is JSON
