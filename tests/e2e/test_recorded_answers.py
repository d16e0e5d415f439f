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
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
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
# Files whose cases make nodes or pods that run: each has a cluster of its own. The others ask the
# API server only, as one server was asked when the answers were recorded.
_OWN_CLUSTER = re.compile(r"(new)?(loop|sched)-")
_SHOWN = 40  # lines of a difference
# The replayer writes AGE for seconds; "4m12s" becomes "4mAGE".
_LONG_AGE = re.compile(r"\b(\d+[hm])+AGE\b")


def recorded_files() -> list[Any]:
    """A release and a file of cases for which it has recorded answers."""
    out: list[tuple[str, Path]] = []
    for release in LISTS:
        files = sorted((GOLDEN / "cases").glob("*.yaml"))
        if release == "1.36":
            files += sorted((GOLDEN / "cases-1.36").glob("*.yaml"))
        for file in files:
            answers = GOLDEN / "expected" / release / f"{file.stem}.json"
            if release == "1.20" or answers.exists():
                out.append((release, file))
    # Those of one cluster follow each other.
    out.sort(key=lambda one: _OWN_CLUSTER.match(one[1].stem) is not None)
    return [pytest.param(release, file, id=f"{release}-{file.stem}") for release, file in out]


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
    cluster: Cluster, release: str, file: Path, only: Collection[str] = (), at_once: int = 1
) -> dict[str, str]:
    """Answer -> how ours differs from the recorded one, "" if it does not. `only` has names of
    cases.
    """
    tool = replayer()
    recorded = GOLDEN / "expected" / release / f"{file.stem}.json"
    wanted = json.loads(recorded.read_text()) if recorded.exists() else {}
    own = threading.local()

    def play(case: dict[str, Any]) -> dict[str, str]:
        if not hasattr(own, "server"):
            own.server = tool.Server(str(cluster.kubeconfig))
        controllers = "kcm" in case.get("needs", ())
        server = CaseServer(own.server, tokens=release == "1.20" or not controllers)
        got = tool.run_case(server, case)
        return {
            f"{file.stem}/{case['name']}:{step}": difference(answer, got.get(step))
            for step, answer in wanted[case["name"]].items()
        }

    cases = [
        case
        for case in recorded_cases(file)
        if case["name"] in wanted and (not only or f"{file.stem}/{case['name']}" in only)
    ]
    with ThreadPoolExecutor(at_once) as pool:
        return {name: how for found in pool.map(play, cases) for name, how in found.items()}


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


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Cluster]]:
    """The cluster of a release, until another release is asked for."""
    with ExitStack() as stack:
        running: dict[str, Cluster] = {}

        def cluster_of(release: str) -> Cluster:
            if release not in running:
                running.clear()
                stack.close()
                folder = tmp_path_factory.mktemp("cluster")
                started = running_cluster(folder, "--no-nodes", "--release", release)
                running[release] = stack.enter_context(started)
            return running[release]

        yield cluster_of


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recorded answers beside the project")
@pytest.mark.parametrize(("release", "file"), recorded_files())
def test_answers_are_kubernetes_own(
    tmp_path_factory: pytest.TempPathFactory,
    shared_cluster: Callable[[str], Cluster],
    release: str,
    file: Path,
) -> None:
    if _OWN_CLUSTER.match(file.stem) is None:
        check_answers(shared_cluster(release), release, file)
        return
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, "--no-nodes", "--release", release) as cluster:
        check_answers(cluster, release, file)


def check_answers(cluster: Cluster, release: str, file: Path) -> None:
    known = listed(release)
    results = replay(cluster, release, file, at_once=_AT_ONCE)
    same_now = [name for name, how in results.items() if not how and name in known]
    assert not same_now, f"these are the same now: take them off {LISTS[release].name}: {same_now}"
    excused = {name.lstrip("?") for name in known}
    wrong = {name for name, how in results.items() if how} - excused
    if wrong:
        # One case at a time: a wrong answer differs again, an effect of the other cases or of a
        # busy machine does not.
        cases = {name.rpartition(":")[0] for name in wrong}
        again = replay(cluster, release, file, cases)
        wrong = {name for name in wrong if again[name]}
        results |= again
    assert not wrong, "\n".join(f"{name}\n{results[name]}" for name in sorted(wrong))
