"""Published ways out of containers (runc, containerd, kubelet), tried on real containers: each must
lead nowhere.
"""
