"""Protocols that carry several byte streams over one upgraded connection: SPDY/3.1 and WebSocket
channels.

Everything here is sans-IO: bytes in, events out, bytes to send. No sockets, no clock, no Kubernetes
objects; the API server and the kubelet bring those.

A server calls `upgrade.accept_command` or `upgrade.accept_forward`; a client sends
`channels.spdy_request_headers` or `websocket.request_headers` and makes one of the client sessions.
Either then drives its session: `start()` once, each `receive_data(bytes)` and finally
`receive_eof()` give events; after every call the socket gets `data_to_send()`, and is closed when
the session is `done`. `relay` joins two sessions of commands.

    upgrade                        a request to a session
    relay                          a session of a command to another
    remotecommand, portforward     the sessions
    session                        what they have in common
    channels                       names and messages of Kubernetes' protocols
    spdy, spdy_frames, websocket   the wires
"""
