"""Expiries signed into links, in the spellings of common signers."""

from datetime import UTC, datetime

import pytest

from services.reconciler.links import link_expires_at

AT = datetime(2026, 3, 1, 13, 0, tzinfo=UTC)
EPOCH = int(AT.timestamp())


@pytest.mark.parametrize(
    "query",
    [
        "X-Amz-Date=20260301T120000Z&X-Amz-Expires=3600&X-Amz-Signature=00",
        "x-goog-date=20260301T120000Z&x-goog-expires=3600&x-goog-signature=00",
        f"AWSAccessKeyId=A&Expires={EPOCH}&Signature=a%2Fb",
        f"Expires={EPOCH}&Signature=ab&Key-Pair-Id=K",
        "se=2026-03-01T13%3A00%3A00Z&sig=ab&sp=r",
        "se=2026-03-01T13%3A00%3A00&sig=ab&sp=r",
    ],
)
def test_known_spellings(query: str) -> None:
    assert link_expires_at(f"https://host.example/a.mp4?{query}") == AT


@pytest.mark.parametrize(
    "url",
    [
        "https://host.example/a.mp4",
        f"https://host.example/a.mp4?Expires={EPOCH}",
        f"https://host.example/a.mp4?expires={EPOCH}&token=1",
        "https://host.example/a.mp4?X-Amz-Expires=3600",
        "https://host.example/a.mp4?X-Amz-Date=yesterday&X-Amz-Expires=3600",
        "https://host.example/a.mp4?X-Amz-Date=20260301T120000Z&X-Amz-Expires=-1",
        "https://host.example/a.mp4?X-Amz-Date=20260301T120000Z&X-Amz-Expires=999999999999",
        "https://host.example/a.mp4?Expires=999999999999&Signature=a",
        "https://host.example/a.mp4?Expires=soon&Signature=a",
        "https://host.example/a.mp4?se=soon&sig=a",
        "https://host.example/a.mp4?sig=a",
        "https://[broken/a.mp4?Expires=1&Signature=a",
        "https://host.example/a.mp4?" + "&".join(f"a{n}=1" for n in range(200)),
    ],
)
def test_what_is_not_known_has_no_expiry(url: str) -> None:
    assert link_expires_at(url) is None
