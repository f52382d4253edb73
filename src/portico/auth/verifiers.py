"""Makes the verifiers of the tokens that a configuration accepts."""

from portico.auth.issuer_verifier import IssuerVerifier
from portico.auth.token_verifier import TokenVerifier
from portico.config import Config


def make_verifiers(config: Config, own: TokenVerifier | None = None) -> tuple[TokenVerifier, ...]:
    """Return the verifiers, in the order in which a token is shown to them.

    `own` verifies the tokens of the gateway's own authorization server.
    """
    verifiers: list[TokenVerifier] = []
    if own is not None:
        verifiers.append(own)
    issuers = [issuer for issuer in config.auth if issuer.proxy is None]
    if issuers:
        verifiers.append(IssuerVerifier(issuers, config.gateway.public_url))
    return tuple(verifiers)
