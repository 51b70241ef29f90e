"""`python -m dpunion` is the command `dpunion`."""

from __future__ import annotations

from dpunion.cli import main

if __name__ == "__main__":
    main()
