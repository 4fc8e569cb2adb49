"""Commands on a real database and a real broker."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from uuid_utils.compat import uuid7

from shared.domain.hints import Hint
from shared.domain.job import Job
from shared.domain.stages import Stage
from shared.kit.bus import ParkedMessage, Topic
from shared.store.dead_letters import dead_letter_parked, dead_letters_listed
from shared.store.keys import key_found
from shared.store.pool import Database
from tests.store import rows

ROOT = Path(__file__).parents[3]


class Program:
    """The `coatcheck` program with its settings."""

    def __init__(self, **settings: str) -> None:
        self._env = {f"COATCHECK_{name}": value for name, value in settings.items()}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "services.operator", *words],
            cwd=ROOT,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )

    def told(self, *words: str) -> Any:
        """The JSON answer of a command that must succeed."""
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def program(database_url: str, tmp_path: Path) -> Program:
    return Program(DATABASE_URL=database_url, HOME=str(tmp_path))


@pytest.fixture
async def job(database: Database) -> Job:
    """A job that was just requested."""
    return await rows.requested(database)


async def test_a_key_opens_until_it_is_revoked(program: Program, database: Database) -> None:
    made = program.told("keys", "create", "--owner", "ann", "--scope", "jobs:read")
    assert set(made) == {"id", "key", "owner"}
    known = await key_found(database, made["key"])
    assert known is not None
    assert (known.owner_id, known.scopes) == ("ann", frozenset({"jobs:read"}))

    (listed,) = program.told("keys", "list", "--owner", "ann")["keys"]
    assert listed["id"] == made["id"]
    assert made["key"] not in json.dumps(listed)

    assert program.told("keys", "revoke", made["id"]) == {"id": made["id"], "revoked": True}
    assert await key_found(database, made["key"]) is None
    assert program.run("keys", "revoke", made["id"]).returncode == 1


async def test_a_key_may_end_by_itself(program: Program) -> None:
    text = program.run("keys", "create", "--owner", "ann", "--expires", "90d").stdout
    assert "only time the key is shown" in text
    (listed,) = program.told("keys", "list")["keys"]
    assert listed["expires_at"] > listed["created_at"]
    table = program.run("keys", "list").stdout
    assert table.splitlines()[0].split()[:2] == ["id", "owner_id"]
    assert "is revoked" in program.run("keys", "revoke", listed["id"]).stdout


async def test_jobs_are_listed_shown_and_told(program: Program, job: Job) -> None:
    (listed,) = program.told("jobs", "list", "--owner", rows.OWNER)["jobs"]
    assert listed["id"] == str(job.id)
    assert program.told("jobs", "list", "--stage", Stage.accepted.value)["jobs"] == []
    shown = program.told("jobs", "show", str(job.id))
    assert (shown["stage"], shown["claims"]) == ("unsubmitted", [])
    told = program.told("jobs", "timeline", str(job.id))
    assert told["job"] == str(job.id)
    assert [entry["event"] for entry in told["timeline"]] == ["job_requested"]
    for words in (("list",), ("show", str(job.id)), ("timeline", str(job.id))):
        assert str(job.id) in program.run("jobs", *words).stdout or words[0] == "timeline"


async def test_a_jobs_claims_are_shown(program: Program, database: Database) -> None:
    accepted = await rows.accepted(database)
    (claim,) = program.told("jobs", "show", str(accepted.id))["claims"]
    assert claim["outcome"] == "accepted"
    assert "claims" in program.run("jobs", "show", str(accepted.id)).stdout


async def test_an_unknown_job_is_refused(program: Program) -> None:
    for word in ("show", "timeline"):
        done = program.run("jobs", word, str(uuid4()))
        assert done.returncode == 1
        assert "there is no job" in done.stderr


async def test_the_epoch_is_shown(program: Program) -> None:
    told = program.told("epoch", "show")
    assert told["live_epoch"] == 1
    assert [raised["epoch"] for raised in told["epochs"]] == [1]
    assert "live epoch: 1" in program.run("epoch", "show").stdout


async def test_migrate_has_nothing_to_do_twice(program: Program) -> None:
    assert program.told("migrate") == {"applied": []}
    assert program.run("migrate").stdout == "nothing to apply\n"


def test_without_a_database_that_is_told(tmp_path: Path) -> None:
    done = Program(HOME=str(tmp_path)).run("jobs", "list")
    assert done.returncode == 2
    assert "set COATCHECK_DATABASE_URL" in done.stderr
    gone = Program(DATABASE_URL="postgresql://nobody@127.0.0.1:9/none", HOME=str(tmp_path))
    assert gone.run("migrate").returncode == 1


async def parked(database: Database, topic: str, value: bytes) -> int:
    """A dead letter's number."""
    await dead_letter_parked(database, ParkedMessage(topic, 0, 7, "not_json", b"k", value))
    (letter, *_) = await dead_letters_listed(database, limit=1)
    return letter.id


