"""The revisioned key-value seam. Keys are strings and values are bytes; it knows nothing of Kubernetes."""
