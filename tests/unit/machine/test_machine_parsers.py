"""What is read of files below / and of the CUDA tools, in folders made for each case."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cases import each_case

from envdoctor.machine.cuda import _read_compiler, _read_ptxas_version, find_nvcc, read_nvcc_version
from envdoctor.machine.memory import NO_LIMIT, parse_cgroup_paths, parse_meminfo, read_cgroup_limit
from envdoctor.machine.storage import _stat, parse_mounts
from envdoctor.machine.system import ARM_CORES, parse_cpu_model, parse_os_release, read_container


def write(path: Path, text: str, *, executable: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)
    return path


def test_sizes_of_meminfo_are_in_kibibytes() -> None:
    text = "MemTotal:       24617496 kB\nMemAvailable:      1 kB\nHugePages_Total:       0\n"
    assert parse_meminfo(text) == {"MemTotal": 24617496 * 1024, "MemAvailable": 1024}


@each_case(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 9654\nflags\t\t: fpu\n", "AMD EPYC 9654"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", ARM_CORES["0x41", "0xd4f"]),
        ("CPU implementer\t: 0x99\nCPU part\t: 0x123\n", "Arm implementer 0x99 part 0x123"),
        ("CPU implementer\t: 0x99\n", ""), ("", ""),
    ],
)  # fmt: skip
def test_processors(text: str, name: str) -> None:
    assert parse_cpu_model(text) == name


def test_names_of_systems() -> None:
    assert parse_os_release('NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n') == "Ubuntu 24.04.3 LTS"
    assert parse_os_release("PRETTY_NAME=Fedora\n") == "Fedora"
    assert parse_os_release("NAME=x\n") == ""


@each_case(
    ("text", "paths"),
    [
        ("0::/user.slice/session-1.scope\n", ("/user.slice/session-1.scope", "")),
        ("9:memory:/docker/ab12\n1:name=systemd:/x\n", ("", "/docker/ab12")),
        ("4:cpu,memory,io:/a\n0::/b\n", ("/b", "/a")),
        ("4:cpu:/a\n", ("", "")),
    ],
)
def test_groups_of_a_process(text: str, paths: tuple[str, str]) -> None:
    assert parse_cgroup_paths(text) == paths


@each_case(
    ("name", "group", "files", "limit"),
    [
        ("v2", "0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "3000", "memory.max": "5000"}, 3000),
        ("v1", "9:memory:/a", {"memory/a/memory.limit_in_bytes": "2000"}, 2000),
        ("none", "0::/a", {"a/memory.max": "max"}, None),
        ("unlimited", "9:memory:/a", {"memory/a/memory.limit_in_bytes": str(NO_LIMIT)}, None),
        ("large", "9:memory:/a", {"memory/a/memory.limit_in_bytes": str(NO_LIMIT - 1)}, NO_LIMIT - 1),
        ("invisible", "0::/not/there", {"memory.max": "700"}, 700),
    ],
)
def test_memory_limits(name: str, group: str, files: dict[str, str], limit: int | None, tmp_path: Path) -> None:
    root = tmp_path / name
    write(root / "proc/self/cgroup", f"{group}\n")
    for file, text in files.items():
        write(root / "sys/fs/cgroup" / file, f"{text}\n")
    found = read_cgroup_limit(root)
    assert found.value == limit
    assert found.state == ("absent" if limit is None else "known")


@each_case(
    ("name", "files", "variables", "runtime"),
    [
        ("docker", {".dockerenv": ""}, {"APPTAINER_CONTAINER": "x"}, "docker"),
        ("podman", {"run/.containerenv": ""}, {}, "podman"),
        ("apptainer", {}, {"APPTAINER_CONTAINER": "x"}, "apptainer"),
        ("singularity", {}, {"SINGULARITY_CONTAINER": "x"}, "singularity"),
        ("kubernetes", {}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ("group", {"proc/1/cgroup": "1:x:/kubepods/a\n"}, {}, "kubepods"),
        ("none", {"proc/1/cgroup": "0::/\n"}, {}, None),
    ],
)  # fmt: skip
def test_containers(
    name: str, files: dict[str, str], variables: dict[str, str], runtime: str | None, tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    for file, text in files.items():
        write(tmp_path / name / file, text)
    assert read_container(tmp_path / name, variables).value == runtime
    assert read_container(tmp_path / "missing", {}).state == "unreadable"


def test_types_of_file_systems(tmp_path: Path) -> None:
    mounts = parse_mounts("tmpfs /dev/shm tmpfs rw 0 0\nserver:/x /mnt/a\\040b nfs4 rw 0 0\nbroken line\n")
    assert mounts == {"/dev/shm": "tmpfs", "/mnt/a b": "nfs4"}
    place = _stat(tmp_path / "not/yet/made", {"/": "ext4", str(tmp_path.resolve()): "tmpfs"}).value
    assert place is not None
    assert (place.path, place.kind) == (str(tmp_path / "not/yet/made"), "tmpfs")
    assert place.total >= place.free > 0
    assert place.total % 512 == 0


def test_the_toolkit_is_searched_as_torch_does(tmp_path: Path) -> None:
    home, other = tmp_path / "cuda", tmp_path / "other"
    on_path = write(tmp_path / "bin/nvcc", "#!/bin/sh\necho release 12.4, V12.4.131\n", executable=True)
    assert find_nvcc({"CUDA_HOME": str(home), "PATH": str(on_path.parent)}).value == str(on_path)
    in_home = write(home / "bin/nvcc", "", executable=True)
    in_other = write(other / "bin/nvcc", "", executable=True)
    both = {"CUDA_HOME": str(home), "CUDA_PATH": str(other), "PATH": str(on_path.parent)}
    assert (find_nvcc(both).value, find_nvcc(both).source) == (str(in_home), "CUDA_HOME")
    assert find_nvcc({"CUDA_PATH": str(other)}).value == str(in_other)
    assert read_nvcc_version(on_path).value == "12.4.131"
    write(home / "version.json", json.dumps({"cuda_nvcc": {"version": "12.8.93"}}))
    version = read_nvcc_version(in_home)
    assert (version.value, version.source) == ("12.8.93", str(home / "version.json"))
    nvcc = find_nvcc(both)
    assert _read_ptxas_version(nvcc, version, {"PATH": ""}).state == "absent"
    ptxas = write(tmp_path / "p/ptxas", "#!/bin/sh\necho release 13.0, V13.0.48\n", executable=True)
    assert _read_ptxas_version(nvcc, version, {"PATH": str(ptxas.parent)}).value == "13.0.48"
    assert _read_ptxas_version(nvcc, version, {"TRITON_PTXAS_PATH": str(ptxas), "PATH": ""}).value == "13.0.48"
    write(home / "bin/ptxas", "", executable=True)
    assert _read_ptxas_version(nvcc, version, {"PATH": str(ptxas.parent)}) == version


@pytest.mark.parametrize(
    ("names", "variables", "found"),
    [
        (["cc", "gcc"], {}, "cc 1.0"), (["gcc", "clang"], {}, "gcc 1.0"), (["clang"], {}, "clang 1.0"),
        (["cc", "clang"], {"CC": "clang"}, "clang 1.0"), ([], {}, None),
    ],
)  # fmt: skip
def test_the_c_compiler(names: list[str], variables: dict[str, str], found: str | None, tmp_path: Path) -> None:
    for name in names:
        write(tmp_path / name, f"#!/bin/sh\necho {name} 1.0\necho second line\n", executable=True)
    assert _read_compiler(variables | {"PATH": str(tmp_path)}).value == found
