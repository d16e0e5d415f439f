"""A real containerd as `runtime.api.Runtime`, through the Container Runtime Interface.

runtime      the entry point: one method for each of `runtime.api`
relist       a cache of sandboxes and containers, and events for changes
statistics   a cache of the statistics of containers, sandboxes and the image disk
streams      exec, attach and port-forward on the runtime's streaming server
to_cri       our configurations as CRI messages
from_cri     CRI messages as our types
paths        a node's paths as the runtime sees them
client       calls by name, in the CRI version of the runtime
codec        encodes and decodes messages, by the table in messages.txt
grpc         calls over HTTP/2; needs the package h2 (the extra `cri`)
address      where the runtime listens
"""
