"""The command line. It talks to a running sidecar over HTTP, and to the world only through `wiring.Wiring`."""
