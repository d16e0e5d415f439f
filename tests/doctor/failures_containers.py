"""Containers that do not start or do not keep running: images, sandboxes, volumes, configuration."""

from __future__ import annotations

from tests.doctor.failures import (
    CONFIG,
    NANO,
    SECRET,
    A,
    Failure,
    begin_delete,
    both,
    config,
    create,
    held,
    mounting,
    obj,
    pod,
    release,
    sim,
    sleep,
)

CONTAINER_FAILURES: tuple[Failure, ...] = (
    # ---- images ----
    Failure(
        "a tag that does not exist",
        A,
        "the image nginx:nope does not exist in the registry",
        "Correct the image's name",
        (pod(image="nginx:nope"),),
        (pod(),),
        covers=("Failed", "BackOff", "state:ErrImagePull", "state:ImagePullBackOff"),
    ),
    Failure(
        "a registry that does not exist",
        A,
        "the name of the registry, nope.invalid, cannot be resolved",
        "Correct the registry",
        (pod(image="nope.invalid/app:1"),),
        (pod(),),
    ),
    Failure(
        "a malformed image name",
        A,
        "is not a valid image name",
        "lower case",
        (pod(image="Foo:::bar"),),
        (pod(),),
        covers=("InspectFailed", "state:InvalidImageName"),
    ),
    Failure(
        "an image that may not be pulled",
        A,
        "is not on the node, and imagePullPolicy is Never",
        "IfNotPresent",
        (pod(image="nginx:1.20", imagePullPolicy="Never"),),
        (pod(),),
        covers=("ErrImageNeverPull", "state:ErrImageNeverPull"),
    ),
    Failure(
        "a Windows image on Linux",
        A,
        "is for Windows, and the pod runs on a Linux node",
        "nodeSelector kubernetes.io/os: windows",
        (pod(image=NANO),),
        (pod(os="windows"),),
        record="WIN-POD-010",
    ),
    Failure(
        "a Linux image on Windows",
        A,
        "image nginx:1.19 cannot be pulled",
        "",
        (pod(os="windows", image="nginx:1.19"),),
        (pod(os="windows"),),
        record="WIN-OS-007",
    ),
    Failure(
        "an image of a later Windows build",
        A,
        "no matching manifest for windows/amd64 10.0.17763",
        "select nodes with a build",
        (pod(os="windows", image="mcr.microsoft.com/windows/nanoserver:ltsc2022"),),
        (pod(os="windows"),),
        record="WIN-OS-005",
        runtime="docker",
    ),
    Failure(
        "a failing pull",
        A,
        "sim.transom.dev/fail-*",
        "Remove the annotation",
        (pod(annotations=sim(fail_pull="true"), imagePullPolicy="Always"),),
        (pod(),),
        covers=("fault:fail-pull",),
    ),
    # ---- sandboxes ----
    Failure(
        "hostNetwork on Windows",
        A,
        "network host not found",
        "",
        (pod(os="windows", spec={"hostNetwork": True}),),
        (pod(os="windows"),),
        record="WIN-POD-002",
        covers=("FailedCreatePodSandBox", "state:ContainerCreating"),
        runtime="docker",
    ),
    Failure(
        "a failing sandbox",
        A,
        "the annotation sim.transom.dev/fail-sandbox",
        "Remove the annotation",
        (pod(annotations=sim(fail_sandbox="true")),),
        (pod(),),
        covers=("fault:fail-sandbox",),
    ),
    Failure(
        "a handler that the runtime does not have",
        A,
        "has no handler nope",
        "Use a RuntimeClass whose handler",
        (
            obj("RuntimeClass", "rc", "node.k8s.io/v1", None, handler="nope"),
            pod(spec={"runtimeClassName": "rc"}),
        ),
        (pod(),),
    ),
    # ---- volumes ----
    Failure(
        "a ConfigMap of a volume that does not exist",
        A,
        "the ConfigMap settings does not exist",
        "Create the ConfigMap settings",
        (mounting({"configMap": {"name": "settings"}}),),
        (CONFIG, mounting({"configMap": {"name": "settings"}})),
        covers=("FailedMount",),
    ),
    Failure(
        "a key of a volume that does not exist",
        A,
        "the ConfigMap of a volume has no key nope",
        "Add the key nope",
        (mounting({"configMap": {"name": "settings", "items": [{"key": "nope", "path": "f"}]}}),),
        (
            config(nope="1"),
            mounting({"configMap": {"name": "settings", "items": [{"key": "nope", "path": "f"}]}}),
        ),
        first=(CONFIG,),
    ),
    Failure(
        "a Secret of a volume that does not exist",
        A,
        "the Secret secret does not exist",
        "Create the Secret secret",
        (mounting({"secret": {"secretName": "secret"}}),),
        (SECRET, mounting({"secret": {"secretName": "secret"}})),
    ),
    Failure(
        "a hostPath of another type",
        A,
        "has no directory /nope",
        "DirectoryOrCreate",
        (mounting({"hostPath": {"path": "/nope", "type": "Directory"}}),),
        (mounting({"hostPath": {"path": "/nope", "type": "DirectoryOrCreate"}}),),
    ),
    Failure(
        "a hostPath of Linux on Windows",
        A,
        "has no c:/var/run/docker.sock",
        "Use a directory of the Windows node",
        (mounting({"hostPath": {"path": "/var/run/docker.sock"}}, "windows"),),
        (mounting({"hostPath": {"path": "C:\\data", "type": "DirectoryOrCreate"}}, "windows"),),
        record="WIN-STO-017",
        also=("is a path of Linux",),
        runtime="docker",
    ),
    Failure(
        "a hostPath of Linux that Windows creates",
        A,
        "its hostPath /var/lib/data is a path of Linux",
        "Use a directory of the Windows node",
        (
            mounting(
                {"hostPath": {"path": "/var/lib/data", "type": "DirectoryOrCreate"}}, "windows"
            ),
        ),
        (mounting({"hostPath": {"path": "C:\\data", "type": "DirectoryOrCreate"}}, "windows"),),
        record="WIN-STO-017",
    ),
    Failure(
        "a named pipe that does not exist",
        A,
        "has no named pipe",
        "Start the program that creates the pipe",
        (mounting({"hostPath": {"path": r"\\.\pipe\nope"}}, "windows", r"\\.\pipe\nope"),),
        (pod(os="windows"),),
        record="WIN-STO-018",
    ),
    Failure(
        "NFS on Windows",
        A,
        "should have at least 2 options",
        "Use SMB",
        (mounting({"nfs": {"server": "s", "path": "/x"}}, "windows"),),
        (pod(os="windows"),),
        record="WIN-STO-010",
    ),
    Failure(
        "a single file on Windows with Docker",
        A,
        "source path must be a directory",
        "Mount the whole volume",
        (
            mounting(
                {"configMap": {"name": "kube-root-ca.crt"}},
                "windows",
                "/v/ca.crt",
                mount={"subPath": "ca.crt"},
            ),
        ),
        (mounting({"configMap": {"name": "kube-root-ca.crt"}}, "windows"),),
        record="WIN-STO-002",
        runtime="docker",
    ),
    Failure(
        "a FlexVolume driver that is not there",
        A,
        "no volume plugin of node linux-1",
        "as /usr/libexec/kubernetes/kubelet-plugins/volume/exec/a~b/b",
        (mounting({"flexVolume": {"driver": "a/b"}}),),
        (pod(),),
    ),
    Failure(
        "a FlexVolume driver of Windows that is not installed",
        A,
        "no volume plugin of node windows-",
        "flex-drivers=on",
        (
            mounting(
                {"flexVolume": {"driver": "microsoft.com/smb.cmd"}}, os="windows", path="C:\\v"
            ),
        ),
        (pod(),),
    ),
    Failure(
        "a git repository on Windows",
        A,
        " has no git, which a gitRepo volume needs",
        "an init container",
        (
            mounting(
                {"gitRepo": {"repository": "https://git.example/a.git"}}, os="windows", path="C:\\v"
            ),
        ),
        (pod(),),
    ),
    Failure(
        "a CSI driver that is not there",
        A,
        "the CSI driver of a volume is not installed",
        "Install the CSI driver",
        (mounting({"csi": {"driver": "a.b"}}),),
        (pod(),),
    ),
    # ---- configuration of containers ----
    Failure(
        "a ConfigMap of the environment that does not exist",
        A,
        "the ConfigMap settings does not exist",
        "Create the ConfigMap settings in namespace default",
        (pod(envFrom=[{"configMapRef": {"name": "settings"}}]),),
        (CONFIG, pod(envFrom=[{"configMapRef": {"name": "settings"}}])),
        covers=("state:CreateContainerConfigError",),
    ),
    Failure(
        "a key of the environment that does not exist",
        A,
        "the ConfigMap settings has no key nope",
        "Add the key nope",
        (
            pod(
                env=[
                    {
                        "name": "A",
                        "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "nope"}},
                    }
                ]
            ),
        ),
        (
            config(nope="1"),
            pod(
                env=[
                    {
                        "name": "A",
                        "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "nope"}},
                    }
                ]
            ),
        ),
        first=(CONFIG,),
    ),
    Failure(
        "a Secret of the environment that does not exist",
        A,
        "the Secret secret does not exist",
        "Create the Secret secret",
        (
            pod(
                env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "key"}}}]
            ),
        ),
        (
            SECRET,
            pod(
                env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "key"}}}]
            ),
        ),
    ),
    Failure(
        "runAsNonRoot with an image of root",
        A,
        "runAsNonRoot is set, and the image runs as root",
        "Set runAsUser",
        (pod(spec={"securityContext": {"runAsNonRoot": True}}),),
        (pod(spec={"securityContext": {"runAsNonRoot": True, "runAsUser": 101}}),),
    ),
    Failure(
        "runAsNonRoot with ContainerAdministrator",
        A,
        "will be regarded as root identity",
        "Run as ContainerUser",
        (
            pod(
                os="windows",
                spec={
                    "securityContext": {
                        "runAsNonRoot": True,
                        "windowsOptions": {"runAsUserName": "ContainerAdministrator"},
                    }
                },
            ),
        ),
        (
            pod(
                os="windows",
                spec={
                    "securityContext": {
                        "runAsNonRoot": True,
                        "windowsOptions": {"runAsUserName": "ContainerUser"},
                    }
                },
            ),
        ),
        record="WIN-SEC-013",
        runtime="docker",
    ),
    Failure(
        "an unknown account on Windows",
        A,
        "has no account of the name in runAsUserName",
        "Use ContainerUser",
        (pod(os="windows", securityContext={"windowsOptions": {"runAsUserName": "bob"}}),),
        (
            pod(
                os="windows", securityContext={"windowsOptions": {"runAsUserName": "ContainerUser"}}
            ),
        ),
        record="WIN-SEC-018",
    ),
    # ---- starting and running ----
    Failure(
        "a command that does not exist",
        A,
        "the image has no command nope",
        "Correct the container's command",
        (pod(command=["nope"]),),
        (pod(),),
        covers=("state:CrashLoopBackOff", "state:RunContainerError"),
    ),
    Failure(
        "a command with a path that does not exist",
        A,
        "the image has no command /bin/nope",
        "Correct the container's command",
        (pod(command=["/bin/nope"]),),
        (pod(),),
    ),
    Failure(
        "a command that does not exist on Windows",
        A,
        "the image has no command nope",
        "Correct the container's command",
        (pod(os="windows", command=["nope"]),),
        (pod(os="windows"),),
    ),
    Failure(
        "sh on Windows",
        A,
        "the image has no command sh",
        '["cmd", "/c", ...]',
        (pod(os="windows", command=["sh", "-c", "true"]),),
        (pod(os="windows"),),
        record="WIN-CTR-002",
    ),
    Failure(
        "a failing start",
        A,
        "fail-*",
        "Remove the annotation",
        (pod(annotations=sim(fail_start="true")),),
        (pod(),),
        covers=("fault:fail-start",),
    ),
    Failure(
        "a crash",
        A,
        "container c fails with exit code 3",
        "kubectl logs a --namespace default --container c --previous",
        (pod(command=["sh", "-c", "exit 3"]),),
        (pod(),),
        covers=("fault:exit-code", "fault:crash"),
    ),
    Failure(
        "a container that ends",
        A,
        "ends with exit code 0, and restartPolicy is Always",
        "use a Job",
        (pod(command=["true"]),),
        (pod(),),
        covers=("fault:run-time",),
    ),
    Failure(
        "a memory limit that is too small",
        A,
        "used more memory than its limit of 20Mi",
        "Raise its memory limit",
        (pod(annotations=sim(memory="50Mi"), resources={"limits": {"memory": "20Mi"}}),),
        (pod(annotations=sim(memory="50Mi"), resources={"limits": {"memory": "100Mi"}}),),
        covers=("fault:memory",),
    ),
    Failure(
        "an init container that fails",
        A,
        "container i fails with exit code 1",
        "--container i --previous",
        (
            pod(
                spec={
                    "initContainers": [
                        {"name": "i", "image": "busybox", "command": ["sh", "-c", "exit 1"]}
                    ]
                }
            ),
        ),
        (pod(),),
        covers=("state:PodInitializing",),
    ),
    Failure(
        "a liveness probe that fails",
        A,
        "Liveness probe failed: HTTP probe failed with statuscode: 404",
        "Correct httpGet.path in the probe",
        (pod(livenessProbe={"httpGet": {"path": "/nope", "port": 80}, "periodSeconds": 1}),),
        (pod(),),
        covers=("Unhealthy",),
        seconds=400,
    ),
    Failure(
        "a readiness probe that fails",
        A,
        "is not ready: nothing listens on port 81 of the pod (Readiness probe failed",
        "Correct the port in the probe",
        (pod(readinessProbe={"tcpSocket": {"port": 81}, "periodSeconds": 1}),),
        (pod(readinessProbe={"tcpSocket": {"port": 80}, "periodSeconds": 1}),),
    ),
    Failure(
        "a postStart hook that fails",
        A,
        "its postStart hook fails",
        "Correct the container's postStart hook",
        (pod(lifecycle={"postStart": {"exec": {"command": ["false"]}}}),),
        (pod(),),
        covers=("FailedPostStartHook",),
    ),
    Failure(
        "a readiness gate",
        A,
        "its readiness gate example.com/ready is not True",
        "Check the controller",
        (pod(spec={"readinessGates": [{"conditionType": "example.com/ready"}]}),),
        (pod(),),
    ),
    Failure(
        "a pod that is not deleted",
        A,
        "is not deleted: it has the finalizers example.com/x",
        "remove the finalizer",
        do=both(create(held(pod())), sleep(2), begin_delete(pod())),
        undo=release(pod()),
    ),
)
