"""Keeps child processes from inheriting file descriptors.

Python's own descriptors are not inheritable, and `subprocess` closes the others. But uvloop and
pydantic_monty start processes in their own way and close nothing: what this process inherited, or a
library opened, would reach every server and script.
"""

import os
import sys

if sys.platform == "linux":
    _DESCRIPTORS_FOLDER = "/proc/self/fd"
else:
    _DESCRIPTORS_FOLDER = "/dev/fd"
_STANDARD_COUNT = 3


def set_close_on_exec() -> None:
    """Set close-on-exec on all descriptors except the standard three."""
    if os.name != "posix":
        return
    try:
        names = os.listdir(_DESCRIPTORS_FOLDER)
    except OSError:
        names = [str(number) for number in range(os.sysconf("SC_OPEN_MAX"))]
    for name in names:
        if int(name) >= _STANDARD_COUNT:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                continue  # closed meanwhile, as the listing's own descriptor is
