"""Which of the gateway's own environment variables a server process gets. Pure.

A server's environment is, each overriding the one before: the variables below that are set here,
those that `inherit_env` names (the gateway's and the server's own together), and its `env`.
"""

import os
from collections.abc import Iterable, Mapping, MutableMapping
from fnmatch import fnmatchcase

SYSTEM_VARIABLES = (
    "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ",
    "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
    "APPDATA", "COMPUTERNAME", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT",
    "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP",
    "USERDOMAIN", "USERNAME", "USERPROFILE", "WINDIR",
)  # fmt: skip
"""The user, folders and language; the last three lines are for Windows."""
CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NIX_SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "NPM_CONFIG_CAFILE", "npm_config_cafile",
    "DENO_CERT", "DENO_TLS_CA_STORE", "PIP_CERT", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
    "CARGO_HTTP_CAINFO", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "HTTPLIB2_CA_CERTS",
)  # fmt: skip
"""Paths and switches by which programs find the certificate authorities to trust."""
PROXY_VARIABLES = (
    "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy",
    "NO_PROXY", "no_proxy", "NODE_USE_ENV_PROXY", "NPM_CONFIG_PROXY", "npm_config_proxy",
    "NPM_CONFIG_HTTPS_PROXY", "npm_config_https_proxy", "NPM_CONFIG_NOPROXY", "npm_config_noproxy",
)  # fmt: skip
"""By which programs reach the network. A password in one is a secret, but one for the network."""
NETWORK_VARIABLES = (*CERTIFICATE_VARIABLES, *PROXY_VARIABLES)
DEFAULT_VARIABLES = (*SYSTEM_VARIABLES, *NETWORK_VARIABLES)
"""Every variable that a server gets without being configured to; credentials are not among them."""
EVERYTHING = "all"
_OWN_PREFIX = "PORTICO_"


def select_inherited(environ: Mapping[str, str], inherit_env: Iterable[str]) -> dict[str, str]:
    """Return the variables that `inherit_env` selects: names, globs, or `all`.

    Portico's own variables, which include its token, are selected by their full name only.
    """
    selected: dict[str, str] = {}
    for pattern in inherit_env:
        if pattern in environ:
            selected[pattern] = environ[pattern]
        elif is_pattern(pattern):
            selected |= {
                name: value
                for name, value in environ.items()
                if _matches(name, pattern) and not name.startswith(_OWN_PREFIX)
            }
    return selected


def is_pattern(text: str) -> bool:
    """Return whether an item of `inherit_env` may select several variables."""
    return text == EVERYTHING or any(char in text for char in "*?[")


def build_environment(
    environ: Mapping[str, str], env: Mapping[str, str], inherit_env: Iterable[str] = ()
) -> dict[str, str]:
    """Return the environment of a server process, from that of the gateway."""
    defaults = {name: environ[name] for name in DEFAULT_VARIABLES if name in environ}
    return {**defaults, **select_inherited(environ, inherit_env), **env}


def drop_unfilled(environ: MutableMapping[str, str]) -> None:
    """Remove variables whose value is a reference to themselves.

    A client whose entry passes on `$SSL_CERT_FILE` writes that text where the variable is not set.
    """
    for name, value in list(environ.items()):
        if value in (f"${name}", f"${{{name}}}", f"${{env:{name}}}"):
            del environ[name]


def list_withheld(environ: Mapping[str, str], inherit_env: Iterable[str]) -> list[str]:
    """Return the names of variables that are set here and not passed on."""
    passed = {*DEFAULT_VARIABLES, *select_inherited(environ, inherit_env)}
    return sorted(name for name in environ if name not in passed)


def _matches(name: str, pattern: str) -> bool:
    if os.name == "nt":  # variables have no case there, and are kept in capitals
        pattern = pattern.upper()
    return pattern.lower() == EVERYTHING or fnmatchcase(name, pattern)
