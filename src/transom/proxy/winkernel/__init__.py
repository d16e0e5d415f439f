"""kube-proxy's kernel mode on Windows nodes."""
