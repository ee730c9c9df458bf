"""Entry point of `envdoctor` and `python -m envdoctor`."""

import gc
import os
import sys

# New objects until the garbage collector runs. The imports create some 50,000 objects, all of them needed until the
# end; at Python's 700, they are searched for cycles dozens of times.
GC_THRESHOLD = 100_000


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
