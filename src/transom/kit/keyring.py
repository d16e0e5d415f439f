"""Keys for encryption at rest: a file of AES-256 keys, and encryption with the first one.

The file has one key on each line, its name and 32 bytes in base64. The first key encrypts, all of
them decrypt. To rotate a key, insert a new one above it, and remove the old one when nothing is
encrypted with it any more. Knows nothing about the data.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from transom.kit.files import write_atomic
from transom.kit.lazy import lazy_import, lazy_pattern

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives.ciphers import aead
else:
    aead = lazy_import("cryptography.hazmat.primitives.ciphers.aead")
    exceptions = lazy_import("cryptography.exceptions")

_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KEY_BYTES = 32
_NONCE_BYTES = 12


class KeyFileError(Exception):
    """The file cannot be used; `hint` suggests a fix."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class KeyRing:
    """AES-256-GCM. A sealed value is the key's name with its length in front, the nonce, then
    ciphertext and tag.
    """

    def __init__(self, keys: Mapping[str, bytes], former: Iterable[KeyRing] = ()) -> None:
        """`keys` by name, the one that seals first. The keys of `former` rings only open; their
        names may repeat.
        """
        if not keys:
            raise ValueError("a key ring needs a key")
        self._keys = dict(keys)
        self._ciphers = {name.encode(): aead.AESGCM(key) for name, key in keys.items()}
        name, self._cipher = next(iter(self._ciphers.items()))
        self._head = bytes([len(name)]) + name
        self._former = tuple(former)

    def with_former(self, former: Iterable[KeyRing]) -> KeyRing:
        """This ring, which can also decrypt what the `former` rings sealed."""
        return KeyRing(self._keys, former)

    def seal(self, context: str, value: bytes) -> bytes:
        """Encrypts; decrypting requires the same context."""
        nonce = os.urandom(_NONCE_BYTES)
        return self._head + nonce + self._cipher.encrypt(nonce, value, context.encode())

    def unseal(self, context: str, sealed: bytes) -> bytes:
        try:
            return self._unseal(context, sealed)
        except ValueError:
            for ring in self._former:
                with contextlib.suppress(ValueError):
                    return ring.unseal(context, sealed)
            raise

    def _unseal(self, context: str, sealed: bytes) -> bytes:
        start = 1 + sealed[0] if sealed else 0
        name = sealed[1:start]
        cipher = self._ciphers.get(name)
        if cipher is None:
            known = ", ".join(n.decode() for n in self._ciphers)
            raise ValueError(
                f'it needs the key "{name.decode(errors="replace")}", and there is only {known}'
            )
        try:
            return cipher.decrypt(
                sealed[start : start + _NONCE_BYTES],
                sealed[start + _NONCE_BYTES :],
                context.encode(),
            )
        except (exceptions.InvalidTag, ValueError):
            raise ValueError(
                f'the key "{name.decode()}" does not open it; it is another key or the data '
                "was changed"
            ) from None

    def is_current(self, context: str, sealed: bytes) -> bool:
        """Whether the first key of this ring sealed it. A former ring may have a key of the same
        name.
        """
        if not sealed.startswith(self._head):
            return False
        if not self._former:
            return True
        try:
            self._unseal(context, sealed)
        except ValueError:
            return False
        return True


def load_key_file(path: Path) -> KeyRing:
    """The keys of a file that only its owner can read."""
    try:
        status = path.stat()
        text = path.read_text("ascii")
    except OSError as error:
        raise KeyFileError(f"cannot read the key file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KeyFileError(f"{path} is not a key file: it is not plain text") from error
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileError(f"{path} is not a file")
    if status.st_mode & 0o077:
        raise KeyFileError(
            (
                f"the key file {path} has mode {stat.S_IMODE(status.st_mode):04o}: others may "
                "get at its keys"
            ),
            f"make it yours alone with: chmod 600 {path}",
        )
    return KeyRing(_parse(text, path))


def parse_key_file(contents: bytes) -> KeyRing:
    """The keys of a key file that is embedded in something else."""
    try:
        return KeyRing(_parse(contents.decode("ascii"), Path("the key file")))
    except UnicodeDecodeError as error:
        raise KeyFileError("the key file is not plain text") from error


def _parse(text: str, path: Path) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        # The line is never repeated in the message: it may be a key.
        if len(words) != 2 or not _NAME.fullmatch(words[0]):
            raise KeyFileError(
                f"{path}, line {number}: a line is a name and a key in base64", _HINT
            )
        name, encoded = words
        try:
            key = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise KeyFileError(
                f'{path}, line {number}: the key "{name}" is not base64', _HINT
            ) from None
        if len(key) != _KEY_BYTES:
            raise KeyFileError(
                f'{path}, line {number}: the key "{name}" has {len(key)} bytes, not {_KEY_BYTES}',
                _HINT,
            )
        if name in keys:
            raise KeyFileError(f'{path}, line {number}: there are two keys named "{name}"')
        keys[name] = key
    if not keys:
        raise KeyFileError(f"{path} holds no key", _HINT)
    return keys


_HINT = 'a good line is made by: echo "key1 $(head -c 32 /dev/urandom | base64)"'


def create_key_file(path: Path, name: str = "key1") -> None:
    """Creates a file with one new key."""
    line = f"{name} {base64.b64encode(os.urandom(_KEY_BYTES)).decode()}\n"
    write_atomic(path, line.encode(), 0o600)
