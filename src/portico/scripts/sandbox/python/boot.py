"""Start of a Python script's process: enter the jail, then execute the interpreter.

Imports little, because the first script waits for it.
"""

import os
import sys

from portico.scripts.sandbox.worker import jail
from portico.upstream.transports.own_processes import set_close_on_exec

REPORT_OPTION = "--report-jail"
"""Option instead of the interpreter's arguments: print the restrictions of the jail and exit."""


def main(binary: str, program_files: tuple[str, ...]) -> None:
    """Execute `binary`, which consists of `program_files`, with this process's arguments and an
    empty environment."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 2)
    set_close_on_exec()
    os.chdir(os.sep)
    restrictions = jail.confine_process(program_files)
    if sys.argv[1:] == [REPORT_OPTION]:
        os.write(1, "\n".join(restrictions).encode())
        os._exit(0)
    # The interpreter for scripts, inside the jail.
    os.execve(binary, [binary, *sys.argv[1:]], {})  # noqa: S606
