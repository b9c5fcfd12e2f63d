"""Entry point of scripts/truth-matrix."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matrix.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
