"""What the gateway's child processes start with: no inherited files, and the same module paths.

Imports next to nothing, because sandboxes start with it.
"""

import os
import sys

import portico

if sys.platform == "linux":
    _DESCRIPTORS_FOLDER = "/proc/self/fd"
else:
    _DESCRIPTORS_FOLDER = "/dev/fd"
_STANDARD_COUNT = 3
_IMPORT_TEMPLATE = "import sys; sys.path[:] = {path!r}; from {module} import main; "


def set_close_on_exec() -> None:
    """Set close-on-exec on all descriptors except the standard three.

    Python's own descriptors are not inheritable, and `subprocess` closes the others. But uvloop and
    pydantic_monty start processes in their own way and close nothing: what this process inherited,
    or a library opened, would reach every server and script.
    """
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


def render_main_import(module: str) -> str:
    """Return Python code that imports a module's `main`, for an interpreter run with `-I -S`.

    `site` is skipped, because it costs more than the rest of the start; the paths that it would
    find are copied from this process.
    """
    home = os.path.dirname(os.path.dirname(os.path.abspath(portico.__file__)))
    path = [os.path.abspath(entry) for entry in sys.path if entry]
    return _IMPORT_TEMPLATE.format(path=[*path, home], module=module)
