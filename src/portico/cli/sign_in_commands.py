"""Declarations of `portico login` and `portico logout`.

Only what the option parser needs: their work is in `commands/login.py`.
"""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter, validators

from portico.cli.options import ConfigOptions


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogoutOptions(ConfigOptions):
    """Options of `logout`."""

    person: str | None = None
    """Whose account, at a server with `per_user`: the person as the audit log names it, such as
    "key ana". Default: the local user's."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LoginOptions(LogoutOptions):
    """Options of `login`."""

    all: bool = False
    """Sign in to every server that needs it, one after the other."""
    paste: bool = False
    """Read the address that the browser ends at from stdin, for a browser on another machine."""
    port: Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=65_535))] = None
    """Listen for the browser at this port of 127.0.0.1, as for `ssh -L`. Default: a free one."""


_LOGIN_DEFAULTS = LoginOptions()
_LOGOUT_DEFAULTS = LogoutOptions()
SignInServer = Annotated[str, Parameter(help="The server, as the configuration names it.")]


async def login(
    name: SignInServer | None = None, /, *, options: LoginOptions = _LOGIN_DEFAULTS
) -> int:
    """Show the address to sign in at, wait for the browser, and keep what it brings back."""
    from portico.cli.commands.login import run_login

    return await run_login(name, options)


async def logout(name: SignInServer, /, *, options: LogoutOptions = _LOGOUT_DEFAULTS) -> int:
    """Forget the tokens of a server, and the client that was registered for them."""
    from portico.cli.commands.login import run_logout

    return await run_logout(name, options)
