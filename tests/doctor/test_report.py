"""What goes into a report, and what does not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.patients import event, healthy, pod, windows_node

from transom.doctor import redact
from transom.doctor.examine import examine
from transom.doctor.report import Collected, files
from transom.doctor.snapshot import Snapshot

WORD = "hunter2hunter2"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{WORD}\n-----END RSA PRIVATE KEY-----"


def report(patient: Snapshot, **more: object) -> dict[str, str]:
    collected = Collected("bug.tar.gz", {"transom": "0.1.0", "kubectl": "v1.20.15"}, doctor="all is well", **more)  # type: ignore[arg-type]
    return {name: data.decode() for name, data in files(patient, examine(patient), collected).items()}


@pytest.mark.windows("REP-01", "REP-02", "REP-03", "REP-04", "REP-05", "REP-06", "REP-07", "REP-08")
def test_the_text_asks_for_what_a_report_needs() -> None:
    found = report(healthy(inside=windows_node()), logs={"windows-1": {"kubelet.log": "I1116"}}, hns={"windows-1": {}})
    text = found["report.md"]
    for part in (
        "https://github.com/kubernetes/kubernetes/issues/new", "for SIG Windows",  # where
        "Search the existing issues", "comment there with what you have seen, and add your logs", "#sig-windows on the Slack",
        "## Steps to reproduce\n\n1.\n2.\n3.\n", "- kubectl: v1.20.15", "- API server: v1.20.15",
        "- Cloud provider: none", "- Network: l2bridge by flannel", "| windows-1 | windows | 10.0.17763.1697 | docker://",
        "all is well", "- nodes/windows-1/kubelet.log", "simulated by transom",
    ):  # fmt: skip
        assert part in text, part
    assert text.splitlines()[-1] == "/sig windows"
    assert json.loads(found["version.json"])["serverVersion"]["gitVersion"] == "v1.20.15"
    assert json.loads(found["environment.json"])["inside"][0]["mode"] == "l2bridge"
    assert found["nodes/windows-1/kubelet.log"] == "I1116" and found["nodes/windows-1/hns.json"] == "{}\n"
    assert "simulated by transom" not in report(healthy())["report.md"]


def test_events_of_a_node_and_its_kubelet_are_told_in_order() -> None:
    found = report(healthy(pods=[pod("a")], events=[
        event("a", "BackOff", "second", ago=5, source={"host": "windows-1"}, count=3),
        event("windows-1", "Rebooted", "first\nline", kind="Node", ago=9),
    ]))  # fmt: skip
    assert [line.split(" ", 2)[2] for line in found["nodes/windows-1/events.txt"].splitlines()] == [
        "Rebooted node/windows-1: first line", "BackOff pod/default/a (x3): second",
    ]  # fmt: skip
    assert "nodes/linux-1/events.txt" not in found


@pytest.mark.parametrize("text", [
    f"Authorization: Bearer {WORD}", f"token: {TOKEN}", f"got {TOKEN} from it", KEY, KEY.partition("-----END")[0],
    f"--password={WORD}", f"--db-password {WORD} --v=4", f'"client-key-data": "{WORD}"', f"HTTP_PROXY=http://me:{WORD}@proxy:80/",
    f"api_key='{WORD}'", f"connecting with password={WORD};user=me", f"MY_SECRET: {WORD}", f"Basic {WORD}=",
    f"join --token abcdef.{WORD}ab",
])  # fmt: skip
def test_what_is_taken_out_of_texts(text: str) -> None:
    shown = redact.text(f"before\n{text}\nafter")
    assert WORD not in shown and TOKEN not in shown
    assert shown.startswith("before\n") and redact.MASK in shown


@pytest.mark.parametrize("text", [
    'MountVolume.SetUp failed for volume "default-token-x8k2p" : secret "default-token-x8k2p" not found',
    "https://172.20.0.1:6443/api/v1/nodes", "I1116 10:00:00.000000 4004 server.go:416] Version: v1.20.15",
    "automountServiceAccountToken of the pod",
])  # fmt: skip
def test_what_stays(text: str) -> None:
    assert redact.text(text) == text


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["name", "value", "kind", "data", "token", "spec"]), inner, max_size=4)))
def test_redacting_twice_changes_nothing_more_and_stays_json(found: object) -> None:
    once = redact.value(found)
    assert redact.value(once) == once
    json.dumps(once)


PIECES = ("password", "=", "token", ": ", "x", "Bearer ", "Basic ", "eyJ", " ", "abcdefgh12345678", ".", "abcdef", "http://",
          ":", "@", "-----BEGIN RSA PRIVATE KEY-----", "\n", "--", "api_key", "'", "secret", "/")  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
def test_the_quick_look_misses_nothing_that_a_rule_takes_out(text: str) -> None:
    slowly = text
    for pattern, to in redact._RULES:
        slowly = pattern.sub(to, slowly)
    assert redact.text(text) == slowly


def test_nothing_secret_is_in_the_archive() -> None:
    secret = pod("a", volumes=[{"name": "v", "secret": {"secretName": "certificate"}}])
    secret["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": WORD, "note": f"password={WORD}"}
    secret["spec"]["containers"][0] |= {
        "env": [{"name": "DB_PASSWORD", "value": WORD}, {"name": "URL", "value": f"http://me:{WORD}@db/"},
                {"name": "MODE", "value": "fast"}],
        "args": [f"--token={WORD}"],
    }  # fmt: skip
    hidden = {"kind": "Secret", "data": {"x": WORD}, "metadata": {"name": "s"}}
    found = report(
        healthy(pods=[secret], events=[event("a", "Failed", f"Bearer {TOKEN}")], replicasets=[hidden],
                inside=windows_node(variables={"HTTP_PROXY": f"http://me:{WORD}@proxy/", "API_TOKEN": WORD})),
        logs={"windows-1": {"kubelet.log": KEY}}, cluster_log=f"token={WORD}", hns={"windows-1": {"password": WORD}},
    )  # fmt: skip
    for name, text in found.items():
        assert WORD not in text and TOKEN not in text, name
    assert '"fast"' in found["objects/pods.json"] and '"secretName": "certificate"' in found["objects/pods.json"]
