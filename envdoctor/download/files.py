"""Downloads of single files: resumed, retried, verified by SHA-256, then renamed to the target."""

from __future__ import annotations

import ipaddress
import os
import random
import re
import stat
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput, EnvdoctorError, Interrupted
from envdoctor.core.paths import expand_home
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.http_client import HttpClient, RequestFailed, Stream, new_http_client, redacted_url
from envdoctor.download.partial_file import CHUNK, PART_SUFFIX, PartialFile, disk_errors, sha256_of, validate_target
from envdoctor.download.sources import Sources

ATTEMPTS = 6  # in succession, without a new byte
UNREACHED_ATTEMPTS = 3  # for a host that has not sent a byte or a status
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
TICK = 0.2
MAX_BYTES = 8 << 30  # of a file whose length is unknown; the largest wheel on PyPI has 3 GB
RESERVE_BYTES = 1 << 30  # that such a file leaves free on its disk
RERUN = "run the same command again: the download resumes"

OnBytes = Callable[[int, int | None], None]  # bytes present, bytes in total; also called while waiting
OnWait = Callable[[str], None]  # the reason for waiting; empty when the download continues


class DownloadFailed(EnvdoctorError):  # noqa: N818
    """A source did not deliver a file; `status` is the HTTP status, 0 without one."""

    status: int = 0


class HashMismatch(EnvdoctorError):  # noqa: N818
    """A downloaded file does not have the expected SHA-256."""


def download(
    url: str,
    target: Path,
    *,
    sha256: str,
    size: int | None,
    sources: Sources,
    end: float,
    on_bytes: OnBytes,
    on_wait: OnWait = lambda _: None,
) -> Path:
    """Download a URL (http, https, file: or a path) to `target`, whose directory is created.

    Without `sha256`, plain http is permitted only from loopback or a trusted host.
    `size` is the length in bytes if it is known, `end` a deadline of time.monotonic().
    Raises DownloadFailed, HashMismatch, other EnvdoctorErrors for disk errors, Interrupted after Ctrl-C.
    """
    client = new_http_client(sources, end=end)
    return download_with_client(client, url, target, sha256=sha256, size=size, on_bytes=on_bytes, on_wait=on_wait)


def download_with_client(
    client: HttpClient,
    url: str,
    target: Path,
    *,
    sha256: str,
    size: int | None,
    on_bytes: OnBytes,
    on_wait: OnWait = lambda _: None,
) -> Path:
    """Download with a client that several downloads share."""
    target, sha256 = validate_target(target), sha256.lower()
    with disk_errors(target, size):
        target.parent.mkdir(parents=True, exist_ok=True)
        if sha256 and target.is_file() and sha256_of(target, lambda done: on_bytes(done, size)) == sha256:
            return target
    if (local := local_path(url)) is not None:
        return _link_or_copy(local, target, sha256, size, on_bytes)
    _reject_plain_http(client, url, sha256)
    url = client.store_credentials(url)
    with closing(PartialFile(target, sha256, size)) as partial:
        _require_free_space(partial)
        try:
            resumed = _receive(client, url, partial, on_bytes, on_wait)
            if resumed and sha256 and partial.digest != sha256:
                # The first part may come from another file: download once more from the beginning.
                partial.restart()
                _receive(client, url, partial, on_bytes, on_wait)
        except KeyboardInterrupt:
            raise _interrupted(partial) from None
        if sha256 and partial.digest != sha256:
            partial.delete()
            raise _hash_mismatch(target.name, redacted_url(url), partial.digest, sha256)
        return partial.finish()


def local_path(url: str) -> Path | None:
    """Return the path of a file: URL or of a plain path; None for other URLs."""
    if not re.match(r"[\w+.-]+://|file:", url):
        return Path(url)
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return None


def _receive(client: HttpClient, url: str, partial: PartialFile, on_bytes: OnBytes, on_wait: OnWait) -> bool:
    """Download with retries; return whether the file was assembled from more than one response."""
    failures, most = 0, partial.present
    # An earlier run may have ended between the last byte and the verification.
    while not (partial.present and partial.present == partial.size):
        try:
            return _request_rest(client, url, partial, on_bytes)
        except RequestFailed as failure:
            failures = 1 if partial.present > most else failures + 1
            most = max(most, partial.present)
            pause = max(_pause(failures), failure.wait)
            late = time.monotonic() + pause > client.end
            attempts = ATTEMPTS if most or failure.status else UNREACHED_ATTEMPTS
            if not failure.retry or failures >= attempts or late:
                rejected_pause = pause if late and failure.retry else 0.0
                raise _download_failed(partial, failure, failures, rejected_pause) from failure
            on_wait(f"{failure.reason}; next attempt in {pause:.0f} s")
            _wait(pause, lambda: on_bytes(partial.present, partial.length))
            on_wait("")
    return True


