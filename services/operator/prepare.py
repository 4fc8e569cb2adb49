"""The step of a starting stack between PostgreSQL and the rooms, as a process of its own.

Owns migrations, the owner's API key and session for a local stack. Promises one JSON object on
standard output and that a key which still works is kept. Must never print anything else there:
the launcher reads it, and it holds secrets.
"""

import asyncio
import json
import sys
from typing import Any

from deploy.local.given import SettingWrong
from services.operator.sessions import new_session
from services.operator.showing import logs_to_stderr
from services.operator.sources import Sources
from shared.domain.errors import CoatcheckError
from shared.store.keys import key_created, key_found
from shared.store.migrate import migrate
from shared.store.pool import open_database


async def prepared(sources: Sources) -> dict[str, Any]:
    """Bring the database up to date and make sure that the owner has a key."""
    owner = sources.required("PREPARED_OWNER")
    applied = await migrate(sources.database_url, actor="coatcheck up")
    async with open_database(sources.database_url, room="operator", max_size=1) as database:
        key = sources.find("PREPARED_API_KEY")
        if key is None or await key_found(database, key) is None:
            key = (await key_created(database, owner)).key
    cookie = None
    if sources.find("SESSION_SECRET") is not None:
        secret, issuer, audience = sources.session
        cookie = new_session(owner, secret=secret, issuer=issuer, audience=audience).cookie
    return {"applied": applied, "api_key": key, "session_cookie": cookie}


def main() -> int:
    """`python -m services.operator.prepare`."""
    logs_to_stderr()
    try:
        print(json.dumps(asyncio.run(prepared(Sources()))))
    except SettingWrong as error:
        print(f"coatcheck: {error}", file=sys.stderr)
        return 2
    except CoatcheckError as error:
        print(f"coatcheck: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
