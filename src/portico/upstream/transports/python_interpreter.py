"""Start code of the gateway's own Python processes: same module paths, nothing else imported."""

import os
import sys

import portico

_IMPORT_TEMPLATE = "import sys; sys.path[:] = {path!r}; from {module} import main; "


def render_main_import(module: str) -> str:
    """Return Python code that imports a module's `main`, for an interpreter run with `-I -S`.

    `site` is skipped, because it costs more than the rest of the start; the paths that it would
    find are copied from this process.
    """
    home = os.path.dirname(os.path.dirname(os.path.abspath(portico.__file__)))
    path = [os.path.abspath(entry) for entry in sys.path if entry]
    return _IMPORT_TEMPLATE.format(path=[*path, home], module=module)
