"""The real command, as the tests of the commands run it."""

from tests.cli.conftest import home as home
