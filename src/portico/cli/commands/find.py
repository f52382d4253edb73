"""`portico find`: servers of a registry by what they do, from the last snapshot of it.

--json: `{"registry", "updated_at", "servers_known", "query", "meaning" (whether searched by it),
"weak", "servers": [{"name", "title", "description", "version", "packages": [kind], "remotes",
"deprecated"}]}`; without words, with --update, only the first three.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from portico.adoption import adoption_plan
from portico.catalog.tool import sanitize_text
from portico.cli.config_change import get_config_data_dir, list_config_files
from portico.cli.exit import EXIT_FAILED, EXIT_OK
from portico.cli.screen import Screen
from portico.cli.setup_commands import FindOptions
from portico.config import Config
from portico.errors import ConfigError
from portico.json_text.json_codec import to_list, to_object, to_text
from portico.registry.server_catalogue import FoundServers, ServerCatalogue, SnapshotInfo, now_utc
from portico.rendering.token_budget import format_count
from portico.search import get_shipped_encoder

_OLD_DAYS = 30
_MAX_SHOWN = 300


def run_find(words: Sequence[str], options: FindOptions) -> int:
    """Show servers that fit; exit code 1 if there are none."""
    if not words and not options.update:
        raise ConfigError(
            "find needs WORDS",
            advice='Say what the server should do: portico find "send invoices".',
        )
    screen = options.make_screen()
    config = _load_config(options)
    catalogue = ServerCatalogue(get_config_data_dir(config))
    if options.update:
        url = options.registry or config.registry.url
        _update(screen, catalogue, url)
    info = catalogue.load_info()
    if not words:
        _show_update(screen, info)
        return EXIT_OK
    query = " ".join(words)
    found = catalogue.search(query, options.limit, get_shipped_encoder())
    if screen.as_json:
        screen.write_json(_to_data(query, found))
    else:
        _show(screen, found)
    return EXIT_OK if found.servers else EXIT_FAILED


def _load_config(options: FindOptions) -> Config:
    files = list_config_files(options)
    path = adoption_plan.get_default_path(os.environ, Path.cwd())
    return adoption_plan.load_existing(files[-1] if files else path, dict(os.environ)).config


def _update(screen: Screen, catalogue: ServerCatalogue, url: str) -> None:
    from portico.registry.downloads import check_registry_url

    url = check_registry_url(url)
    with screen.show_spinner(f"Reading {url}") as show:
        servers = asyncio.run(_fetch_servers(url, show))
        catalogue.replace(url, servers, now_utc())
        catalogue.build_index(
            get_shipped_encoder(),
            lambda done, total: show(f"Encoded {done:,} of {total:,} servers"),
        )


async def _fetch_servers(url: str, show: Any) -> list[Mapping[str, Any]]:
    # Imported late: only an update makes requests.
    from portico.registry.downloads import RegistryUnavailable, open_client
    from portico.registry.registry_client import MAX_SERVERS, iter_servers

    servers: list[Mapping[str, Any]] = []
    async with open_client() as client:
        async for page in iter_servers(client, url):
            servers += page
            if len(servers) > MAX_SERVERS:
                raise RegistryUnavailable(f"{url} has more than {MAX_SERVERS:,} servers")
            show(f"Read {format_count(len(servers), 'server')} of {url}")
    return servers


def _show_update(screen: Screen, info: SnapshotInfo) -> None:
    if screen.as_json:
        screen.write_json(_to_info_data(info))
        return
    screen.write_text(
        f"{format_count(info.count, 'server')} of {info.url} can be found now, also offline: "
        'portico find "what it should do"'
    )


def _to_info_data(info: SnapshotInfo) -> dict[str, Any]:
    return {
        "registry": info.url,
        "updated_at": info.updated_at.isoformat(),
        "servers_known": info.count,
    }


def _to_data(query: str, found: FoundServers) -> dict[str, Any]:
    return {
        **_to_info_data(found.info),
        "query": query,
        "meaning": found.ranking.uses_embeddings,
        "weak": found.ranking.is_weak,
        "servers": [
            {
                "name": server["name"],
                "title": to_text(server.get("title")),
                "description": to_text(server.get("description")),
                "version": to_text(server.get("version")),
                "packages": _list_kinds(server),
                "remotes": len(to_list(server.get("remotes"))),
                "deprecated": bool(server.get("deprecated")),
            }
            for server in found.servers
        ],
    }


def _list_kinds(server: Mapping[str, Any]) -> list[str]:
    kinds = [
        to_text(to_object(package).get("registryType"))
        for package in to_list(server.get("packages"))
    ]
    return list(dict.fromkeys(kind for kind in kinds if kind))


def _show(screen: Screen, found: FoundServers) -> None:
    if found.ranking.is_weak:
        screen.write_text("Nothing there seems to fit; the nearest:")
    for server in found.servers:
        ways = _list_kinds(server)
        if to_list(server.get("remotes")):
            ways.append("remote")
        note = " · deprecated" if server.get("deprecated") else ""
        name = sanitize_text(to_text(server["name"]))
        version = sanitize_text(to_text(server.get("version")))[:40]
        line = Text.assemble(
            (name, "bold"), f"  {version} · {', '.join(ways) or 'no package'}{note}"
        )
        screen.write_text(line)
        screen.write_text(f"  {sanitize_text(to_text(server.get('description')))[:_MAX_SHOWN]}")
    if found.servers:
        screen.write_text(
            Text(f"Add one: portico add {to_text(found.servers[0]['name'])}", style="dim")
        )
    else:
        screen.write_text("Nothing there fits. Try other words for the same thing.")
    age = (now_utc() - found.info.updated_at).days
    if age >= _OLD_DAYS:
        screen.write_text(
            Text(f"The snapshot is {age} days old: portico find --update", style="yellow")
        )
