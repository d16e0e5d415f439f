"""Statistics of a node and its pods: the summary, and Prometheus metrics."""
