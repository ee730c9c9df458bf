"""One file, fetched whole or not at all: resumed, tried again, checked by its SHA-256, then given its name."""

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

from envdoctor.core.errors import BadInput, EnvdoctorError, Interrupted
from envdoctor.core.paths import expanded
from envdoctor.download.http_client import HttpClient, RequestFailed, Stream, new_http_client, redacted_url
from envdoctor.download.partial_file import PART, PIECE, PartialFile, disk_errors, sha256_of, validate_target
from envdoctor.download.sources import Sources

TRIES = 6  # in a row, without a new byte
UNREACHED_TRIES = 3  # of a host that never gave a byte or an answer: no network, or none that leads there
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
TICK = 0.2
LARGEST = 32 << 30  # where nobody says how long the file is
AGAIN = "run the same command again: it goes on from there"

OnBytes = Callable[[int, int | None], None]  # bytes there, bytes in all; called while waiting, too
OnWait = Callable[[str], None]  # what is waited for; empty when the bytes flow again


class DownloadFailed(EnvdoctorError):  # noqa: N818  the name states the problem
    """A file that its source did not give; `status` is the HTTP status where there was one."""

    status: int = 0


class HashMismatch(EnvdoctorError):  # noqa: N818
    """A file that is not the one that was promised."""


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
    """Fetch an address (http, https, file: or a path) to `target`; its folder is made.

    `sha256` may be empty where nobody knows it; plain http is then only taken from loopback or a trusted host.
    `size` is the length in bytes if it is known, `end` a time of time.monotonic().
    Raises DownloadFailed, HashMismatch, other EnvdoctorErrors for a disk that refuses, Interrupted after Ctrl-C.
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
    """The same over a HttpClient that several downloads share."""
    target, sha256 = validate_target(target), sha256.lower()
    with disk_errors(target, size):
        target.parent.mkdir(parents=True, exist_ok=True)
        if sha256 and target.is_file() and sha256_of(target, lambda done: on_bytes(done, size)) == sha256:
            return target
    if (local := local_path(url)) is not None:
        return _take_local(local, target, sha256, size, on_bytes)
    _refuse_plain_http(client, url, sha256)
    url = client.store_credentials(url)
    with closing(PartialFile(target, sha256, size)) as partial:
        _require_room(partial)
        try:
            resumed = _receive(client, url, partial, on_bytes, on_wait)
            if resumed and sha256 and partial.digest != sha256:
                # What was there may have been of another file: once more, from the beginning.
                partial.restart()
                _receive(client, url, partial, on_bytes, on_wait)
        except KeyboardInterrupt:
            raise _interrupted(partial) from None
        if sha256 and partial.digest != sha256:
            partial.drop()
            raise _wrong_hash(target.name, redacted_url(url), partial.digest, sha256)
        return partial.finish()


def local_path(url: str) -> Path | None:
    """The path of a file: address or of a plain path; None for an address on the client."""
    if not re.match(r"[\w+.-]+://|file:", url):
        return Path(url)
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return None


def _receive(client: HttpClient, url: str, partial: PartialFile, on_bytes: OnBytes, on_wait: OnWait) -> bool:
    """Take in the file, trying again after what may pass; whether it is made of more than one answer."""
    failures, most = 0, partial.have
    while not _is_whole(partial):
        try:
            return _go_on(client, url, partial, on_bytes)
        except RequestFailed as failure:
            failures = 1 if partial.have > most else failures + 1
            most = max(most, partial.have)
            pause = max(_pause(failures), failure.wait)
            late = time.monotonic() + pause > client.end
            tries = TRIES if most or failure.status else UNREACHED_TRIES
            if not failure.again or failures >= tries or late:
                raise _given_up(partial, failure, failures, pause if late and failure.again else 0.0) from failure
            on_wait(f"{failure.reason}; next try in {pause:.0f} s")
            _wait(pause, lambda: on_bytes(partial.have, partial.length))
            on_wait("")
    return True


def _is_whole(partial: PartialFile) -> bool:
    """Whether everything is there already: a run that ended between the last byte and the check."""
    return partial.have > 0 and partial.have == partial.size


def _pause(failures: int) -> float:
    """Seconds to the next try: twice as long each time, and not at the moment when everybody else comes back."""
    pause: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1))
    return pause * random.uniform(0.75, 1.25)  # noqa: S311  no secret


def _wait(seconds: float, tick: Callable[[], None]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        tick()
        time.sleep(min(TICK, left))


def _go_on(client: HttpClient, url: str, partial: PartialFile, on_bytes: OnBytes) -> bool:
    """One request for what is missing; whether the answer went on from what was there."""
    headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
    if partial.have and not (partial.sha256 or partial.etag):
        partial.restart()  # nothing would tell a changed file
    if partial.have:
        headers |= {"Range": f"bytes={partial.have}-"} | ({"If-Range": partial.etag} if partial.etag else {})
    try:
        stream = client.open(url, headers)
    except RequestFailed as failure:
        if failure.status == 416 and partial.have:
            partial.restart()
            raise RequestFailed(failure.reason, status=416, again=True) from failure
        raise
    with closing(stream):
        _refuse_plain_http(client, stream.url, partial.sha256)
        partial.length = _length(stream, partial)
        _begin(stream, partial)
        partial.describe(_strong_etag(stream))
        _read(client, stream, partial, on_bytes)
    return stream.status == 206


def _length(stream: Stream, partial: PartialFile) -> int | None:
    """The length of the whole file as this answer has it, if that can be the file: a login page is none."""
    if stream.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
        raise RequestFailed(f"{stream.redacted_url} sends its file packed ({stream.headers['Content-Encoding']})")
    found = re.fullmatch(r"bytes \d+-\d+/(\d{1,15})", stream.headers.get("Content-Range", "").strip())
    length = stream.promised if stream.status != 206 else int(found[1]) if found else None
    expected = f"expected {partial.size}" if partial.size is not None else f"expected at most {LARGEST}"
    if length is not None and length != partial.size and (partial.size is not None or length > LARGEST):
        raise RequestFailed(f"{stream.redacted_url} would send {length} bytes, {expected}")
    return partial.size if length is None else length


def _begin(stream: Stream, partial: PartialFile) -> None:
    """Start anew where the server knows no ranges or its file is another one now."""
    if stream.status != 206:
        if partial.have:
            partial.restart()
        return
    span = stream.headers.get("Content-Range", "")
    etag = _strong_etag(stream)
    if not span.startswith(f"bytes {partial.have}-") or (partial.etag and etag and etag != partial.etag):
        partial.restart()
        raise RequestFailed(
            f"{stream.redacted_url} answers a range with {span[:80]!r} of another file or place", again=True
        )


def _read(client: HttpClient, stream: Stream, partial: PartialFile, on_bytes: OnBytes) -> None:
    length = partial.length
    limit = LARGEST if length is None else length
    on_bytes(partial.have, length)
    while data := stream.read(PIECE):
        if partial.have + len(data) > limit:
            partial.restart()
            raise RequestFailed(f"{stream.redacted_url} sends more than the {limit} bytes that were expected")
        partial.add(data)
        on_bytes(partial.have, length)
        if time.monotonic() > client.end:
            raise RequestFailed(f"{stream.redacted_url} was still sending when the time for this was over")
    if length is not None and partial.have < length:
        raise RequestFailed(f"{stream.redacted_url} stopped after {partial.have} of {length} bytes", again=True)


def _strong_etag(stream: Stream) -> str:
    etag = stream.headers.get("ETag", "")
    return etag if re.fullmatch(r'"[\x21\x23-\x7e]{1,200}"', etag) else ""


def _refuse_plain_http(client: HttpClient, url: str, sha256: str) -> None:
    """pip's rule for origins that are not secure; a hash from elsewhere makes any way there safe."""
    parts = urlsplit(url)
    if parts.scheme != "http" or sha256 or _is_loopback(parts.hostname or "") or client.is_trusted_host(url):
        return
    raise BadInput(
        f"{redacted_url(url)} is plain http, and its sha256 is not known",
        expected="https, a sha256, or a host that is trusted",
        hint=f"pip config set global.trusted-host {parts.hostname}",
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.endswith(".localhost")


def _require_room(partial: PartialFile) -> None:
    """Refuse before the first byte what the disk cannot hold."""
    place = os.statvfs(partial.target.parent)
    free = place.f_bavail * place.f_frsize
    if partial.size is not None and partial.size - partial.have > free:
        raise EnvdoctorError(
            f"{free} bytes are free in {partial.target.parent}",
            expected=f"{partial.size - partial.have} bytes for {partial.target.name}",
            hint=f"df -h {partial.target.parent}, free some room, then run the same command again",
        )


def _take_local(source: Path, target: Path, sha256: str, size: int | None, on_bytes: OnBytes) -> Path:
    """A file of this machine: a second name for it where that is possible, else a copy; checked like any other."""
    try:
        source = expanded(source).resolve(strict=True)
        found = source.stat()
    except OSError as error:
        raise DownloadFailed(
            f"cannot read {source}: {error.strerror or error}", expected="a file", hint=f"ls -l {source.parent}"
        ) from error
    if not stat.S_ISREG(found.st_mode) or (size is not None and found.st_size != size):
        raise DownloadFailed(
            f"{source} has {found.st_size} bytes" if stat.S_ISREG(found.st_mode) else f"{source} is no file",
            expected="a file" if size is None else f"a file of {size} bytes",
            hint=f"ls -l {source}",
        )
    with disk_errors(target, found.st_size):
        if target.exists() and target.samefile(source) and not sha256:
            return target
        temporary = target.with_name(target.name + PART)
        temporary.unlink(missing_ok=True)
        try:
            os.link(source, temporary)
        except OSError:
            return _copy(source, target, sha256, found.st_size, on_bytes)
        try:
            digest = sha256_of(temporary, lambda done: on_bytes(done, found.st_size))
            if sha256 and digest != sha256:
                raise _wrong_hash(target.name, str(source), digest, sha256)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    return target


def _copy(source: Path, target: Path, sha256: str, size: int, on_bytes: OnBytes) -> Path:
    with closing(PartialFile(target, sha256, size)) as partial, source.open("rb", buffering=0) as file:
        partial.restart()
        _require_room(partial)
        try:
            while data := file.read(PIECE):
                partial.add(data)
                on_bytes(partial.have, size)
            if not sha256 or partial.digest == sha256:
                return partial.finish()
        except BaseException:
            partial.drop()
            raise
        partial.drop()
        raise _wrong_hash(target.name, str(source), partial.digest, sha256)


def _given_up(partial: PartialFile, failure: RequestFailed, tries: int, pause: float) -> DownloadFailed:
    kept = f"; {partial.have} bytes are kept in {partial.path}" if partial.have else ""
    after = f" (tried {tries} times)" if tries > 1 else ""
    wait = f"; it asks to wait {pause:.0f} s, longer than this may take" if pause else ""
    error = DownloadFailed(
        f"{partial.target.name}: {failure.reason}{after}{wait}{kept}",
        expected=f"{partial.length} bytes" if partial.length is not None else "the file",
        hint=_advice(failure) + (f", then {AGAIN}" if partial.have else ", then run the same command again"),
    )
    error.status = failure.status
    return error


def _advice(failure: RequestFailed) -> str:
    if failure.status in (401, 403, 407):
        return "check the user name and password of the source (pip config debug)"
    if failure.status in (404, 410):
        return "name a source that has it (export PIP_INDEX_URL=ADDRESS)"
    if "certificate" in failure.reason:
        return "name your network's certificate authority (export PIP_CERT=/path/to/ca.pem)"
    return "check the network, proxy and mirror (pip config debug)"


def _wrong_hash(name: str, where: str, found: str, sha256: str) -> HashMismatch:
    return HashMismatch(
        f"{name} from {where} has sha256 {found}; it was not kept",
        expected=f"sha256 {sha256}",
        hint="run the same command again; if it stays so, its source has another file: export PIP_INDEX_URL=ADDRESS",
    )


def _interrupted(partial: PartialFile) -> Interrupted:
    size = "an unknown number" if partial.length is None else str(partial.length)
    return Interrupted(
        f"interrupted: {partial.have} of {size} bytes of {partial.target.name} are kept in {partial.path}",
        expected="the whole file",
        hint=AGAIN,
    )
