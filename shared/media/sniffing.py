"""What bytes are, by their first bytes and not by anybody's word.

Owns the table of containers that endpoints hand out. It promises a media type and an extension
for known beginnings and `application/octet-stream` for all others; text that browsers would
run (HTML, SVG) is never named. It does not say that the rest of a file is sound.
"""

import re
from dataclasses import dataclass

HEAD_BYTES = 512
"""How much of a beginning `sniff` wants to see; fewer bytes are fine when there are no more."""


@dataclass(frozen=True)
class MediaType:
    """A media type and the extension (without dot) that files of it get."""

    name: str
    extension: str


OCTETS = MediaType("application/octet-stream", "bin")
JSON = MediaType("application/json", "json")

_MP4 = MediaType("video/mp4", "mp4")
_WEBM = MediaType("video/webm", "webm")
_MATROSKA = MediaType("video/x-matroska", "mkv")
_OGG_VIDEO = MediaType("video/ogg", "ogv")
_OGG_AUDIO = MediaType("audio/ogg", "ogg")
_MP3 = MediaType("audio/mpeg", "mp3")
_AAC = MediaType("audio/aac", "aac")

_STARTS = (
    (b"\x89PNG\r\n\x1a\n", MediaType("image/png", "png")),
    (b"\xff\xd8\xff", MediaType("image/jpeg", "jpg")),
    (b"GIF87a", MediaType("image/gif", "gif")),
    (b"GIF89a", MediaType("image/gif", "gif")),
    (b"fLaC", MediaType("audio/flac", "flac")),
    (b"ID3", _MP3),
    (b"II*\x00", MediaType("image/tiff", "tiff")),
    (b"MM\x00*", MediaType("image/tiff", "tiff")),
    (b"glTF", MediaType("model/gltf-binary", "glb")),
    (b"PK\x03\x04", MediaType("application/zip", "zip")),
    (b"%PDF-", MediaType("application/pdf", "pdf")),
    (b"\x00\x00\x01\xba", MediaType("video/mpeg", "mpg")),
)
_RIFF = {
    b"WAVE": MediaType("audio/wav", "wav"),
    b"WEBP": MediaType("image/webp", "webp"),
    b"AVI ": MediaType("video/x-msvideo", "avi"),
}
_BRANDS = {
    b"qt  ": MediaType("video/quicktime", "mov"),
    b"M4A ": MediaType("audio/mp4", "m4a"),
    b"M4B ": MediaType("audio/mp4", "m4a"),
    b"avif": MediaType("image/avif", "avif"),
    b"avis": MediaType("image/avif", "avif"),
    b"heic": MediaType("image/heic", "heic"),
    b"heix": MediaType("image/heic", "heic"),
    b"mif1": MediaType("image/heif", "heif"),
}
_OLD_QUICKTIME_ATOMS = (b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")
_JSON_START = re.compile(rb'[\t\n\r ]*(\{[\t\n\r ]*["}]|\[[\t\n\r ]*["\]{\[0-9tfn-])')


def sniff(head: bytes) -> MediaType:
    """The media type of content that begins with `head`."""
    for start, media_type in _STARTS:
        if head.startswith(start):
            return media_type
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], _MP4)
    if head[4:8] in _OLD_QUICKTIME_ATOMS:
        return _BRANDS[b"qt  "]
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], OCTETS)
    if head[:4] == b"\x1aE\xdf\xa3":
        return _ebml(head)
    if head[:4] == b"OggS":
        return _OGG_VIDEO if b"theora" in head[:64] else _OGG_AUDIO
    if len(head) >= 2 and head[0] == 0xFF:
        return _mpeg_audio(head[1])
    if _is_json(head):
        return JSON
    return OCTETS


def _ebml(head: bytes) -> MediaType:
    # The document type stands in the EBML header, as element 0x4282.
    at = head.find(b"\x42\x82")
    if at < 0:
        return OCTETS
    kind = head[at + 3 : at + 11]
    if kind.startswith(b"webm"):
        return _WEBM
    return _MATROSKA if kind == b"matroska" else OCTETS


def _mpeg_audio(second: int) -> MediaType:
    if second & 0xF6 == 0xF0:
        return _AAC
    is_layer_three = second & 0xE6 == 0xE2
    return _MP3 if is_layer_three else OCTETS


def _is_json(head: bytes) -> bool:
    if not _JSON_START.match(head):
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A head may be cut in the middle of a character.
        return error.start >= len(head) - 3
    return True
