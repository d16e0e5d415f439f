"""Numbers of a node and its pods: the summary that metrics are made from, and Prometheus' texts."""
