"""Entry point of `envdoctor` and `python -m envdoctor`."""

import gc
import os
import sys

# New objects until the garbage collector runs. The imports and tables of an audit create over 100,000 objects,
# and need all until the end: one search of them for cycles takes 30 ms, and Python starts the first one at 700.
GC_THRESHOLD = 200_000


def main() -> None:
    """Run the command line. Ctrl-C while its modules are imported ends without a traceback."""
    gc.set_threshold(GC_THRESHOLD)
    try:
        if "_ENVDOCTOR_COMPLETE" in os.environ:  # the shell requests completions; no command is imported
            from envdoctor.completion import main as complete

            return complete()
        from envdoctor.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()  # Python collects garbage as it exits, which takes a fifth of a short command


if __name__ == "__main__":
    main()
