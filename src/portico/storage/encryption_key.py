"""The key that encrypts stored credentials: in the system's keychain where there is one, else in a
file that only its owner can read.

The file says where the key is. A key that is in the keychain is never replaced by another one
because the keychain is locked: what cannot be read is an error.
"""

import base64
import hashlib
import importlib
import os
import secrets
from pathlib import Path
from typing import Any

from portico.storage.sql.database_url import StoreUnavailable

FILE_NAME = "credentials.key"
KEY_BYTES = 32
_IN_KEYCHAIN = "keychain"
_SERVICE = "portico"


def derive_key(text: str) -> bytes:
    """Return the key that a configured text stands for."""
    return hashlib.scrypt(
        text.encode(), salt=b"portico credentials", n=2**14, r=8, p=1, dklen=KEY_BYTES
    )


def load_or_create_key(data_dir: Path) -> bytes:
    """Return the key of a data folder; make one where there is none. Raises StoreUnavailable."""
    path = data_dir / FILE_NAME
    try:
        return _load(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _make_error(path, error.strerror or type(error).__name__) from None
    try:
        return _create(path)
    except OSError as error:
        raise _make_error(path, error.strerror or type(error).__name__) from None


def _load(path: Path) -> bytes:
    text = path.read_text("ascii", "replace").strip()
    if text == _IN_KEYCHAIN:
        text = _read_keychain(path)
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise _make_error(path, "it has no key")
    return key


def _create(path: Path) -> bytes:
    key = secrets.token_bytes(KEY_BYTES)
    text = base64.b64encode(key).decode()
    stored = _IN_KEYCHAIN if _write_keychain(path, text) else text
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{stored}\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)  # fails where another process was first: its key counts
    except FileExistsError:
        return _load(path)
    except OSError:  # a file system without links
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return key


def _write_keychain(path: Path, text: str) -> bool:
    """Store the key in the keychain; return whether it can be read from there."""
    try:
        keyring: Any = importlib.import_module("keyring")
        account = _name_account(path)
        if keyring.get_password(_SERVICE, account) is None:
            keyring.set_password(_SERVICE, account, text)
        return keyring.get_password(_SERVICE, account) == text
    except Exception:
        return False


def _read_keychain(path: Path) -> str:
    try:
        keyring: Any = importlib.import_module("keyring")
        found = keyring.get_password(_SERVICE, _name_account(path))
    except Exception as error:  # backends of keychains raise what they like
        raise _make_error(
            path, f"it is in the keychain, which cannot be used ({type(error).__name__})"
        ) from error
    if not isinstance(found, str):
        raise _make_error(path, "it is no longer in the keychain")
    return found


def _name_account(path: Path) -> str:
    return f"credentials of {path.parent.absolute()}"


def _make_error(path: Path, reason: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the key of the stored credentials ({path}) cannot be read: {reason}",
        advice="Unlock the keychain, or delete this file and credentials.sqlite3 beside it and "
        "sign in again (`portico login --all`).",
    )
