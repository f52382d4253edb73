"""The start of Python processes of our own: they find modules where this process does, and import
nothing else."""

import os
import sys

import portico

_IMPORT_TEMPLATE = "import sys; sys.path[:] = {path!r}; from {module} import main; "


def render_main_import(module: str) -> str:
    """Python text that imports a module's `main`, for an interpreter that was started with `-I -S`.

    Without `site`, which costs more than all the rest of the start; the paths it would find are
    ours already.
    """
    home = os.path.dirname(os.path.dirname(os.path.abspath(portico.__file__)))
    path = [os.path.abspath(entry) for entry in sys.path if entry]
    return _IMPORT_TEMPLATE.format(path=[*path, home], module=module)
