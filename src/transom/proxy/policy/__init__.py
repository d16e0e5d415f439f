"""NetworkPolicy: computed once for the cluster, enforced by each node for its own pods."""
