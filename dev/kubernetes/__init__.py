"""Run a real Kubernetes control plane on this machine, without containers, for tests and experiments.

etcd, API server, controller manager and scheduler are Kubernetes' own programs. kwok simulates the nodes: it reports
that pods run and that Jobs complete, but no container starts.
"""
