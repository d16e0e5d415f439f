"""The recorded responses of real control planes of 1.20, 1.32 and 1.36: ours are the same, except
for the listed differences.

Runs where the recordings lie beside the project. `differences.txt` lists the answers of 1.20 that
differ on purpose, each with the reason; `differences-1.32.txt` and `differences-1.36.txt` list what
differs today. An answer that differs without being listed fails, and so does a listed one that has
become the same. Those listed with a question mark depend on the day of the test or on timing.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import re
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.conftest import Cluster, running_cluster
from tests.recorded_cases import GOLDEN, recorded_cases

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

LISTS = {
    "1.20": Path(__file__).with_name("differences.txt"),
    "1.32": Path(__file__).with_name("differences-1.32.txt"),
    "1.36": Path(__file__).with_name("differences-1.36.txt"),
}
_AT_ONCE = 12  # cases at a time; most of them wait for controllers
# What the scheduler reports counts all nodes of a cluster, so each file of such cases has a cluster
# of its own. All others ask one cluster, as they did when the answers were recorded.
_OWN_CLUSTER = re.compile(r"(new)?sched-")
_SHOWN = 40  # lines of a difference
# The replayer writes AGE for seconds; "4m12s" becomes "4mAGE".
_LONG_AGE = re.compile(r"\b(\d+[hm])+AGE\b")


def recorded_files() -> list[Any]:
    """A release and files of cases for which it has recorded answers."""
    out = []
    for release in LISTS:
        files = sorted((GOLDEN / "cases").glob("*.yaml"))
        if release == "1.36":
            files += sorted((GOLDEN / "cases-1.36").glob("*.yaml"))
        if release != "1.20":
            expected = GOLDEN / "expected" / release
            files = [file for file in files if (expected / f"{file.stem}.json").exists()]
        together = [file for file in files if not _OWN_CLUSTER.match(file.stem)]
        out.append(pytest.param(release, together, id=f"{release}-together"))
        out += [
            pytest.param(release, [file], id=f"{release}-{file.stem}")
            for file in files
            if file not in together
        ]
    return out


def listed(release: str) -> dict[str, str]:
    """Answer -> why it differs."""
    text = LISTS[release].read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: why for name, _, why in (line.partition(" ") for line in lines)}


def replayer() -> ModuleType:
    """The replayer beside the recordings, which speaks to the server and normalises answers."""
    spec = importlib.util.spec_from_file_location("recorded_answers_replay", GOLDEN / "replay.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CaseServer:
    """The server of one case. The replayer waits two seconds for the token Secret of the default
    account; releases that make none are asked whether the namespace is complete instead.
    """

    def __init__(self, server: Any, tokens: bool) -> None:
        self._send = server.send
        self._waits = not tokens

    def send(self, method: str, path: str, *rest: Any) -> tuple[int, Any, bytes]:
        status, headers, data = self._send(method, path, *rest)
        if self._waits and path.endswith("/serviceaccounts/default") and status == 200:
            root = path.replace("/serviceaccounts/default", "/configmaps/kube-root-ca.crt")
            if self._send("GET", root, None, {})[0] == 200:
                self._waits = False
                data = json.dumps({**json.loads(data), "secrets": [{}]}).encode()
        return status, headers, data


def replay(
    cluster: Cluster, release: str, files: list[Path], only: Collection[str] = (), at_once: int = 1
) -> dict[str, str]:
    """Answer -> how ours differs from the recorded one, "" if it does not. `only` has names of
    cases.
    """
    tool = replayer()
    own = threading.local()

    def replay_case(stem: str, case: dict[str, Any], wanted: dict[str, Any]) -> dict[str, str]:
        if not hasattr(own, "server"):
            own.server = tool.Server(str(cluster.kubeconfig))
        controllers = "kcm" in case.get("needs", ())
        server = CaseServer(own.server, tokens=release == "1.20" or not controllers)
        try:
            got = tool.run_case(server, case)
        except Exception as problem:  # one case at a time, it must not happen
            if at_once == 1:
                raise
            got = dict.fromkeys(wanted, f"failed: {problem!r}")
        return {
            f"{stem}/{case['name']}:{step}": difference(answer, got.get(step))
            for step, answer in wanted.items()
        }

    played = []
    with ThreadPoolExecutor(at_once) as pool:
        for file in files:
            recorded = GOLDEN / "expected" / release / f"{file.stem}.json"
            wanted = json.loads(recorded.read_text()) if recorded.exists() else {}
            played += [
                pool.submit(replay_case, file.stem, case, wanted[case["name"]])
                for case in recorded_cases(file)
                if case["name"] in wanted and (not only or f"{file.stem}/{case['name']}" in only)
            ]
    return {name: how for one in played for name, how in one.result().items()}


def difference(kubernetes: object, ours: object) -> str:
    if kubernetes == ours:
        return ""
    left, right = (
        json.dumps(answer, indent=1, sort_keys=True, ensure_ascii=False).splitlines()
        for answer in (kubernetes, ours)
    )
    left, right = ([_LONG_AGE.sub("AGE", line) for line in lines] for lines in (left, right))
    if left == right and type(kubernetes) is type(ours):
        return ""
    lines = [*difflib.unified_diff(left, right, "kubernetes", "ours", lineterm="", n=2)]
    return "\n".join(lines[2:_SHOWN]) or "a value of another type"


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recorded answers beside the project")
@pytest.mark.parametrize(("release", "files"), recorded_files())
def test_answers_are_kubernetes_own(tmp_path: Path, release: str, files: list[Path]) -> None:
    known = listed(release)
    with running_cluster(tmp_path, "--no-nodes", "--release", release) as cluster:
        results = replay(cluster, release, files, at_once=_AT_ONCE)
        same_now = [name for name, how in results.items() if not how and name in known]
        assert not same_now, (
            f"these are the same now: take them off {LISTS[release].name}: {same_now}"
        )
        excused = {name.lstrip("?") for name in known}
        wrong = {name for name, how in results.items() if how} - excused
        if wrong:
            # One case at a time: a wrong answer differs again, an effect of the other cases or of a
            # busy machine does not.
            cases = {name.rpartition(":")[0] for name in wrong}
            again = replay(cluster, release, files, cases)
            wrong = {name for name in wrong if again[name]}
            results |= again
    assert not wrong, "\n".join(f"{name}\n{results[name]}" for name in sorted(wrong))
