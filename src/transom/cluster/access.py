"""Who may use the API: the flags of kube-apiserver for authentication and authorization, as options
of the cluster. They are kept between starts; an empty value removes a flag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from transom.apiserver.core.access_options import AccessOptions
from transom.apiserver.core.config_file import read_config_file
from transom.cluster.access_flags import (
    ACCESS_FLAGS,
    AUTHENTICATION_CONFIG,
    AUTHORIZATION_CONFIG,
    AUTHORIZATION_MODE,
    OIDC_PREFIX,
    WEBHOOK_FILE,
    WEBHOOK_PREFIX,
)
from transom.cluster.config import ClusterConfig
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.machinery.apiserver_config import ConfigurationError
from transom.machinery.releases import parse_release
from transom.machinery.releases.features import FeatureSet

if TYPE_CHECKING:
    from transom.machinery import authentication_config, authorization_config
else:
    authentication_config = lazy_import("transom.machinery.authentication_config")
    authorization_config = lazy_import("transom.machinery.authorization_config")


def choose_access(
    config: ClusterConfig, file: Mapping[str, str], given: Mapping[str, str]
) -> ClusterConfig:
    """Applies the section `apiServer` of the cluster file, then the options."""
    flags = dict(flag.split("=", 1) for flag in config.access_flags)
    flags |= {**file, **given}
    kept = tuple(f"{name}={value}" for name, value in flags.items() if value)
    return replace(config, access_flags=kept)


def read_access_section(section: Mapping[str, object], folder: Path) -> dict[str, str]:
    """The section `apiServer` of the cluster file: names of flags and their values. Files are
    relative to the cluster file.
    """
    found = {}
    for name, value in section.items():
        flag = ACCESS_FLAGS.get(name)
        if flag is None:
            raise UserError(
                f"the section apiServer of the cluster file has the unknown field {name!r}",
                f"known are {', '.join(ACCESS_FLAGS)}",
            )
        text = str(value).lower() if isinstance(value, bool) else str(value)
        found[name] = str((folder / text).absolute()) if flag.is_file and text else text
    return found


def access_options(flags: Mapping[str, str]) -> AccessOptions:
    """Raises ConfigurationError."""
    oidc = {
        name.removeprefix(OIDC_PREFIX): _values(name, value)
        for name, value in flags.items()
        if name.startswith(OIDC_PREFIX)
    }
    authentication_file = flags.get(AUTHENTICATION_CONFIG, "")
    if authentication_file and oidc:
        raise ConfigurationError(
            "authentication-config file and oidc-* flags are mutually exclusive"
        )
    authorization_file = flags.get(AUTHORIZATION_CONFIG, "")
    older = [
        name for name in flags if name == AUTHORIZATION_MODE or name.startswith(WEBHOOK_PREFIX)
    ]
    if authorization_file and older:
        raise ConfigurationError(
            "--authorization-config can not be specified when --authorization-mode or "
            "--authorization-webhook-* flags are defined"
        )
    return AccessOptions(
        authentication_file,
        authorization_file,
        authentication_config.oidc_configuration(oidc, _read_text) if oidc else None,
        _modes(flags) if older else None,
        flags.get("anonymous-auth", "true") != "false",
    )


def _values(name: str, value: str) -> Sequence[str]:
    return value.split(",") if name == "oidc-required-claim" else (value,)


def _read_text(path: str) -> str:
    return read_config_file(path).decode(errors="replace")


def _modes(flags: Mapping[str, str]) -> dict[str, object] | None:
    modes = [mode.strip() for mode in flags.get(AUTHORIZATION_MODE, "").split(",") if mode.strip()]
    return authorization_config.modes_configuration(
        modes,
        flags.get(WEBHOOK_FILE, ""),
        flags.get("authorization-webhook-version", "v1beta1"),
        flags.get("authorization-webhook-cache-authorized-ttl", "5m"),
        flags.get("authorization-webhook-cache-unauthorized-ttl", "30s"),
    )


def check_access(flags: Iterable[str], release: str, gates: Mapping[str, bool]) -> AccessOptions:
    """The options of the API server. Raises UserError for a configuration that it would not
    accept.
    """
    features = FeatureSet(parse_release(release), gates)
    named = dict(flag.split("=", 1) for flag in flags)
    try:
        access = access_options(named)
        if access.authentication is not None:
            authentication_config.read_authentication_config(access.authentication, features)
        if access.authorization is not None:
            authorization_config.read_authorization_config(access.authorization, features)
    except ConfigurationError as problem:
        raise UserError(str(problem), "run `transom up --help` for the flags") from problem
    for path, option, load in (
        (access.authentication_file, AUTHENTICATION_CONFIG, _load_authentication),
        (access.authorization_file, AUTHORIZATION_CONFIG, _load_authorization),
    ):
        try:
            if path:
                load(read_config_file(path), features)
        except ConfigurationError as problem:
            raise UserError(
                f"{path}: {problem}",
                f"correct the file, name another with --{option} FILE, or remove it with "
                f"--{option} ''",
            ) from problem
    return access


def _load_authentication(data: bytes, features: FeatureSet) -> None:
    authentication_config.load_authentication_config(data, features)


def _load_authorization(data: bytes, features: FeatureSet) -> None:
    authorization_config.load_authorization_config(data, features)
