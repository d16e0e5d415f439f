"""CNI: the configuration of nodes, the plugins and their runner, and flannel's agent."""
