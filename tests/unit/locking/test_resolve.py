"""Resolution with uv from generated wheels: other platforms, wrong builds, failing sources."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command import envdoctor, envelope
from support.install_place import add_known_interpreters
from support.local_packages import Index, serve, write_cpu_torch, write_cuda_torch, write_profile, write_wheel
from support.pip import pip

from envdoctor.core.records import Finding
from envdoctor.download.sources import Sources, read_sources
from envdoctor.locking.audit import audit_lock
from envdoctor.locking.lock import Lock, Package, Target
from envdoctor.locking.lock_files import lock_path, read_lock
from envdoctor.locking.resolve import Resolution, resolution_error, resolve, torch_build_of
from envdoctor.machine.recorded import override, read_recorded
from envdoctor.profiles import read_profile
from envdoctor.rules import evaluate

X86 = Target("x86_64", "2.35", ("3.11",))
ARM = Target("aarch64", "2.35", ("3.12",))
Resolve = Callable[..., tuple[Resolution, Sources]]


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


@pytest.fixture
def solve(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Resolve requirements from the folder of wheels, or with other pip settings, with an empty cache."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    add_known_interpreters(tmp_path / "cache")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def call(
        *requirements: str, target: Target = X86, pip: dict[str, str] | None = None, cuda: str = "", extra: str = ""
    ) -> tuple[Resolution, Sources]:
        given = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)} if pip is None else pip
        sources = read_sources({"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null", **given})
        profile = read_profile(str(write_profile(tmp_path / "p.toml", *requirements, cuda=cuda, extra=extra)))
        return resolve(profile, target, sources), sources

    return call


def lock_of(resolution: Resolution) -> dict[str, Package]:
    assert resolution.lock, resolution.attempts
    return {package.name: package for package in resolution.lock.packages}


def test_lock_for_another_platform_and_python(wheels: Path, solve: Resolve) -> None:
    """On x86_64, for aarch64 and a Python version that is not installed."""
    for tag in ("cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_x86_64",
                "cp312-cp312-manylinux_2_28_aarch64", "cp312-cp312-manylinux_2_39_aarch64"):  # fmt: skip
        write_wheel(wheels, "alpha", "1.0", tag=tag)
    resolution, _ = solve("alpha", target=ARM)
    assert lock_of(resolution)["alpha"].wheel == "alpha-1.0-cp312-cp312-manylinux_2_28_aarch64.whl"
    assert resolution.lock
    assert (resolution.lock.platform, resolution.lock.python) == ("aarch64-manylinux_2_35", "3.12")


TAGS = {
    "compiled before pure": ["py3-none-any", "cp311-cp311-manylinux_2_17_x86_64"],
    "newest glibc first": [
        "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64",
        "cp311-cp311-manylinux_2_34_x86_64",
    ],
    "own ABI before the stable one": ["cp38-abi3-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_5_x86_64"],
    "newer stable ABI first": ["cp37-abi3-manylinux2014_x86_64", "cp39-abi3-manylinux2014_x86_64"],
    "legacy name": ["py3-none-any", "cp311-cp311-manylinux2014_x86_64"],
    "highest build": ["1-py3-none-any", "2-py3-none-any"],
}


@pytest.mark.parametrize("listed", ["folder", "index"])
@pytest.mark.parametrize("case", TAGS)
def test_lock_has_the_wheel_that_pip_selects(
    case: str, listed: str, tmp_path: Path, wheels: Path, solve: Resolve
) -> None:
    for tag in TAGS[case]:
        write_wheel(wheels, "alpha", "1.0", tag=tag)
    if listed == "folder":
        resolution, _ = solve("alpha")
    else:
        with serve(Index({"main": wheels})) as web:
            resolution, _ = solve("alpha", pip={"PIP_INDEX_URL": web.url()})
    taken = subprocess.run(
        [*pip(), "download", "--no-index", "--find-links", wheels, "--quiet",
         "--only-binary", ":all:", "--python-version", "3.11", "--dest", tmp_path / "taken", "alpha", *platforms()],
        capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )  # fmt: skip
    assert taken.returncode == 0, taken.stderr
    (wheel,) = (tmp_path / "taken").iterdir()
    assert lock_of(resolution)["alpha"].wheel == wheel.name == f"alpha-1.0-{TAGS[case][1]}.whl"


def platforms() -> Iterator[str]:
    for name in (*(f"manylinux_2_{minor}" for minor in range(35, 4, -1)), "manylinux2014"):
        yield from ("--platform", f"{name}_x86_64")


def test_the_cuda_build_is_refused_for_a_cpu_profile(wheels: Path, solve: Resolve) -> None:
    write_cuda_torch(wheels)
    resolution, sources = solve("torch")
    assert resolution.lock is None
    (attempt,) = resolution.attempts
    assert attempt.outcome == "wrong build"
    assert attempt.reason == "torch would be the CUDA 12.8 build, not the CPU build"
    error = resolution_error(resolution, sources)
    assert error.exit_code == 1
    assert "CUDA 12.8 build" in error.message


def test_the_cpu_build_is_refused_for_a_cuda_profile(wheels: Path, solve: Resolve) -> None:
    """As on aarch64, where the same requirement silently resolves to a CPU build."""
    write_cpu_torch(wheels)
    resolution, _ = solve("torch", cuda="12.8", target=ARM)
    assert resolution.attempts[0].reason == "torch would be the CPU build, not the CUDA 12.8 build"


def test_another_cuda_build_is_refused(wheels: Path, solve: Resolve) -> None:
    write_cuda_torch(wheels)
    assert solve("torch", cuda="12.9")[0].attempts[0].outcome == "wrong build"
    assert solve("torch", cuda="12.8")[0].lock


@pytest.mark.parametrize(
    ("packages", "build"),
    [
        ({"torch": "2.13.0+cpu"}, "cpu"),
        ({"torch": "2.13.0+cpu", "nvidia-cuda-runtime-cu12": "12.8.90"}, "cpu"),
        ({"torch": "2.8.0+cu129"}, "12.9"),
        ({"torch": "2.8.0+cu129", "nvidia-cuda-runtime-cu12": "12.8.90"}, "12.9"),
        ({"torch": "2.11.0+cu130"}, "13.0"),
        ({"torch": "1.7.1+cu92"}, "9.2"),
        ({"torch": "2.8.0", "nvidia-cuda-runtime-cu12": "12.8.90"}, "12.8"),
        ({"torch": "2.11.0", "nvidia-cuda-runtime": "13.0.96"}, "13.0"),
        ({"torch": "2.8.0", "nvidia-cuda-nvrtc-cu12": "12.8.93"}, "cpu"),
        ({"torch": "2.8.0"}, "cpu"),
        ({"torch": "2.8.0+rocm6.4"}, "rocm6.4"),
        ({"torch": "2.8.0+xpu"}, "xpu"),
        ({"torch": "2.8.0+mine", "nvidia-cuda-runtime-cu12": "12.8.90"}, "12.8"),
        ({}, "cpu"),
    ],
)
def test_the_build_of_torch_is_read_from_names_and_versions(packages: dict[str, str], build: str) -> None:
    assert torch_build_of([Package(name, version, "", "", "") for name, version in packages.items()]) == build


def test_another_accelerators_build_is_not_the_cpu_build(wheels: Path, solve: Resolve) -> None:
    write_wheel(wheels, "torch", "9.9.0+rocm6.4")
    assert solve("torch")[0].attempts[0].reason == "torch would be the rocm6.4 build, not the CPU build"


def test_every_offered_python_is_tried(wheels: Path, solve: Resolve) -> None:
    write_wheel(wheels, "alpha", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    resolution, _ = solve("alpha", target=Target("x86_64", "2.35", ("3.11", "3.12")))
    assert [(attempt.python, attempt.outcome) for attempt in resolution.attempts] == [
        ("3.11", "no solution"),
        ("3.12", "resolved"),
    ]


def test_a_missing_wheel_for_the_python_names_available_ones(wheels: Path, solve: Resolve) -> None:
    write_wheel(wheels, "alpha", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    resolution, sources = solve("alpha")
    message = resolution_error(resolution, sources).message
    assert "no wheels with a matching Python" in message
    assert "`cp312`" in message
    assert "\n" not in message


def test_a_missing_wheel_for_the_platform_names_available_ones(wheels: Path, solve: Resolve) -> None:
    write_wheel(wheels, "alpha", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    assert "manylinux_2_28_x86_64" in solve("alpha", target=ARM)[0].attempts[0].reason


def test_a_source_distribution_is_never_built(tmp_path: Path, wheels: Path, solve: Resolve) -> None:
    built = tmp_path / "built"
    setup = f"open({str(built)!r}, 'w').close()\nfrom setuptools import setup; setup(name='alpha', version='1.0')\n"
    with tarfile.open(wheels / "alpha-1.0.tar.gz", "w:gz") as archive:
        for name, text in (("setup.py", setup), ("PKG-INFO", "Metadata-Version: 1.0\nName: alpha\nVersion: 1.0\n")):
            entry = tarfile.TarInfo(f"alpha-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    resolution, sources = solve("alpha")
    assert resolution.attempts[0].outcome == "no solution"
    assert "has no usable wheels" in resolution.attempts[0].reason
    assert resolution_error(resolution, sources).exit_code == 1
    assert not built.exists()


def test_a_conflict_names_both_sides(wheels: Path, solve: Resolve) -> None:
    write_wheel(wheels, "alpha", "1.0", requires=["beta<2"])
    write_wheel(wheels, "beta", "1.0")
    write_wheel(wheels, "beta", "2.0")
    reason = solve("alpha", "beta>=2")[0].attempts[0].reason
    assert "alpha" in reason
    assert "beta" in reason
    assert "error" not in reason.lower()


def test_broken_wheel_is_reported(wheels: Path, solve: Resolve) -> None:
    (wheels / "alpha-1.0-py3-none-any.whl").write_bytes(b"<html>not found</html>")
    attempt = solve("alpha")[0].attempts[0]
    assert attempt.outcome == "no solution"
    assert "alpha" in attempt.reason
    assert "zip" in attempt.reason.lower() or "archive" in attempt.reason.lower()


@pytest.mark.parametrize("hashes", ["sha256", ""])
def test_an_index_with_or_without_hashes_gives_a_lock_with_hashes(hashes: str, wheels: Path, solve: Resolve) -> None:
    write_wheel(wheels, "alpha", "1.0")
    with serve(Index({"main": wheels}, hashes=hashes)) as web:
        resolution, _ = solve("alpha", pip={"PIP_INDEX_URL": web.url()})
    assert len(lock_of(resolution)["alpha"].sha256) == 64


def test_an_index_with_only_other_hashes_is_an_error(wheels: Path, solve: Resolve) -> None:
    write_wheel(wheels, "alpha", "1.0")
    with serve(Index({"main": wheels}, hashes="md5")) as web:
        resolution, _ = solve("alpha", pip={"PIP_INDEX_URL": web.url()})
    assert resolution.attempts[0].reason == "the source gives no SHA-256 of alpha-1.0-py3-none-any.whl"


def test_cut_off_date_is_ignored_with_a_note_without_upload_dates(wheels: Path, solve: Resolve) -> None:
    write_wheel(wheels, "alpha", "1.0")
    with serve(Index({"main": wheels})) as web:
        resolution, _ = solve("alpha", pip={"PIP_INDEX_URL": web.url()}, extra='exclude_newer = "2025-10-28"')
        assert lock_of(resolution)["alpha"].version == "1.0"
        label = resolution.attempts[0].source
        assert label.endswith(", without exclude-newer 2025-10-28 (a source has no upload dates)")
        missing, _ = solve("alpha>=9", pip={"PIP_INDEX_URL": web.url()}, extra='exclude_newer = "2025-10-28"')
    assert missing.attempts[0].outcome == "no solution"
    assert "alpha>=9" in missing.attempts[0].reason


def test_a_lock_contains_no_url_and_its_digest_is_stable(wheels: Path, solve: Resolve) -> None:
    write_cpu_torch(wheels)
    write_wheel(wheels, "alpha", "1.0", requires=["torch"])
    from_folder = solve("alpha")[0].lock
    with serve(Index({"main": wheels}, user="user:secret")) as web:
        from_index = solve("alpha", pip={"PIP_INDEX_URL": web.url(user="user:secret")})[0].lock
    assert from_folder
    assert from_index
    assert [line.split(" ")[0] for line in from_folder.text.splitlines()] == ["alpha==1.0", "torch==9.9.0+cpu"]
    assert all(word not in from_index.text for word in ("://", "/", "secret", "127.0.0.1"))
    assert from_folder.text == from_index.text
    assert from_folder.digest == from_index.digest
    write_wheel(wheels, "alpha", "1.0", requires=["torch"], files={"alpha/more.py": b"1"})
    assert solve("alpha")[0].lock.digest != from_folder.digest  # type: ignore[union-attr]


def closed_port() -> int:
    """A local port without a listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def pip_for(url: str, **extra: str) -> dict[str, str]:
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": url, "NO_PROXY": "*", **extra}


