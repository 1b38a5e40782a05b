"""The command line. It uses a running sidecar over HTTP, and connects to brokers and stores only by `wiring.Wiring`."""
