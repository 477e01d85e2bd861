"""Fullread: answers over large private document sets, with proof of what was read."""

__version__ = "0.1.0"
