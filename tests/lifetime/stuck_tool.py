"""A tool that never returns."""

import threading


def forever() -> None:
    """Wait for what never comes."""
    threading.Event().wait()
