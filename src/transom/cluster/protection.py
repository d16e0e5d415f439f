"""Protects a cluster's data beyond access control: the audit log and encryption at rest, as
configured.

Validates everything before the start, so that an invalid file is an error in the foreground.
"""

from __future__ import annotations

import logging
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from transom.cluster.config import ClusterConfig, make_state
from transom.kit import keyring
from transom.kit.keyring import KeyFileError, KeyRing
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.kit.user_errors import UserError

if TYPE_CHECKING:
    from transom.apiserver.audit import auditor as audit_auditor
    from transom.apiserver.audit import log as audit_logs
    from transom.apiserver.audit import policy as audit_policy
    from transom.store import sealing as store_sealing
else:
    audit_auditor = lazy_import("transom.apiserver.audit.auditor")
    audit_logs = lazy_import("transom.apiserver.audit.log")
    audit_policy = lazy_import("transom.apiserver.audit.policy")
    store_sealing = lazy_import("transom.store.sealing")

log = logging.getLogger("transom.cluster")

# The buckets of these resources are encrypted.
_SEALED = ("secrets",)


@dataclass(frozen=True, slots=True)
class Protection:
    """The user's options; None keeps the value of the last start."""

    audit_policy: Path | None = None
    audit_log: Path | None = None
    no_audit: bool = False
    encrypt: bool | None = None
    key_file: Path | None = None


def choose_protection(config: ClusterConfig, wanted: Protection) -> ClusterConfig:
    """Applies the options to the configuration; creates the key file if needed."""
    if wanted.no_audit:
        config = replace(config, audit_policy="", audit_log="")
    if wanted.audit_policy is not None:
        config = replace(config, audit_policy=str(wanted.audit_policy))
    if wanted.audit_log is not None:
        config = replace(config, audit_log=str(wanted.audit_log))
    if config.audit_log and not config.audit_policy:
        raise UserError(
            "an audit log needs an audit policy",
            "name one with --audit-policy FILE",
        )
    before = config.encryption_key_file
    if wanted.key_file is not None:
        config = replace(config, encryption_key_file=str(wanted.key_file), encrypt=True)
    if wanted.encrypt and not config.encryption_key_file:
        path = config.state / "encryption.keys"
        if not path.exists():
            make_state(config)
            keyring.create_key_file(path)
        config = replace(config, encryption_key_file=str(path))
    if wanted.encrypt is not None:
        config = replace(config, encrypt=wanted.encrypt)
    if not config.encrypt:
        config = replace(config, encryption_key_file="")  # not needed once everything is decrypted
    return _with_former(config, [before])


def keep_attempted_keys(config: ClusterConfig, attempt: ClusterConfig | None) -> ClusterConfig:
    """A failed start may already have encrypted the data with its own keys."""
    if attempt is None:
        return config
    return _with_former(config, [attempt.encryption_key_file, *attempt.former_key_files])


def _with_former(config: ClusterConfig, files: list[str]) -> ClusterConfig:
    former = dict.fromkeys([*config.former_key_files, *files])
    return replace(
        config, former_key_files=tuple(f for f in former if f and f != config.encryption_key_file)
    )


def check_protection(config: ClusterConfig) -> None:
    """Raises errors that would otherwise occur in the background."""
    sealing(config)
    if auditor(config, random.Random()) is None:
        return
    path = audit_log(config)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    except OSError as error:
        raise UserError(
            f"cannot write the audit log {path}: {error.strerror}",
            "choose another with --audit-log FILE",
        ) from error


def audit_log(config: ClusterConfig) -> Path:
    return Path(config.audit_log) if config.audit_log else config.state / "audit.log"


def auditor(config: ClusterConfig, rng: random.Random) -> audit_auditor.Auditor | None:
    if not config.audit_policy:
        return None

    try:
        rules = audit_policy.load_audit_policy(Path(config.audit_policy))
    except audit_policy.AuditPolicyError as error:
        raise UserError(
            str(error),
            (
                "correct it, name another with --audit-policy FILE, or turn auditing off with "
                "--no-audit"
            ),
        ) from error
    return audit_auditor.Auditor(rules, audit_logs.AuditLog(audit_log(config)), rng)


def sealing(config: ClusterConfig) -> store_sealing.Sealing:
    """The encryption settings of the store. Rewrites data that is encrypted with old keys or should
    no longer be encrypted.
    """
    former = _former_rings(config)
    if not config.encryption_key_file:
        return (
            store_sealing.Sealing(former[0].with_former(former[1:]))
            if former
            else store_sealing.NOTHING
        )
    try:
        ring = keyring.load_key_file(Path(config.encryption_key_file))
    except KeyFileError as error:
        raise UserError(
            str(error), error.hint or "name it with --encryption-key-file FILE"
        ) from error
    return store_sealing.Sealing(ring.with_former(former), _SEALED if config.encrypt else ())


def _former_rings(config: ClusterConfig) -> list[KeyRing]:
    """The key files that still exist: only the data shows whether one is needed."""
    found = []
    for path in config.former_key_files:
        try:
            found.append(keyring.load_key_file(Path(path)))
        except KeyFileError as error:
            log.info("not used to decrypt: %s", error)
    return found
