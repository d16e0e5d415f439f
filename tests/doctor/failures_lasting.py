"""Failures that last: reported also when the kubelet has stopped to report most of their events.
And causes that differ by the release, the volume or the probe."""

from __future__ import annotations

from tests.doctor.failures import (
    NANO,
    WAIT,
    A,
    Failure,
    claim,
    config,
    mounting,
    obj,
    pod,
    volume,
    workload,
)

LONG = 700  # seconds: the back-off has its maximum of five minutes, and most events are dropped
CLASS = obj(
    "StorageClass",
    "late",
    "storage.k8s.io/v1",
    None,
    provisioner="py.example.com",
    volumeBindingMode="WaitForFirstConsumer",
)
AT_ONCE = obj("StorageClass", "late", "storage.k8s.io/v1", None, provisioner="py.example.com")
USES_CLAIM = mounting({"persistentVolumeClaim": {"claimName": "v"}})
NO_ENDPOINTS = {"glusterfs": {"endpoints": "g", "path": "v"}}
LOCAL = volume(
    "local",
    hostPath=None,
    local={"path": "/mnt/none"},
    storageClassName="local",
    nodeAffinity={
        "required": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["linux-1"]}
                    ]
                }
            ]
        }
    },
)
SHARED = volume("once", storageClassName="once", accessModes=["ReadWriteOncePod"])
ONE_POD = claim(storageClassName="once", volumeName="once", accessModes=["ReadWriteOncePod"])
SECOND = {**USES_CLAIM, "metadata": {"name": "b", "namespace": "default"}}
STRICT = obj(
    "Namespace",
    "strict",
    namespace=None,
    metadata={"labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
)
LAX = obj(
    "Namespace",
    "strict",
    namespace=None,
    metadata={"labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
)
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "w"}},
}
SIDECAR = {
    "name": "i",
    "image": "busybox:1.33",
    "restartPolicy": "Always",
    "command": ["sleep", "9999"],
}

