"""The Kubernetes API as pure functions on JSON dicts. Knows no sockets, no clock of its own, no store."""
