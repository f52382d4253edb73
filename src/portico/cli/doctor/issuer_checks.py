"""Checks identity providers: whether tokens of theirs could be verified now."""

import asyncio

from portico.cli.doctor.finding import ConfigLocations, DoctorFinding, broken, note
from portico.config import Config, IssuerConfig
from portico.server.http.app import is_loopback


async def check_issuers(
    config: Config, locations: ConfigLocations, *, offline: bool
) -> list[DoctorFinding]:
    if not config.auth:
        return []
    at = locations.locate("auth")
    findings: list[DoctorFinding] = []
    if config.gateway.public_url is None and not is_loopback(config.gateway.host):
        findings.append(
            note(
                "auth.no_address",
                "clients are told the address that they asked as the one to get a token for",
                "Write gateway: {public_url: https://…}, the address as clients write it.",
                at,
            )
        )
    if offline:
        return findings
    # Imported late: they are slow, and few configurations have any.
    from portico.auth.issuer_verifier import find_problem
    from portico.auth.proxy.providers import find_quirks

    issuers = [
        issuer
        for issuer in config.auth
        if issuer.proxy is None or find_quirks(issuer.issuer).has_openid
    ]
    problems = await asyncio.gather(*(find_problem(issuer) for issuer in issuers))
    for issuer, problem in zip(issuers, problems, strict=True):
        if problem:
            findings.append(_make_finding(issuer, problem, locations))
    return findings


def _make_finding(issuer: IssuerConfig, problem: str, locations: ConfigLocations) -> DoctorFinding:
    return broken(
        "auth.issuer",
        f"nobody of {issuer.issuer} could come in now: {problem}",
        "Write `issuer` exactly as its metadata write it; `jwks_uri` names its keys where it has "
        "no metadata.",
        locations.locate("auth"),
    )
