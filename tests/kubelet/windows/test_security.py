"""Identities and security contexts on Windows: users by name, managed service accounts, and what
only Linux has.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from transom.client.resources import PODS
from transom.machinery.errors import ApiError
from transom.machines.windows.host import CREDENTIAL_SPECS
from transom.runtime.sim.catalogue import catalogue_with
from transom.windows.builds import BUILDS

from .windows_pods import (
    BOTH,
    NANO,
    SERVERCORE,
    cmd,
    config,
    container,
    ended,
    in_runtime,
    log,
    meant,
    printed,
    recorded,
    run,
    running,
    state,
    until,
    waiting,
    warnings,
)

flavours = pytest.mark.parametrize("flavour", BOTH)
IMAGES = catalogue_with(
    """
images:
- {name: example.com/web, windows: [17763], userland: servercore, options: {users: "web,batch"}, user: web}
- {name: example.com/admin, windows: [17763], userland: servercore, user: ContainerAdministrator}
""",
    "own",
)
ROOT = (
    "container's runAsUser ({}) which will be regarded as root identity and will break "
    "non-root policy "
    '(pod: "{}_default({})", container: c)'
)


def user(name: str) -> dict[str, Any]:
    return {"windowsOptions": {"runAsUserName": name}}


# ---- runAsUserName ----


@pytest.mark.windows("SEC-04", "API-04")
@flavours
@pytest.mark.parametrize(
    ("pod", "own", "image", "seen"),
    [
        (None, None, SERVERCORE, "ContainerAdministrator"),
        (None, None, NANO, "ContainerUser"),
        ("ContainerUser", None, SERVERCORE, "ContainerUser"),
        ("ContainerUser", "ContainerAdministrator", SERVERCORE, "ContainerAdministrator"),
        (None, "containeruser", SERVERCORE, "ContainerUser"),
        (None, None, "example.com/web", "web"),
        (None, "batch", "example.com/web", "batch"),
        (None, "NT AUTHORITY\\SYSTEM", SERVERCORE, "SYSTEM"),
    ],
)
async def test_a_container_runs_as_the_user_of_container_pod_or_image(
    node: Any, flavour: str, pod: str | None, own: str | None, image: str, seen: str
) -> None:
    async with node("windows", flavour=flavour, runtime={"catalogue": IMAGES}) as node:
        more = {"securityContext": user(own)} if own else {}
        await node.create(
            "p",
            restartPolicy="Never",
            **({"securityContext": user(pod)} if pod else {}),
            containers=[cmd("echo %USERNAME%", image=image, **more)],
        )
        assert log(node, await ended(node)) == seen


@pytest.mark.windows("SEC-04")
async def test_the_container_overrides_the_pod_for_itself_alone(node: Any) -> None:
    async with node("windows") as node:
        await node.create(
            "p",
            securityContext=user("ContainerUser"),
            containers=[
                container(),
                container(name="d", securityContext=user("ContainerAdministrator")),
            ],
        )
        pod = await running(node)
        assert await printed(node, pod, "whoami") == "user manager\\containeruser"
        assert await printed(node, pod, "whoami", "d") == "user manager\\containeradministrator"


@pytest.mark.windows("API-03", "API-04", "LSTO-09")
async def test_identities_are_names_and_sids_and_rights_those_of_the_container(node: Any) -> None:
    async with node("windows") as node:
        await node.create(
            "p",
            containers=[container(securityContext=user("ContainerUser")), container(name="admin")],
        )
        pod = await running(node)
        assert "S-1-5-93-2-2" in await printed(node, pod, "whoami /user")
        assert "S-1-5-93-2-1" in await printed(node, pod, "whoami /user", "admin")
        write = "echo x> C:\\Windows\\System32\\x.txt"
        assert await printed(node, pod, write) == "Access is denied."
        assert await printed(node, pod, write, "admin") == ""
        assert "BUILTIN\\Administrators:" in await printed(node, pod, "icacls C:\\Windows")


@pytest.mark.windows("RES-06", "API-05", "WIN-SEC-018")
@pytest.mark.parametrize(
    ("flavour", "reason"), [("docker", "ContainerCannotRun"), ("containerd", "StartError")]
)
@pytest.mark.parametrize("name", ["FooLish", "NODE1\\Administrator", "batch"])
async def test_accounts_that_the_container_does_not_have(
    node: Any, flavour: str, reason: str, name: str
) -> None:
    async with node("windows", flavour=flavour, runtime={"catalogue": IMAGES}) as node:
        await node.create(
            "p", restartPolicy="Never", containers=[container(securityContext=user(name))]
        )
        pod = await ended(node)
        end = state(pod)["terminated"]
        assert (end["reason"], end["exitCode"]) == (reason, 128)
        assert "The user name or password is incorrect." in end["message"]
        assert "The user name or password is incorrect." in (await recorded(node, "Failed"))[0]


BAD_NAMES = [
    ("", "runAsUserName cannot be an empty string"),
    ("a\x07b", "runAsUserName cannot contain control characters"),
    ("a\\b\\c", "runAsUserName cannot contain more than one backslash"),
    ("\\user", "runAsUserName's Domain doesn't match the NetBios nor the DNS format"),
    ("D" * 256 + "\\user", "runAsUserName's Domain length must be under 256 characters"),
    ("DOMAIN\\", "runAsUserName's User cannot be empty"),
    ("u" * 105, "runAsUserName's User length must not be longer than 104 characters"),
    ("...", "runAsUserName's User cannot contain only periods or spaces"),
    ("a:b", "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"),
]


@pytest.mark.windows("SEC-04")
async def test_names_that_cannot_be_users_are_refused(node: Any) -> None:
    async with node("windows") as node:
        for name, text in BAD_NAMES:
            with pytest.raises(ApiError) as refused:
                await node.create("p", containers=[container(securityContext=user(name))])
            assert text in str(refused.value)
            assert (
                "spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value"
                in str(refused.value)
            )


@pytest.mark.windows("SEC-04", "SEC-06", "SEC-07", "WIN-SEC-019")
@pytest.mark.parametrize(
    ("version", "seen"), [("v1.14.10", "web"), ("v1.17.17", "batch"), ("v1.20.15", "batch")]
)
async def test_run_as_user_name_is_not_there_at_first(node: Any, version: str, seen: str) -> None:
    async with node("windows", version=version, runtime={"catalogue": IMAGES}) as node:
        batch = cmd("echo %USERNAME%", image="example.com/web", securityContext=user("batch"))
        await node.create("p", restartPolicy="Never", containers=[batch])
        # at 1.14 only the account that was made in the image
        assert log(node, await ended(node)) == seen


# ---- numbers of users ----


@pytest.mark.windows(
    "API-26",
    "API-28",
    "API-50",
    "API-51",
    "API-53",
    "SEC-05",
    "WIN-SEC-010",
    "WIN-SEC-012",
    "WIN-SEC-015",
)
@flavours
@pytest.mark.parametrize("whole", [True, False])
async def test_numbers_of_users_and_groups_have_no_effect(
    node: Any, flavour: str, whole: bool
) -> None:
    async with node("windows", flavour=flavour) as node:
        ids = {"runAsUser": 1000, "runAsGroup": 3000}
        more = {"securityContext": {**ids, "supplementalGroups": [4000]}} if whole else {}
        await node.create(
            "p", **more, containers=[container(**({} if whole else {"securityContext": ids}))]
        )
        pod = await running(node)
        assert await printed(node, pod, "echo %USERNAME%") == "ContainerAdministrator"
        assert config(node, pod).linux is None
        sandbox = meant(node, pod).config.linux
        assert (sandbox.run_as_user, sandbox.run_as_group) == (None, None) and not await warnings(
            node
        )


@pytest.mark.windows("SEC-06", "API-28", "API-50", "WIN-SEC-011")
@pytest.mark.parametrize("version", ["v1.14.10", "v1.17.17", "v1.18.20", "v1.19.16"])
async def test_run_as_user_fails_before_1_20(node: Any, version: str) -> None:
    async with node("windows", version=version) as node:
        await node.create("p", containers=[container(securityContext={"runAsUser": 1000})])
        text = "run as uid (1000) is not supported on Windows"
        assert await waiting(node, "CreateContainerConfigError") == text
        assert f"Error: {text}" in await recorded(node, "Failed")


@pytest.mark.windows("API-27", "API-52", "WIN-SEC-013")
@pytest.mark.parametrize(
    ("image", "own", "shown"),
    [
        ("example.com/admin", None, "ContainerAdministrator"),
        (
            NANO,
            "ContainerAdministrator",
            "ContainerUser",
        ),  # the message shows the image's user, whichever user was asked for
        (SERVERCORE, "ContainerAdministrator", ""),
        (SERVERCORE, None, None),  # of an image that names no user nothing is known
        (SERVERCORE, "CONTAINERADMINISTRATOR", None),  # the spelling counts
        (SERVERCORE, "ContainerUser", None),
        ("example.com/admin", "ContainerUser", None),
    ],
)
async def test_run_as_non_root_forbids_container_administrator(
    node: Any, image: str, own: str | None, shown: str | None
) -> None:
    async with node("windows", runtime={"catalogue": IMAGES}) as node:
        context = {"runAsNonRoot": True, **(user(own) if own else {})}
        await node.create("p", securityContext=context, containers=[container(image=image)])
        await node.create("q", containers=[container(image=image, securityContext=context)])
        for name in ("p", "q"):
            if shown is None:
                await running(node, name)
                continue
            text = await waiting(node, "CreateContainerConfigError", name)
            assert text == ROOT.format(shown, name, (await node.pod(name))["metadata"]["uid"])


@pytest.mark.windows("API-27", "API-52", "WIN-SEC-014")
@pytest.mark.parametrize("version", ["v1.14.10", "v1.19.16"])
async def test_run_as_non_root_wants_a_number_before_1_20(node: Any, version: str) -> None:
    async with node("windows", version=version) as node:
        await node.create(
            "p", containers=[container(image=NANO, securityContext={"runAsNonRoot": True})]
        )
        assert await waiting(node, "CreateContainerConfigError") == (
            "container has runAsNonRoot and image has non-numeric user (ContainerUser), "
            "cannot verify user is non-root"
        )


@pytest.mark.windows("API-27")
async def test_container_administrator_does_not_exist_on_the_node(node: Any) -> None:
    async with node("windows") as node:
        await node.create(
            "p",
            containers=[container(securityContext={"runAsNonRoot": True, **user("ContainerUser")})],
        )
        await running(node)
        assert not node.host.files.exists("C:\\Users\\ContainerAdministrator")
        assert not node.host.files.exists("C:\\Users\\ContainerUser")


# ---- what only Linux has ----

LINUX_ONLY = {
    "privileged": {"privileged": True},
    "escalation": {"allowPrivilegeEscalation": False},
    "capabilities": {"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}},
    "selinux": {"seLinuxOptions": {"level": "s0:c1"}},
    "seccomp": {"seccompProfile": {"type": "RuntimeDefault"}},
    "seccomp-file": {"seccompProfile": {"type": "Localhost", "localhostProfile": "nowhere.json"}},
    "proc": {"procMount": "Unmasked"},
    "root": {"readOnlyRootFilesystem": True},
    "group": {"runAsGroup": 1000},
}


@pytest.mark.windows(
    "FEAT-04",
    "RES-05",
    "SEC-08",
    "SEC-10",
    "SEC-11",
    "SEC-12",
    "SEC-13",
    "API-02",
    "API-21",
    "API-22",
    "API-23",
    "API-24",
    "API-25",
    "API-29",
    "WIN-SEC-001",
    "WIN-SEC-002",
    "WIN-SEC-003",
    "WIN-SEC-004",
    "WIN-SEC-005",
    "WIN-SEC-007",
    "WIN-SEC-008",
    "WIN-SEC-009",
    "WIN-SEC-012",
    "WIN-API-001",
)
@flavours
async def test_fields_of_a_container_that_only_linux_knows_are_ignored(
    node: Any, flavour: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("plain", containers=[container()])
        usual = config(node, await running(node, "plain"))
        for what, context in LINUX_ONLY.items():
            await node.create(what, containers=[container(securityContext=context)])
            pod = await running(node, what)
            reports_it = config(node, pod)
            # nothing of it reaches the runtime
            assert reports_it.linux is None and reports_it.windows == usual.windows, what
            assert await printed(node, pod, "echo %USERNAME%") == "ContainerAdministrator"
        assert not await warnings(node)  # and nothing is reported


@pytest.mark.windows("FEAT-04", "RES-05", "WIN-SEC-001")
@flavours
async def test_a_privileged_container_has_no_privileges_on_the_node(
    node: Any, flavour: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        node.host.files.write("C:\\node.txt", b"x")
        await node.create(
            "p", hostPID=True, containers=[container(securityContext={"privileged": True})]
        )
        pod = await running(node)
        assert (
            await printed(node, pod, "type C:\\node.txt")
            == "The system cannot find the file specified."
        )
        assert "kubelet" not in await printed(node, pod, "tasklist")


@pytest.mark.windows(
    "API-35", "API-48", "API-49", "API-54", "SEC-08", "WIN-SEC-005", "WIN-SEC-016", "WIN-SEC-020"
)
@flavours
@pytest.mark.parametrize(
    "context",
    [
        {"seLinuxOptions": {"level": "s0:c123,c456", "role": "r", "type": "t", "user": "u"}},
        {"fsGroup": 2000, "supplementalGroups": [1, 2], "runAsUser": 999, "runAsGroup": 999},
        {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]},
        {"seccompProfile": {"type": "RuntimeDefault"}},
    ],
)
async def test_no_field_of_a_pod_security_context_works(
    node: Any, flavour: str, context: Any
) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", securityContext=context, containers=[container()])
        pod = await running(node)
        assert config(node, pod).linux is None and not await warnings(node)
        assert meant(node, pod).config.linux.selinux is None


@pytest.mark.windows("API-54", "WIN-SEC-016")
async def test_unsafe_sysctls_are_forbidden_as_on_linux(node: Any) -> None:
    async with node("windows") as node:
        context = {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}
        await node.create("p", securityContext=context, containers=[container()])
        pod = await ended(node)
        assert pod["status"]["reason"] == "SysctlForbidden"


@pytest.mark.windows("SEC-09", "WIN-SEC-006")
@flavours
async def test_app_armor_profiles_are_ignored(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        notes = {"container.apparmor.security.beta.kubernetes.io/c": "localhost/not-there"}
        await node.create("p", metadata={"annotations": notes}, containers=[container()])
        await running(node)
        assert not await warnings(node)


# ---- managed service accounts ----

SPEC = json.dumps(
    {
        "CmsPlugins": ["ActiveDirectory"],
        "DomainJoinConfig": {
            "DnsName": "contoso.com",
            "DnsTreeName": "contoso.com",
            "MachineAccountName": "WebApp1",
            "NetBiosName": "CONTOSO",
        },
        "ActiveDirectoryConfig": {
            "GroupManagedServiceAccounts": [{"Name": "WebApp1", "Scope": "CONTOSO"}]
        },
    }
)
GMSA = {"windowsOptions": {"gmsaCredentialSpec": SPEC}}


@pytest.mark.windows("RT-09")
async def test_docker_is_given_a_credential_spec_through_the_registry(node: Any) -> None:
    async with node("windows") as node:
        node.host.registry.set(CREDENTIAL_SPECS, "mine", "of another pod")
        await node.create("p", securityContext=GMSA, containers=[container()])
        pod = await running(node)
        values = node.host.registry.values(CREDENTIAL_SPECS)
        [name] = [name for name in values if name.startswith("k8s-cred-spec-")]
        assert values[name] == SPEC and len(name) == len("k8s-cred-spec-") + 80
        await node.client.delete(PODS, "default", pod["metadata"]["name"])
        await node.settle(60)
        # gone with its container
        assert set(node.host.registry.values(CREDENTIAL_SPECS)) == {"mine"}


@pytest.mark.windows("RT-09")
async def test_containerd_is_given_the_contents_themselves(node: Any) -> None:
    async with node("windows", flavour="containerd") as node:
        await node.create(
            "p",
            securityContext=GMSA,
            containers=[
                container(),
                container(
                    name="d", securityContext={"windowsOptions": {"gmsaCredentialSpec": "{}"}}
                ),
            ],
        )
        pod = await running(node)
        assert config(node, pod).windows.credential_spec == SPEC
        assert config(node, pod, "d").windows.credential_spec == "{}"
        assert not node.host.registry.values(CREDENTIAL_SPECS)


@pytest.mark.windows("RT-09", "W-SEC-39", "W-SEC-41")
@flavours
async def test_nltest_knows_the_domain_of_the_account(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", securityContext=GMSA, containers=[container()])
        await node.create("q", containers=[container()])
        pod, other = await running(node), await running(node, "q")
        result = await run(node, pod, "nltest", "/PARENTDOMAIN")
        assert (
            b"The command completed successfully" in result.stdout
            and b"contoso.com" in result.stdout
        )
        assert "NERR_Success" in await printed(node, pod, "nltest /query")
        assert (await run(node, other, "nltest", "/PARENTDOMAIN")).exit_code != 0


@pytest.mark.windows("RT-09", "RT-10", "RT-11", "WIN-SEC-021")
@pytest.mark.parametrize(
    ("flavour", "build", "revision", "opens"),
    [
        ("docker", 17763, 1697, True),
        ("containerd", 17763, 1697, False),
        ("containerd", 17763, 1817, True),  # updated in early 2021
        ("containerd", 18363, 1316, False),
        ("containerd", 19041, 508, False),
        ("containerd", 19041, 662, True),
        ("containerd", 19042, 746, True),
    ],
)
async def test_network_shares_with_a_managed_account(
    node: Any, flavour: str, build: int, revision: int, opens: bool
) -> None:
    async with node(
        "windows", flavour=flavour, machine={"build": replace(BUILDS[build], ubr=revision)}
    ) as node:
        image = f"mcr.microsoft.com/windows/servercore:{BUILDS[build].tags[0]}"
        await node.create("p", securityContext=GMSA, containers=[container(image=image)])
        pod = await running(node)
        result = await run(node, pod, "cmd", "/c", "dir /b \\\\contoso.com\\SYSVOL")
        assert (b"contoso.com" in result.stdout) is opens and (result.exit_code == 0) is opens
        # Its identity it has in any case.
        assert "NERR_Success" in await printed(node, pod, "nltest /query")


@pytest.mark.windows("ROAD-19", "WIN-SEC-022")
@pytest.mark.parametrize(
    ("version", "fields"), [("v1.14.10", False), ("v1.17.17", True), ("v1.20.15", True)]
)
async def test_managed_accounts_are_read_from_annotations_at_1_14(
    node: Any, version: str, fields: bool
) -> None:
    async with node("windows", version=version) as node:
        notes = {
            "pod.alpha.windows.kubernetes.io/gmsa-credential-spec": "of the pod",
            "d.container.alpha.windows.kubernetes.io/gmsa-credential-spec": "of d",
        }
        await node.create(
            "p", metadata={"annotations": notes}, containers=[container(), container(name="d")]
        )
        await node.create("q", securityContext=GMSA, containers=[container()])
        pod, other = await running(node), await running(node, "q")
        requested = [config(node, pod, name).windows.credential_spec for name in ("c", "d")]
        assert requested == (["", ""] if fields else ["of the pod", "of d"])
        assert config(node, other).windows.credential_spec == (SPEC if fields else "")


@pytest.mark.windows("API-05")
async def test_an_account_of_one_container_is_unknown_to_the_others(node: Any) -> None:
    async with node("windows", runtime={"catalogue": IMAGES}) as node:
        await node.create(
            "p",
            restartPolicy="Never",
            containers=[
                container(image="example.com/web"),
                container(name="d", securityContext=user("web")),
            ],
        )
        pod = await until(
            node,
            "p",
            lambda pod: (
                len(pod["status"].get("containerStatuses") or ()) == 2
                and "terminated" in state(pod, "d")
            ),
        )
        assert "running" in state(pod) and in_runtime(node, pod, "d").exit_code == 128
