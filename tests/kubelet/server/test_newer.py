"""What the API of newer kubelets has: finer authorization, checkpoints, queries of node logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.kubelet.server_harness import ServerHarness

from transom.kubelet.base import ProgramOutput
from transom.kubelet.config import MemoryReservation
from transom.kubelet.configuration_fields import (
    CONFIGURATION_FIELDS,
    configuration_settings,
    is_configuration_field,
)
from transom.kubelet.server.answers import HttpFailure
from transom.kubelet.server.nodelogs import answers_queries, parse_log_query, serve_node_logs

V36 = "v1.36.4"


def test_a_path_has_its_own_subresource() -> None:
    harness = ServerHarness(version=V36)
    harness.client.denied = {"proxy"}
    assert harness.text("/pods")[0] == 200
    assert harness.text("/configz")[0] == 200
    assert harness.text("/healthz")[0] == 200
    harness.client.denied = {"proxy", "pods"}
    harness.clock.advance(400)
    assert harness.text("/pods") == (
        403,
        "Forbidden (user=admin, verb=get, resource=nodes, subresource(s)=[pods proxy])\n",
    )


def test_no_runtime_makes_checkpoints() -> None:
    path = "/checkpoint/ns/p/c"
    assert ServerHarness().text(path, method="POST")[0] == 404
    assert ServerHarness(version="v1.29.15").text(path, method="POST")[0] == 404
    harness = ServerHarness(version=V36)
    assert harness.text("/checkpoint/ns/q/c", method="POST") == (404, "pod does not exist")
    assert harness.text("/checkpoint/ns/p/d", method="POST") == (404, "container d does not exist")
    status, text = harness.text(path, method="POST")
    assert status == 500
    assert text == (
        "checkpointing of ns/p/c failed (rpc error: code = Unimplemented desc = method "
        "CheckpointContainer not implemented)"
    )


def test_the_configuration_of_the_release_is_shown() -> None:
    def shown(**settings: Any) -> Any:
        return json.loads(ServerHarness(**settings).text("/configz")[1])["kubeletconfig"]

    newer = {"enableSystemLogQuery", "crashLoopBackOff", "imageMaximumGCAge"}
    assert not newer & shown().keys()
    found = shown(version=V36, max_container_restart_period=20.0)
    assert newer <= found.keys()
    assert found["crashLoopBackOff"] == {"maxContainerRestartPeriod": "20s"}


def test_the_configured_memory_settings_are_shown() -> None:
    def shown(**settings: Any) -> Any:
        found = json.loads(ServerHarness(**settings).text("/configz")[1])["kubeletconfig"]
        return {k: v for k, v in found.items() if "emory" in k or "Swap" in k}

    assert shown() == {"failSwapOn": True}
    defaults = {
        "failSwapOn": True,
        "memoryManagerPolicy": "None",
        "memorySwap": {},
        "memoryThrottlingFactor": 0.9,
        "memoryReservationPolicy": "None",
    }
    assert shown(version=V36) == defaults
    changed = shown(
        version=V36,
        fail_swap_on=False,
        swap_behavior="LimitedSwap",
        memory_throttling_factor=0.5,
        reserved_memory=(MemoryReservation(0, {"memory": "100Mi"}),),
    )
    assert changed == {
        **defaults,
        "failSwapOn": False,
        "memorySwap": {"swapBehavior": "LimitedSwap"},
        "memoryThrottlingFactor": 0.5,
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
    }


@pytest.mark.windows("W-DBG-08", "SUP-TRB-108")
@pytest.mark.parametrize(
    ("version", "gate", "setting", "answers"),
    [
        ("v1.35.8", False, True, False),
        ("v1.35.8", True, False, False),
        ("v1.35.8", True, True, True),
        (V36, False, True, True),  # the gate is stable,
        (V36, False, False, False),  # and the setting still counts
    ],
)
def test_log_queries_need_their_setting(
    version: str, gate: bool, setting: bool, answers: bool
) -> None:
    gates = {"NodeLogQuery": True} if gate else {}
    harness = ServerHarness(version=version, enable_system_log_query=setting, feature_gates=gates)
    assert answers_queries(harness.env) is answers


def test_logs_can_be_disabled() -> None:
    harness = ServerHarness(version=V36, enable_system_log_handler=False)
    assert harness.text("/logs/") == (405, "logs endpoint is disabled.\n")


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"query": [" "]}, 'query: Invalid value: [" "]: may not be empty'),
        (
            {"query": ["a"], "sinceTime": ["x"]},
            'sinceTime: Invalid value: "x": invalid time format',
        ),
        (
            {"query": ["a"], "boot": ["x"]},
            'boot: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax',
        ),
    ],
)
def test_bad_queries(query: Any, error: str) -> None:
    found, errors = parse_log_query(query)
    assert found is None and [str(e) for e in errors] == [error]


class Programs:
    """Answers of a node's programs."""

    def __init__(self) -> None:
        self.run: list[Sequence[str]] = []

    async def __call__(self, argv: Sequence[str], seconds: float, **_: Any) -> ProgramOutput:
        self.run.append(argv)
        if "--field" in argv:
            return ProgramOutput(0, b"kubelet.service\ncontainerd.service\n")
        return ProgramOutput(0, b"the log\n")


