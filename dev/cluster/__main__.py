"""Run a local Pulsar cluster: ``python -m dev.cluster``, see ``--help``."""

import sys

from dev.cluster.cli import main

if __name__ == "__main__":
    sys.exit(main())
