"""The leader's control loop: it plans, asks the gate, executes, and keeps the shared state."""
