"""CNI plugins called from a shell: environment variables and a request in, the specification's
response out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from transom.network.cni import results
from transom.network.cni.plugin import CniCall, CniError, CniNode, Command
from transom.network.cni.runner import in_process

_FAILED = 100  # a generic error
_NEEDED = ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH")


def called_by_hand(
    machine: CniNode, name: str, environment: Mapping[str, str], request: bytes
) -> tuple[int, bytes]:
    """The exit code and the standard output of the plugin."""
    given = {key.upper(): value for key, value in environment.items()}
    missing = [key for key in _NEEDED if not given.get(key)]
    if missing:
        return 1, _error(4, f"required env variables [{','.join(missing)}] missing")
    try:
        config = orjson.loads(request.decode("utf-8-sig"))
    except (orjson.JSONDecodeError, UnicodeDecodeError):
        config = None
    if not isinstance(config, dict):
        return 1, _error(6, "error parsing configuration")
    arguments = dict(
        pair.partition("=")[::2] for pair in given.get("CNI_ARGS", "").split(";") if pair
    )
    call = CniCall(
        cast(Command, given["CNI_COMMAND"]),
        given["CNI_CONTAINERID"],
        given["CNI_NETNS"],
        given["CNI_IFNAME"],
        arguments,
        given["CNI_PATH"],
        config,
    )
    try:
        answer = in_process(machine)(name, call)
    except CniError as problem:
        return 1, _error(_FAILED, str(problem))
    if answer is None:
        return 0, b""
    shown = results.as_version(answer, str(config.get("cniVersion") or "0.2.0"))
    return 0, orjson.dumps(shown, option=orjson.OPT_INDENT_2)


def _error(code: int, text: str) -> bytes:
    document: dict[str, Any] = {"code": code, "msg": text}
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)
