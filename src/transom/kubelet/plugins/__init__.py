"""Programs on a node that register with its kubelet, such as drivers of storage and of devices: discovered by their
sockets, called by gRPC.

The interface is `endpoint.Endpoint`: on a node with real files it speaks gRPC over a real socket,
on a simulated one it calls the program at the socket directly. Callers see no difference.
"""
