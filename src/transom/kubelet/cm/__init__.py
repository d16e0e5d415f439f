"""The container manager: exclusive CPUs of containers and their placement on NUMA nodes."""
