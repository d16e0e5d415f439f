"""What is known of Windows: builds, releases, the support matrix, the limits registry."""
