"""Facts about Windows: builds, releases, the support matrix, the limits registry."""
