"""Protocols that carry several byte streams over one upgraded connection: SPDY/3.1 and WebSocket channels.

Everything here is sans-IO: bytes in, events out, bytes to send. No sockets, no clock, no Kubernetes objects; the API
server and the kubelet bring those.
"""
