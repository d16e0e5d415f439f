"""Published escapes from containers (runc, containerd, kubelet), tried on real containers: each
must fail.
"""
