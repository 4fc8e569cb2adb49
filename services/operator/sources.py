"""Where a command finds its settings: the environment first, then the stack of the home.

Owns that order. Promises that a missing setting names its variable and the two ways to give
it, and that a stack counts only while its supervisor lives. Must never print a value: most of
them are secrets.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.local.blueprint import AUDIENCE, ENDPOINTS_FILE, ISSUER
from deploy.local.given import PREFIX, Given, SettingWrong
from deploy.local.home import SETTINGS_NAME, Home


class Sources:
    """Settings by their names without the prefix."""

    def __init__(self, home: Home | None = None, environ: Mapping[str, str] | None = None) -> None:
        self.home = home or Home.named()
        self._given = Given(os.environ if environ is None else environ)
        self._stack = _stack_settings(self.home)

    def find(self, name: str) -> str | None:
        """The setting, or None where neither the environment nor a stack gives it."""
        return self._given.text(name) or self._stack.get(name)

    def required(self, name: str) -> str:
        """The setting, or SettingWrong."""
        value = self.find(name)
        if value is None:
            raise SettingWrong(self._why_missing(name))
        return value

    def _why_missing(self, name: str) -> str:
        if self.home.is_held():
            return f"{PREFIX}{name} is not set and the stack on {self.home.path} is not ready yet"
        return (
            f"no stack runs on {self.home.path}: start it with `coatcheck up`, "
            f"or set {PREFIX}{name}"
        )

    @property
    def database_url(self) -> str:
        return self.required("DATABASE_URL")

    @property
    def session(self) -> tuple[str, str, str]:
        """Secret, issuer and audience of sessions."""
        return (
            self.required("SESSION_SECRET"),
            self.find("SESSION_ISSUER") or ISSUER,
            self.find("SESSION_AUDIENCE") or AUDIENCE,
        )

    @property
    def endpoints_file(self) -> Path:
        return Path(self.find("ENDPOINTS_FILE") or ENDPOINTS_FILE)

    def lend_to_environment(self) -> None:
        """Put the stack's settings into our environment where it has none of its own."""
        for name, value in self._stack.items():
            if self._given.text(name) is None:
                os.environ[PREFIX + name] = value


def _stack_settings(home: Home) -> dict[str, str]:
    """What the running stack of this home uses; a killed one leaves files that mean nothing."""
    facts, told = home.read_json(home.stack_file.name), home.read_json(SETTINGS_NAME)
    # Asked only where there are files: the question holds the lock for a moment.
    if not (facts or told) or not home.is_held():
        return {}
    return _from_facts(facts) | told


def _from_facts(facts: Mapping[str, Any]) -> dict[str, str]:
    """The settings that `stack.json` names."""
    storage = facts.get("s3") or {}
    found = {
        "DATABASE_URL": facts.get("database_url"),
        "KAFKA_BOOTSTRAP_SERVERS": facts.get("kafka_bootstrap_servers"),
        "MACHINE_TOKEN": facts.get("machine_token"),
        "APP_ORIGINS": facts.get("app_origin"),
        "WEBHOOK_BASE_URL": facts.get("webhook_url"),
        "RUNPOD_BASE_URL": (facts.get("provider_urls") or {}).get("runpod"),
        **{f"S3_{name.upper()}": value for name, value in storage.items()},
    }
    return {name: str(value) for name, value in found.items() if value}
