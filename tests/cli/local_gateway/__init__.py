"""Tests of `portico.cli.local_gateway`."""
