"""The first moments of a Python script's process: it closes the jail behind itself, then becomes
the interpreter.

Imports little, since the first script waits for it.
"""

import os
import sys

from portico.scripts.sandbox.worker import jail
from portico.upstream.transports.file_descriptors import set_close_on_exec

REPORT_OPTION = "--report-jail"
"""Instead of the interpreter's arguments: say what the jail holds, a line each, and end."""


def main(binary: str, program_files: tuple[str, ...]) -> None:
    """Become `binary`, which consists of the files in `program`, with this process's arguments and
    no environment."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 2)
    set_close_on_exec()
    os.chdir(os.sep)
    kept = jail.confine_process(program_files)
    if sys.argv[1:] == [REPORT_OPTION]:
        os.write(1, "\n".join(kept).encode())
        os._exit(0)
    os.execve(binary, [binary, *sys.argv[1:]], {})  # noqa: S606 - the interpreter for scripts, inside the jail
