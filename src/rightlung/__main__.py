"""``python -m rightlung``."""

from rightlung.cli import main

main()