async def ask(harness: ServerHarness, **query: Any) -> bytes:
    answer = await serve_node_logs(harness.env, "", {k: [v] for k, v in query.items()})
    return answer.body or b""


async def test_the_last_moment_that_has_a_date() -> None:
    programs = Programs()
    harness = ServerHarness(version=V36, enable_system_log_query=True, run_program=programs)
    await ask(harness, query="kubelet", untilTime="9999-12-31T23:59:59.999999999Z")
    assert "--until=9999-12-31 23:59:59" in programs.run[-1]


@pytest.mark.windows("W-DBG-07", "W-DBG-10", "W-DBG-11")
async def test_services_log_to_the_journal_or_to_files() -> None:
    programs = Programs()
    harness = ServerHarness(version=V36, enable_system_log_query=True, run_program=programs)
    harness.files.mkdir("/var/log/other", 0o755)
    harness.files.write("/var/log/other/other.log", b"from a file\n", 0o644)
    assert await ask(harness, query="kubelet", tailLines="5", pattern="E") == b"the log\n"
    assert programs.run[-1] == [
        "journalctl",
        "--utc",
        "--no-pager",
        "--output=short-precise",
        "--pager-end",
        "--lines=5",
        "--unit=kubelet",
        "--grep=E",
    ]
    assert await ask(harness, query="other") == b"from a file\n"
    assert await ask(harness, query="none") == b"\nlog not found for none\n"
    assert b"try without specifying options" in await ask(harness, query="other", boot="0")
    assert await ask(harness, query="/other/other.log") == b"from a file\n"


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"query": "a b"}, 'query: Invalid value: "a b": input contains unsupported characters'),
        ({"tailLines": "1"}, "query: Required value: cannot be empty with options"),
        ({"query": "a", "boot": "1"}, "boot: Invalid value: 1: must be less than 1"),
        (
            {"query": "a", "tailLines": "-1"},
            "tailLines: Invalid value: -1: must be between 0 and 100000, inclusive",
        ),
    ],
)
async def test_rejected_queries(query: Any, error: str) -> None:
    harness = ServerHarness(version=V36, enable_system_log_query=True)
    with pytest.raises(HttpFailure) as failure:
        await ask(harness, **query)
    assert (failure.value.status, str(failure.value)) == (406, error + "\n")


@pytest.mark.windows("W-DBG-09", "W-DBG-12")
async def test_services_of_windows_log_events() -> None:
    programs = Programs()
    harness = ServerHarness(
        "windows", version=V36, enable_system_log_query=True, run_program=programs
    )
    assert await ask(harness, query="agent", tailLines="5", pattern="it's") == b"the log\n"
    assert programs.run[0][-3:] == ("Get-WinEvent", "-ListProvider", "agent")
    assert " ".join(programs.run[1]) == (
        "powershell.exe -NonInteractive -ExecutionPolicy Bypass -Command Get-WinEvent "
        "-FilterHashtable @{LogName='Application'; ProviderName='agent'} -MaxEvents 5 | Sort-Object "
        "TimeCreated | Where-Object Message -Match 'it''s' | Format-Table -AutoSize -Wrap"
    )
    with pytest.raises(HttpFailure, match="not supported on Windows"):
        await ask(harness, query="agent", boot="0")


