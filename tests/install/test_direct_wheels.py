"""Direct wheels: the first compatible candidate is installed, others are rejected with a reason, and fallbacks."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.command import envelope
from support.direct_wheels import entry
from support.environment_commands import command_data
from support.install_place import FIRST, Place
from support.local_packages import PYTHON, write_profile, write_wheel
from support.wheel_server import Files

from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.install import wheel_step
from envdoctor.install.plan import plan_install
from envdoctor.profiles import Wheel, read_profile
from envdoctor.profiles.direct_wheels import StackFacts, group_by_distribution, rejection_reason

STACK = StackFacts("3.12", "x86_64", "2.8.0+cu128", "12.8", "2.35", cxx11_abi=True)
WHEEL = Wheel(
    name="flash-attn", file="flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl", url="", sha256="",
    python="3.12", architecture="x86_64", torch="2.8", cuda="12", abi="TRUE",
)  # fmt: skip


@pytest.mark.parametrize(
    ("stack", "message"),
    [
        ({}, ""),
        ({"cuda": "12.9"}, ""),
        ({"python": "3.11"}, "built for Python 3.12, here is 3.11"),
        ({"architecture": "aarch64"}, "built for architecture x86_64, here is aarch64"),
        ({"torch": "2.9.0"}, "built for torch 2.8, here is 2.9"),
        ({"torch": ""}, "built for torch 2.8, here is none"),
        ({"cuda": "13.0"}, "built for CUDA 12, torch here is for 13.0"),
        ({"cuda": "cpu"}, "built for CUDA 12, torch here is for cpu"),
        ({"cxx11_abi": False}, "built for C++ ABI TRUE, here is FALSE"),
        ({"cxx11_abi": None}, "built for C++ ABI TRUE, here is unknown"),
    ],
)
def test_rejection_reasons(stack: dict[str, Any], message: str) -> None:
    assert rejection_reason(WHEEL, msgspec.structs.replace(STACK, **stack)) == message


def test_a_wheel_without_conditions_is_compatible() -> None:
    anything = Wheel(name="a", file="a-1-py3-none-any.whl", url="", sha256="")
    assert rejection_reason(anything, StackFacts("3.11", "aarch64", "", "cpu", "", cxx11_abi=None)) == ""


def test_candidates_keep_the_order_of_the_profile() -> None:
    names = [("b", "1"), ("a", "1"), ("b", "2"), ("a", "2")]
    wheels = [msgspec.structs.replace(WHEEL, name=name, file=file) for name, file in names]
    found = {name: [wheel.file for wheel in candidates] for name, candidates in group_by_distribution(wheels)}
    assert found == {"a": ["1", "2"], "b": ["1", "2"]}


def require_wheels(place: Place, *entries: str, fallback: str = "") -> None:
    """The profile with these wheels."""
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu")
    rest = f'[fallbacks]\nflash-attn = "{fallback}"\n' if fallback else ""
    place.profile.write_text(place.profile.read_text() + "\n".join(entries) + rest)


def install_record(place: Place) -> dict[str, Any]:
    found = json.loads((place.venv / "envdoctor.json").read_text())
    assert isinstance(found, dict)
    return found


def rejected(data: dict[str, Any]) -> list[str]:
    return [reason for outcome in data["wheels"] for reason in outcome["rejected"]]


def test_the_first_compatible_wheel_is_installed_and_cached(place: Place, web: Files) -> None:
    require_wheels(place, entry(web, "2.0", torch="2.8"), entry(web, "1.0", torch="9.9", python=PYTHON))
    done = place.install()
    assert done.returncode == 0, done.stdout
    data = envelope(done)["data"]
    assert place.packages() == FIRST | {"flash-attn": "1.0"}
    assert rejected(data) == ["flash_attn-2.0-py3-none-any.whl: built for torch 2.8, here is 9.9"]
    (used,) = install_record(place)["wheels"]
    assert (used["name"], used["file"]) == ("flash-attn", "flash_attn-1.0-py3-none-any.whl")
    assert install_record(place)["packages"] == 4
    assert (install_record(place)["fallbacks"], "ATTN_IMPL" in install_record(place)["environment"]) == ({}, False)
    assert [request.path for request in web.requests] == ["/flash_attn-1.0-py3-none-any.whl"]
    assert envelope(place.install())["data"]["unchanged"] is True
    assert len(web.requests) == 1
    again = place.install("--venv", str(place.home / "envs/other"))
    assert again.returncode == 0
    assert len(web.requests) == 1, "the cached wheel is used after a check of its hash"


def test_a_wheel_with_a_wrong_hash_is_rejected(place: Place, web: Files) -> None:
    require_wheels(place, entry(web, "2.0", sha256="0" * 64), entry(web, "1.0"))
    data = envelope(place.install())["data"]
    assert place.packages()["flash-attn"] == "1.0"
    (reason,) = rejected(data)
    assert "flash_attn-2.0-py3-none-any.whl" in reason
    assert "has sha256" in reason
    kept = [path for path in place.home.rglob("flash_attn-2.0*") if web.folder not in path.parents]
    assert kept == []


def test_a_missing_wheel_and_an_available_one(place: Place, web: Files) -> None:
    missing = entry(web, "2.0")
    (web.folder / "flash_attn-2.0-py3-none-any.whl").unlink()
    require_wheels(place, missing, entry(web, "1.0"))
    data = envelope(place.install())["data"]
    assert "404" in rejected(data)[0]
    assert place.packages()["flash-attn"] == "1.0"


def test_an_interrupted_download_resumes(place: Place, web: Files) -> None:
    web.cut = [100]
    require_wheels(place, entry(web, "2.0"))
    assert place.install().returncode == 0
    assert place.packages()["flash-attn"] == "2.0"
    assert [request.byte_range for request in web.requests] == ["", "bytes=100-"]


def test_without_a_compatible_wheel_the_fallback_is_used(place: Place, web: Files) -> None:
    require_wheels(place, entry(web, "2.0", torch="2.8"), entry(web, "1.0", cuda="12.8"), fallback="sdpa")
    done = place.install()
    assert done.returncode == 0, done.stdout
    data = envelope(done)["data"]
    assert len(rejected(data)) == 2
    assert web.requests == []
    assert place.packages() == FIRST
    assert install_record(place)["fallbacks"] == {"flash-attn": "sdpa"}
    assert install_record(place)["environment"]["ATTN_IMPL"] == "sdpa"
    human = place.install("--format", "human", "--venv", str(place.home / "envs/other"))
    assert "no wheel of flash-attn could be used: attention implementation sdpa instead" in human.stdout
    assert "built for torch 2.8, here is 9.9" in " ".join(human.stdout.split())


def test_an_unchanged_install_keeps_the_fallback(place: Place, web: Files) -> None:
    """An unchanged install updates the variables of the profile; the fallback is one of them."""
    require_wheels(place, entry(web, "2.0", torch="2.8"), fallback="sdpa")
    place.install()
    assert envelope(place.install())["data"]["unchanged"] is True
    assert install_record(place)["environment"] == {"OMP_NUM_THREADS": "1", "ATTN_IMPL": "sdpa"}
    notes = [each["note"] for each in command_data(place, "envs")["environments"]]
    assert notes == ["no wheel of flash-attn fitted: sdpa instead"]


def test_without_a_compatible_wheel_and_fallback_it_is_refused(place: Place, web: Files) -> None:
    place.copy_installed()
    require_wheels(place, entry(web, "2.0", torch="2.8"), entry(web, "1.0", sha256="0" * 64))
    done = place.install()
    assert done.returncode == 1
    error = envelope(done)["error"]
    assert "no wheel of flash-attn can be used" in error["message"]
    assert "built for torch 2.8, here is 9.9" in error["message"]
    assert "has sha256" in error["message"]
    assert '[fallbacks] flash-attn = "sdpa"' in error["hint"]
    assert place.packages() == FIRST
    assert place.remaining_files() == ["mine"]


def test_an_archive_with_paths_outside_is_refused(place: Place, web: Files) -> None:
    place.copy_installed()
    for name in ("../../../../evil.py", "/tmp/evil.py", "flash_attn/../../evil.py"):
        wheel = write_wheel(web.folder, "flash-attn", "2.0")
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.writestr(name, b"print('evil')")
        require_wheels(place, entry(web, "2.0"))
        done = place.install()
        assert done.returncode == 1, name
        assert "the archive is refused" in envelope(done)["error"]["message"], name
        assert place.packages() == FIRST, name
        assert not list(place.home.rglob("evil.py")), name
    require_wheels(place, entry(web, "2.0"), entry(web, "1.0"))
    assert place.install().returncode == 0
    assert place.packages()["flash-attn"] == "1.0"


def test_an_unmet_requirement_of_the_wheel_is_found_before_the_swap(place: Place, web: Files) -> None:
    place.copy_installed()
    write_wheel(web.folder, "flash-attn", "2.0", requires=["einops"])
    require_wheels(place, entry(web, "2.0"))
    done = place.install()
    assert done.returncode == 3
    assert "einops" in envelope(done)["error"]["message"]
    assert place.packages() == FIRST
    assert place.remaining_files() == ["mine"]


def test_error_names_a_server_that_requires_a_password(place: Place, web: Files) -> None:
    web.user = "robot:s3cr3t-token"
    require_wheels(place, entry(web, "2.0"), fallback="sdpa")
    done = place.install()
    assert done.returncode == 0, done.stdout
    (reason,) = rejected(envelope(done)["data"])
    assert "returned 401" in reason


def part_sizes(home: Path) -> list[int]:
    """The sizes of partial downloads, while other folders appear and vanish."""
    files = (Path(folder) / name for folder, _, names in os.walk(home) for name in names)
    return [path.stat().st_size for path in files if path.match("flash_attn-2.0*.part")]


def test_ctrl_c_in_a_download_ends_the_install(place: Place, web: Files) -> None:
    """The downloaded part is kept, and the fallback is not used."""
    write_wheel(web.folder, "flash-attn", "2.0", files={"flash_attn/data.bin": bytes(200_000)})
    web.stall = [100_000]
    require_wheels(place, entry(web, "2.0"), fallback="sdpa")
    process = place.start()
    until = time.monotonic() + 60
    while 100_000 not in part_sizes(place.home):
        assert time.monotonic() < until, "the part was not written"
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    message, _ = process.communicate(timeout=60)
    assert process.returncode == 130, message
    assert "interrupted" in message
    assert not place.venv.exists()
    web.stall = []
    assert place.install().returncode == 0
    assert web.requests[-1].byte_range == "bytes=100000-"
    assert not EnvironmentPaths(place.venv).building.exists()


def test_uv_inherits_the_lock_when_it_adds_a_wheel(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill, the next install waits for this uv process, which writes to the same folder."""
    file = write_wheel(place.home / "released", "flash-attn", "2.0")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    wheel = Wheel(name="flash-attn", file=file.name, url=str(file), sha256=digest)
    plan = place.plan()
    profile = msgspec.structs.replace(read_profile(str(place.profile)), wheels=(wheel,))
    inherited: list[Any] = []
    real = wheel_step.run_uv

    def watched(*arguments: Any, **more: Any) -> Any:
        inherited.extend(str(Path(f"/proc/self/fd/{number}").readlink()) for number in more["pass_fds"])
        return real(*arguments, **more)

    monkeypatch.setattr(wheel_step, "run_uv", watched)
    place.install_plan(plan_install(profile, plan.lock, place.venv, plan.sources))
    assert inherited == [str(EnvironmentPaths(place.venv).lock_file)]
    assert place.packages()["flash-attn"] == "2.0"
