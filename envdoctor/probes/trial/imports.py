"""Import modules one after the other, and report after each.

    python imports.py JOBS RESULTS

JOBS is JSON: {"seconds": 120, "targets": [{"id": 0, "module": "trl", "names": ["GRPOConfig"]}]}. RESULTS receives one
JSON object per line: {"id": 0, "state": "started", "output": 0} before an import, and one with its result after it. A
name may be dotted: it is followed through modules, and ends at the first object that is none. `output` is the size of
the output so far, so that the output of each import can be separated.
Only the standard library is used, since this runs in the interpreter under test.
"""

import importlib
import json
import os
import signal
import sys
import traceback
import types

MAX_TEXT = 2000
MAX_TRACEBACK = 8000
FRAMES = 12


def follow(module, names):
    """Import a module and read the names that a program uses of it."""
    found = importlib.import_module(module)
    for name in names:
        value, path = found, module
        for part in name.split("."):
            if not isinstance(value, types.ModuleType):
                break
            path = path + "." + part
            try:
                value = getattr(value, part)
            except AttributeError as error:
                try:
                    value = importlib.import_module(path)
                except ModuleNotFoundError as missing:
                    if missing.name == path:
                        raise error from None
                    raise


def describe(error):
    """An exception with the files that it passed through, the innermost last."""
    frames = [
        [frame.filename, frame.lineno or 0]
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and os.path.basename(frame.filename) != "imports.py"  # noqa: PTH119
    ]
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {
        "state": "failed",
        "error": type(error).__name__,
        "message": str(error)[:MAX_TEXT],
        "missing": getattr(error, "name", None) or "" if isinstance(error, ImportError) else "",
        "frames": frames[-FRAMES:],
        "traceback": "".join(lines)[-MAX_TRACEBACK:],
    }


def output_size():
    """The size of the output so far; both streams go to one file."""
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fstat(1).st_size


def main():
    """Import every target."""
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
        jobs = json.load(file)
    importlib.invalidate_caches()
    with open(sys.argv[2], "a", encoding="utf-8") as results:  # noqa: PTH123

        def report(**result):
            results.write(json.dumps(result) + "\n")
            results.flush()

        for target in jobs["targets"]:
            report(id=target["id"], state="started", output=output_size())
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends an import that hangs in compiled code as well
            signal.setitimer(signal.ITIMER_REAL, jobs["seconds"])
            try:
                follow(target["module"], target["names"])
                result = {"state": "imported"}
            except BaseException as error:
                result = describe(error)
            signal.setitimer(signal.ITIMER_REAL, 0)
            report(id=target["id"], output=output_size(), **result)
    os._exit(0)  # what a module does at the end of the interpreter is not part of its import


if __name__ == "__main__":
    main()