# A value that is not the default, for each field that a configuration can set.
CONFIGURED: dict[str, Any] = {
    "allowedUnsafeSysctls": ["kernel.msg*"],
    "authentication": {"anonymous": {"enabled": True}},
    "containerLogMaxFiles": 7,
    "containerLogMaxSize": "20Mi",
    "cpuCFSQuota": False,
    "cpuCFSQuotaPeriod": "50ms",
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "cpuManagerReconcilePeriod": "20s",
    "crashLoopBackOff": {"maxContainerRestartPeriod": "20s"},
    "enableSystemLogHandler": False,
    "enableSystemLogQuery": True,
    "eventBurst": 20,
    "eventRecordQPS": 7,
    "evictionMaxPodGracePeriod": 9,
    "evictionMinimumReclaim": {"memory.available": "1Mi"},
    "evictionPressureTransitionPeriod": "1m0s",
    "failSwapOn": False,
    "imageGCHighThresholdPercent": 70,
    "imageGCLowThresholdPercent": 60,
    "imageMaximumGCAge": "1h0m0s",
    "imageMinimumGCAge": "1m0s",
    "imagePullCredentialsVerificationPolicy": "AlwaysVerify",
    "makeIPTablesUtilChains": False,
    "maxParallelImagePulls": 3,
    "memoryManagerPolicy": "Static",
    "memoryReservationPolicy": "TieredReservation",
    "memorySwap": {"swapBehavior": "LimitedSwap"},
    "memoryThrottlingFactor": 0.5,
    "nodeLeaseDurationSeconds": 50,
    "nodeStatusReportFrequency": "1m0s",
    "nodeStatusUpdateFrequency": "20s",
    "podLogsDir": "/var/log/other",
    "preloadedImagesVerificationAllowlist": ["example.com/a"],
    "registerWithTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    "registryBurst": 20,
    "registryPullQPS": 7,
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
    "reservedSystemCPUs": "0",
    "serializeImagePulls": False,
    "serverTLSBootstrap": True,
    "shutdownGracePeriod": "30s",
    "shutdownGracePeriodByPodPriority": [{"priority": 1, "shutdownGracePeriodSeconds": 5}],
    "shutdownGracePeriodCriticalPods": "10s",
    "singleProcessOOMKill": True,
    "syncFrequency": "30s",
    "topologyManagerPolicy": "restricted",
    "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
    "topologyManagerScope": "pod",
    "userNamespaces": {"idsPerPod": 131072},
}


def test_every_configured_field_is_shown() -> None:
    assert CONFIGURATION_FIELDS.keys() <= CONFIGURED.keys()
    assert all(is_configuration_field(name) for name in CONFIGURED)
    default = json.loads(ServerHarness(version=V36).text("/configz")[1])["kubeletconfig"]
    wrong = {}
    for name, value in CONFIGURED.items():
        settings = configuration_settings({name: value})
        found = json.loads(ServerHarness(version=V36, **settings).text("/configz")[1])[
            "kubeletconfig"
        ]
        shown = found.get(name)
        if name == "authentication":
            shown = {"anonymous": shown["anonymous"]}
        # Go leaves out a plain field that is false.
        if found == default or (shown or False) != value:
            wrong[name] = shown
    assert not wrong


@pytest.mark.parametrize(
    ("own", "serialized"), [({}, False), ({"serializeImagePulls": True}, True)]
)
def test_parallel_pulls_are_not_serialized_unless_configured(
    own: dict[str, bool], serialized: bool
) -> None:
    assert configuration_settings({"maxParallelImagePulls": 3, **own}) == {
        "max_parallel_image_pulls": 3,
        "serialize_image_pulls": serialized,
    }
    assert configuration_settings({"maxParallelImagePulls": 1}) == {"max_parallel_image_pulls": 1}
