"""Several API servers and an etcd on this machine, each a process (`transom up --servers 3`)."""
