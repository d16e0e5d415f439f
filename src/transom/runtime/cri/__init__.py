"""A real containerd as `runtime.api.Runtime`, through the Container Runtime Interface.

    runtime      the door: one method for each of the seam's
    relist       what is there, kept in memory, and the news of it
    statistics   numbers of containers, sandboxes and the images' disk, likewise
    streams      exec, attach and port-forward on the runtime's streaming server
    outward      configurations of ours as CRI has them
    inward       what CRI says as ours
    paths        a node's paths as the runtime knows them
    client       calls by their names, in the version of the interface that the runtime speaks
    codec        messages as bytes, by the table in messages.txt
    grpc         calls over HTTP/2; needs the package h2 (the extra `cri`)
    address      where the runtime listens
"""
