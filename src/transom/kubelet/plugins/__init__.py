"""Programs on a node that register with its kubelet, as storage drivers do: found by their sockets, called by gRPC.

The seam is `endpoint.Endpoint`: on a node whose files are real it speaks gRPC at a real socket, on a simulated one the
program at the socket is called directly. Nothing above it can tell.
"""
