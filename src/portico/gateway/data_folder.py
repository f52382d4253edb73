"""The data folder: names of its files, and opening what is stored there."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from portico.catalog.embeddings import Embeddings
from portico.config import Config
from portico.observability.audit import AuditLog
from portico.search import ENCODER_NAME, VECTOR_WIDTH, get_shipped_encoder
from portico.storage.approval_store import ApprovalStore
from portico.storage.authorization_store import AuthorizationStore
from portico.storage.credential_store import CredentialStore
from portico.storage.gateway_store import GatewayStore
from portico.storage.key_store import KeyStore
from portico.storage.learning_store import LearningStore
from portico.storage.manifests import ManifestStore
from portico.storage.pin_store import PinStore
from portico.storage.rows import UsageReader
from portico.storage.search_files import IndexFile, VectorFile

if TYPE_CHECKING:
    from portico.auth.proxy.authorization_server import AuthorizationServer

MANIFEST_FILE = "manifest.sqlite3"
RECORD_FILE = "portico.sqlite3"
PINS_FILE = "pins.sqlite3"
HABITS_FILE = "habits.sqlite3"
RESULTS_FOLDER = "results"
INDEX_FILE = "search.index"
VECTOR_FILE = f"vectors-{ENCODER_NAME}.bin"


def open_key_store(config: Config) -> KeyStore:
    """Open the keys of a configuration; nothing is read yet."""
    url = None
    if config.database_url is not None:
        url = config.database_url.get_secret_value()
    return KeyStore(url, config.data_dir)


def open_approval_store(config: Config, *, persistent: bool = True) -> ApprovalStore:
    """Open the approvals of a configuration; nothing is read yet. Unless `persistent`, they are in
    memory."""
    if not persistent:
        return ApprovalStore(None, None)
    url = config.database_url.get_secret_value() if config.database_url is not None else None
    return ApprovalStore(url, config.data_dir)


def open_credential_store(config: Config, *, persistent: bool = True) -> CredentialStore:
    """Open the credentials of servers; nothing is read yet."""
    url = None
    if config.database_url is not None and persistent:
        url = config.database_url.get_secret_value()
    key = config.credentials_key
    text = key.get_secret_value() if key is not None else ""
    return CredentialStore(url, config.data_dir if persistent else None, text)


class DataFolder:
    """Opens the files of one gateway; unless `persistent`, everything stays in memory."""

    def __init__(self, config: Config, *, persistent: bool) -> None:
        self._config = config
        self.path = config.data_dir if persistent else None

    def _locate(self, name: str) -> Path | None:
        return self.path and self.path / name

    @property
    def results_folder(self) -> Path | None:
        return self._locate(RESULTS_FOLDER)

    def open_manifests(self) -> ManifestStore:
        return ManifestStore(self._locate(MANIFEST_FILE))

    def open_pins(self) -> PinStore:
        return PinStore(self._locate(PINS_FILE))

    def open_index(self) -> IndexFile:
        return IndexFile(self._locate(INDEX_FILE))

    def open_embeddings(self) -> Embeddings:
        """Open the stored vectors, with the encoder that computes missing ones."""
        return Embeddings(
            get_shipped_encoder(), VectorFile(self._locate(VECTOR_FILE), VECTOR_WIDTH)
        )

    def open_store(self) -> GatewayStore:
        url = None
        if self._config.database_url is not None:
            url = self._config.database_url.get_secret_value()
        return GatewayStore(url, self._locate(RECORD_FILE))

    def open_key_store(self) -> KeyStore | None:
        """Return the store of keys; None where nothing is kept."""
        if self.path is None:
            return None
        return open_key_store(self._config)

    def open_approval_store(self) -> ApprovalStore:
        return open_approval_store(self._config, persistent=self.path is not None)

    def open_credential_store(self) -> CredentialStore:
        return open_credential_store(self._config, persistent=self.path is not None)

    def open_authorization_server(
        self, has_profile: Callable[[str], bool]
    ) -> "AuthorizationServer | None":
        """Return the gateway's own authorization server; None where the configuration has none.

        `has_profile` says whether there is a profile.
        """
        issuer = next((one for one in self._config.auth if one.proxy is not None), None)
        public_url = self._config.gateway.public_url
        if issuer is None or issuer.proxy is None or public_url is None:
            return None
        # Imported late: most gateways have none.
        from portico.auth.proxy.authorization_server import AuthorizationServer

        url = None
        if self._config.database_url is not None:
            url = self._config.database_url.get_secret_value()
        store = AuthorizationStore(url, self.path)
        return AuthorizationServer(issuer, issuer.proxy, public_url, store, has_profile=has_profile)

    def open_usage_reader(self) -> UsageReader | None:
        """Return the reader of use on record; None where that is in another database, or none."""
        path = self._locate(RECORD_FILE)
        if path is None or self._config.database_url is not None:
            return None
        return UsageReader(path)

    def open_learning_store(self) -> LearningStore:
        return LearningStore(self._locate(HABITS_FILE), self._config.learning)

    def open_audit_log(self) -> AuditLog | None:
        """Open the audit log if one is configured; it masks the configured secrets."""
        config = self._config
        if self.path is None and config.audit.file is None:
            return None
        secrets: Collection[str] = ()
        if config.audit.arguments == "redacted":
            # Imported late: its patterns cost start-up time.
            from portico.config_file.secret_values import collect_secret_values

            secrets = collect_secret_values(config)
        return AuditLog.from_settings(config.audit, config.data_dir, secrets)
