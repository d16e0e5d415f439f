"""kube-proxy: services and their endpoints become rules of a node's kernel, or connections of a proxy of its own."""
