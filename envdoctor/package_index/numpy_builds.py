"""Whether the compiled modules of a wheel are built for NumPy 1, read from a few of them with range requests.

NumPy's headers import the C interface by the name of its module: `numpy.core._multiarray_umath` in modules that are
built with NumPy 1, and `numpy._core._multiarray_umath` first in those built with NumPy 2, which work with both.
NumPy 2 rejects the first ones when they are imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from envdoctor.core.cached_files import cached_file, keep
from envdoctor.core.files import SMALL_FILE_BYTES, read_file
from envdoctor.download.http_client import HttpClient
from envdoctor.package_index.remote_wheel import RemoteWheel
from envdoctor.package_index.simple_index import File

FOLDER = "numpy-builds-1"  # increase the number when what is read changes
MAX_MODULES = 8  # of one wheel that are read, those that `import` loads first, then the smallest ones
MAX_REQUESTED = 6 << 20  # compressed bytes of one wheel
MAX_BYTES = 64 << 20  # of one module
_NUMPY_1, _NUMPY_2 = b"numpy.core._multiarray_umath", b"numpy._core"


def numpy_1_module(client: HttpClient, file: File, loaded: Collection[str]) -> str:
    """The path of a compiled module that is built for NumPy 1; empty without one. Raises RequestFailed.

    `loaded` are the paths that `import` of the package loads.
    """
    path = cached_file(FOLDER, file.name, "txt", "\n".join((file.url, *sorted(loaded))), digits=16)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return read_file(path, SMALL_FILE_BYTES).decode()
    found = _find(RemoteWheel(client, file, limit=MAX_REQUESTED + (4 << 20)), loaded)
    keep(path, found.encode())
    return found


def _find(wheel: RemoteWheel, loaded: Collection[str]) -> str:
    compiled = [
        member for name, member in wheel.members.items()
        if name.endswith(".so") and ".libs/" not in name and member.file_size <= MAX_BYTES
    ]  # fmt: skip
    compiled.sort(key=lambda member: (member.filename not in loaded, member.compress_size))
    requested = 0
    for member in compiled[:MAX_MODULES]:
        requested += member.compress_size
        if requested > MAX_REQUESTED:
            break
        data = wheel.read(member.filename, limit=MAX_BYTES)
        if _NUMPY_2 in data:
            return ""  # the other modules are built with the same NumPy
        if _NUMPY_1 in data:
            return member.filename
    return ""
