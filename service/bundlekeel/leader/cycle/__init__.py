"""The control loop: observe, plan, check the gate, execute, record."""