async def test_dead_letters_are_listed_and_shown(program: Program, database: Database) -> None:
    number = await parked(database, Topic.check.value, b"\xffnonsense")
    (listed,) = program.told("dead-letters", "list")["dead_letters"]
    assert "value" not in listed
    assert program.told("dead-letters", "show", str(number))["value"] == "\\xffnonsense"
    assert "nonsense" not in program.run("dead-letters", "list").stdout
    assert "nonsense" in program.run("dead-letters", "show", str(number)).stdout
    assert program.run("dead-letters", "show", "999").returncode == 1


async def test_a_letter_that_can_be_read_by_now_is_sent_again(
    database_url: str, database: Database, kafka_bootstrap: str, tmp_path: Path
) -> None:
    program = Program(
        DATABASE_URL=database_url, KAFKA_BOOTSTRAP_SERVERS=kafka_bootstrap, HOME=str(tmp_path)
    )
    hint = Hint(job_id=UUID(str(uuid7())), reason="replayed", version=1)
    number = await parked(database, Topic.check.value, hint.model_dump_json().encode())
    assert program.told("dead-letters", "replay", str(number))["replayed"] is True
    (letter, *_) = await dead_letters_listed(database, limit=1)
    assert letter.replayed_at is not None
    assert "was sent to" in program.run("dead-letters", "replay", str(number)).stdout


@pytest.mark.parametrize(
    ("topic", "value", "told"),
    [
        (Topic.check.value, b"nonsense", "it still cannot be read"),
        ("somebody.elses", b"{}", "is not a topic of ours"),
    ],
)
async def test_a_letter_that_cannot_be_read_is_not_sent_again(
    database_url: str, database: Database, tmp_path: Path, topic: str, value: bytes, told: str
) -> None:
    program = Program(
        DATABASE_URL=database_url, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:9", HOME=str(tmp_path)
    )
    done = program.run("dead-letters", "replay", str(await parked(database, topic, value)))
    assert done.returncode == 1
    assert told in done.stderr


async def test_a_prepared_database_keeps_its_key(database_url: str, tmp_path: Path) -> None:
    def prepared(**settings: str) -> subprocess.CompletedProcess[str]:
        env = {f"COATCHECK_{name}": value for name, value in settings.items()}
        return subprocess.run(
            [sys.executable, "-m", "services.operator.prepare"],
            cwd=ROOT,
            env={"COATCHECK_HOME": str(tmp_path), **env},
            capture_output=True,
            text=True,
            check=False,
        )

    wanted = {"DATABASE_URL": database_url, "PREPARED_OWNER": "demo"}
    first = json.loads(prepared(**wanted).stdout)
    assert first["session_cookie"] is None
    again = json.loads(prepared(**wanted, PREPARED_API_KEY=first["api_key"]).stdout)
    assert again["api_key"] == first["api_key"]
    other = json.loads(prepared(**wanted, PREPARED_API_KEY="cck_of-another-database").stdout)
    assert other["api_key"] != first["api_key"]
    with_session = json.loads(prepared(**wanted, SESSION_SECRET="s" * 32).stdout)
    assert with_session["session_cookie"].count(".") == 2

    assert prepared(PREPARED_OWNER="demo").returncode == 2
    gone = prepared(**(wanted | {"DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}))
    assert (gone.returncode, gone.stdout) == (1, "")