def _pause(failures: int) -> float:
    """Return the seconds until the next attempt: exponential backoff with jitter."""
    pause: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1))
    return pause * random.uniform(0.75, 1.25)  # noqa: S311  not for cryptography


def _wait(seconds: float, tick: Callable[[], None]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        tick()
        time.sleep(min(TICK, left))


def _request_rest(client: HttpClient, url: str, partial: PartialFile, on_bytes: OnBytes) -> bool:
    """Request the missing bytes once; return whether the response continued the part."""
    headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
    if partial.present and not (partial.sha256 or partial.etag):
        partial.restart()  # a changed file would not be noticed
    if partial.present:
        headers |= {"Range": f"bytes={partial.present}-"} | ({"If-Range": partial.etag} if partial.etag else {})
    try:
        stream = client.open(url, headers)
    except RequestFailed as failure:
        if failure.status == 416 and partial.present:
            partial.restart()
            raise RequestFailed(failure.reason, status=416, retry=True) from failure
        raise
    with closing(stream):
        _reject_plain_http(client, stream.url, partial.sha256)
        partial.length = _file_length(stream, partial)
        _check_range(stream, partial)
        partial.write_identity(_strong_etag(stream))
        _read_body(client, stream, partial, on_bytes)
    return stream.status == 206


def _file_length(stream: Stream, partial: PartialFile) -> int | None:
    """Return the length of the whole file; raises RequestFailed where the response is not the file."""
    if stream.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
        encoding = stream.headers["Content-Encoding"]
        raise RequestFailed(f"{stream.redacted_url} sends the file with content encoding {encoding}")
    match = re.fullmatch(r"bytes \d+-\d+/(\d{1,15})", stream.headers.get("Content-Range", "").strip())
    length = stream.content_length if stream.status != 206 else int(match[1]) if match else None
    expected = f"expected {partial.size}" if partial.size is not None else f"expected at most {MAX_BYTES}"
    if length is not None and length != partial.size and (partial.size is not None or length > MAX_BYTES):
        raise RequestFailed(f"{stream.redacted_url} would send {length} bytes, {expected}")
    return partial.size if length is None else length


def _check_range(stream: Stream, partial: PartialFile) -> None:
    """Discard the part where the server does not support ranges or its file has changed."""
    if stream.status != 206:
        if partial.present:
            partial.restart()
        return
    content_range = stream.headers.get("Content-Range", "")
    etag = _strong_etag(stream)
    changed = partial.etag and etag and etag != partial.etag
    if not content_range.startswith(f"bytes {partial.present}-") or changed:
        partial.restart()
        reason = f"{stream.redacted_url} returned the range {content_range[:80]!r} of another file or offset"
        raise RequestFailed(reason, retry=True)


def _read_body(client: HttpClient, stream: Stream, partial: PartialFile, on_bytes: OnBytes) -> None:
    length = partial.length
    limit = _unknown_limit(partial) if length is None else length
    on_bytes(partial.present, length)
    while data := stream.read(CHUNK):
        if partial.present + len(data) > limit:
            partial.restart()
            raise RequestFailed(f"{stream.redacted_url} sends more than the expected {limit} bytes")
        partial.append(data)
        on_bytes(partial.present, length)
        if time.monotonic() > client.end:
            raise RequestFailed(f"{stream.redacted_url} was still sending at the deadline")
    if length is not None and partial.present < length:
        raise RequestFailed(f"{stream.redacted_url} stopped after {partial.present} of {length} bytes", retry=True)


def _unknown_limit(partial: PartialFile) -> int:
    """The bytes to accept from a server that gives no length and may never end."""
    stats = os.statvfs(partial.target.parent)
    return max(0, min(MAX_BYTES, partial.present + stats.f_bavail * stats.f_frsize - RESERVE_BYTES))


def _strong_etag(stream: Stream) -> str:
    etag = stream.headers.get("ETag", "")
    return etag if re.fullmatch(r'"[\x21\x23-\x7e]{1,200}"', etag) else ""


def _reject_plain_http(client: HttpClient, url: str, sha256: str) -> None:
    """Apply pip's rule for insecure origins. A known hash makes any transport safe."""
    parts = urlsplit(url)
    if parts.scheme != "http" or sha256 or _is_loopback(parts.hostname or "") or client.is_trusted_host(url):
        return
    raise BadInput(
        f"{redacted_url(url)} is plain http, and its sha256 is not known",
        expected="https, a sha256, or a trusted host",
        hint=shell_command("pip config set global.trusted-host {}", parts.hostname),
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.endswith(".localhost")


def _require_free_space(partial: PartialFile) -> None:
    stats = os.statvfs(partial.target.parent)
    free = stats.f_bavail * stats.f_frsize
    if partial.size is not None and partial.size - partial.present > free:
        raise EnvdoctorError(
            f"{free} bytes are free in {partial.target.parent}",
            expected=f"{partial.size - partial.present} bytes for {partial.target.name}",
            hint=f"{command_line('df', '-h', partial.target.parent)}, free some space, then run the command again",
        )


def _link_or_copy(source: Path, target: Path, sha256: str, size: int | None, on_bytes: OnBytes) -> Path:
    """Create the target from a local file, as a hard link where possible, else as a copy; both are verified."""
    try:
        source = expand_home(source).resolve(strict=True)
        stats = source.stat()
    except OSError as error:
        raise DownloadFailed(
            f"cannot read {source}: {error.strerror or error}",
            expected="a file",
            hint=command_line("ls", "-l", source.parent),
        ) from error
    regular = stat.S_ISREG(stats.st_mode)
    if not regular or (size is not None and stats.st_size != size):
        raise DownloadFailed(
            f"{source} has {stats.st_size} bytes" if regular else f"{source} is not a regular file",
            expected="a file" if size is None else f"a file of {size} bytes",
            hint=command_line("ls", "-l", source),
        )
    with disk_errors(target, stats.st_size):
        if target.exists() and target.samefile(source) and not sha256:
            return target
        temporary = target.with_name(target.name + PART_SUFFIX)
        temporary.unlink(missing_ok=True)
        try:
            os.link(source, temporary)
        except OSError:
            return _copy(source, target, sha256, stats.st_size, on_bytes)
        try:
            digest = sha256_of(temporary, lambda done: on_bytes(done, stats.st_size))
            if sha256 and digest != sha256:
                raise _hash_mismatch(target.name, str(source), digest, sha256)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    return target


def _copy(source: Path, target: Path, sha256: str, size: int, on_bytes: OnBytes) -> Path:
    with closing(PartialFile(target, sha256, size)) as partial, source.open("rb", buffering=0) as file:
        partial.restart()
        _require_free_space(partial)
        try:
            while data := file.read(CHUNK):
                partial.append(data)
                on_bytes(partial.present, size)
            if not sha256 or partial.digest == sha256:
                return partial.finish()
        except BaseException:
            partial.delete()
            raise
        partial.delete()
        raise _hash_mismatch(target.name, str(source), partial.digest, sha256)


def _download_failed(partial: PartialFile, failure: RequestFailed, attempts: int, pause: float) -> DownloadFailed:
    kept = f"; {partial.present} bytes are kept in {partial.path}" if partial.present else ""
    after = f" (after {attempts} attempts)" if attempts > 1 else ""
    wait = f"; the server requests a wait of {pause:.0f} s, which exceeds the deadline" if pause else ""
    error = DownloadFailed(
        f"{partial.target.name}: {failure.reason}{after}{wait}{kept}",
        expected=f"{partial.length} bytes" if partial.length is not None else "the file",
        hint=f"{_advice(failure)}, then {RERUN if partial.present else 'run the same command again'}",
    )
    error.status = failure.status
    return error


def _advice(failure: RequestFailed) -> str:
    if failure.status in (401, 403, 407):
        return "check the user name and password of the source (pip config debug)"
    if failure.status in (404, 410):
        return "configure a source that has the file (export PIP_INDEX_URL=ADDRESS)"
    if "certificate" in failure.reason:
        return "configure your network's certificate authority (export PIP_CERT=/path/to/ca.pem)"
    return "check the network, proxy and mirror (pip config debug)"


def _hash_mismatch(name: str, source: str, observed: str, sha256: str) -> HashMismatch:
    return HashMismatch(
        f"{name} from {source} has sha256 {observed}; the file was deleted",
        expected=f"sha256 {sha256}",
        hint="run the same command again; after the same error use another source: export PIP_INDEX_URL=ADDRESS",
    )


def _interrupted(partial: PartialFile) -> Interrupted:
    size = "an unknown number" if partial.length is None else str(partial.length)
    return Interrupted(
        f"interrupted: {partial.kept} of {size} bytes of {partial.target.name} are kept in {partial.path}",
        expected="the complete file",
        hint=RERUN,
    )
