"""The browser and the thread of the console's tests."""

from tests.console.conftest import driver, shared_window, thread

__all__ = ["driver", "shared_window", "thread"]
