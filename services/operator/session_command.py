"""`coatcheck session`: a session cookie for development.

Owns the command's output. Promises the contract's JSON shape. Must never sign with anything but
the secret that the gateway of the same environment checks with.
"""

import argparse

from services.operator.sessions import new_session
from services.operator.showing import show_fields, show_json
from services.operator.sources import Sources


async def session(options: argparse.Namespace, sources: Sources) -> int:
    """Print a cookie of the owner and when it ends."""
    secret, issuer, audience = sources.session
    new = new_session(options.owner, secret=secret, issuer=issuer, audience=audience)
    if options.json:
        show_json({"cookie": new.cookie, "expires_at": new.expires_at})
    else:
        show_fields({"cookie": f"coatcheck_session={new.cookie}", "expires_at": new.expires_at})
    return 0
