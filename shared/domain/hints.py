"""Hints: what travels over Kafka. A hint says "look at this job" and is never a fact.

Losing, doubling, delaying or replaying a hint changes latency only. It carries ids, a reason
and a version; never prompts, inputs, outputs, URLs or secrets.
"""

from enum import StrEnum
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field


class HintKind(StrEnum):
    """The `aggregatetype` of an outbox row; the topic is `coatcheck.{kind}.v1`."""

    submit = "submit"
    check = "check"
    capture = "capture"
    transitions = "transitions"

    @property
    def topic(self) -> str:
        """The topic that this kind travels on."""
        return f"coatcheck.{self.value}.v1"


class Hint(BaseModel):
    """Body of a message on the submit, check and capture topics."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: UUID
    reason: str = Field(min_length=1, max_length=64)
    version: int = Field(ge=0)
