"""The Compose file as tests read it: parsed, with every variable at its default.

Owns the two notations of variables that the file uses. Promises that a notation it does not know
is an error, for then a test would look at text that Compose would never see.
"""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
ROOMS = tuple(
    sorted(
        folder.name
        for folder in (ROOT / "services").iterdir()
        if (folder / "__init__.py").exists() and folder.name != "operator"
    )
)
PREFIX = "COATCHECK_"

_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+):?-([^}]*)\}")


def read() -> dict[str, Any]:
    """The whole file; anchors merged, variables replaced by their defaults."""
    return dict(_at_defaults(yaml.safe_load(COMPOSE_FILE.read_text())))


def services() -> dict[str, dict[str, Any]]:
    """The services by name."""
    return dict(read()["services"])


def settings_of(name: str) -> dict[str, str]:
    """The environment of a service that is ours: names without the prefix."""
    environment: dict[str, str] = services()[name].get("environment", {})
    return {key.removeprefix(PREFIX): value for key, value in environment.items()}


def _at_defaults(node: Any) -> Any:
    match node:
        case dict():
            return {key: _at_defaults(value) for key, value in node.items()}
        case list():
            return [_at_defaults(value) for value in node]
        case str():
            text = _VARIABLE.sub(lambda found: found[2], node)
            if re.search(r"(?<!\$)\$(?!\$)", text):
                raise ValueError(f"not a variable with a default: {text}")
            return text.replace("$$", "$")
        case _:
            return node
