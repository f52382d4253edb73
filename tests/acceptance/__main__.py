"""`python -m tests.acceptance`."""

import sys

from tests.acceptance.report import main

sys.exit(main())