LASTING_FAILURES: tuple[Failure, ...] = (
    Failure(
        "a postStart hook that fails for long",
        A,
        "its postStart hook fails",
        "Correct the container's postStart hook",
        (pod(lifecycle={"postStart": {"httpGet": {"path": "/", "port": 9999}}}),),
        (pod(),),
        after=LONG,
    ),
    Failure(
        "a sandbox that cannot be created for long",
        A,
        "network host not found",
        "",
        (pod(os="windows", spec={"hostNetwork": True}),),
        (pod(os="windows"),),
        after=LONG,
        record="WIN-POD-002",
        runtime="docker",
    ),
    Failure(
        "a readiness probe that fails for long",
        A,
        "nothing listens on port 81 of the pod",
        "Correct the port in the probe",
        (pod(readinessProbe={"tcpSocket": {"port": 81}, "periodSeconds": 2}),),
        (pod(),),
        after=1500,
    ),
    Failure(
        "a liveness probe that fails for long",
        A,
        "container c is restarted: nothing listens on port 81 of the pod",
        "Correct the port in the probe",
        (pod(livenessProbe={"tcpSocket": {"port": 81}, "periodSeconds": 2}),),
        (pod(),),
        after=1500,
    ),
    Failure(
        "a variable that was left out a while ago",
        A,
        "keys of a ConfigMap or Secret are not valid names of variables",
        "Rename the keys",
        (config(**{"9x": "1"}), pod(envFrom=[{"configMapRef": {"name": "settings"}}])),
        (config(x="1"), pod(envFrom=[{"configMapRef": {"name": "settings"}}])),
        after=600,
    ),
    Failure(
        "a liveness probe that can never run",
        "pod/default/p",
        "a probe cannot run: the image has no command /bin/nope",
        "Correct the command in the probe",
        (pod("p", livenessProbe={"exec": {"command": ["/bin/nope"]}}),),
        (pod("p"),),
    ),
    Failure(
        "a provisioner that is not there when a pod is scheduled",
        A,
        "the provisioner py.example.com did not create the volume of its claim v",
        "Install or start the provisioner py.example.com",
        (CLASS, claim(storageClassName="late"), USES_CLAIM),
        None,
    ),
    Failure(
        "a claim whose provisioner is not there when a pod is scheduled",
        "persistentvolumeclaim/default/v",
        "the provisioner py.example.com did not create a volume",
        "Install or start the provisioner py.example.com",
        (CLASS, claim(storageClassName="late"), USES_CLAIM),
        None,
    ),
    Failure(
        "a claim whose provisioner is not there, in later releases",
        "persistentvolumeclaim/default/v",
        "the provisioner py.example.com did not create a volume",
        "Install or start the provisioner py.example.com",
        (AT_ONCE, claim(storageClassName="late")),
        None,
        since="1.28",
    ),
    Failure(
        "a socket that does not exist",
        A,
        "node linux-1 has no socket /run/none.sock",
        "Start the program that creates the socket",
        (mounting({"hostPath": {"path": "/run/none.sock", "type": "Socket"}}),),
        (mounting({"hostPath": {"path": "/run"}}),),
    ),
    Failure(
        "a directory of Windows that does not exist",
        A,
        "has no directory C:\\nope",
        "Create the directory on node windows-",
        (mounting({"hostPath": {"path": "C:\\nope", "type": "Directory"}}, "windows", "C:\\v"),),
        (
            mounting(
                {"hostPath": {"path": "C:\\nope", "type": "DirectoryOrCreate"}}, "windows", "C:\\v"
            ),
        ),
    ),
    Failure(
        "a mount path that Windows reserves",
        A,
        "container c cannot start: CreateContainerError",
        "Correct what the message names",
        (mounting({"emptyDir": {}}, "windows", "C:\\con"),),
        (mounting({"emptyDir": {}}, "windows", "C:\\v"),),
    ),
    Failure(
        "a block device of Ceph on Windows",
        A,
        "fail to check rbd image status",
        "",
        (mounting({"rbd": {"monitors": ["10.1.1.1:6789"], "image": "x"}}, "windows", "C:\\v"),),
        (pod(os="windows"),),
        record="WIN-STO-011",
    ),
    Failure(
        "a Gluster volume on Windows, by a claim",
        A,
        'endpoints "g" not found',
        "",
        (
            volume("gl", hostPath=None, storageClassName="gl", **NO_ENDPOINTS),
            claim(storageClassName="gl", volumeName="gl"),
            mounting({"persistentVolumeClaim": {"claimName": "v"}}, "windows", "C:\\v"),
        ),
        None,
        record="WIN-STO-011",
    ),
    Failure(
        "servers of a Gluster volume that are not named",
        A,
        "the Endpoints g with the servers of a volume do not exist",
        "Create the Endpoints g in namespace default",
        (mounting(NO_ENDPOINTS),),
        None,
    ),
    Failure(
        "a local volume without its directory",
        A,
        "node linux-1 has no /mnt/none, the path of a local volume",
        "Create the directory on node linux-1",
        (LOCAL, claim(storageClassName="local", volumeName="local"), USES_CLAIM),
        None,
    ),
    Failure(
        "a downwardAPI volume of another container",
        A,
        "names container other, which the pod does not have",
        "Correct containerName",
        (
            mounting(
                {
                    "downwardAPI": {
                        "items": [
                            {
                                "path": "x",
                                "resourceFieldRef": {
                                    "containerName": "other",
                                    "resource": "limits.cpu",
                                },
                            }
                        ]
                    }
                }
            ),
        ),
        None,
    ),
    Failure(
        "requests that no node can ever meet",
        A,
        "it requests 64 cpu and 1048576Mi memory, and the largest node that it may run on has 4 and",
        "Lower its request for cpu and memory",
        (pod(resources={"requests": {"cpu": "64", "memory": "1Ti"}}),),
        (pod(),),
    ),
    Failure(
        "a topology spread that no node can meet",
        "pod/default/w-",
        "its topology spread constraints cannot be met",
        "ScheduleAnyway",
        (workload(replicas=2, pod_spec={"topologySpreadConstraints": [SPREAD]}),),
        None,
    ),
    # ---- newer releases ----
    Failure(
        "a sidecar whose startup probe fails",
        A,
        "container i is restarted: nothing listens on port 99 of the pod",
        "Correct the port in the probe",
        (
            pod(
                spec={
                    "initContainers": [
                        {**SIDECAR, "startupProbe": {"tcpSocket": {"port": 99}, "periodSeconds": 2}}
                    ]
                }
            ),
        ),
        (pod(),),
        after=60,
        since="1.29",
    ),
    Failure(
        "sidecars that request more than a node has",
        A,
        "it requests 6 cpu, and the largest node that it may run on has 4",
        "Lower its request for cpu",
        (
            pod(
                spec={"initContainers": [{**SIDECAR, "resources": {"requests": {"cpu": "3"}}}]},
                resources={"requests": {"cpu": "3"}},
            ),
        ),
        (pod(),),
        since="1.29",
    ),
    Failure(
        "an image volume whose image does not exist",
        A,
        "image busybox:nope cannot be pulled: the image busybox:nope does not exist",
        "Correct the image's name and tag",
        (mounting({"image": {"reference": "busybox:nope"}}),),
        (pod(),),
        since="1.35",
    ),
    Failure(
        "an AppArmor profile that is not loaded, by its field",
        A,
        "node linux-1 has not loaded the AppArmor profile nope",
        "Load the profile on node linux-1",
        (
            pod(
                securityContext={
                    "appArmorProfile": {"type": "Localhost", "localhostProfile": "nope"}
                }
            ),
        ),
        (pod(),),
        since="1.31",
    ),
    Failure(
        "a Pod Security Standard that forbids pods",
        "deployment/strict/w",
        "the Pod Security Standard restricted of the namespace forbids the pods",
        "kubectl label namespace strict pod-security.kubernetes.io/enforce=privileged --overwrite",
        (STRICT, {**workload(), "metadata": {"name": "w", "namespace": "strict"}}),
        (
            LAX,
            {
                **workload(spec={"replicas": 2}),
                "metadata": {"name": "w", "namespace": "strict"},
            },
        ),
        since="1.25",
    ),
    Failure(
        "a claim that only one pod may use",
        "pod/default/b",
        "another pod uses its claim, whose access mode is ReadWriteOncePod",
        "Delete the other pod",
        (SECOND,),
        None,
        first=(SHARED, ONE_POD, USES_CLAIM),
        since="1.29",
    ),
    Failure(
        "a Windows image without its command",
        A,
        "the image has no command",
        "",
        (pod(os="windows", image=NANO, command=["nope.exe"]),),
        (pod(os="windows", image=NANO, command=WAIT),),
        after=LONG,
    ),
)
