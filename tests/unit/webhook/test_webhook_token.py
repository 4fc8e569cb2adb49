"""Webhook tokens: one spelling of each, and nothing else is one."""

from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.webhook.settings import WebhookSettings
from shared.domain.errors import Refused
from shared.domain.webhook_token import NamedClaim, WebhookKeys, mint, verify
from shared.kit.settings import SettingsInvalid, read_settings

OLD = "old:0123456789abcdef0123456789abcdef"
NEW = "new:fedcba9876543210fedcba9876543210"
KEYS = WebhookKeys.parse(f"{NEW},{OLD}")
JOB, CLAIM = (UUID(int=7), UUID(int=2**127))
TOKEN = mint(KEYS, "runpod", JOB, CLAIM).encode()


def test_the_spelling_is_fixed() -> None:
    # Tokens travel in addresses that providers hold for days: a change breaks them all.
    assert TOKEN == (
        b"new.00000000-0000-0000-0000-000000000007.80000000-0000-0000-0000-000000000000"
        b".DyH2KAbCL4plH5nunhnNxLcrk_liybAADPGAwzMDqTk"
    )


def test_a_minted_token_names_its_claim_for_its_provider_alone() -> None:
    assert verify(KEYS, "runpod", TOKEN) == NamedClaim(JOB, CLAIM)
    for provider in ("videorouter", "", "Runpod", "runpod|", "é", "\ud800"):
        assert verify(KEYS, provider, TOKEN) is None


def test_keys_rotate() -> None:
    before, after = WebhookKeys.parse(OLD), WebhookKeys.parse(NEW)
    old_token = mint(before, "runpod", JOB, CLAIM).encode()
    assert old_token.startswith(b"old.")
    assert verify(KEYS, "runpod", old_token) == NamedClaim(JOB, CLAIM)
    assert verify(after, "runpod", old_token) is None
    assert verify(before, "runpod", TOKEN) is None
    renamed = old_token.replace(b"old.", b"new.", 1)
    assert verify(KEYS, "runpod", renamed) is None


def test_every_single_change_of_a_token_makes_it_none() -> None:
    for at in range(len(TOKEN)):
        changes = {TOKEN[at] ^ 1, TOKEN[at] ^ 0x20, TOKEN[at] ^ 0x80, ord("A"), ord("."), 0}
        for byte in changes - {TOKEN[at]}:
            changed = TOKEN[:at] + bytes([byte]) + TOKEN[at + 1 :]
            assert verify(KEYS, "runpod", changed) is None, changed
        assert verify(KEYS, "runpod", TOKEN[:at]) is None
        assert verify(KEYS, "runpod", TOKEN[:at] + TOKEN[at + 1 :]) is None
    for around in (b"=", b" ", b"\n", b"\x00", "é".encode(), b"%00"):
        assert verify(KEYS, "runpod", TOKEN + around) is None
        assert verify(KEYS, "runpod", around + TOKEN) is None


def test_parts_of_two_tokens_do_not_make_a_third() -> None:
    other = mint(KEYS, "runpod", uuid4(), uuid4()).encode()
    mine, theirs = TOKEN.split(b"."), other.split(b".")
    for at in (1, 2, 3):
        mixed = [*mine[:at], theirs[at], *mine[at + 1 :]]
        assert verify(KEYS, "runpod", b".".join(mixed)) is None


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_judged(token: bytes) -> None:
    assert verify(KEYS, "runpod", token) is None


@settings(deadline=None)
@given(st.uuids(), st.uuids(), st.sampled_from(["runpod", "http", "a_1"]))
def test_every_minted_token_is_verified(job: UUID, claim: UUID, provider: str) -> None:
    assert verify(KEYS, provider, mint(KEYS, provider, job, claim).encode()) == (job, claim)


@pytest.mark.parametrize(
    "text", ["", "nokey", "k:short", f"{NEW},", f"{NEW},{NEW}", f"a b:{'x' * 32}", f":{'x' * 32}"]
)
def test_keys_that_cannot_be_read_are_refused_without_being_told(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused) as caught:
        WebhookKeys.parse(text)
    assert "fedcba" not in str(caught.value)
    monkeypatch.setenv("COATCHECK_DATABASE_URL", "postgresql://nowhere")
    monkeypatch.setenv("COATCHECK_WEBHOOK_KEYS", text)
    with pytest.raises(SettingsInvalid, match="COATCHECK_WEBHOOK_KEYS"):
        read_settings(WebhookSettings)


def test_keys_do_not_show_themselves() -> None:
    assert "fedcba" not in repr(KEYS)
