"""Mints the secrets of docker-compose.yml: `python3 deploy/compose_secrets.py [FOLDER]`.

Owns the folder `deploy/secrets/`, one file per secret. Promises that a secret once made is never
changed, that a second run only adds what is missing, and that git never sees the folder. Must
never print a secret. Standard library only: it runs before anything is installed.
"""

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).with_name("secrets")
RANDOM_BYTES = 24
KEY_VARIABLE = "COATCHECK_RUNPOD_API_KEY"
EXIT_DONE, EXIT_REFUSED, EXIT_USAGE = 0, 1, 2


class Folder:
    """One folder of secrets. The folder is closed to other users of this machine; the files in it
    are open to the containers' users, who each see only the files that are mounted for them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.made: list[str] = []

    def open(self) -> None:
        """Make the folder; git ignores all of it from then on."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.chmod(0o700)
        (self.path / ".gitignore").write_text("*\n")

    def keep(self, name: str, value: str) -> str:
        """The secret of that name: the one on the disk, else `value`, which is written down."""
        file = self.path / name
        if file.exists() and (known := file.read_text().strip()):
            return known
        # Written aside first: a full disk must not leave half a secret that counts as made.
        aside = self.path / f".{name}.new"
        aside.write_text(f"{value}\n")
        aside.chmod(0o444)
        aside.replace(file)
        self.made.append(name)
        return value


def mint(folder: Folder, environ: Mapping[str, str]) -> None:
    """Make what is missing. A key of the provider's own comes from the environment."""
    folder.open()
    password = folder.keep("postgres_password", _random())
    folder.keep("database_url", f"postgresql://coatcheck:{password}@postgres:5432/coatcheck")
    folder.keep("s3_secret_access_key", _random())
    folder.keep("session_secret", _random())
    folder.keep("webhook_keys", f"compose:{_random()}")
    given = environ.get(KEY_VARIABLE)
    if given and folder.keep("runpod_api_key", given) != given:
        raise FileExistsError(
            f"{folder.path / 'runpod_api_key'} holds another key than {KEY_VARIABLE}: "
            "remove the file, or unset the variable"
        )
    folder.keep("runpod_api_key", _random())


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Mint into the folder named, else into the usual one; the exit code."""
    if len(arguments) > 1 or any(word.startswith("-") for word in arguments):
        sys.stderr.write("usage: python3 deploy/compose_secrets.py [FOLDER]\n")
        return EXIT_USAGE
    folder = Folder(Path(arguments[0]) if arguments else FOLDER)
    try:
        mint(folder, environ)
    except OSError as error:
        sys.stderr.write(f"compose_secrets: {error}\n")
        return EXIT_REFUSED
    made = ", ".join(folder.made) or "nothing: all secrets are there"
    sys.stdout.write(f"{folder.path}: made {made}\n")
    return EXIT_DONE


def _random() -> str:
    """URL-safe text of 192 random bits: it stands in a URL and in a header as it is."""
    return secrets.token_urlsafe(RANDOM_BYTES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
