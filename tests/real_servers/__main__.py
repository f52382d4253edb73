"""`python -m tests.real_servers`."""

import sys

from tests.real_servers.report import main

sys.exit(main())
