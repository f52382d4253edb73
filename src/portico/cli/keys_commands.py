"""Declarations of `portico keys add`, `list`, `rotate` and `revoke`.

Only what the option parser needs: their work is in `commands/keys.py`.
"""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from portico.cli.options import ConfigOptions

NameArgument = Annotated[str, Parameter(help="Name of the person or program, as in ana or ci.")]
NamedKey = Annotated[str, Parameter(help="The name, or the id of one key.")]


@dataclass(frozen=True, kw_only=True)
class AddKeyOptions(ConfigOptions):
    """Options of `keys add`."""

    profile: Annotated[list[str] | None, Parameter(name=["--profile", "-p"])] = None
    """Open only this profile; repeat it for more. Default: everything."""
    expires: str | None = None
    """When it ends: 12h, 90d, 52w. Default: never."""
    read_only: bool = False
    """Allow only tools that are known to be read-only."""


@dataclass(frozen=True, kw_only=True)
class RotateKeyOptions(ConfigOptions):
    """Options of `keys rotate`."""

    grace: Annotated[str, Parameter(show_default=True)] = "1d"
    """How long the old key stays valid; 0 ends it at once."""
    expires: str | None = None
    """When the new one ends. Default: as long from now as the old one was made for."""


_ADD_DEFAULTS = AddKeyOptions()
_ROTATE_DEFAULTS = RotateKeyOptions()
_DEFAULTS = ConfigOptions()


async def add_keys(name: NameArgument, /, *, options: AddKeyOptions = _ADD_DEFAULTS) -> int:
    """Make a key and show it, once."""
    from portico.cli.commands.keys import run_add

    return await run_add(name, options)


async def list_keys(*, options: ConfigOptions = _DEFAULTS) -> int:
    """List the keys: names, what they open, when they end and were last used."""
    from portico.cli.commands.keys import run_list

    return await run_list(options)


async def rotate_keys(name: NamedKey, /, *, options: RotateKeyOptions = _ROTATE_DEFAULTS) -> int:
    """Make a new key in place of one; both are valid for a while."""
    from portico.cli.commands.keys import run_rotate

    return await run_rotate(name, options)


async def revoke_keys(name: NamedKey, /, *, options: ConfigOptions = _DEFAULTS) -> int:
    """End a key now, or all of a name."""
    from portico.cli.commands.keys import run_revoke

    return await run_revoke(name, options)