@pytest.mark.parametrize("how", ["refused", "stalled", "no such host", "500", "401", "403"])
def test_unreachable_source_is_reported_with_exit_code_3(how: str, tmp_path: Path, wheels: Path) -> None:
    profile = write_profile(tmp_path / "p.toml", "alpha", pythons=["3.11", "3.12"])
    status = int(how) if how.isdigit() else 0
    with serve(Index({"main": wheels}, stalled=how == "stalled", status=status)) as web:
        named = {
            "refused": f"http://127.0.0.1:{closed_port()}/simple",
            "no such host": "http://nowhere.invalid/simple",
        }
        url = named.get(how, web.url())
        given = pip_for(url.replace("http://", "http://user:secret@"), PIP_TIMEOUT="1")
        done = envdoctor("resolve", "--profile", profile, "--format", "json", home=tmp_path, **given)
    assert done.returncode == 3
    (result,) = envelope(done)["data"]["results"]
    (attempt,) = result["resolution"]["attempts"]  # the second Python is not waited for
    assert attempt["outcome"] == "unreachable"
    assert attempt["reason"].startswith(url)
    expected = {"refused": "Connection refused", "stalled": "timed out", "no such host": "lookup",
                "500": "returned 500", "401": "returned 401", "403": "returned 403"}  # fmt: skip
    assert expected[how] in attempt["reason"]
    assert "PIP_INDEX_URL" in result["hint"]
    assert "secret" not in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_an_install_without_its_source_gives_a_hint_and_writes_nothing(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "p.toml", "alpha")
    port = closed_port()
    given = pip_for(f"http://user:secret@127.0.0.1:{port}/simple")
    done = envdoctor("install", "--profile", profile, home=tmp_path, COLUMNS="900", **given)
    assert done.returncode == 3
    assert f"127.0.0.1:{port}" in done.stderr
    assert "hint: " in done.stderr
    assert "PIP_INDEX_URL" in done.stderr
    assert "secret" not in done.stderr
    assert not (tmp_path / ".local").exists()


