"""`transom explain` and `transom matrix`."""

from __future__ import annotations

import json

import pytest

from transom.cli.main import main
from transom.windows import checklist
from transom.windows.limits import LIMITS

Output = pytest.CaptureFixture[str]


def printed(output: Output, *args: str, code: int = 0) -> str:
    assert main(args) == code
    return output.readouterr().out


def test_explain_shows_one_record_in_full(capsys: Output) -> None:
    text = printed(capsys, "explain", "win-pod-002")
    assert text.startswith("WIN-POD-002  hostNetwork fails with Docker\n")
    for part in (
        "Applies:    with docker",
        "Fields:     spec.hostNetwork is true",
        "FailedCreatePodSandBox",
        "Section:    Networking",
        "intro-windows-in-kubernetes/",
    ):
        assert part in text


def test_explain_takes_words_and_lists_many(capsys: Output) -> None:
    assert "WIN-POD-007" in printed(capsys, "explain", "grace", "period")
    lines = printed(capsys, "explain", "WIN-NET").splitlines()
    assert [line.split()[0] for line in lines] == [id for id in LIMITS if id.startswith("WIN-NET-")]


def test_explain_knows_the_rules_of_lint_too(capsys: Output) -> None:
    assert "WIN-LINT-001" in printed(capsys, "explain", "WIN-LINT-001")


def test_explain_of_nothing_known(capsys: Output) -> None:
    assert main(["explain", "hugepagez"]) == 2
    assert "did you mean hugepages?" in capsys.readouterr().err


def test_explain_for_programs(capsys: Output) -> None:
    [record] = json.loads(printed(capsys, "explain", "WIN-SEC-021", "--output", "json"))
    assert (record["type"], record["runtimes"], record["builds"]) == (
        "limit",
        ["containerd"],
        [0, 19041],
    )
    assert record["patches"] == [[17763, 1817], [19041, 662]]
    assert record["fields"][0] == {
        "path": "spec.containers[*].securityContext.windowsOptions.gmsaCredentialSpecName",
        "test": "set",
        "kind": "Pod",
    }


def ids(output: Output, *args: str) -> set[str]:
    return {
        record["id"]
        for record in json.loads(printed(output, "matrix", *args, "--output", "json"))["records"]
    }


def test_matrix_of_a_release(capsys: Output) -> None:
    old = json.loads(printed(capsys, "matrix", "--release", "1.14", "--output", "json"))
    assert (old["builds"], old["runtimes"]) == ([17763], {"docker": "18.09"})
    assert old["pauseImage"] == "mcr.microsoft.com/k8s/core/pause:1.2.0"
    now, then = ids(capsys), ids(capsys, "--release", "1.14")
    assert {"WIN-SEC-010", "SUP-SVC-009", "SUP-STO-004"} <= now - then
    assert {"WIN-SEC-011", "WIN-NODE-006"} <= then - now
    text = printed(capsys, "matrix", "--release", "v1.20.15")
    assert "Builds:    17763 (Windows Server 2019, 1809), 18363 (1909), 19041 (2004)" in text
    assert "WIN-POD-002    hostNetwork fails with Docker" in text


def test_matrix_of_a_node(capsys: Output) -> None:
    some, later = ids(capsys, "--build", "ltsc2019"), ids(capsys, "--build", "20348")
    assert "WIN-SVC-002" in some - later and "SUP-SVC-008" in later - some
    assert "WIN-POD-002" not in ids(capsys, "--runtime", "containerd")
    assert "WIN-NET-013" not in ids(capsys, "--network", "l2bridge")
    # What a feature would give is shown; what it would lift is gone only for users who have it.
    assert {"SUP-SVC-010", "WIN-SVC-005"} <= ids(capsys)
    assert "WIN-SVC-005" not in ids(capsys, "--features", "dsr,csi-proxy")


def test_matrix_of_the_document(capsys: Output) -> None:
    rows = json.loads(printed(capsys, "matrix", "--document", "--output", "json"))
    assert [row["id"] for row in rows] == list(checklist.checklist_statements())
    assert all(row["records"] and row["does"] for row in rows)
    by_id = {row["id"]: row for row in rows}
    assert by_id["LSTO-18"]["does"] == "fails: FailedMount"
    assert "tests/" not in json.dumps(rows)
    assert by_id["POD-09"]["does"] == "works"
    assert by_id["OS-23"]["does"] == "documented"
    text = printed(capsys, "matrix", "--document", "--release", "1.14")
    assert "SEC-06" in text and "fails: CreateContainerConfigError" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--release", "twenty"), "not a Kubernetes release"),
        (("--release", "1.13"), "is not a Kubernetes release with Windows nodes"),
        (("--build", "xp"), "unknown Windows build 'xp'"),
    ],
)
def test_matrix_of_what_there_is_not(args: tuple[str, str], message: str, capsys: Output) -> None:
    assert main(["matrix", *args]) == 2
    assert message in capsys.readouterr().err
