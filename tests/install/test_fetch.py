"""Wheelhouses: download from an index on loopback with uv, interruption, damage, and installation."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.command import environment, interpreter, snapshot
from support.install_place import add_known_interpreters
from support.local_packages import PYTHON, write_profile, write_wheel
from support.paths import ROOT
from support.wheel_server import Files, make_certificate, serving

from envdoctor.commands.fetch import FetchRequest, FetchResult
from envdoctor.commands.fetch import run as fetch
from envdoctor.core.errors import BadInput, EnvdoctorError, Interrupted, Refused
from envdoctor.core.reporter import DownloadProgress, ResolveAttempt
from envdoctor.download import files as downloads
from envdoctor.download.sources import uv_arguments, uv_environment
from envdoctor.install import transfer
from envdoctor.install.wheelhouse import MANIFEST, read_wheelhouse
from envdoctor.locking.lock import Lock, Package
from envdoctor.locking.lock_files import lock_path, write_lock
from envdoctor.locking.uv import run_uv
from envdoctor.profiles import read_profile

HERE = platform.machine()
SECRET = "pl4nted-s3cret"
SIZES = {"alpha": 3_000_000, "beta": 500_000, "gamma": 1000, "torch": 2000}


@dataclass
class Heard:
    """A reporter that records all calls."""

    lines: list[str] = field(default_factory=list)
    progress: list[DownloadProgress] = field(default_factory=list)

    def phase(self, title: str) -> None:
        self.lines.append(title)

    def attempt(self, attempt: ResolveAttempt) -> None:
        self.lines.append(repr(attempt))

    def fetching(self, progress: DownloadProgress) -> None:
        self.progress.append(progress)


@dataclass
class Place:
    home: Path
    files: Files
    heard: Heard = field(default_factory=Heard)

    @property
    def profile(self) -> Path:
        return self.home / "mine.toml"

    @property
    def dest(self) -> Path:
        return self.home / "house"

    def fetch(self, **options: str) -> FetchResult:
        data = fetch(FetchRequest(profile=str(self.profile), dest=str(self.dest), **options), self.heard).data
        assert isinstance(data, FetchResult)
        return data

    def lock(self, architecture: str = HERE) -> Lock:
        """A lock next to the profile, for the current wheels."""
        packages = tuple(
            Package(w.name.split("-")[0], w.name.split("-")[1], w.name, digest(w.read_bytes()), "")
            for w in sorted(self.files.folder.glob("*.whl")) if not w.name.startswith("direct")
        )  # fmt: skip
        file = Lock(profile="mine", platform=f"{architecture}-manylinux_2_17", python=PYTHON,
                    backend="", torch_build="cpu", made="2026-11-21", packages=packages)  # fmt: skip
        write_lock(lock_path(str(self.profile), file.platform, PYTHON), file)
        return file

    def start(self) -> subprocess.Popen[str]:
        """The same in a separate process."""
        words = ["fetch", self.profile, "--dest", self.dest, "--quiet", "--format", "json"]
        return subprocess.Popen(
            [interpreter(), "-m", "envdoctor", *words],
            env=environment(self.home, UV_CACHE_DIR=str(self.home / "cache")),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def wait_for_part(self, name: str, size: int) -> None:
        """Wait until this many bytes of a file are on disk."""
        end = time.monotonic() + 60
        while not any(path.stat().st_size == size for path in self.dest.glob(f"{name}-*.part")):
            assert time.monotonic() < end, f"the part of {name} was not written"
            time.sleep(0.01)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(downloads, "FIRST_PAUSE", 0.02)
    add_known_interpreters(tmp_path / "cache")
    wheels = tmp_path / "wheels"
    rng = random.Random(3)
    for name, size in SIZES.items():
        version = "9.9.0+cpu" if name == "torch" else "1.0"
        requires = ["beta"] if name == "alpha" else []
        write_wheel(wheels, name, version, requires=requires, files={f"{name}/data.bin": rng.randbytes(size)})
    with serving(Files(wheels)) as files:
        for name, value in {
            "HOME": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "cache"), "NO_PROXY": "127.0.0.1",
            "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": files.url("simple/", user=f"bob:{SECRET}"),
            "PIP_TIMEOUT": "2",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        files.user = f"bob:{SECRET}"
        made = Place(tmp_path, files)
        write_profile(made.profile, "alpha", "gamma", "torch==9.9.0+cpu")
        yield made


def test_a_locked_profile_is_fetched_and_installed_without_a_network(place: Place) -> None:
    lock = place.lock()
    fetched = place.fetch()
    wheels = {w.name: w.stat().st_size for w in place.files.folder.iterdir()}
    assert {w.name: w.stat().st_size for w in place.dest.iterdir() if w.name != MANIFEST} == wheels
    assert place.files.sent() == wheels
    assert (fetched.files, fetched.kept, fetched.downloaded) == (4, 0, sum(wheels.values()))
    assert fetched.digest == lock.digest
    assert fetched.own_lock
    assert fetched.command == f"envdoctor install {place.profile} --from {place.dest}"
    last = place.heard.progress[-1]
    assert (last.files_done, last.files, last.bytes_done, last.bytes) == (4, 4, *[sum(wheels.values())] * 2)
    house = read_wheelhouse(place.dest, "mine")
    assert house.lock.text == lock.text
    place.files.responses = [(500, {})] * 99
    requests = len(place.files.requests)
    requirements = place.home / "requirements.txt"
    requirements.write_text(house.lock.text)
    done = run_uv(
        ["pip", "install", "--target", place.home / "installed", "--require-hashes", "--no-cache",
         "--python-version", PYTHON, *uv_arguments(house.sources), "-r", requirements],
        environment=uv_environment(house.sources), timeout=60,
    )  # fmt: skip
    assert done.ok, done.output
    assert len(place.files.requests) == requests
    assert (place.home / "installed/alpha/data.bin").stat().st_size == SIZES["alpha"]


def test_a_second_fetch_downloads_nothing(place: Place) -> None:
    place.lock()
    place.fetch()
    before, sent = snapshot(place.dest), place.files.sent()
    again = place.fetch()
    assert (again.kept, again.downloaded) == (4, 0)
    assert place.files.sent() == sent
    after = snapshot(place.dest)
    assert {n: d for n, d in after.items() if n != MANIFEST} == {n: d for n, d in before.items() if n != MANIFEST}


def test_without_a_lock_the_profile_is_resolved(place: Place) -> None:
    fetched = place.fetch()
    assert fetched.files == 4
    assert any("resolved" in line for line in place.heard.lines)
    assert read_wheelhouse(place.dest, "mine").files == 4


def test_a_mirror_with_another_file_of_the_same_version(place: Place) -> None:
    lock = place.lock()
    write_wheel(place.files.folder, "gamma", "1.0", files={"gamma/data.bin": b"rebuilt"})
    fetched = place.fetch()
    assert fetched.digest != lock.digest
    assert not fetched.own_lock
    versions = [package.version for package in read_wheelhouse(place.dest, "mine").lock.packages]
    assert versions == ["1.0", "1.0", "1.0", "9.9.0+cpu"]


def test_for_another_platform(place: Place) -> None:
    other = "aarch64" if HERE == "x86_64" else "x86_64"
    next(place.files.folder.glob("gamma-*")).unlink()
    tag = f"cp{PYTHON.replace('.', '')}-cp{PYTHON.replace('.', '')}-manylinux_2_17"
    write_wheel(place.files.folder, "gamma", "1.0", tag=f"{tag}_{other}")
    fetched = place.fetch(architecture=other, glibc="2.28")
    assert fetched.platform == f"{other}-manylinux_2_28"
    assert (place.dest / f"gamma-1.0-{tag}_{other}.whl").exists()
    with pytest.raises(EnvdoctorError, match="no wheels with a matching platform"):  # none for this machine
        place.fetch(architecture=HERE)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"python": "3.99"}, "--python 3.99"), ({"architecture": "riscv64"}, "--arch riscv64"),
     ({"glibc": "2.5"}, "--glibc 2.5"), ({"glibc": "musl"}, "--glibc musl")],
)  # fmt: skip
def test_an_unsupported_target_is_refused(place: Place, options: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        place.fetch(**options)
    assert not place.dest.exists()


def test_a_dropped_connection_resumes_in_the_next_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.lock()
    place.files.cut = [1000] * 4
    monkeypatch.setattr(downloads, "ATTEMPTS", 1)
    with pytest.raises(EnvdoctorError, match="stopped after") as caught:
        place.fetch()
    assert "the download resumes" in caught.value.hint
    assert not (place.dest / MANIFEST).exists()
    with pytest.raises(BadInput, match=f"no {MANIFEST}"):
        read_wheelhouse(place.dest, "mine")
    kept = sum(part.stat().st_size for part in place.dest.glob("*.part"))
    assert kept >= 1000
    place.files.cut.clear()
    place.files.requests.clear()
    place.fetch()
    total = sum(wheel.stat().st_size for wheel in place.files.folder.iterdir())
    assert sum(place.files.sent().values()) == total - kept
    assert read_wheelhouse(place.dest, "mine").bytes == total


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_fetch_resumes(place: Place, number: signal.Signals) -> None:
    place.lock()
    place.files.stall = [1_200_000] * 4  # only alpha is larger
    process = place.start()
    place.wait_for_part("alpha", 1_200_000)
    process.send_signal(number)
    message = process.communicate(timeout=60)[0]
    there = {p.name: p.stat().st_size for p in place.dest.iterdir() if not p.name.endswith(".json")}
    kept = sum(there.values())
    assert kept >= 1_200_000
    assert not (place.dest / MANIFEST).exists()
    if number is not signal.SIGKILL:
        assert process.returncode == 130
        assert "bytes are kept in" in message
        assert "run the same command again" in message
    place.files.requests.clear()
    place.files.stall.clear()
    place.fetch()
    total = sum(w.stat().st_size for w in place.files.folder.iterdir())
    assert sum(place.files.sent().values()) == total - kept
    assert not list(place.dest.glob("*.part*"))


def test_ctrl_c_while_the_downloads_start_names_the_kept_bytes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class InterruptedStart(Thread):
        def start(self) -> None:
            super().start()
            place.wait_for_part("alpha", 1_200_000)
            raise KeyboardInterrupt

    place.lock()
    place.files.stall = [1_200_000] * 4
    monkeypatch.setattr(transfer, "Thread", InterruptedStart)
    with pytest.raises(Interrupted, match="bytes are kept in"):
        place.fetch()


def test_a_wrong_hash_is_an_error_without_a_manifest(place: Place) -> None:
    lock = place.lock()
    name = "gamma-1.0-py3-none-any.whl"
    place.files.replaced = {name: bytes((place.files.folder / name).stat().st_size)}
    with pytest.raises(EnvdoctorError, match=digest(place.files.replaced[name])) as caught:
        place.fetch()
    assert next(p.sha256 for p in lock.packages if p.name == "gamma") in caught.value.expected
    assert not (place.dest / name).exists()
    assert not (place.dest / MANIFEST).exists()


def test_the_password_of_the_index_is_not_written(place: Place) -> None:
    place.lock()
    place.files.responses = [(503, {"Retry-After": "1"})] * 8  # four of them for the size requests
    fetched = place.fetch()
    assert any("returned 503" in each.waits_for for each in place.heard.progress)
    place.files.user = "bob:another"
    (place.dest / "gamma-1.0-py3-none-any.whl").unlink()
    with pytest.raises(EnvdoctorError) as caught:
        place.fetch()
    error = caught.value
    output = [repr(fetched), repr(place.heard), error.message, error.expected, error.hint]
    assert SECRET not in " ".join([*output, (place.dest / MANIFEST).read_text()])


def test_a_folder_with_other_wheels_is_refused(place: Place) -> None:
    place.lock()
    write_wheel(place.dest, "other", "1.0")
    before = snapshot(place.dest)
    with pytest.raises(BadInput, match=r"other-1\.0"):
        place.fetch()
    assert snapshot(place.dest) == before


def test_files_of_an_earlier_lock_are_removed(place: Place) -> None:
    place.lock()
    place.fetch()
    next(place.files.folder.glob("gamma-*")).unlink()
    write_wheel(place.files.folder, "gamma", "2.0")
    place.lock()
    fetched = place.fetch()
    assert (fetched.kept, fetched.removed) == (3, ("gamma-1.0-py3-none-any.whl",))
    assert read_wheelhouse(place.dest, "mine").files == 4


def test_a_folder_of_wheels_is_a_source_like_an_index(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place.files.folder))
    place.lock()
    assert place.fetch().files == 4
    assert place.files.requests == []


def test_a_small_disk_is_refused_first(place: Place) -> None:
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("mounting a tmpfs needs root and mount namespaces")
    place.lock()
    place.dest.mkdir()
    code = (
        "import sys, os; from unittest.mock import MagicMock\n"
        "from envdoctor.core.errors import EnvdoctorError; from envdoctor.commands.fetch import FetchRequest, run\n"
        "try: run(FetchRequest(profile=sys.argv[1], dest=sys.argv[2]), MagicMock())\n"
        "except EnvdoctorError as error: print(error.message, error.expected, os.listdir(sys.argv[2]))\n"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=1m tmpfs {place.dest} && exec "$@"', "sh",
         sys.executable, "-c", code, str(place.profile), str(place.dest)],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "1 MiB are free" in done.stdout, done.stderr
    assert "at least 3 MiB for 4 files []" in done.stdout
    assert sum(place.files.sent().values()) == 0


DIRECT = """
[[wheels]]
name = "direct"
file = "{file}"
url = "{url}"
sha256 = "{sha256}"
"""


@pytest.fixture
def direct(place: Place, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    """A server of direct wheels, over TLS with a private certificate authority."""
    both = make_certificate(tmp_path_factory.mktemp("tls"))
    monkeypatch.setenv("PIP_CERT", str(both.with_name("cert.pem")))
    folder = place.home / "direct"
    folder.mkdir()
    with serving(Files(folder), both) as files:
        yield files


def add_direct(place: Place, direct: Files, *entries: tuple[str, str, str], fallback: bool = False,
               contents: dict[str, bytes] | None = None) -> dict[str, Path]:  # fmt: skip
    """Wheels of `direct` by tag, conditions and folder. Only the folder "" is served."""
    made, text = {}, ""
    for tag, conditions, there in entries:
        wheel = write_wheel(direct.folder / there, "direct", "1.0", tag=tag, files=contents)
        made[tag] = wheel
        text += DIRECT.format(file=wheel.name, url=direct.url(wheel.name), sha256=digest(
            wheel.read_bytes())) + conditions  # fmt: skip
    extra = text + ('\n[fallbacks]\ndirect = "sdpa"\n' if fallback else "")
    write_profile(place.profile, "alpha", "gamma", "torch==9.9.0+cpu")
    place.profile.write_text(place.profile.read_text() + extra)
    return made


def test_compatible_direct_wheels_are_downloaded(place: Place, direct: Files) -> None:
    tags = ["py3-none-any", "py3-none-manylinux_2_17_x86_64", "py3-none-manylinux_2_28_x86_64", "py2-none-any"]
    conditions = ['python = "3.2"\n', 'abi = "TRUE"\n', 'abi = "FALSE"\n', ""]
    made = add_direct(place, direct, *((tag, only_for, "") for tag, only_for in zip(tags, conditions, strict=True)))
    place.lock()
    fetched = place.fetch()
    assert fetched.direct == (made[tags[1]].name, made[tags[2]].name)
    assert f"{made[tags[0]].name}: built for Python 3.2, here is {PYTHON}" in fetched.left_out
    house = read_wheelhouse(place.dest, "mine")
    assert set(house.direct) == {digest(made[tag].read_bytes()) for tag in tags[1:3]}


def test_for_a_missing_direct_wheel_the_next_or_the_fallback_is_used(place: Place, direct: Files) -> None:
    add_direct(place, direct, ("py3-none-any", "", "gone"))
    place.lock()
    with pytest.raises(Refused, match=r"no wheel of direct .*returned 404"):
        place.fetch()
    add_direct(place, direct, ("py3-none-any", "", "gone"), fallback=True)
    fetched = place.fetch()
    assert fetched.direct == ()
    assert "returned 404" in fetched.left_out[0]


def test_a_direct_wheel_with_paths_outside_is_refused(place: Place, direct: Files) -> None:
    add_direct(place, direct, ("py3-none-any", "", ""), contents={"../evil.pth": b"import os"})
    place.lock()
    with pytest.raises(BadInput, match="leaves its directory"):
        place.fetch()
    assert not (place.dest / MANIFEST).exists()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheelhouse of small wheels from a folder."""
    home = tmp_path_factory.mktemp("filled")
    place = Place(home, Files(home / "wheels"))
    for name in SIZES:
        write_wheel(place.files.folder, name, "9.9.0+cpu" if name == "torch" else "1.0")
    write_profile(place.profile, "alpha", "gamma", "torch==9.9.0+cpu")
    place.lock()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PIP_FIND_LINKS": str(place.files.folder), "PIP_NO_INDEX": "1",
                            "PIP_CONFIG_FILE": "/dev/null", "UV_CACHE_DIR": str(home / "cache")}.items():  # fmt: skip
            patch.setenv(name, value)
        place.fetch()
    return place.dest


