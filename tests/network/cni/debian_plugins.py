"""Runs Debian's CNI plugins, which are programs: CNI_* in the environment, configuration on
standard input, JSON on standard output.

The caller decides where the program runs: `run_in` starts it, for example in a network namespace,
and waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from transom.machinery import gojson
from transom.network.cni import results
from transom.network.cni.plugin import CniCall, CniError, Result, fail_plugin
from transom.network.cni.runner import Execute, plugin_missing_text

DEBIAN = "/usr/lib/cni"  # of the package containernetworking-plugins
RunIn = Callable[[Sequence[str], Mapping[str, str], bytes], tuple[int, bytes, bytes]]
"""argv, environment, standard input -> exit code, standard output, standard error."""


def plugin_programs(run_in: RunIn, path: str = DEBIAN) -> Execute:
    def execute(kind: str, call: CniCall) -> Result | None:
        answer = exec_plugin(run_in, path, kind, call)
        if call.command != "ADD":
            return None
        return results.to_current(answer, call.config.get("cniVersion") or "0.1.0")

    return execute


def supported_versions(run_in: RunIn, path: str = DEBIAN) -> Callable[[str], Sequence[str] | None]:
    """Calls each program once."""
    known: dict[str, Sequence[str] | None] = {}

    def versions(kind: str) -> Sequence[str] | None:
        if kind not in known:
            known[kind] = _ask(run_in, path, kind)
        return known[kind]

    return versions


def exec_plugin(run_in: RunIn, path: str, kind: str, call: CniCall) -> dict[str, Any]:
    program = _find(kind, path)
    environment = {
        "CNI_COMMAND": call.command,
        "CNI_CONTAINERID": call.container_id,
        "CNI_NETNS": call.netns,
        "CNI_ARGS": ";".join(f"{key}={value}" for key, value in call.args.items()),
        "CNI_IFNAME": call.ifname,
        "CNI_PATH": path,
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    code, out, err = run_in([program], environment, orjson.dumps(call.config))
    if code != 0:
        raise _refused(code, out, err)
    if not out.strip():
        return {}
    answer: dict[str, Any] = orjson.loads(out)
    return answer


def _find(kind: str, path: str) -> str:
    if not kind:
        fail_plugin("no plugin name provided")
    if "/" in kind:
        fail_plugin(f"invalid plugin name: {kind}")
    program = Path(path) / kind
    if not program.is_file():
        fail_plugin(plugin_missing_text(kind, path))
    return str(program)


def _ask(run_in: RunIn, path: str, kind: str) -> Sequence[str] | None:
    try:
        answer = exec_plugin(
            run_in,
            path,
            kind,
            CniCall("VERSION", "", "dummy", "dummy", {}, path, {"cniVersion": "0.4.0"}),
        )
    except CniError as error:
        return ("0.1.0",) if error.msg == "unknown CNI_COMMAND: VERSION" else None
    return tuple(answer.get("supportedVersions") or ("0.1.0",))


def _refused(code: int, out: bytes, err: bytes) -> CniError:
    if not out:
        text = err.decode(errors="replace")
        quoted = orjson.dumps(text).decode()
        return CniError(
            0,
            f"netplugin failed: {quoted}"
            if err
            else f"netplugin failed with no error message: exit status {code}",
        )
    try:
        answer = orjson.loads(out)
        return CniError(answer.get("code", 0), answer.get("msg", ""), answer.get("details", ""))
    except (orjson.JSONDecodeError, AttributeError):
        quoted = orjson.dumps(out.decode(errors="replace")).decode()
        why = (
            gojson.syntax_error(out)
            or "json: cannot unmarshal value into Go value of type types.Error"
        )
        return CniError(
            0, f"netplugin failed but error parsing its diagnostic message {quoted}: {why}"
        )
