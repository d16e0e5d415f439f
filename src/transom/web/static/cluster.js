// The Cluster page.
