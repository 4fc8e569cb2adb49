"""Asks one address of this container whether it is well: `python -m deploy.health URL`.

The health check of images that hold no curl. Promises exit 0 for a 200 within three seconds, else
1 and one line on stderr, and that no proxy variable sends the question elsewhere. Must never
import a package: it runs every few seconds, in every container.
"""

import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

TIMEOUT_SECONDS = 3.0
EXIT_WELL, EXIT_UNWELL, EXIT_USAGE = 0, 1, 2


def main(arguments: Sequence[str]) -> int:
    """The exit code for the one URL in `arguments`."""
    if len(arguments) != 1 or not arguments[0].startswith("http://"):
        sys.stderr.write("usage: python -m deploy.health http://HOST:PORT/PATH\n")
        return EXIT_USAGE
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(arguments[0], timeout=TIMEOUT_SECONDS):
            return EXIT_WELL
    except urllib.error.HTTPError as error:
        # The body says what is missing; it holds names of checks, never anything of a job.
        words = error.read(2000).decode("utf-8", "replace")
        sys.stderr.write(f"{error.code}: {words}\n")
    except OSError as error:
        sys.stderr.write(f"no answer: {error}\n")
    return EXIT_UNWELL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
