"""What `transom doctor` prints, and what it and `transom report` refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.doctor.patients import healthy, node, pod, windows_node

from transom.cli.doctor import findings_document, findings_page, findings_summary
from transom.cli.main import main
from transom.doctor.examine import checks, examine

PATIENT = healthy(
    inside=windows_node(mac_spoofing=False),
    pods=[
        pod(f"web-{i}", "linux-1", waiting={"reason": "CrashLoopBackOff"}, last={"exitCode": 3})
        for i in range(5)
    ],
)


def test_general_things_come_first_and_each_says_why_and_what_to_do() -> None:
    assert findings_page(examine(PATIENT), 200) == [
        "General",
        (
            "ERROR   pod/default/web-0, pod/default/web-1, pod/default/web-2 and 2 more: "
            "container c fails with exit code 3"
        ),
        "        why: It keeps restarting with increasing back-off.",
        (
            "        fix: Read its log: kubectl logs web-0 --namespace default --container c "
            "--previous; likewise for the others"
        ),
        "",
        "Windows",
        (
            "ERROR   node/windows-1: the virtual machine's network adapter drops what pods send: "
            "MAC spoofing is off"
        ),
        "        why: Pods on this node reach nothing outside of it.",
        "        fix: Turn MAC spoofing on for all network adapters of the machine. Here: "
        "transom node set windows-1 "
        "mac-spoofing=on",
        "        see: transom explain SUP-TRB-009",
        "",
    ]
    assert max(map(len, findings_page(examine(PATIENT), 80))) <= 80


def test_the_sum_says_what_was_looked_at() -> None:
    titles = [row.title for row in checks(PATIENT)]
    assert (
        findings_summary(PATIENT, examine(PATIENT), titles)
        == f"2 errors ({len(titles)} checks of 2 nodes and 5 pods)"
    )
    other = healthy(nodes=[node("linux-1", "linux")])
    assert (
        findings_summary(other, [], ["a"])
        == "No findings (1 check of 1 node and 0 pods; node-level checks skipped)"
    )
    assert [
        one["section"] for one in findings_document(PATIENT, examine(PATIENT), titles)["findings"]
    ] == [
        "general",
        "windows",
    ]


@pytest.mark.parametrize("verb", ["doctor", "report"])
def test_a_kubeconfig_that_is_not_there(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "--kubeconfig", str(tmp_path / "none")]) == 1
    shown = capsys.readouterr()
    assert (
        shown.out == ""
        and shown.err.startswith("error: there is no kubeconfig")
        and "--name" in shown.err
    )


def test_a_cluster_that_does_not_answer_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    damaged = tmp_path / "data" / "transom" / "other" / "cluster.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")  # a report about another cluster does not need it
    file = tmp_path / "kubeconfig"
    file.write_text("""\
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: hunter2hunter2}}]
""")
    assert main(["doctor", "--kubeconfig", str(file)]) == 1
    assert "the API server does not answer" in capsys.readouterr().out
    assert (
        main(["report", "--kubeconfig", str(file), "--output", str(tmp_path / "no" / "x.tar.gz")])
        == 1
    )
    assert "cannot be written: No such file or directory" in capsys.readouterr().err


def test_hints_about_a_damaged_cluster_run_as_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    damaged = tmp_path / "transom" / "blue" / "cluster.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text('{"release": "9.9"}')
    delete = "delete the cluster with: transom delete --name blue"
    for verb, code in (("status", 1), ("down", 0)):
        assert main([verb, "--name", "blue"]) == code
        out = capsys.readouterr().out
        assert delete in out and "transom up" not in out
    assert main(["delete", "--name", "blue"]) == 0
    assert not damaged.parent.exists()
