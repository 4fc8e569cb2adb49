"""The runner, as real processes: the order up, the order down, and every way to end."""

import os
import signal
import socket
from pathlib import Path

import pytest

from deploy.local.ports import free_block
from shared.kit.admin import bind_port
from tests.system.kit.conftest import SECRET, StartRoom


def test_the_order_up_and_the_order_down(start_room: StartRoom) -> None:
    room = start_room("held")
    room.until_answering()
    answer = room.get("/readyz")
    assert (answer.status_code, answer.json()["state"]) == (503, "starting")
    room.post("/begin")
    room.wait_for("ready")
    answer = room.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]) == (200, {"database": True})
    assert room.get("/livez").status_code == 200
    room.post("/toggle")
    assert room.get("/readyz").status_code == 503
    room.process.send_signal(signal.SIGTERM)
    room.wait_for("drain_begun")
    answer = room.get("/readyz")
    assert (answer.status_code, answer.json()["state"]) == (503, "draining")
    room.post("/finish")
    assert room.end() == 0
    order = [event for event in room.events if event not in ("settings_read", "library_log")]
    assert order == [
        "opening",
        "ready",
        "stop_requested",
        "drain_begun",
        "loop_drained",
        "parts_closed",
        "stopped",
    ]
    assert room.errors == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order(start_room: StartRoom, number: signal.Signals) -> None:
    room = start_room("steady")
    room.wait_for("ready")
    room.process.send_signal(number)
    assert room.end() == 0
    assert room.events.count("loop_drained") == 2
    assert "parts_closed" in room.events


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_exits_at_once(
    start_room: StartRoom, number: signal.Signals, code: int
) -> None:
    room = start_room("held", DRAIN_SECONDS="3600")
    room.until_answering()
    room.post("/begin")
    room.wait_for("ready")
    room.process.send_signal(signal.SIGTERM)
    room.wait_for("drain_begun")
    room.process.send_signal(number)
    assert room.end() == code
    assert "parts_closed" not in room.events
    assert "second signal" in room.errors


def test_a_second_signal_ends_even_a_blocked_process(start_room: StartRoom) -> None:
    room = start_room("block")
    room.wait_for("blocking")
    room.process.send_signal(signal.SIGTERM)
    room.process.send_signal(signal.SIGINT)
    assert room.end() in (130, 143)


def test_settings_are_shown_without_secrets(start_room: StartRoom) -> None:
    room = start_room("steady", TIME_SCALE="60")
    shown = room.wait_for("settings_read")
    assert shown["settings"]["database_url"] == "set"
    assert shown["settings"]["time_scale"] == 60
    assert shown["room"] == "relay"
    room.wait_for("ready")
    room.process.terminate()
    room.end()
    assert "s3cr3t" not in repr(room.log) + room.errors


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({"DATABASE_URL": ""}, "COATCHECK_DATABASE_URL is missing"),
        ({"ENV": "prod", "TIME_SCALE": "60"}, "COATCHECK_TIME_SCALE"),
        ({"DRAIN_SECONDS": "soon"}, "COATCHECK_DRAIN_SECONDS"),
        ({"RELAY_ADMIN_PORT": "70000"}, "COATCHECK_RELAY_ADMIN_PORT"),
        ({"DATABASE_URL_FILE": "/no/such/file"}, "COATCHECK_DATABASE_URL"),
    ],
)
def test_a_wrong_setting_exits_2_in_one_line(
    start_room: StartRoom, environment: dict[str, str], names: str
) -> None:
    room = start_room("steady", **environment)
    assert room.end() == 2
    assert names in room.errors
    assert room.errors.startswith("coatcheck: ")
    assert room.errors.count("\n") == 1
    assert room.log == []


def test_a_room_without_a_known_port_must_be_given_one(start_room: StartRoom) -> None:
    room = start_room("steady", rooms="unheard", UNHEARD_ADMIN_PORT="")
    assert room.end() == 2
    assert "COATCHECK_UNHEARD_ADMIN_PORT is missing" in room.errors


