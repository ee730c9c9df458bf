"""Downloads over sockets: dropped, stalled, changed and forged files, a full disk, a killed process."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path

import pytest
from support.command import environment, interpreter
from support.paths import ROOT
from support.wheel_server import Files, make_certificate, serving

from envdoctor.core.errors import BadInput, EnvdoctorError, Interrupted
from envdoctor.download import files as downloads
from envdoctor.download.files import DownloadFailed, HashMismatch, download, local_path
from envdoctor.download.partial_file import path_in_folder
from envdoctor.download.sources import Sources

NAME = "alpha-1.0-py3-none-any.whl"
DATA = random.Random(1).randbytes(3_000_000)
HASH = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "FIRST_PAUSE", 0.02)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HOME", "/nonexistent")  # no netrc


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / NAME).write_bytes(DATA)
    (tmp_path / "here").mkdir()
    return Files(tmp_path / "remote")


def get(
    files: Files, sha256: str = HASH, url: str = "", size: int | None = None, seconds: float = 20, **settings: str
):
    sources = Sources(timeout=settings.pop("timeout", "1"), **settings)
    return download(
        url or files.url(NAME), files.folder.parent / "here" / NAME, sha256=sha256, size=size, sources=sources,
        end=time.monotonic() + seconds, on_bytes=lambda _, __: None,
    )  # fmt: skip


def downloaded(files: Files) -> list[str]:
    return sorted(path.name for path in (files.folder.parent / "here").iterdir())


def requested_ranges(files: Files) -> list[str]:
    return [request.byte_range for request in files.requests]


def test_download_leaves_only_the_file(files: Files) -> None:
    reported: list[tuple[int, int | None]] = []
    with serving(files):
        target = files.folder.parent / "here/deeper" / NAME
        done = download(files.url(NAME), target, sha256=HASH.upper(), size=None, sources=Sources(),
                        end=time.monotonic() + 20, on_bytes=lambda *counts: reported.append(counts))  # fmt: skip
    assert done == target
    assert target.read_bytes() == DATA
    assert [path.name for path in target.parent.iterdir()] == [NAME]
    assert reported[-1] == (len(DATA), len(DATA))
    assert reported == sorted(reported)


def test_existing_file_is_not_downloaded_again(files: Files) -> None:
    with serving(files):
        get(files)
        get(files)
        assert len(files.requests) == 1
        (files.folder.parent / "here" / NAME).write_bytes(b"something else")
        assert get(files).read_bytes() == DATA


@pytest.mark.parametrize("etags", [True, False])
def test_dropped_connection_is_resumed(files: Files, etags: bool) -> None:
    files.etags, files.cut = etags, [1_000_000, 500_000]
    with serving(files):
        assert get(files).read_bytes() == DATA
    assert requested_ranges(files) == ["", "bytes=1000000-", "bytes=1500000-"]
    assert [request.sent for request in files.requests] == [1_000_000, 500_000, 1_500_000]
    assert all(bool(request.if_range) == etags for request in files.requests[1:])


def test_server_without_ranges_sends_the_whole_file_again(files: Files) -> None:
    files.ranges, files.cut = False, [1_000_000]
    with serving(files):
        assert get(files).read_bytes() == DATA
    assert [request.sent for request in files.requests] == [1_000_000, len(DATA)]


def test_dropped_connection_without_content_length_is_resumed(files: Files) -> None:
    files.lengths, files.cut = False, [1_000_000]
    with serving(files):
        assert get(files, size=len(DATA)).read_bytes() == DATA
    assert [request.sent for request in files.requests] == [1_000_000, 2_000_000]


def test_stalled_connection_is_retried(files: Files) -> None:
    files.stall = [1_000_000]
    waits: list[str] = []
    with serving(files):
        done = download(files.url(NAME), files.folder.parent / "here" / NAME, sha256=HASH, size=None,
                        sources=Sources(timeout="1"), end=time.monotonic() + 20, on_bytes=lambda _, __: None,
                        on_wait=waits.append)  # fmt: skip
    assert done.read_bytes() == DATA
    assert requested_ranges(files)[1:] == ["bytes=1000000-"]
    assert "no response within 1 s" in waits[0]
    assert waits[-1] == ""


def test_changed_file_is_downloaded_from_the_beginning(files: Files) -> None:
    other = random.Random(2).randbytes(len(DATA))
    files.replaced, files.cut = {NAME: other}, [1_000_000]
    with serving(files):
        with pytest.raises(DownloadFailed):
            get_once(files)
        files.replaced = {}
        assert get(files).read_bytes() == DATA
    assert files.requests[-1].if_range == f'"{hashlib.md5(other).hexdigest()}"'
    assert files.requests[-1].sent == len(DATA)


def get_once(files: Files, sha256: str = HASH) -> None:
    """Download with a single attempt."""
    attempts, downloads.ATTEMPTS = downloads.ATTEMPTS, 1
    try:
        get(files, sha256)
    finally:
        downloads.ATTEMPTS = attempts


def test_changed_file_without_etag_is_noticed_by_its_hash(files: Files) -> None:
    files.etags, files.replaced, files.cut = False, {NAME: bytes(len(DATA))}, [1_000_000]
    with serving(files):
        with pytest.raises(DownloadFailed):
            get_once(files)
        files.replaced = {}
        assert get(files).read_bytes() == DATA
    assert requested_ranges(files) == ["", "bytes=1000000-", ""]


def test_part_of_another_file_is_discarded(files: Files) -> None:
    files.cut = [1_000_000]
    with serving(files):
        with pytest.raises(DownloadFailed):
            get_once(files, sha256="0" * 64)
        assert downloaded(files) == [f"{NAME}.part", f"{NAME}.part.json"]
        assert get(files).read_bytes() == DATA
    assert requested_ranges(files) == ["", ""]


@pytest.mark.parametrize("identity", ["", "{", "[]", '{"sha256": 1}', '{"sha256": "0", "x": 1}', "\udcff"])
def test_part_with_damaged_identity_is_discarded(files: Files, identity: str) -> None:
    (files.folder.parent / "here" / f"{NAME}.part").write_bytes(DATA[:1000])
    (files.folder.parent / "here" / f"{NAME}.part.json").write_text(identity, errors="surrogateescape")
    with serving(files):
        assert get(files).read_bytes() == DATA
    assert requested_ranges(files) == [""]


def test_complete_part_needs_no_request(files: Files) -> None:
    (files.folder.parent / "here" / f"{NAME}.part").write_bytes(DATA)
    (files.folder.parent / "here" / f"{NAME}.part.json").write_text(json.dumps({"sha256": HASH}))
    with serving(files):
        assert get(files, size=len(DATA)).read_bytes() == DATA
        assert files.requests == []


def test_complete_part_of_unknown_length_is_downloaded_again(files: Files) -> None:
    (files.folder.parent / "here" / f"{NAME}.part").write_bytes(DATA)
    (files.folder.parent / "here" / f"{NAME}.part.json").write_text(json.dumps({"sha256": HASH}))
    with serving(files):
        assert get(files).read_bytes() == DATA
    assert requested_ranges(files) == [f"bytes={len(DATA)}-", ""]


def test_hash_mismatch_deletes_the_file(files: Files) -> None:
    files.replaced = {NAME: b"forged"}
    with serving(files), pytest.raises(HashMismatch) as caught:
        get(files)
    assert hashlib.sha256(b"forged").hexdigest() in caught.value.message
    assert files.url(NAME) in caught.value.message
    assert HASH in caught.value.expected
    assert downloaded(files) == []


def test_more_bytes_than_expected_are_rejected(files: Files) -> None:
    files.lengths, files.padding = False, 10
    with serving(files), pytest.raises(DownloadFailed, match="sends more than the expected 3000000 bytes"):
        get(files, size=len(DATA))
    assert downloaded(files) == []


def test_unexpected_length_is_rejected_and_the_part_kept(files: Files) -> None:
    files.cut = [1_000_000]
    with serving(files):
        with pytest.raises(DownloadFailed):
            get_once(files)
        files.replaced = {NAME: b"<html>please log in</html>"}
        with pytest.raises(DownloadFailed, match="would send 26 bytes, expected 3000000"):
            get(files, size=len(DATA))
        assert (files.folder.parent / "here" / f"{NAME}.part").stat().st_size == 1_000_000


def test_retry_after_is_respected(files: Files) -> None:
    # A date has whole seconds: two seconds from now are at least one. The second wait begins after it.
    files.responses = [(429, {"Retry-After": formatdate(time.time() + 2, usegmt=True)}), (503, {"Retry-After": "1"})]
    begin = time.monotonic()
    with serving(files):
        assert get(files).read_bytes() == DATA
    assert time.monotonic() - begin > 1.9  # the deadline of get() limits it to 20 s


def test_retry_after_beyond_the_deadline_fails_at_once(files: Files) -> None:
    files.responses = [(503, {"Retry-After": "3600"})]
    with serving(files), pytest.raises(DownloadFailed, match="requests a wait of 3600 s") as caught:
        get(files)
    assert caught.value.status == 503


def test_persistent_server_error_fails(files: Files) -> None:
    files.responses = [(500, {})] * 20
    with serving(files), pytest.raises(DownloadFailed, match=r"returned 500 .*\(after 6 attempts\)"):
        get(files)
    assert len(files.requests) == downloads.ATTEMPTS
    assert downloaded(files) == []


def test_404_is_not_retried(files: Files) -> None:
    with serving(files), pytest.raises(DownloadFailed, match="returned 404") as caught:
        get(files, url=files.url("other.whl"))
    assert caught.value.status == 404
    assert len(files.requests) == 1


def test_redirects_do_not_forward_credentials(files: Files) -> None:
    with serving(files), serving(Files(files.folder)) as other:
        files.user = "bob:s3cr@t"
        files.responses = [(302, {"Location": f"http://localhost:{other.port}/{NAME}?signature=s3cr3t"})]
        assert get(files, url=files.url(NAME, user="bob:s3cr%40t")).read_bytes() == DATA
    assert files.requests[0].login
    assert other.requests[0].login == ""


def test_credentials_of_the_index_are_used_and_redacted(files: Files) -> None:
    files.user = "bob:s3cret-planted"
    with serving(files):
        index = files.url("simple/", user=files.user)
        assert get(files, index=index).read_bytes() == DATA
        files.user = "bob:other"
        with pytest.raises(DownloadFailed, match="returned 401") as caught:
            get(files, url=files.url("b.whl?token=s3cret-planted", user="bob:s3cret-planted"), sha256="0" * 64)
    text = f"{caught.value.message} {caught.value.expected} {caught.value.hint}"
    assert "s3cret-planted" not in text
    assert "password" in caught.value.hint


def test_login_of_a_named_uv_index_comes_from_variables(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_MY_MIRROR_USERNAME", "bob")
    monkeypatch.setenv("UV_INDEX_MY_MIRROR_PASSWORD", "s3c/ret")
    files.user = "bob:s3c/ret"
    with serving(files):
        assert get(files, extra_indexes=(f"my-mirror={files.url('simple/')}",)).read_bytes() == DATA  # type: ignore[arg-type]


def test_proxy_is_used(files: Files) -> None:
    with serving(files) as proxy:
        address = f"http://joe:pr0xy@127.0.0.1:{proxy.port}"
        done = get(files, url=f"http://files.invalid/{NAME}", proxy=address)
        assert done.read_bytes() == DATA
        assert proxy.requests[0].path == f"http://files.invalid/{NAME}"
        assert proxy.requests[0].proxy_login.startswith("Basic ")
        with pytest.raises(DownloadFailed) as caught:
            get(files, url="http://files.invalid/b.whl", proxy=address, sha256="0" * 64)
    assert "pr0xy" not in caught.value.message + caught.value.hint


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_private_certificate_authority(files: Files, certificate: Path) -> None:
    with serving(files, certificate):
        with pytest.raises(DownloadFailed, match="certificate is not trusted") as caught:
            get(files)
        assert len(files.requests) == 0
        assert "PIP_CERT" in caught.value.hint
        assert get(files, cert=str(certificate.with_name("cert.pem"))).read_bytes() == DATA


def test_trusted_host_needs_no_certificate(files: Files, certificate: Path) -> None:
    with serving(files, certificate):
        assert get(files, trusted_hosts=("127.0.0.1",)).read_bytes() == DATA  # type: ignore[arg-type]


def test_plain_http_needs_hash_loopback_or_trusted_host(files: Files) -> None:
    with serving(files):
        assert get(files, sha256="").read_bytes() == DATA
        with pytest.raises(BadInput, match="plain http, and its sha256 is not known") as caught:
            get(files, sha256="", url="http://files.invalid/a.whl")
        assert "trusted-host files.invalid" in caught.value.hint
        files.responses = [(302, {"Location": "http://files.invalid/a.whl"})]
    with pytest.raises(DownloadFailed, match=r"files\.invalid"):
        get(files, sha256="0" * 64, url="http://files.invalid/a.whl", seconds=1)


def test_without_hash_only_a_strong_etag_permits_resume(files: Files) -> None:
    files.cut, files.etags = [1_000_000], False
    with serving(files):
        assert get(files, sha256="").read_bytes() == DATA
    assert requested_ranges(files) == ["", ""]


def test_permissions_follow_the_umask(files: Files) -> None:
    before = os.umask(0o027)
    try:
        with serving(files):
            done = get(files)
    finally:
        os.umask(before)
    assert stat.S_IMODE(done.stat().st_mode) == 0o640


@pytest.mark.parametrize("kind", ["path", "file"])
def test_local_file_is_linked_and_verified(files: Files, kind: str) -> None:
    source = files.folder / NAME
    done = get(files, url=str(source) if kind == "path" else source.as_uri())
    assert done.read_bytes() == DATA
    assert done.samefile(source)
    with pytest.raises(HashMismatch):
        get(files, url=str(source), sha256="0" * 64)
    assert downloaded(files) == [NAME]


def test_local_file_of_another_file_system_is_copied(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_link(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", fail_link)
    assert not get(files, url=str(files.folder / NAME)).samefile(files.folder / NAME)
    (files.folder.parent / "here" / NAME).unlink()
    with pytest.raises(HashMismatch):
        get(files, url=str(files.folder / NAME), sha256="0" * 64)
    assert downloaded(files) == []


@pytest.mark.parametrize("url", ["/nowhere/a.whl", "file:///nowhere/a.whl", "."])
def test_missing_local_file_is_an_error(files: Files, url: str) -> None:
    with pytest.raises(DownloadFailed):
        get(files, url=url)


def test_local_path() -> None:
    assert local_path("file:///a%20b/c+d.whl") == Path("/a b/c+d.whl")
    assert local_path("/a b/c.whl") == Path("/a b/c.whl")
    assert local_path("https://h/a.whl") is None
    assert local_path("file://server/share/a.whl") is None


BAD_NAMES = ["../a.whl", "a/b.whl", "..", ".", "", ".hidden", "a.part", "a\nb.whl", "x" * 250, "-r"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_invalid_names_are_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput):
        path_in_folder(tmp_path, name)


def test_part_that_is_a_symlink_is_not_followed(files: Files) -> None:
    precious = files.folder.parent / "precious"
    precious.write_text("kept")
    (files.folder.parent / "here" / f"{NAME}.part").symlink_to(precious)
    with serving(files), pytest.raises(EnvdoctorError, match="cannot write"):
        get(files)
    assert precious.read_text() == "kept"


def test_unwritable_folder_is_an_error(files: Files) -> None:
    (files.folder.parent / "here").rmdir()
    (files.folder.parent / "here").write_text("a file")
    with serving(files), pytest.raises(EnvdoctorError, match=r"here") as caught:
        get(files)
    assert caught.value.exit_code == 3


def test_second_download_of_the_same_file_is_rejected(files: Files) -> None:
    files.stall = [1_000_000]
    with serving(files):
        first = start(files)
        wait_for_part(files, 1_000_000)
        with pytest.raises(EnvdoctorError, match="another process is downloading"):
            get(files)
        files.done.set()  # ends the stalled response; the rest is requested
        first.communicate(timeout=60)
    assert first.returncode == 0


SCRIPT = """
import resource, sys, time
from pathlib import Path
from envdoctor.download.files import download
from envdoctor.core.errors import EnvdoctorError
from envdoctor.download.sources import Sources
url, target, sha256, limit = sys.argv[1:]
if int(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    download(url, Path(target), sha256=sha256, size=None, sources=Sources(timeout="60"), end=time.monotonic() + 100,
             on_bytes=lambda *_: None)
except EnvdoctorError as error:
    print(error.message, error.expected, error.hint, sep="|")
    sys.exit(error.exit_code)
"""


def start(files: Files, limit: int = 0, target: Path | None = None) -> subprocess.Popen[str]:
    place = target or files.folder.parent / "here" / NAME
    return subprocess.Popen(
        [interpreter(), "-c", SCRIPT, files.url(NAME), str(place), HASH, str(limit)],
        env=environment(Path("/nonexistent")), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def wait_for_part(files: Files, size: int) -> None:
    """Wait until the incomplete download has this size."""
    part = files.folder.parent / "here" / f"{NAME}.part"
    end = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size == size):
        assert time.monotonic() < end, "the part was not written"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_killed_download_is_resumed(files: Files, number: signal.Signals) -> None:
    files.stall = [1_000_000]
    with serving(files):
        process = start(files)
        wait_for_part(files, 1_000_000)
        process.send_signal(number)
        output = process.communicate(timeout=60)[0]
        kept = (files.folder.parent / "here" / f"{NAME}.part").stat().st_size
        assert kept == 1_000_000
        assert get(files).read_bytes() == DATA
    assert [request.byte_range for request in files.requests] == ["", f"bytes={kept}-"]
    assert files.requests[1].sent == len(DATA) - kept
    if number is signal.SIGINT:
        assert process.returncode == 130
        assert output.startswith(f"interrupted: {kept} of 3000000 bytes of {NAME} are kept in")


def test_interruption_right_after_a_write_reports_the_bytes_of_the_file(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def write_and_interrupt(file: int, data: bytes) -> int:
        write(file, data)
        raise KeyboardInterrupt

    with serving(files):
        monkeypatch.setattr(os, "write", write_and_interrupt)
        with pytest.raises(Interrupted) as caught:
            get(files)
        monkeypatch.undo()
        kept = (files.folder.parent / "here" / f"{NAME}.part").stat().st_size
        assert 0 < kept < len(DATA)
        assert caught.value.message.startswith(f"interrupted: {kept} of 3000000 bytes")


def test_full_disk_is_reported_in_bytes_and_the_download_resumed(files: Files) -> None:
    with serving(files):
        process = start(files, limit=1_000_000)
        output = process.communicate(timeout=20)[0]
        assert process.returncode == 3
        assert "1000000 of 3000000 bytes" in output
        assert "2000000 more bytes" in output
        assert get(files).read_bytes() == DATA
    assert requested_ranges(files) == ["", "bytes=1000000-"]


def test_full_file_system(files: Files) -> None:
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("mounting a tmpfs needs root and mount namespaces")
    place = files.folder.parent / "small"
    place.mkdir()
    mounted = f'mount -t tmpfs -o size=1m tmpfs {place} && exec "$@"'
    with serving(files):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", mounted, "sh", sys.executable, "-c", SCRIPT, files.url(NAME),
             str(place / NAME), HASH, "0"],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "No space left on device" in done.stdout
    assert "bytes are free" in done.stdout
    assert "df -h" in done.stdout


def test_size_beyond_the_free_space_is_rejected_without_a_request(files: Files) -> None:
    with serving(files), pytest.raises(EnvdoctorError, match="bytes are free") as caught:
        get(files, size=1 << 60)
    assert files.requests == []
    assert str(1 << 60) in caught.value.expected
