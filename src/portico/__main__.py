"""`python -m portico` is `portico`."""

import sys

from portico.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
