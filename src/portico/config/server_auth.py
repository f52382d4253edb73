"""Configuration of signing in to one server with OAuth."""

from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from portico.config.section import Section, list_names, setting

Grant = Literal[
    "authorization_code",
    "client_credentials",
    "jwt_bearer",
    "token_exchange",
    "identity_assertion",
]
MACHINE_GRANTS = ("client_credentials", "jwt_bearer")
"""By which Portico signs in as itself."""
SECRET_FIELDS = ("client_secret", "private_key", "assertion", "identity_client_secret")
_REQUIRED_FOR_EXCHANGE = {
    "token_exchange": ("issuer", "client_id"),
    "identity_assertion": ("issuer", "client_id", "identity_provider", "identity_client_id"),
}


class ServerAuth(Section):
    """How Portico signs in to a remote server. `auth: oauth` is this with nothing but defaults."""

    client_id: str | None = setting(
        None,
        "Client that was registered beforehand; else Portico registers itself. The https URL of a "
        "client id metadata document is used where the authorization server knows such documents.",
    )
    client_secret: str | None = setting(None, "Its secret, if it has one.", repr=False)
    private_key: str | None = setting(
        None,
        "Private key (PEM) with which it proves who it is, in place of a secret: "
        "`${file:key.pem}`.",
        repr=False,
    )
    scopes: tuple[str, ...] = setting(
        (), "Scopes to ask for. Default: those that the server names."
    )
    issuer: str | None = setting(
        None, "The authorization server, if not the first that the server names."
    )
    grant: Grant = setting(
        "authorization_code",
        "How tokens are got. `client_credentials`: Portico signs in as itself, and no person is"
        " asked; `jwt_bearer`: the same by `assertion`. `token_exchange`: the token by which a"
        " person comes to the gateway is exchanged at `issuer`, their identity provider, for one"
        " for this server. `identity_assertion`: at `identity_provider` for an assertion of who"
        " they are, and that at `issuer` for a token (enterprise-managed authorization).",
    )
    assertion: str | None = setting(
        None,
        "Of `jwt_bearer`: the JWT of this workload, read again for each token: `${file:token}`.",
        repr=False,
    )
    audience: str | None = setting(
        None,
        "Of `token_exchange`: what the identity provider calls this server; by default its"
        " address.",
    )
    identity_provider: str | None = setting(
        None, "Of `identity_assertion`: the issuer of the tokens by which people come."
    )
    identity_client_id: str | None = setting(None, "Client that Portico is at `identity_provider`.")
    identity_client_secret: str | None = setting(None, "Its secret.", repr=False)
    per_user: bool = setting(
        False, "Each person uses an own account there, and signs in for it once."
    )

    @field_validator("scopes", mode="before")
    @classmethod
    def _split_scopes(cls, value: Any) -> Any:
        if isinstance(value, str):
            return value.split()
        return list_names(value)

    @property
    def is_exchanged(self) -> bool:
        """Whether a person's token here is got for the one by which they come to the gateway."""
        return self.grant in _REQUIRED_FOR_EXCHANGE

    @field_validator("issuer", "identity_provider")
    @classmethod
    def _check_issuer(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("https://", "http://")):
            raise ValueError("an issuer is a URL: https://…")
        return value

    @model_validator(mode="after")
    def _check_client(self) -> Self:
        has_proof = bool(self.client_id) and bool(self.client_secret or self.private_key)
        if self.grant == "client_credentials" and not has_proof:
            raise ValueError(
                "client_credentials needs a client_id, and a client_secret or a private_key"
            )
        if self.grant == "jwt_bearer" and not (self.client_id and self.assertion):
            raise ValueError("jwt_bearer needs a client_id, and an assertion")
        if self.grant in MACHINE_GRANTS and self.per_user:
            raise ValueError(f"per_user is for people: take grant: {self.grant} out")
        for name in _REQUIRED_FOR_EXCHANGE.get(self.grant, ()):
            if getattr(self, name) is None:
                raise ValueError(f"{self.grant} needs {name}")
        if self.client_id is None and (self.client_secret or self.private_key):
            raise ValueError("a client_secret or private_key needs its client_id")
        if self.client_secret and self.private_key:
            raise ValueError("client_secret and private_key are both given: keep one")
        return self
