"""Services that start the gateway at login, for each platform: what was given arrives unchanged."""

import configparser
import plistlib
import shlex
import xml.etree.ElementTree as ElementTree

from portico.cli.commands.background import (
    LoginService,
    render_launchd_agent,
    render_systemd_unit,
    render_windows_task,
)

SERVICE = LoginService(
    "portico-1234",
    ["/opt/py thon", "-m", "portico", "serve", "--config", '/home/me/a b/100%$x"y.yaml'],
    {"PORTICO_DATA_DIR": "/home/me/a b", "PORTICO_DATABASE_URL": "postgresql://u:p%40w@h/n"},
    "/home/me/my project",
)


def test_the_systemd_unit_quotes_words_and_variables() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read_string(render_systemd_unit(SERVICE))
    command = unit["Service"]["ExecStart"].replace("$$", "$").replace("%%", "%")
    assert shlex.split(command) == list(SERVICE.command)
    variables = [
        shlex.split(line.removeprefix("Environment=").replace("%%", "%"))[0]
        for line in render_systemd_unit(SERVICE).splitlines()
        if line.startswith("Environment=")
    ]
    assert variables == [f"{name}={value}" for name, value in SERVICE.environ.items()]
    assert unit["Service"]["WorkingDirectory"] == SERVICE.folder
    assert unit["Install"]["WantedBy"] == "default.target"


def test_the_launchd_agent_is_a_property_list() -> None:
    agent = plistlib.loads(render_launchd_agent(SERVICE))
    assert agent["ProgramArguments"] == SERVICE.command
    assert agent["EnvironmentVariables"] == SERVICE.environ
    assert (agent["RunAtLoad"], agent["WorkingDirectory"]) == (True, SERVICE.folder)


def test_the_windows_task_is_xml_and_never_ends_by_itself() -> None:
    text = render_windows_task(SERVICE).partition("?>")[2]
    task = ElementTree.fromstring(text)
    name = "{http://schemas.microsoft.com/windows/2004/02/mit/task}"
    arguments = task.findtext(f".//{name}Arguments") or ""
    assert 'set "PORTICO_DATA_DIR=/home/me/a b"' in arguments
    assert "--config" in arguments
    assert task.findtext(f".//{name}ExecutionTimeLimit") == "PT0S"
    assert task.find(f".//{name}LogonTrigger") is not None
