"""Entry point of scripts/gpu-check."""

import sys

from checks.main import main

if __name__ == "__main__":
    sys.exit(main())
