"""What the Makefile calls, and where the project stands."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