def test_offline_mode_is_reported(wheels: Path, solve: Resolve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    assert "network was disabled" in solve("alpha", pip={"PIP_INDEX_URL": "http://h/simple"})[0].attempts[0].reason


def test_a_package_that_no_source_has_is_exit_code_1(wheels: Path, solve: Resolve) -> None:
    with serve(Index({"main": wheels})) as web:
        resolution, sources = solve("alpha", pip={"PIP_INDEX_URL": web.url()})
    error = resolution_error(resolution, sources)
    assert error.exit_code == 1
    assert "alpha was not found" in error.message
    assert "index-url" in error.expected


def test_credentials_are_not_printed_or_stored(tmp_path: Path, wheels: Path) -> None:
    write_cpu_torch(wheels)
    profile = write_profile(tmp_path / "p.toml", "torch==9.9.0+cpu")
    with serve(Index({"main": wheels}, user="user:secret")) as web:
        given = pip_for(web.url(user="user:secret"), PIP_EXTRA_INDEX_URL=web.url("more", user="user:secret"))
        output = ""
        for arguments in (
            ["resolve"], ["resolve", "--format", "json"], ["install", "--dry-run"],
            ["install", "--dry-run", "--format", "json"], ["install", "--format", "json"], ["install"],
            ["check", "--format", "json"], ["check"],
        ):  # fmt: skip
            profiled = [] if arguments[0] == "check" else ["--profile", str(profile)]
            done = envdoctor(*arguments, *profiled, home=tmp_path, **given)
            assert done.returncode == 0 or arguments[0] == "check", done.stderr
            output += done.stdout + done.stderr
    kept = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and not path.is_symlink() and ".cache" not in path.parts
    ]
    assert any(path.suffix == ".log" for path in kept)
    assert "***@" in output
    assert "secret" not in output
    assert [path for path in kept if b"secret" in path.read_bytes()] == []


