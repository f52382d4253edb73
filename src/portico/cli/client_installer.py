"""Installs the served gateway into clients of this machine for REST, as `portico install` does."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from portico.adoption import client_entries
from portico.adoption.backups import Backups
from portico.adoption.client_documents import ENTRY_NAME
from portico.adoption.clients import (
    Client,
    ClientConfigLocation,
    find_client,
    list_clients,
    list_locations,
)
from portico.adoption.installation import (
    InstallPlan,
    apply_install,
    apply_uninstall,
    choose_location,
    is_installed,
    plan_install,
    plan_uninstall,
)
from portico.api.gateway_services import ClientCard, ClientDifference
from portico.cli.client_entry import make_http_entry, make_stdio_entry, refuse_self_reference
from portico.cli.commands.install import render_difference
from portico.config_file import load
from portico.errors import PorticoError


class ClientInstaller:
    """The clients of the user that the gateway runs as."""

    def __init__(self, files: Sequence[Path], backups: Backups) -> None:
        self._files = tuple(files)
        self._backups = backups

    def list_clients(self, url: str) -> list[ClientCard]:
        """Return every client, with the entries for a gateway at this address."""
        return [self._describe(client, url) for client in list_clients()]

    def change(self, name: str, *, remove: bool, seen: str) -> ClientDifference:
        """Plan a change of a client's file; write it if `seen` stands for exactly that. Raises
        PorticoError."""
        client = find_client(name)
        location = _choose(client)
        plan: InstallPlan
        remarks: Sequence[str] = ()
        if remove:
            plan = plan_uninstall(location, self._backups)
        else:
            plan, remarks = self._plan_install(client, location)
        mark = _compute_mark(plan)
        is_written = False
        backup = ""
        if seen and plan.has_changes:
            if seen != mark:
                raise PorticoError(
                    f"{location.path} was changed since you looked",
                    advice="Look at the difference again.",
                )
            if remove:
                apply_uninstall(plan, self._backups)
            else:
                copy = apply_install(plan, self._backups)
                backup = "" if copy is None or plan.before is None else str(copy)
            is_written = True
        return ClientDifference(
            str(location.path),
            render_difference(plan, masking=remove),
            plan.has_changes,
            mark,
            is_written,
            tuple(remarks),
            client.reload_advice,
            backup,
        )

    def _plan_install(
        self, client: Client, location: ClientConfigLocation
    ) -> tuple[InstallPlan, Sequence[str]]:
        files = self._files
        refuse_self_reference(location, files, Path.cwd())
        loaded = load(files)
        pointer = make_stdio_entry(client, location, files, loaded)

        def find_duplicates(servers: Mapping[str, Any]) -> Mapping[str, str]:
            return client_entries.find_duplicates(servers, loaded.config)

        plan = plan_install(client, location, pointer.entry, self._backups, find_duplicates)
        # Without the first, which explains an option of the command line.
        remarks = list(pointer.remarks[1:])
        if plan.duplicate_servers:
            remarks.append(
                f"Portico has {', '.join(plan.duplicate_servers[:8])}, too: `portico install"
                f" {client.name} --replace` takes them out of the file."
            )
        return plan, remarks

    def _describe(self, client: Client, url: str) -> ClientCard:
        location = _choose(client)
        problem = ""
        entry: Mapping[str, Any] = {}
        installed = False
        loaded = load(self._files)
        try:
            installed = is_installed(location, self._backups)
            entry = make_stdio_entry(client, location, self._files, loaded).entry
        except PorticoError as error:
            problem = error.message
        url_entry: Mapping[str, Any] = {}
        if client.url_key is not None:
            url_entry = make_http_entry(client, url, loaded, None).entry
        return ClientCard(
            client.name,
            client.title,
            str(location.path),
            location.path.exists() or location.path.parent.is_dir(),
            installed,
            _wrap(location, entry),
            _wrap(location, url_entry),
            client.url_advice,
            client.reload_advice,
            problem,
        )


def _choose(client: Client) -> ClientConfigLocation:
    return choose_location(client, list_locations(client, Path.home(), Path.cwd()), None, None)


def _wrap(location: ClientConfigLocation, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry as it stands in the client's file; empty for none."""
    if not entry:
        return {}
    wrapped: Mapping[str, Any] = {ENTRY_NAME: dict(entry)}
    for key in reversed(location.keys):
        wrapped = {key: wrapped}
    return wrapped


def _compute_mark(plan: InstallPlan) -> str:
    digest = hashlib.blake2b(plan.before or b"", digest_size=16)
    digest.update(b"\0" + (plan.after or b""))
    return digest.hexdigest()
