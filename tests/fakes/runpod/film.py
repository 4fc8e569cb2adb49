"""Makes one short MP4 per job, with the job's id in the picture and in the metadata.

Owns: drawing the frames and running the encoder that comes in a wheel.
Promises: the same id gives the same bytes, two ids give different ones; H.264 Baseline, yuv420p,
2 s, at least 1 MiB, moov first, so that a browser plays it while it loads. About 0.1 s of a core.
Never: keeps a media file in the repository, and never leaves half a film under the final name.
"""

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import imageio_ffmpeg

WIDTH: Final = 480
HEIGHT: Final = 272
FRAMES: Final = 24
FRAMES_PER_SECOND: Final = 12
NOISE_ROWS: Final = 128
MIN_BYTES: Final = 1024 * 1024
SCALE: Final = 4
GLYPH_ROWS: Final = 5
HALF_PREFIX: Final = ".half-"
DARK: Final = 24
LIGHT: Final = 220

# 3x5 pixels per sign, one octal digit per row: the signs a job id can hold.
GLYPHS: Final = {
    "0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711", "5": "74717",
    "6": "74757", "7": "71222", "8": "75757", "9": "75717", "a": "25755", "b": "65656",
    "c": "34443", "d": "65556", "e": "74647", "f": "74644", "u": "55557", "-": "00700",
}  # fmt: skip


class EncoderFailed(Exception):
    """The encoder did not deliver a whole film; the text names its last words."""


@dataclass(frozen=True)
class Film:
    """A finished film on disk; `sha256` is hex of exactly `size` bytes."""

    path: Path
    size: int
    sha256: str


def make_film(job_id: str, path: Path) -> Film:
    """Encodes the job's film to `path` (blocking). Raises EncoderFailed, OSError."""
    handle, half = tempfile.mkstemp(dir=path.parent, prefix=HALF_PREFIX, suffix=".mp4")
    os.close(handle)
    try:
        _encode(job_id, half)
        size = os.path.getsize(half)
        if size < MIN_BYTES:
            raise EncoderFailed(f"the film has {size} bytes, wanted {MIN_BYTES}")
        Path(half).replace(path)
    finally:
        Path(half).unlink(missing_ok=True)
    return read_film(path)


def read_film(path: Path) -> Film:
    """The film at `path` with its digest (blocking). Raises FileNotFoundError."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return Film(path, path.stat().st_size, digest)


def draw_frames(job_id: str) -> bytes:
    """All frames as raw yuv420p: the id in two lines, a bar that fills, noise below."""
    seed = job_id.encode()
    noise = hashlib.shake_128(seed).digest(WIDTH * NOISE_ROWS * 2)
    tint = hashlib.sha256(seed).digest()
    # A grey-ish tint per job, so that two films differ at a glance as well.
    chroma = b"".join(bytes([112 + tint[plane] % 33]) * (WIDTH * HEIGHT // 4) for plane in range(2))
    middle = (len(job_id) + 1) // 2
    heading = _blank(16) + _line_of(job_id[:middle]) + _blank(12) + _line_of(job_id[middle:])
    bar_rows = 16
    below = HEIGHT - NOISE_ROWS - bar_rows - len(heading) // WIDTH
    frames = bytearray()
    for number in range(FRAMES):
        lit = WIDTH * (number + 1) // FRAMES
        bar = (bytes([LIGHT]) * lit + bytes([DARK]) * (WIDTH - lit)) * bar_rows
        start = number * 7919 % (WIDTH * NOISE_ROWS)
        grain = noise[start : start + WIDTH * NOISE_ROWS]
        frames += heading + _blank(below) + bar + grain + chroma
    return bytes(frames)


def _encode(job_id: str, target: str) -> None:
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-loglevel", "error", "-y",
        "-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", f"{WIDTH}x{HEIGHT}",
        "-r", str(FRAMES_PER_SECOND), "-i", "pipe:0",
        "-c:v", "libx264", "-preset", "ultrafast", "-threads", "1", "-qp", "10", "-g", "12",
        "-pix_fmt", "yuv420p", "-fflags", "+bitexact", "-flags:v", "+bitexact",
        "-metadata", f"title={job_id}", "-metadata", f"comment=job {job_id}",
        "-movflags", "+faststart", "-f", "mp4", target,
    ]  # fmt: skip
    done = subprocess.run(
        command, input=draw_frames(job_id), capture_output=True, check=False, timeout=60
    )
    if done.returncode != 0:
        raise EncoderFailed(done.stderr.decode(errors="replace").strip()[-500:])


def _blank(rows: int) -> bytes:
    return bytes([DARK]) * (WIDTH * rows)


def _line_of(text: str) -> bytes:
    """One line of signs as luma rows, left-aligned with a margin."""
    lines = bytearray()
    for row in range(GLYPH_ROWS):
        pixels = bytearray([DARK] * 16)
        for sign in text:
            bits = int(GLYPHS.get(sign, "77777")[row])
            for column in (4, 2, 1, 0):
                pixels += bytes([LIGHT if bits & column else DARK] * SCALE)
        lines += (bytes(pixels[:WIDTH]).ljust(WIDTH, bytes([DARK]))) * SCALE
    return bytes(lines)
