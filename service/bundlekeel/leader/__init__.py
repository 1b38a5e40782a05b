"""The leader's control loop: it plans, checks permissions at the gate, executes, and keeps the shared state."""
