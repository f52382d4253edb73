"""`portico start` and `stop`: the gateway in the background, for all clients of this user.

--json: start `{"pid", "url", "log", "version", "started": bool, "at_login": path or null}`, stop
`{"stopped": bool, "pid"}`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from cyclopts import Parameter

from portico import __version__
from portico.cli.exit import EXIT_OK, print_note
from portico.cli.local_gateway.background import (
    STOP_MARGIN_S,
    build_serve_command,
    get_log_path,
    request_stop,
    start_gateway,
    wait_for_gateway,
    wait_until_stopped,
)
from portico.cli.local_gateway.connection import RunningGateway, find_gateway
from portico.cli.local_gateway.registration import (
    ServedConfiguration,
    ensure_private_folder,
    identify_configuration,
    list_identifying_settings,
)
from portico.cli.options import FilesOption, OutputOptions
from portico.errors import PorticoError

MAX_DRAIN_S = 600.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BackgroundOptions(OutputOptions):
    """Options of commands about the background gateway."""

    config: FilesOption = None
    """Configuration file; repeat it to add files, a later one wins."""

    def identify(self) -> ServedConfiguration:
        """Return which configuration is meant."""
        return identify_configuration(self.config or ())


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StartOptions(BackgroundOptions):
    """Options of `start`."""

    port: int | None = None
    """Port for clients over HTTP. Default: as configured, or a free one if that is taken."""
    at_login: bool = False
    """Start it at every login too (systemd, launchd, or a Windows task)."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StopOptions(BackgroundOptions):
    """Options of `stop`."""

    at_login: bool = False
    """No longer start it at login."""


_START_DEFAULTS = StartOptions()
_STOP_DEFAULTS = StopOptions()


def start(*, options: StartOptions = _START_DEFAULTS) -> int:
    """Start the gateway in the background, unless it runs already."""
    configuration = options.identify()
    before = find_gateway(configuration)
    service: Path | None = None
    if options.at_login:
        if before is not None:
            stop_and_wait(before)
        try:
            service = _install_service(configuration, options.port)
        except PorticoError:
            if before is not None:
                start_gateway(configuration, options.port)
            raise
        gateway = wait_for_gateway(configuration)
        if gateway is None:
            log = get_log_path(configuration)
            raise PorticoError("the service did not start the gateway", advice=f"See {log}.")
    else:
        gateway = start_gateway(configuration, options.port)
    registration = gateway.registration
    log = get_log_path(configuration)
    screen = options.make_screen()
    if screen.as_json:
        screen.write_json(
            {
                "pid": registration.pid,
                "url": registration.url,
                "log": str(log),
                "version": registration.version,
                "started": before is None,
                "at_login": str(service) if service else None,
            }
        )
        return EXIT_OK
    if before is None:
        screen.write_text(f"Portico runs in the background: {registration.url}/mcp")
    else:
        screen.write_text(f"Portico runs already: {registration.url}/mcp")
        if registration.version != __version__:
            print_note(f"It is {registration.version}, this is {__version__}: `portico restart`.")
    if service is not None:
        screen.write_text(f"It starts at login: {service}")
    screen.write_text(
        "`portico stdio` of this user and configuration is passed on to it from now on.",
        "`portico logs -f` shows its log, `portico stop` ends it.",
    )
    return EXIT_OK


def stop(*, options: StopOptions = _STOP_DEFAULTS) -> int:
    """End the gateway that runs for this configuration."""
    configuration = options.identify()
    if options.at_login:
        uninstall_login_service(_get_service_name(configuration))
    gateway = find_gateway(configuration)
    screen = options.make_screen()
    if gateway is not None:
        stop_and_wait(gateway)
    if screen.as_json:
        pid = gateway.registration.pid if gateway is not None else None
        screen.write_json({"stopped": gateway is not None, "pid": pid})
    elif gateway is None:
        screen.write_text("No gateway runs for this configuration.")
    else:
        screen.write_text("Stopped.")
    return EXIT_OK


def stop_and_wait(gateway: RunningGateway) -> None:
    """Stop a gateway, say what it waits for, and wait until it has ended; raises PorticoError."""
    waits_for = request_stop(gateway)
    if waits_for:
        print_note(waits_for)
    if not wait_until_stopped(gateway, (MAX_DRAIN_S if waits_for else 0) + STOP_MARGIN_S):
        pid = gateway.registration.pid
        raise PorticoError(
            f"the gateway (process {pid}) has not ended", advice="`portico logs` may say why."
        )


def require_gateway(configuration: ServedConfiguration) -> RunningGateway:
    """Return the gateway that runs for a configuration; raises PorticoError."""
    gateway = find_gateway(configuration)
    if gateway is None:
        raise PorticoError(
            "no gateway runs for this configuration", advice="`portico start` starts one."
        )
    return gateway