@pytest.fixture
def house(filled: Path, tmp_path: Path) -> Path:
    return shutil.copytree(filled, tmp_path / "house")


def change(house: Path, **values: Any) -> None:
    """Change values of the manifest."""
    data = json.loads((house / MANIFEST).read_text())
    (house / MANIFEST).write_text(json.dumps(data | values))


GAMMA = "gamma-1.0-py3-none-any.whl"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "a missing file": (lambda h: (h / GAMMA).unlink(), rf"{GAMMA} cannot be read: No such file"),
    "a truncated file": (lambda h: (h / GAMMA).write_bytes((h / GAMMA).read_bytes()[:-1]), rf"{GAMMA} has \d+ bytes"),
    "a changed file": (lambda h: flip(h / GAMMA), rf"{GAMMA} has sha256"),
    "an extra wheel": (lambda h: (h / "x-1-py3-none-any.whl").write_bytes(b""), r"x-1-py3-none-any\.whl is not in"),
    "an extra archive": (lambda h: (h / "x-1.tar.gz").write_bytes(b""), r"x-1\.tar\.gz is not in"),
    "an unknown key": (lambda h: change(h, colour="red"), "unknown field `colour`"),
    "a newer schema": (lambda h: change(h, schema=99), "has schema 99"),
    "no JSON": (lambda h: (h / MANIFEST).write_text("{"), "is not JSON"),
    "a list": (lambda h: (h / MANIFEST).write_text("[]"), "Expected `object`"),
    "deep JSON": (lambda h: (h / MANIFEST).write_text("[" * 100_000), "is not JSON"),
    "no manifest": (lambda h: (h / MANIFEST).unlink(), "has 4 wheels and no envdoctor-wheelhouse.json"),
    "another profile": (lambda h: change(h, profile="other"), "wheels of profile 'other'"),
    "another digest": (lambda h: change(h, digest="0" * 16), "the lock in"),
    "another platform": (lambda h: change(h, platform="aarch64-manylinux_2_99"), "the lock in"),
    "no lock": (lambda h: change(h, lock="x"), "line 1"),
    "no files": (lambda h: change(h, files=[]), "lists no file for alpha"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_wheelhouse_is_refused_with_the_file_name(house: Path, kind: str) -> None:
    spoil, message = DAMAGE[kind]
    spoil(house)
    with pytest.raises(BadInput, match=message) as caught:
        read_wheelhouse(house, "mine")
    assert caught.value.hint
    assert caught.value.expected


@pytest.mark.parametrize("name", ["../wheels/" + GAMMA, "/etc/passwd", "a/../" + GAMMA, ".hidden.whl", "passwd"])
def test_a_manifest_that_names_files_elsewhere_is_refused(house: Path, name: str) -> None:
    files = json.loads((house / MANIFEST).read_text())["files"]
    next(file for file in files if file["name"] == GAMMA)["name"] = name
    change(house, files=files)
    with pytest.raises(BadInput):
        read_wheelhouse(house, "mine")


def test_partial_downloads_and_other_files_are_ignored(house: Path) -> None:
    for name in ("x-1-py3-none-any.whl.part", "x-1-py3-none-any.whl.part.json", "README", "mine.toml"):
        (house / name).write_text("x")
    assert read_wheelhouse(house, "mine").files == 4


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file") as caught:
        read_wheelhouse(tmp_path / "none", "mine")
    assert caught.value.hint == f"envdoctor fetch mine --dest {tmp_path / 'none'}"


def test_a_folder_name_with_a_comma(house: Path) -> None:
    moved = house.rename(house.with_name("a, b"))
    sources = read_wheelhouse(moved, "mine").sources
    requirements = house.with_name("requirements.txt")
    requirements.write_text("gamma==1.0\n")
    done = run_uv(
        ["pip", "compile", requirements, *uv_arguments(sources)], environment=uv_environment(sources), timeout=60
    )
    assert done.ok, done.output


def test_the_output_contains_the_install_command(place: Place) -> None:
    from envdoctor.output.fetch import render_fetch
    from envdoctor.output.layout import lines

    place.lock()
    fetched = place.fetch()
    message = "\n".join(line.plain for part in render_fetch(fetched) for line in lines(part, None))
    assert f"$ {fetched.command}" in message
    assert "4 files" in message


@pytest.mark.network
def test_fetch_from_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small projects of the configured index for the other architecture, and torch from a folder."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    write_wheel(tmp_path / "wheels", "torch", "9.9.0+cpu")
    profile = write_profile(tmp_path / "mine.toml", "msgspec==0.19.0", "packaging==24.2", "torch==9.9.0+cpu",
                            pythons=["3.12"])  # fmt: skip
    dest = str(tmp_path / "house")
    request = FetchRequest(profile=str(profile), dest=dest, architecture="aarch64", glibc="2.28")
    fetched = fetch(request, Heard()).data
    assert fetched.files == 3
    house = read_wheelhouse(tmp_path / "house", read_profile(str(profile)).id)
    assert any("aarch64" in path.name for path in (tmp_path / "house").iterdir())
    assert fetch(request, Heard()).data.kept == 3
    assert house.files == 3
