"""Tests: what Portico promises, as sentences; `fixtures` holds the servers they talk to."""
