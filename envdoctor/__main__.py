"""Entry point of `envdoctor` and `python -m envdoctor`."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C while its modules are imported ends without a traceback."""
    try:
        from envdoctor.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
