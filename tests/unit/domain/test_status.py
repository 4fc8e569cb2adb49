"""The public face: every stage has a status, every code a safe sentence."""

import pytest

from shared.domain.durations import TimeScale
from shared.domain.errors import CoatcheckError, Uncertain
from shared.domain.stages import AttentionReason, ErrorCode, Stage
from shared.domain.status import ATTENTION_TEXTS, ERROR_TEXTS, PublicStatus, public_status


@pytest.mark.parametrize("stage", list(Stage))
def test_every_stage_has_a_public_status(stage: Stage) -> None:
    assert isinstance(public_status(stage, None), PublicStatus)


def test_running_is_the_providers_word_on_an_accepted_job_only() -> None:
    assert public_status(Stage.accepted, "running") is PublicStatus.running
    assert public_status(Stage.accepted, "queued") is PublicStatus.queued
    assert public_status(Stage.capturing, "running") is PublicStatus.saving


def test_every_code_and_reason_has_its_sentence() -> None:
    assert set(ERROR_TEXTS) == set(ErrorCode)
    assert set(ATTENTION_TEXTS) == set(AttentionReason)
    actions = {action for text in ERROR_TEXTS.values() for action in text.actions}
    assert actions == {"resubmit", "contact_operator"}


def test_claim_life_and_floors_follow_the_scale() -> None:
    assert TimeScale().claim_life_seconds == 75
    assert TimeScale(60).claim_life_seconds == 9
    assert TimeScale(60).seconds(1800) == 30
    with pytest.raises(ValueError, match="TIME_SCALE"):
        TimeScale(0.5)


def test_an_errors_docstring_is_its_message() -> None:
    assert str(Uncertain()).startswith("The outcome is not known")
    assert str(CoatcheckError("a reason")) == "a reason"
