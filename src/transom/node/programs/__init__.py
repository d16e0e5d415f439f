"""kubelet, kube-proxy, flanneld and the DNS server, each started from its command line."""
