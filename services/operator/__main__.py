"""`python -m services.operator`: the same as the `coatcheck` program."""

import sys

from services.operator.cli import main

if __name__ == "__main__":
    sys.exit(main())
