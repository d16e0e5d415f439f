"""What metrics-server does in other clusters: asks every kubelet, again and again, what its node and pods use."""