BAD_PROFILES = {
    "glibc": ('glibc = "2.17"', 'glibc = "new"', "when.glibc = 'new'"),
    "python": ('versions = ["3.11"]', 'versions = ["3"]', "python.versions = '3'"),
    "no python": ('versions = ["3.11"]', "versions = []", "python.versions = 'none'"),
    "no architecture": ('architectures = ["x86_64", "aarch64"]', "architectures = []", "when.architectures"),
    "no source": ('sources = [{ kind = "configured" }]', "sources = []", "sources = 'none'"),
    "id": ('id = "mine"', 'id = "../mine"', "id = '../mine'"),
    "no id": ('id = "mine"', 'id = ""', "id = ''"),
    "date": ('id = "mine"', 'id = "mine"\nexclude_newer = "2025-02-30"', "exclude_newer = '2025-02-30"),
    "variable": ('OMP_NUM_THREADS = "1"', '"A=B" = "1"', "environment = 'A=B'"),
    "null byte": ('OMP_NUM_THREADS = "1"', 'OMP_NUM_THREADS = "a\\u0000b"', "environment.OMP_NUM_THREADS"),
}


@pytest.mark.parametrize("case", BAD_PROFILES)
def test_an_invalid_profile_value_is_bad_input(case: str, tmp_path: Path) -> None:
    right, wrong, named = BAD_PROFILES[case]
    profile = write_profile(tmp_path / "p.toml", "alpha", pythons=["3.11"])
    assert right in profile.read_text()
    profile.write_text(profile.read_text().replace(right, wrong))
    done = envdoctor("resolve", "--profile", profile, home=tmp_path, COLUMNS="400")
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert "internal error" not in done.stderr


