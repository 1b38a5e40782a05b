"""Commands that ask the daemon to change something."""
