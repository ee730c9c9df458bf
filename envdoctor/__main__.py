"""`envdoctor` and `python -m envdoctor`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while its modules are still being read is no traceback, either."""
    try:
        from envdoctor.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
