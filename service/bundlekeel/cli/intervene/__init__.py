"""Commands that request a change from the daemon."""
