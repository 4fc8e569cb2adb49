"""Which port every part of the stack uses.

Owns the default numbers, the variables that move them, and the choice of free ones under
`PORTS=auto`. Promises that what was chosen stays with the home over restarts. Must never move
a named port that is taken: that is refused where the part is started.
"""

from collections.abc import Mapping, Sequence

from deploy.local import ports
from deploy.local.given import PREFIX, Given, SettingWrong
from deploy.local.home import Home
from deploy.local.ports import NamedPort

PORTS_NAME = "ports.json"
DEFAULT_PORTS: Mapping[str, int] = {
    "GATEWAY_PORT": 8080,
    "WEBHOOK_PORT": 8081,
    "GATEWAY_ADMIN_PORT": 9100,
    "RELAY_ADMIN_PORT": 9101,
    "SUBMITTER_ADMIN_PORT": 9102,
    "RECONCILER_ADMIN_PORT": 9103,
    "ARCHIVER_ADMIN_PORT": 9104,
    "WEBHOOK_ADMIN_PORT": 9105,
    "LOCAL_POSTGRES_PORT": 15432,
    "LOCAL_KAFKA_PORT": 9092,
    "LOCAL_S3_PORT": 8333,
    "LOCAL_FAKE_RUNPOD_PORT": 8090,
}
INTERNAL_COUNT = 10
"""Kafka's controller and the nine ports of SeaweedFS that nobody else uses."""


class PortPlan:
    """The ports of one stack. Making it may write the home's file of chosen ports."""

    def __init__(self, given: Given, home: Home) -> None:
        kept = home.read_json(PORTS_NAME)
        chosen: dict[str, int] = dict(kept.get("auto") or {})
        internal: list[int] = list(kept.get("internal") or [])
        named = {name: given.port(name) for name in DEFAULT_PORTS}
        if _is_auto(given):
            lacking = [name for name in DEFAULT_PORTS if name not in chosen]
            if lacking:
                taken = {*chosen.values(), *(port for port in named.values() if port is not None)}
                block = [port for port in ports.free_block() if port not in taken]
                chosen |= dict(zip(lacking, block, strict=False))
            ordinary: Mapping[str, int] = chosen
        else:
            ordinary = DEFAULT_PORTS
        self._numbers = {name: named[name] or ordinary[name] for name in DEFAULT_PORTS}
        _refuse_doubles(self._numbers)
        if len(internal) != INTERNAL_COUNT or not all(map(ports.is_free, internal)):
            internal = self._free_internal()
        self.internal: Sequence[int] = internal
        fresh = {"auto": chosen, "internal": internal}
        if fresh != kept:
            home.write_json(PORTS_NAME, fresh)

    def number(self, name: str) -> int:
        """The port of that name, such as `GATEWAY_PORT`."""
        return self._numbers[name]

    def named(self, name: str) -> NamedPort:
        """The same with the variable that moves it."""
        return NamedPort(self._numbers[name], PREFIX + name)

    def room_ports(self) -> dict[str, int]:
        """The ports that rooms are told, by name."""
        return {
            name: number for name, number in self._numbers.items() if not name.startswith("LOCAL_")
        }

    def _free_internal(self) -> list[int]:
        used = set(self._numbers.values())
        while True:
            block = [port for port in ports.free_block() if port not in used]
            if len(block) >= INTERNAL_COUNT:
                return block[-INTERNAL_COUNT:]


def chosen_internal(home: Home) -> list[int]:
    """The internal ports that this home has used last."""
    return list(home.read_json(PORTS_NAME).get("internal") or [])


def _is_auto(given: Given) -> bool:
    value = given.text("PORTS")
    if value not in (None, "auto"):
        raise SettingWrong(f"{PREFIX}PORTS: must be auto, or not set")
    return value == "auto"


def _refuse_doubles(numbers: Mapping[str, int]) -> None:
    owner: dict[int, str] = {}
    for name, number in numbers.items():
        if number in owner:
            raise SettingWrong(
                f"{PREFIX}{owner[number]} and {PREFIX}{name} are both {number}; they must differ"
            )
        owner[number] = name
