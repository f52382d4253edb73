"""Checks containment: whether this machine can do it, and what contained servers were denied."""

import os
from collections.abc import Iterator, Mapping

from portico.cli.doctor.finding import (
    ConfigLocations,
    DoctorFinding,
    broken,
    note,
    warning,
)
from portico.cli.doctor.probe import ServerProbe
from portico.config import BackendConfig
from portico.upstream.containment.machine_support import (
    NAMESPACE_ADVICE,
    MachineSupport,
    advise,
    find_support,
)


async def check_support(
    servers: Mapping[str, BackendConfig], locations: ConfigLocations
) -> tuple[str, list[DoctorFinding]]:
    """Return what this machine can contain, and which servers it therefore does not start."""
    support = await find_support()
    return support.describe(), list(check_servers(servers, support, locations))


def check_servers(
    servers: Mapping[str, BackendConfig], support: MachineSupport, locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    for name, server in servers.items():
        if server.containment is None:
            continue
        network = server.containment.network
        at = locations.locate_server(name, "contain")
        if obstacle := support.find_obstacle(network):
            message = f"it is to be contained, and is not started: {obstacle}"
            yield broken("containment.unavailable", message, advise(support, network), at)
        elif support.namespaces:
            message = (
                "it is contained without namespaces: it may see which files exist, and change modes"
                f" and times of this user's ({support.namespaces})"
            )
            yield note("containment.narrower", message, f"{NAMESPACE_ADVICE}.", at)
        for key in ("read", "write"):
            for path in getattr(server.containment, key):
                if not os.path.exists(os.path.expanduser(path)):
                    at = locations.locate_server(name, "contain", key)
                    message = f"contain.{key} names {path}, which does not exist"
                    remedy = "Make it, or correct the path: the server is started without it."
                    yield warning("containment.path_missing", message, remedy, at)


def check_denials(probe: ServerProbe, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Yield what a server seems to have been denied, where it says so on stderr."""
    if not probe.denials:
        return
    message = f"its containment seems to deny it {'; '.join(probe.denials)}"
    remedy = "Allow it if the server should have it."
    at = locations.locate_server(probe.server, "contain")
    yield warning("containment.denied", message, remedy, at)
