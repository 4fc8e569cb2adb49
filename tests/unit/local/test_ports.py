"""Ports: free or taken, and by whom; chosen ones stay; a doubled or odd one is named."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import ports
from deploy.local.given import Given, SettingWrong
from deploy.local.home import Home
from deploy.local.port_plan import DEFAULT_PORTS, INTERNAL_COUNT, PortPlan
from deploy.local.ports import NamedPort, PortTaken
from shared.domain.errors import Refused


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server socket of this process on a free port."""
    with socket.create_server((ports.LOOPBACK, 0)) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.open()
    return made


def port_of(server: socket.socket) -> int:
    number: int = server.getsockname()[1]
    return number


def test_a_taken_port_is_refused_naming_it_and_its_variable(listener: socket.socket) -> None:
    port = port_of(listener)
    with pytest.raises(PortTaken, match=rf"{port}.*COATCHECK_GATEWAY_PORT.*PORTS=auto"):
        ports.require_free([NamedPort(port, "COATCHECK_GATEWAY_PORT")])


def test_a_port_is_taken_on_every_address_if_it_is_on_one(listener: socket.socket) -> None:
    assert not ports.is_free(port_of(listener), "")


def test_only_the_process_that_listens_counts_as_the_listener(listener: socket.socket) -> None:
    assert ports.is_listening(os.getpid(), port_of(listener))
    assert not ports.is_listening(os.getppid(), port_of(listener))
    assert not ports.is_listening(2**22 + 1, port_of(listener))


def test_a_handle_that_is_closed_meanwhile_is_passed_over(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(handle: Path) -> str:
        raise FileNotFoundError(str(handle))

    monkeypatch.setattr(os, "readlink", vanished)
    assert not ports.is_listening(os.getpid(), port_of(listener))


def test_a_port_without_listener_accepts_nothing(listener: socket.socket) -> None:
    port = port_of(listener)
    assert ports.accepts(port)
    listener.close()
    assert not ports.accepts(port)
    assert not ports.is_listening(os.getpid(), port)


def test_a_block_is_free_and_below_the_ephemeral_range() -> None:
    block = ports.free_block()
    assert len(block) == ports.BLOCK_PORTS
    assert block[0] >= ports.LOWEST_PORT
    assert block[-1] < ports.first_ephemeral_port()
    assert all(ports.is_free(port) for port in block)


def test_no_free_block_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _port: False)
    with pytest.raises(Refused, match="no run of free ports"):
        ports.free_block()


def test_unreadable_kernel_tables_mean_the_usual_range_and_no_listener(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket
) -> None:
    def refuse(self: Path) -> str:
        raise PermissionError(str(self))

    monkeypatch.setattr(Path, "read_text", refuse)
    assert ports.first_ephemeral_port() == 32_768
    assert not ports.is_listening(os.getpid(), port_of(listener))


def test_ports_are_the_defaults_unless_named(home: Home) -> None:
    plan = PortPlan(Given({"COATCHECK_RELAY_ADMIN_PORT": "10101"}), home)
    assert plan.number("GATEWAY_PORT") == DEFAULT_PORTS["GATEWAY_PORT"] == 8080
    assert plan.named("RELAY_ADMIN_PORT") == NamedPort(10101, "COATCHECK_RELAY_ADMIN_PORT")
    assert "LOCAL_S3_PORT" not in plan.room_ports()


def test_auto_ports_are_kept_for_the_home_and_give_way_to_named_ones(home: Home) -> None:
    auto = {"COATCHECK_PORTS": "auto"}
    first = PortPlan(Given(auto), home)
    numbers = [first.number(name) for name in DEFAULT_PORTS]
    assert len({*numbers, *first.internal}) == len(DEFAULT_PORTS) + INTERNAL_COUNT
    assert all(number < ports.first_ephemeral_port() for number in numbers)

    again = PortPlan(Given(auto | {"COATCHECK_GATEWAY_PORT": "18080"}), home)
    assert again.number("GATEWAY_PORT") == 18080
    assert again.number("WEBHOOK_PORT") == first.number("WEBHOOK_PORT")
    assert again.internal == first.internal


def test_internal_ports_that_were_taken_meanwhile_are_chosen_anew(home: Home) -> None:
    first = PortPlan(Given({}), home)
    with socket.create_server((ports.LOOPBACK, first.internal[0])):
        assert PortPlan(Given({}), home).internal[0] != first.internal[0]


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"COATCHECK_PORTS": "any"}, "COATCHECK_PORTS"),
        ({"COATCHECK_GATEWAY_PORT": "http"}, "COATCHECK_GATEWAY_PORT"),
        ({"COATCHECK_GATEWAY_PORT": "70000"}, "COATCHECK_GATEWAY_PORT"),
        ({"COATCHECK_GATEWAY_PORT": "8081"}, "COATCHECK_GATEWAY_PORT and COATCHECK_WEBHOOK_PORT"),
    ],
)
def test_a_wrong_port_names_its_variable(home: Home, environ: dict[str, str], named: str) -> None:
    with pytest.raises(SettingWrong, match=named):
        PortPlan(Given(environ), home)
