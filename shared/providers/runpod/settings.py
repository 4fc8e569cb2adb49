"""What an operator says about Runpod.

Owns `RUNPOD_API_KEY`, `RUNPOD_BASE_URL` and `RUNPOD_NON_ACCEPTANCE`. Promises a base address
without a trailing slash that is not the management plane's (its host differs by one letter and
answers a create with 404), https in production, and a key that can stand in a header. Must never
show the key.
"""

import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from shared.kit.settings import CoatcheckSettings, variable_of
from shared.providers.runpod.create_answers import REFUSALS

_BASE_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*")
_KEY = re.compile(r"[\x21-\x7e]+")
_MANAGEMENT = "runpod.io"


class RunpodSettings(CoatcheckSettings):
    """The key, the address, and the refusals taken as "no job was created" (default: none)."""

    env: Literal["prod", "dev"] = "prod"
    runpod_api_key: SecretStr
    runpod_base_url: str = "https://api.runpod.ai/v2"
    runpod_non_acceptance: Annotated[frozenset[str], NoDecode] = frozenset()

    @field_validator("runpod_api_key")
    @classmethod
    def _fits_a_header(cls, key: SecretStr) -> SecretStr:
        if not _KEY.fullmatch(key.get_secret_value()):
            raise ValueError("must be printable ASCII without spaces")
        return key

    @field_validator("runpod_base_url")
    @classmethod
    def _is_the_job_plane(cls, url: str) -> str:
        url = url.rstrip("/")
        if not _BASE_URL.fullmatch(url):
            raise ValueError("must be http(s)://host[:port][/path] and nothing more")
        if f".{urlsplit(url).hostname}".endswith(f".{_MANAGEMENT}"):
            raise ValueError("is the management plane; jobs are at https://api.runpod.ai/v2")
        return url

    @field_validator("runpod_non_acceptance", mode="before")
    @classmethod
    def _known_refusals(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        codes = frozenset(part.strip() for part in value.split(",") if part.strip())
        if not codes <= REFUSALS:
            raise ValueError(f"must be a comma list out of {','.join(sorted(REFUSALS))}")
        return codes

    @model_validator(mode="after")
    def _key_travels_encrypted(self) -> Self:
        if self.env == "prod" and not self.runpod_base_url.startswith("https://"):
            name, env = variable_of("runpod_base_url"), variable_of("env")
            raise ValueError(f"{name}: must be https while {env} is prod")
        return self
