"""The command line. It speaks HTTP to a server; only `up`, `down`, `status`, `models` and `migrate` work here."""

import sys


def main() -> int:
    """Entry point of `fullread`. `--version` answers before anything else is imported."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from app import __version__

        sys.stdout.write(f"fullread {__version__}\n")
        return 0
    from app.cli.program import run

    return run(sys.argv[1:])
