"""Container networking plugins: configuration of nodes, the plugins themselves, their runner, and the agent of flannel."""
