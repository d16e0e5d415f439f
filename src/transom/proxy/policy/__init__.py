"""NetworkPolicy: who may talk to whom, worked out once for the cluster and enforced by each node for its own pods."""