def test_the_json_output_is_the_resolution(tmp_path: Path, wheels: Path) -> None:
    write_cpu_torch(wheels)
    profile = write_profile(tmp_path / "p.toml", "torch==9.9.0+cpu")
    given = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    done = envdoctor("resolve", "--profile", profile, "--format", "json", home=tmp_path, **given)
    (result,) = json.loads(done.stdout)["data"]["results"]
    assert result["resolution"]["lock"]["torch_build"] == "cpu"
    assert result["resolution"]["lock"]["packages"][0]["source"] == f"find-links {wheels}"


# What resolves is not yet what works: the lock is audited

TRAP = {"torch": "2.8.0", "vllm": "0.10.2", "transformers": "5.23.0", "trl": "0.23.1"}


def trap(folder: Path) -> tuple[Path, dict[str, str]]:
    """A profile with the requirements of autumn 2025 as they resolve a year later, and its sources."""
    for name, version in TRAP.items():
        requires = ["nvidia-cuda-runtime-cu12==12.8.90"] if name == "torch" else []
        write_wheel(folder / "wheels", name, version, requires=requires)
    write_wheel(folder / "wheels", "nvidia-cuda-runtime-cu12", "12.8.90")
    pins = ["torch==2.8.0", "vllm==0.10.2", "transformers>=4.57.1", "trl==0.23.1"]
    profile = write_profile(folder / "p.toml", *pins, cuda="12.8")
    return profile, {
        "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder / "wheels"),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["human", "json", "github"])
def test_an_incompatible_resolution_is_exit_code_1(form: str, tmp_path: Path) -> None:
    profile, given = trap(tmp_path)
    command = ["resolve", "--profile", str(profile), "--machine", "h100x8", "--format", form]
    done = envdoctor(*command, home=tmp_path, COLUMNS="300", **given)
    assert done.returncode == 1
    assert done.stdout
    if form == "json":
        (result,) = envelope(done)["data"]["results"]
        assert result["resolution"]["lock"]
        assert "transformers-too-new" in {finding["cause"] for finding in result["findings"]}
        assert result["error"] == ""
    elif form == "github":
        assert "::error title=" in done.stdout
        assert "transformers 5.23.0" in done.stdout
    else:
        assert "✗ " in done.stdout
        assert "transformers 5.23.0" in done.stdout


def bundled(name: str) -> Lock:
    file = read_lock(lock_path(name, "x86_64-manylinux_2_35", "3.12"))
    assert file
    return file


def errors_of(lock: Lock, machine: str) -> list[Finding]:
    older = override(read_recorded(machine), ["driver.version=535.129.03"])
    findings = audit_lock(lock, older, stack_rules_only=True)
    return [finding for finding in findings if finding.status == "error"]


def test_a_lock_is_audited_with_the_driver_and_the_gpus() -> None:
    today = bundled("x86-cu130")
    assert audit_lock(today, stack_rules_only=True) == ()
    assert audit_lock(today, read_recorded("h200"), stack_rules_only=True) == ()
    (old_driver,) = errors_of(today, "a100")
    assert old_driver.cause == "driver-too-old"
    assert "535.129.03" in old_driver.message
    (no_code,) = errors_of(bundled("x86-cu124-hf"), "rtx5090")
    assert "sm_120" in no_code.message


def test_findings_of_the_machine_alone_are_not_reported_for_a_lock() -> None:
    """`envdoctor check` reports those. An intended CPU build is no problem on a GPU machine."""
    machine = read_recorded("t4")
    assert audit_lock(bundled("cpu"), machine, stack_rules_only=True) == ()
    ill = override(machine, ["limits.open_files=16"])
    alone = [f.id for f in evaluate(ill, None) if f.status == "warning"]
    assert alone, "the machine is meant to have a fault of its own"
    assert audit_lock(bundled("cpu"), ill, stack_rules_only=True) == ()


@pytest.mark.long  # half a minute; test_ci_example.py resolves all, too
def test_all_profiles_are_resolved_including_user_profiles(tmp_path: Path) -> None:
    folder = tmp_path / "config/envdoctor/profiles"
    folder.mkdir(parents=True)
    write_profile(folder / "mine.toml", "alpha")
    given = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    done = envdoctor(
        "resolve", "--all", "--format", "json", home=tmp_path, XDG_CONFIG_HOME=str(tmp_path / "config"), **given
    )
    assert "mine" in {result["profile"] for result in envelope(done)["data"]["results"]}
