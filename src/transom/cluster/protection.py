"""What guards a cluster's data beyond access control: the audit log and encryption at rest, as its configuration says.

Everything is looked at before the start, so that a wrong file is an error in the foreground.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from transom.cluster.config import ClusterConfig
from transom.cluster.errors import ClusterError
from transom.kit import keyring
from transom.kit.keyring import KeyFileError

if TYPE_CHECKING:
    from transom.apiserver.audit.auditor import Auditor
    from transom.store.sealing import Sealing

# What is encrypted: the buckets of these resources.
_SEALED = ("secrets",)


@dataclass(frozen=True, slots=True)
class Protection:
    """What the user said; None leaves it as it was."""

    audit_policy: Path | None = None
    audit_log: Path | None = None
    no_audit: bool = False
    encrypt: bool | None = None
    key_file: Path | None = None


def choose(config: ClusterConfig, wanted: Protection) -> ClusterConfig:
    """The configuration with what the user said; makes the key file if there is to be one."""
    if wanted.no_audit:
        config = replace(config, audit_policy="", audit_log="")
    if wanted.audit_policy is not None:
        config = replace(config, audit_policy=str(wanted.audit_policy))
    if wanted.audit_log is not None:
        config = replace(config, audit_log=str(wanted.audit_log))
    if config.audit_log and not config.audit_policy:
        raise ClusterError("an audit log needs a policy that says what goes into it", "name one with --audit-policy FILE")
    if wanted.key_file is not None:
        config = replace(config, encryption_key_file=str(wanted.key_file), encrypt=True)
    if wanted.encrypt is None:
        return config
    if wanted.encrypt and not config.encryption_key_file:
        path = config.state / "encryption.keys"
        if not path.exists():
            config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
            keyring.create(path)
        config = replace(config, encryption_key_file=str(path))
    return replace(config, encrypt=wanted.encrypt)


def check(config: ClusterConfig) -> None:
    """Raises what would otherwise be found out in the background."""
    if config.encryption_key_file:
        sealing(config)
    if auditor(config, random.Random()) is None:
        return
    path = audit_log(config)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    except OSError as error:
        raise ClusterError(
            f"cannot write the audit log {path}: {error.strerror}", "choose another with --audit-log FILE"
        ) from error


def audit_log(config: ClusterConfig) -> Path:
    return Path(config.audit_log) if config.audit_log else config.state / "audit.log"


def auditor(config: ClusterConfig, rng: random.Random) -> Auditor | None:
    if not config.audit_policy:
        return None
    from transom.apiserver.audit import policy
    from transom.apiserver.audit.auditor import Auditor
    from transom.apiserver.audit.log import AuditLog

    try:
        rules = policy.load(Path(config.audit_policy))
    except policy.PolicyError as error:
        raise ClusterError(
            str(error), "mend it, name another with --audit-policy FILE, or go without with --no-audit"
        ) from error
    return Auditor(rules, AuditLog(audit_log(config)), rng)


def sealing(config: ClusterConfig) -> Sealing:
    """For the store. With keys but without `encrypt`, what is still encrypted is read and written back in plain."""
    from transom.store.sealing import NOTHING, Sealing

    if not config.encryption_key_file:
        return NOTHING
    try:
        ring = keyring.load(Path(config.encryption_key_file))
    except KeyFileError as error:
        raise ClusterError(str(error), error.hint or "name it with --encryption-key-file FILE") from error
    return Sealing(ring, _SEALED if config.encrypt else ())