def test_a_secret_is_read_from_its_file(start_room: StartRoom, tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text(SECRET + "\n")
    room = start_room("steady", DATABASE_URL="", DATABASE_URL_FILE=str(path))
    assert room.wait_for("opening")["message"] == f"{len(SECRET)} characters"
    room.wait_for("ready")


def test_a_setting_that_a_room_misses_while_opening_exits_2(start_room: StartRoom) -> None:
    room = start_room("late-settings")
    assert room.end() == 2
    assert "COATCHECK_MORE is missing" in room.errors


def test_a_crashed_loop_ends_the_process_after_the_others_drained(start_room: StartRoom) -> None:
    room = start_room("crash")
    assert room.end() == 1
    (line,) = [entry for entry in room.log if entry["event"] == "loop_crashed"]
    assert (line["loop"], line["error"]) == ("relay.crash", "ValueError")
    assert any("crash" in place for place in line["trace"])
    assert room.events.index("loop_drained") < room.events.index("parts_closed")
    assert "s3cr3t" not in repr(room.log) + room.errors


def test_a_loop_that_returns_unasked_is_a_crash(start_room: StartRoom) -> None:
    room = start_room("end-early")
    assert room.end() == 1
    assert "loop_ended_unasked" in room.events


def test_a_crash_while_draining_is_told_and_exits_1(start_room: StartRoom) -> None:
    room = start_room("crash-while-draining")
    room.wait_for("ready")
    room.process.terminate()
    assert room.end() == 1
    assert "loop_crashed" in room.events
    assert "parts_closed" in room.events


def test_a_loop_that_overruns_the_drain_is_cancelled(start_room: StartRoom) -> None:
    room = start_room("never-drain", DRAIN_SECONDS="0.1")
    room.wait_for("ready")
    room.process.terminate()
    assert room.end() == 0
    assert "drain_overran" in room.events
    assert "parts_closed" in room.events


def test_a_loop_that_ignores_cancellation_is_left_behind(start_room: StartRoom) -> None:
    room = start_room("ignore-cancellation", DRAIN_SECONDS="0.1")
    room.wait_for("ready")
    room.process.terminate()
    assert room.end() == 0
    assert "loop_ignored_cancellation" in room.events
    assert "parts_closed" in room.events


def test_stray_errors_are_logged_and_a_stuck_thread_holds_nobody_up(start_room: StartRoom) -> None:
    room = start_room("astray")
    room.wait_for("stray_thread_error")
    room.wait_for("stray_loop_error")
    if "ready" not in room.events:
        room.wait_for("ready")
    room.process.terminate()
    assert room.end() == 0
    assert "s3cr3t" not in repr(room.log) + room.errors


def test_a_taken_admin_port_names_port_and_variable(start_room: StartRoom) -> None:
    (port,) = free_block(1)
    with bind_port("127.0.0.1", port, "X"):
        room = start_room("steady", RELAY_ADMIN_PORT=str(port))
        assert room.end() == 1
    assert str(port) in room.errors
    assert "COATCHECK_RELAY_ADMIN_PORT" in room.errors
    assert "ready" not in room.events


def test_several_rooms_share_a_process_and_its_registry(start_room: StartRoom) -> None:
    room = start_room("steady", rooms="relay,submitter")
    assert room.wait_for("ready")["rooms"] == ["relay", "submitter"]
    for name in ("relay", "submitter"):
        assert room.get("/readyz", name).status_code == 200
        loops = set(room.get("/livez", name).json()["silent_seconds"])
        assert loops == {f"{name}.steady", f"{name}.bystander"}
        text = room.get("/metrics", name).text
        assert "coatcheck_outbox_pending 0.0" in text
        assert 'coatcheck_loop_last_beat_timestamp_seconds{loop="submitter.steady"}' in text
    room.process.terminate()
    assert room.end() == 0
    closed = [entry["message"] for entry in room.log if entry["event"] == "parts_closed"]
    assert closed == ["submitter", "relay"]


def test_two_loops_of_one_name_are_refused(start_room: StartRoom) -> None:
    room = start_room("same-names")
    assert room.end() == 1
    assert "start_failed" in room.events


def test_a_part_that_comes_late_is_waited_for(start_room: StartRoom) -> None:
    room = start_room("unavailable-twice")
    room.wait_for("ready")
    assert room.events.count("opening") == 3
    assert room.events.count("part_lost") == 1
    assert room.events.count("part_back") == 1


@pytest.mark.parametrize(
    ("mode", "code", "sentence"),
    [
        ("unavailable", 3, "the database does not answer"),
        ("schema-ahead", 57, "past this version"),
        ("refused", 2, "endpoints.toml: not valid TOML"),
        ("bug", 1, ""),
    ],
)
def test_a_failed_start_has_its_exit_code(
    start_room: StartRoom, mode: str, code: int, sentence: str
) -> None:
    room = start_room(mode, START_SECONDS="0.3")
    assert room.end() == code
    assert sentence in room.errors
    assert "start_failed" in room.events
    assert "s3cr3t" not in repr(room.log) + room.errors


def test_a_signal_while_starting_stops_the_start(start_room: StartRoom) -> None:
    room = start_room("hang")
    room.wait_for("hanging")
    room.process.terminate()
    assert room.end() == 0
    assert "stopped_while_starting" in room.events


def test_a_part_that_fails_to_close_is_told_and_changes_nothing(start_room: StartRoom) -> None:
    room = start_room("close-fails")
    room.wait_for("ready")
    room.process.terminate()
    assert room.end() == 0
    assert "close_failed" in room.events
    assert "s3cr3t" not in repr(room.log)


def test_a_silent_loop_makes_the_room_not_live(start_room: StartRoom) -> None:
    room = start_room("silent")
    room.wait_for("ready")
    while room.get("/livez").status_code == 200:
        pass
    answer = room.get("/livez")
    assert answer.status_code == 503
    assert answer.json()["live"] is False
    assert room.get("/readyz").status_code == 200


def test_an_open_stream_does_not_hold_up_the_stop(start_room: StartRoom) -> None:
    room = start_room("stream")
    room.wait_for("ready")
    with socket.create_connection(("127.0.0.1", room.public_port)) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        while b"open" not in stream.recv(4096):
            pass
        room.process.terminate()
        assert room.end() == 0


def test_a_full_disk_under_the_log_stops_nobody(start_room: StartRoom) -> None:
    with open("/dev/full", "w") as full:
        room = start_room("steady", stdout=full)
        room.until_answering()
        while room.get("/readyz").status_code != 200:
            pass
        room.process.terminate()
        assert room.end() == 0


def test_a_reader_that_left_stops_nobody(start_room: StartRoom) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    room = start_room("steady", stdout=writing)
    os.close(writing)
    room.until_answering()
    room.process.terminate()
    assert room.end() == 0
