"""The home: one holder, private files, clear sentences, and a removal that spares strangers."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import home as home_module
from deploy.local import seaweedfs
from deploy.local.home import Home, HomeBusy, HomeUnusable
from deploy.local.minted import Minted, write_secret_file
from deploy.local.processes import drive
from deploy.local.remains import NOTE_NAME, end_remains, note_children
from tests.unit.local.stubs import largest_file


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.open()
    return made


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_home_is_named_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COATCHECK_HOME", raising=False)
    assert Home.named().path == tmp_path / ".coatcheck"
    monkeypatch.setenv("COATCHECK_HOME", "elsewhere")
    assert Home.named().path == tmp_path / "elsewhere"


def test_folder_and_files_are_the_owners_alone(home: Home) -> None:
    home.write_json("stack.json", {"a": 1})
    write_secret_file(home.path / "key", "secret")
    assert mode(home.path) == 0o700
    assert mode(home.stack_file) == mode(home.path / "key") == 0o600
    assert home.read_json("stack.json") == {"a": 1}
    assert home.read_json("missing.json") == {}


def test_a_second_holder_is_refused_naming_the_first(home: Home) -> None:
    assert not home.is_held()
    with home.held():
        assert home.is_held()
        with (
            pytest.raises(HomeBusy, match=rf"already runs on .*process {os.getpid()}") as refused,
            home.held(),
        ):
            pass
        assert f"Ctrl-C in its terminal, or kill {os.getpid()}" in str(refused.value)
        assert "COATCHECK_HOME of its own" in str(refused.value)
        (home.path / "lock").write_text("")
        with pytest.raises(HomeBusy, match=r"\(Ctrl-C in its terminal\)"), home.held():
            pass
    assert not home.is_held()


def test_the_hold_ends_with_its_process(home: Home) -> None:
    program = (
        "import sys, time; from pathlib import Path; from deploy.local.home import Home\n"
        f"with Home(Path({str(home.path)!r})).held(): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert home.is_held()
        holder.kill()
    assert not home.is_held()


def test_a_home_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeUnusable, match=r"cannot be written .*COATCHECK_HOME"):
        Home(tmp_path / "file" / "home").open()


def test_a_full_disk_is_one_sentence(home: Home) -> None:
    with largest_file(4096), pytest.raises(HomeUnusable, match=r"disk that holds .* is full"):
        home.open()
    with largest_file(4), pytest.raises(HomeUnusable, match=r"disk that holds .* is full"):
        home.write_json("stack.json", {"a": "longer than four bytes"})


def test_too_little_room_is_one_sentence(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Home, "free_megabytes", lambda _home: 10)
    with pytest.raises(HomeUnusable, match="10 MB are free, 256 MB are needed"):
        home.open()
    (home.path / "postgres").mkdir()
    (home.path / "postgres" / "PG_VERSION").write_text("18")
    with pytest.raises(HomeUnusable, match="10 MB are free, 64 MB are needed"):
        home.open()


def test_a_full_disk_does_not_keep_anybody_from_holding_what_is_there(home: Home) -> None:
    with largest_file(0), home.held_without_room():
        assert home.is_held()


def test_a_lock_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HomeUnusable), Home(tmp_path / "missing").held_without_room():
        pass


def test_a_damaged_file_is_named(home: Home) -> None:
    (home.path / "ports.json").write_text("{")
    with pytest.raises(HomeUnusable, match=r"ports\.json cannot be read"):
        home.read_json("ports.json")
    (home.path / "ports.json").write_text("[]")
    assert home.read_json("ports.json") == {}


def test_removal_spares_what_is_not_the_stacks(home: Home) -> None:
    home.write_json("stack.json", {})
    (home.path / "s3").mkdir()
    (home.path / "s3" / "1.dat").write_text("")
    (home.path / "notes.txt").write_text("mine")
    assert home.remove() == ["s3", "logs", "stack.json"]
    assert [entry.name for entry in home.path.iterdir()] == ["notes.txt"]


def test_removal_takes_the_folder_when_it_is_empty(home: Home) -> None:
    home.remove()
    assert not home.path.exists()


def test_a_removal_that_fails_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HomeUnusable, match="cannot be written"):
        Home(tmp_path / "missing").remove()


def test_long_logs_are_put_aside(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module, "LONGEST_LOG_BYTES", 4)
    home.log_of("kafka").write_text("longer")
    home.log_of("s3").write_text("ok")
    home.turn_logs()
    assert sorted(path.name for path in home.log_dir.iterdir()) == ["kafka.log.old", "s3.log"]


def test_secrets_are_made_once(home: Home) -> None:
    first = Minted(home)
    password = first.get("postgres_password")
    assert len(password) >= 32
    first.keep("api_key", "given")
    again = Minted(home)
    assert (again.get("postgres_password"), again.find("api_key")) == (password, "given")
    assert again.find("unheard of") is None
    assert mode(home.path / "secrets.json") == 0o600


def test_remains_are_ended_and_strangers_are_left_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.local.remains.PATIENCE_SECONDS", 0.0)
    home.write_json("stack.json", {"pids": {}})
    with subprocess.Popen(["sleep", "600"]) as ours, subprocess.Popen(["sleep", "600"]) as stranger:
        note_children(home, {"kafka": ours.pid, "gone": 2**22 + 1})
        noted = home.read_json(NOTE_NAME)
        assert list(noted) == ["kafka"]
        # The same number, but a process that began at another time.
        home.write_json(NOTE_NAME, noted | {"s3": [stranger.pid, 1]})
        drive(end_remains(home), timeout_seconds=30)
        assert ours.wait() == -9
        assert stranger.poll() is None
        stranger.kill()
    assert not home.stack_file.exists()


def test_the_sockets_of_a_killed_store_are_removed_and_strangers_are_left_alone(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    monkeypatch.setattr(seaweedfs, "SOCKET_DIR", folder)
    home.write_json("ports.json", {"internal": [11, 12, 13]})
    names = {port: folder / f"seaweedfs-s3-grpc-{port}.sock" for port in (11, 12, 13, 99)}
    with socket.socket(socket.AF_UNIX) as alive:
        for port in (11, 99):
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(str(names[port]))
        alive.bind(str(names[12]))
        alive.listen()
        names[13].write_text("no socket")
        drive(end_remains(home), timeout_seconds=30)
        assert sorted(folder.iterdir()) == [names[12], names[13], names[99]]


def test_a_socket_that_cannot_be_removed_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_path: Path, missing_ok: bool) -> None:
        raise PermissionError(missing_ok)

    monkeypatch.setattr(seaweedfs, "SOCKET_DIR", tmp_path)
    left = tmp_path / "seaweedfs-s3-grpc-11.sock"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(left))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        seaweedfs.remove_sockets([11])
    assert left.exists()


def test_a_remain_that_ends_between_look_and_kill_is_no_error(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.local.remains.PATIENCE_SECONDS", 0.0)
    home.write_json(NOTE_NAME, {"kafka": [2**22 + 1, 5]})
    answers = iter([5, None])
    monkeypatch.setattr("deploy.local.remains.start_ticks", lambda _pid: next(answers))
    drive(end_remains(home), timeout_seconds=30)