def restart_gateway(configuration: ServedConfiguration) -> RunningGateway:
    """Stop the background gateway of a configuration and start it again; raises PorticoError."""
    gateway = require_gateway(configuration)
    if not gateway.registration.is_background:
        raise PorticoError(
            f"the gateway runs in a terminal (process {gateway.registration.pid})",
            advice="Stop and start it there, or `portico stop` and `portico start`.",
        )
    stop_and_wait(gateway)
    # On the same port: clients over HTTP know it.
    return start_gateway(configuration, int(gateway.registration.url.rpartition(":")[2]))


def _install_service(configuration: ServedConfiguration, port: int | None) -> Path:
    ensure_private_folder(configuration.folder)
    service = LoginService(
        _get_service_name(configuration),
        build_serve_command(configuration, port),
        dict(list_identifying_settings(os.environ)),
        os.getcwd(),
    )
    return install_login_service(service)


def _get_service_name(configuration: ServedConfiguration) -> str:
    return f"portico-{configuration.id[:8]}"


# --- starting at login: a systemd user unit, a launchd agent, or a Windows task

COMMAND_TIMEOUT_S = 30


@dataclass(frozen=True)
class LoginService:
    """A gateway to start at login."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    folder: str
    """Where it runs: relative paths of the configuration are relative to it."""


def render_systemd_unit(service: LoginService) -> str:
    """Return the unit for systemd's user manager."""
    variables = [f"Environment={_quote_systemd(f'{k}={v}')}" for k, v in service.environ.items()]
    return "\n".join(
        [
            "[Unit]",
            "Description=Portico, one MCP endpoint for all clients",
            "",
            "[Service]",
            f"ExecStart={' '.join(map(_quote_systemd, service.command))}",
            f"WorkingDirectory={service.folder.replace('%', '%%')}",
            *variables,
            "Restart=on-failure",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def render_launchd_agent(service: LoginService) -> bytes:
    """Return the property list for launchd."""
    import plistlib

    return plistlib.dumps(
        {
            "Label": service.name,
            "ProgramArguments": list(service.command),
            "EnvironmentVariables": dict(service.environ),
            "WorkingDirectory": service.folder,
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
        }
    )


def render_windows_task(service: LoginService) -> str:
    """Return the task for the Windows task scheduler; it sets the variables through `cmd`."""
    settings = "".join(f'set "{key}={value}"&& ' for key, value in service.environ.items())
    words = f'/d /s /c "{settings}{subprocess.list2cmdline(service.command)}"'
    return f"""<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <Triggers><LogonTrigger><Enabled>true</Enabled></LogonTrigger></Triggers>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <Hidden>true</Hidden>
  </Settings>
  <Actions><Exec>
    <Command>cmd.exe</Command>
    <Arguments>{escape(words)}</Arguments>
    <WorkingDirectory>{escape(service.folder)}</WorkingDirectory>
  </Exec></Actions>
</Task>
"""


def install_login_service(service: LoginService) -> Path:
    """Write the service for this platform and start it; raises PorticoError if that fails."""
    path = get_service_path(service.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _write_and_start(service, path)
    except PorticoError:
        path.unlink(missing_ok=True)
        raise
    return path


def _write_and_start(service: LoginService, path: Path) -> None:
    if sys.platform == "darwin":
        _write_privately(path, render_launchd_agent(service))
        _run("launchctl", "load", "-w", str(path))
    elif sys.platform == "win32":
        _write_privately(path, render_windows_task(service).encode("utf-16"))
        _run("schtasks", "/Create", "/F", "/TN", service.name, "/XML", str(path))
        _run("schtasks", "/Run", "/TN", service.name)
    else:
        _require("systemctl")
        _write_privately(path, render_systemd_unit(service).encode())
        _run("systemctl", "--user", "daemon-reload")
        _run("systemctl", "--user", "enable", "--now", path.name)


def uninstall_login_service(name: str) -> bool:
    """Stop starting it at login; return whether it was installed."""
    path = get_service_path(name)
    if not path.exists():
        return False
    if sys.platform == "darwin":
        _run("launchctl", "unload", "-w", str(path))
    elif sys.platform == "win32":
        _run("schtasks", "/Delete", "/F", "/TN", name)
    else:
        _run("systemctl", "--user", "disable", "--now", path.name)
    path.unlink()
    return True


def get_service_path(name: str) -> Path:
    """Return the file of a service on this platform."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "LaunchAgents" / f"{name}.plist"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "portico" / f"{name}.xml"
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "systemd" / "user" / f"{name}.service"


def _quote_systemd(word: str) -> str:
    for plain, quoted in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(plain, quoted)
    return f'"{word}"'


def _write_privately(path: Path, data: bytes) -> None:
    # The environment may hold a password, such as that of a database.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)


def _require(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise PorticoError(
            f"this machine has no {program}, so nothing starts Portico at login",
            advice="`portico start` runs it until you log out or the machine ends.",
        )
    return found


def _run(program: str, *arguments: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - the platform's own program, no shell
            [_require(program), *arguments],
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PorticoError(f"{program} could not be run: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise PorticoError(
            f"{program} {arguments[0]} failed: {said}",
            advice="`portico start` without --at-login needs none of it.",
        )
