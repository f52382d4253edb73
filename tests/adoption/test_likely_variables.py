"""What a server likely needs is told from its name and command line."""

import pytest

from portico.adoption.environment_search import LIKELY_VARIABLES, list_likely_variables
from portico.config import BackendConfig
from portico.config_file.mask import SECRET_NAME

SHELL = dict.fromkeys(("PATH", "GITHUB_TOKEN", *LIKELY_VARIABLES), "set")


@pytest.mark.parametrize(
    ("words", "variable"),
    [
        (["npx", "-y", "mcp-server-kubernetes"], "KUBECONFIG"),
        (["uvx", "awslabs.aws-documentation-mcp-server@latest"], "AWS_PROFILE"),
        (["docker", "run", "-i", "--rm", "mcp/fetch"], "DOCKER_HOST"),
        (["uvx", "mcp-server-git"], "SSH_AUTH_SOCK"),
        (["npx", "@playwright/mcp"], "DISPLAY"),
        (["npx", "@google-cloud/gcloud-mcp"], "GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_a_server_of_a_kind_is_recognised(words: list[str], variable: str) -> None:
    server = BackendConfig(command=words[0], args=tuple(words[1:]))
    assert variable in list_likely_variables("x", server, SHELL)
    configured = server.model_copy(update={"env": {variable: "own"}})
    assert variable not in list_likely_variables("x", configured, SHELL)
    inherited = server.model_copy(update={"inherit_env": ("all",)})
    assert list_likely_variables("x", inherited, SHELL) == ()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x", ["npx", "-y", "mcp-server-commands"]),
        ("x", ["uvx", "mcp-shell-server"]),
        ("x", ["uvx", "cli-mcp-server==0.2.4"]),
        ("x", ["python", "-m", "cli_mcp_server"]),
        ("x", ["npx", "@wonderwhy-er/desktop-commander"]),
        ("x", ["npx", "mcp-server-code-runner"]),
        ("my-terminal", ["node", "/srv/index.js"]),
    ],
)
def test_a_server_that_runs_commands_gets_what_any_kind_needs(name: str, words: list[str]) -> None:
    server = BackendConfig(command=words[0], args=tuple(words[1:]))
    assert list_likely_variables(name, server, SHELL) == LIKELY_VARIABLES
    shell = {"PATH": "set", "SSH_AUTH_SOCK": "set", "AWS_PROFILE": ""}
    assert list_likely_variables(name, server, shell) == ("SSH_AUTH_SOCK",)


@pytest.mark.parametrize("words", [["npx", "mcp-server-time"], ["node", "/srv/digit/index.js"]])
def test_other_servers_need_nothing(words: list[str]) -> None:
    server = BackendConfig(command=words[0], args=tuple(words[1:]))
    assert list_likely_variables("notes", server, SHELL) == ()
    assert list_likely_variables("git", BackendConfig(url="https://x.example"), SHELL) == ()


def test_no_variable_that_is_guessed_is_a_credential_itself() -> None:
    named = [name for name in LIKELY_VARIABLES if SECRET_NAME.search(name)]
    paths = {
        "AWS_SHARED_CREDENTIALS_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SSH_AUTH_SOCK",
        "XAUTHORITY",
        "DBUS_SESSION_BUS_ADDRESS",
    }
    assert set(named) <= paths, "these are paths and sockets"
