"""The way from the API server to kubelets, and through it to pods and services: logs, streams and HTTP proxies."""
