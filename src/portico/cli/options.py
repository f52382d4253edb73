"""Options that commands share; a command takes one of these objects as `options`.

The text below an option is its help.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter, validators

if TYPE_CHECKING:
    from portico.cli.screen import Screen
    from portico.cli.setup import Setup

_COMMON = Group("Common options", sort_key=9)
FilesOption = Annotated[list[str] | None, Parameter(name=["--config", "-c"], group=_COMMON)]
ProfileOption = Annotated[str | None, Parameter(name=["--profile", "-p"], group=_COMMON)]
ServerOption = Annotated[str | None, Parameter(name=["--server", "-s"])]
LimitOption = Annotated[
    int,
    Parameter(name=["--limit", "-n"], validator=validators.Number(gte=1), show_default=True),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The option of every command."""

    json: Annotated[bool, Parameter(group=_COMMON)] = False
    """Answer as JSON."""

    def make_screen(self) -> "Screen":
        """Make the screen of the command."""
        # Imported late: help is shown without it.
        from portico.cli.screen import Screen

        return Screen(as_json=self.json)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ConfigOptions(OutputOptions):
    """Options of commands that read the configuration."""

    config: FilesOption = None
    """Configuration file; repeat it to add files, a later one wins."""

    def load(self, profile: str | None = None) -> "tuple[Setup, Screen]":
        """Load the configuration, and make the screen."""
        from portico.cli.setup import load_setup, note_hidden_config

        setup = load_setup(self.config or (), profile=profile)
        if not self.config and not self.json:
            note_hidden_config(setup)
        return setup, self.make_screen()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProfileOptions(ConfigOptions):
    """Options of commands that look at one profile."""

    profile: ProfileOption = None
    """See what this profile's clients see."""

    def load(self, profile: str | None = None) -> "tuple[Setup, Screen]":
        """Load the configuration for the profile, and make the screen."""
        return super().load(profile or self.profile)

    alone: Annotated[bool, Parameter(group=_COMMON)] = False
    """Do not ask the running gateway: load the configuration and open its servers here."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ListedOptions(ProfileOptions):
    """Options of commands that show what servers list."""

    offline: bool = False
    """Start nothing: answer from what is known from last time."""


OUTPUT_DEFAULTS = OutputOptions()
CONFIG_DEFAULTS = ConfigOptions()
PROFILE_DEFAULTS = ProfileOptions()
LISTED_DEFAULTS = ListedOptions()
