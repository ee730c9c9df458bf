"""Scripts for cluster nodes run under bash, with the real `envdoctor health` and a fake NVML library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.command import envdoctor
from support.export_stack import COMPLETE
from support.fakenvml.fixture import FakeNvml, machine_ini
from support.health_scripts import run_script, write_program, write_script

from envdoctor.core.errors import BadInput
from envdoctor.export.kubernetes import kubernetes
from envdoctor.export.node_scripts import WRITERS, node_script
from envdoctor.export.stack import check_stack
from envdoctor.locking.lock import Lock
from envdoctor.profiles import Profile

JOB = {"SLURM_JOB_GPUS": "0", "SLURM_JOB_ID": "17"}
# State of the node -> lines before the configuration of eight GPUs, Xids, and the severity in the reason.
STATES: dict[str, tuple[tuple[str, ...], tuple[int, ...], str]] = {
    "healthy": ((), (), ""),
    "a fault of a program": ((), (31,), ""),
    "ECC": (("[gpu3]", "ecc_errors.1.0 = 2"), (), "reset: GPU002 GPU 3"),
    "Xid": ((), (79,), "isolate: XID Xid 79 in the kernel log: GPU has fallen off the bus"),
    "a lost GPU": (("[gpu5]", "fail = 15"), (), "isolate: COUNT 7 of 8 GPUs are usable"),
    "a missing GPU": (("[system]", "count = 7"), (), "isolate: COUNT 7 of 8 GPUs are usable"),
    "driver and library differ": (("[system]", "fail.nvmlInitWithFlags = 18"), (), "isolate: COUNT 0 of 8 GPUs"),
    "a driver that hangs": (("[system]", "hang.nvmlInitWithFlags = 1"), (), "isolate: COUNT 0 of 8 GPUs"),
}


def write(folder: Path, form: str, program: Path | str, gpus: int = 8, seconds: str = "") -> Path:
    text = node_script(form, str(program), gpus).text
    path = folder / "script.sh"
    path.write_text(text.replace("< 45 * 5", f"< {seconds} * 5") if seconds else text)
    return path


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder with scontrol, which records its arguments; the state of the node is in a file."""
    (tmp_path / "state").write_text("NodeName=n1 State=IDLE ThreadsPerCore=1\n")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    write_script(
        bin_folder / "scontrol",
        f'if [[ $2 == show ]]; then cat {tmp_path}/state; else printf "%s\\n" "$@" > {tmp_path}/updated; fi\n',
    )
    return bin_folder


@pytest.mark.parametrize("state", STATES)
def test_a_prolog_keeps_jobs_off_a_bad_node(state: str, fake_nvml: FakeNvml, tmp_path: Path) -> None:
    lines, codes, reason = STATES[state]
    script = write(
        tmp_path, "slurm-prolog", write_program(tmp_path, fake_nvml(machine_ini("h100x8", *lines)), *codes)
    )
    done = run_script(script, **JOB)
    assert (done.returncode, done.stdout) == (1 if reason else 0, "")
    assert done.stderr.startswith(f"envdoctor: {reason}" if reason else "")
    assert bool(done.stderr) == bool(reason)


@pytest.mark.parametrize("state", ["healthy", "ECC", "a missing GPU"])
def test_a_health_check_drains_a_bad_node(state: str, fake_nvml: FakeNvml, tmp_path: Path, slurm: Path) -> None:
    lines, codes, reason = STATES[state]
    program = write_program(tmp_path, fake_nvml(machine_ini("h100x8", *lines)), *codes)
    script = write(tmp_path, "slurm-health-check", program)
    done = run_script(script, SLURM_BIN=str(slurm), SLURMD_NODENAME="n1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    updated = tmp_path / "updated"
    assert updated.exists() == bool(reason)
    if reason:
        words = updated.read_text().splitlines()
        assert words[:3] == ["update", "NodeName=n1", "State=DRAIN"]
        assert words[3].startswith(f"Reason=envdoctor {reason}")
        updated.unlink()
        (tmp_path / "state").write_text("NodeName=n1 State=IDLE+DRAIN Reason=disk [root]\n")
        run_script(script, SLURM_BIN=str(slurm), SLURMD_NODENAME="n1")
        assert not updated.exists(), "the reason of somebody else is kept"


def test_a_check_that_does_not_end_is_not_waited_for(tmp_path: Path, slurm: Path) -> None:
    hanging = write_script(tmp_path / "hangs", "trap '' TERM\nwhile :; do read -t 60 < <(:) || sleep 60; done\n")
    done = run_script(write(tmp_path, "slurm-prolog", hanging, seconds="1"), **JOB)
    assert (done.returncode, "no answer within 45 s" in done.stderr) == (1, True)
    run_script(write(tmp_path, "slurm-health-check", hanging, seconds="1"), SLURM_BIN=str(slurm))
    assert "Reason=envdoctor isolate: no answer within 45 s" in (tmp_path / "updated").read_text()


def test_a_check_that_cannot_run_keeps_no_job_off(tmp_path: Path, slurm: Path) -> None:
    programs = [
        str(write_script(tmp_path / "fails", "echo error; exit 3\n")),
        str(write_script(tmp_path / "broken", "echo 'Traceback (most recent call last):'; exit 1\n")),
    ]
    for program in ("/opt/missing/envdoctor", *programs):
        assert run_script(write(tmp_path, "slurm-prolog", program), **JOB).returncode == 0
        run_script(write(tmp_path, "slurm-health-check", program), SLURM_BIN=str(slurm))
        assert not (tmp_path / "updated").exists()


def test_a_job_without_gpus_is_not_checked(tmp_path: Path) -> None:
    program = write_script(tmp_path / "isolates", "echo '✗ isolate: all'; exit 1\n")
    script = write(tmp_path, "slurm-prolog", program)
    assert run_script(script).returncode == 0
    assert run_script(script, **JOB).returncode == 1


# NHC's own functions: `die` evaluates the reason in quotes, as `eval $OFFLINE_NODE "'$HOSTNAME'" "'$*'"`.
NHC = """
log() { echo "log: $*"; }
die() { local code=$1; shift; eval echo "'die: $*'"; return $code; }
source "$1"
check_envdoctor $2
echo "exit $?"
"""


@pytest.mark.parametrize("state", ["healthy", "a fault of a program", "Xid", "ECC"])
def test_the_check_of_nhc(state: str, fake_nvml: FakeNvml, tmp_path: Path) -> None:
    lines, codes, reason = STATES[state]
    program = write_program(tmp_path, fake_nvml(machine_ini("h100x8", *lines)), *codes)
    script = write(tmp_path, "nhc", program, gpus=0)
    done = subprocess.run(
        ["/bin/bash", "-c", NHC, "nhc", script, "8"], capture_output=True, text=True, timeout=60, check=False
    )
    expected = (
        f"die: check_envdoctor:  {reason}"
        if reason
        else "log: check_envdoctor:  monitor: XID Xid 31"
        if codes
        else ""
    )
    assert done.stdout.startswith(expected)
    assert done.stdout.endswith(f"exit {1 if reason else 0}\n")


def test_a_reason_cannot_run_commands(tmp_path: Path, slurm: Path) -> None:
    text = """✗ isolate: it's $(touch pwned) `touch pwned`; touch pwned "'; touch pwned; '"""
    program = write_script(tmp_path / "says", f"cat <<'END'\n{text}\nEND\nexit 1\n")
    script = write(tmp_path, "nhc", program)
    subprocess.run(["/bin/bash", "-c", NHC, "nhc", script, ""], cwd=tmp_path, timeout=60, check=False)
    run_script(write(tmp_path, "slurm-health-check", program), SLURM_BIN=str(slurm))
    assert not (tmp_path / "pwned").exists()
    assert "Reason=envdoctor isolate: it s  (touch pwned)" in (tmp_path / "updated").read_text()


@pytest.mark.parametrize("form", WRITERS)
def test_scripts_call_no_command_of_slurm_in_a_prolog(form: str, tmp_path: Path) -> None:
    script = write(tmp_path, form, "/opt/with space/envdoctor", gpus=0)
    checked = subprocess.run(["/bin/bash", "-n", script], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    text = script.read_text()
    assert "'/opt/with space/envdoctor' health" in text
    commands = "\n".join(line.partition("#")[0] for line in text.splitlines())
    assert any(word in commands for word in ("scontrol", "squeue", "sinfo")) == (form == "slurm-health-check")


def test_export_of_scripts(tmp_path: Path) -> None:
    done = envdoctor("export", "--as", "slurm-prolog", "--gpus", "8", home=tmp_path)
    assert done.returncode == 0
    assert f"{sys.prefix}/bin/envdoctor health --gpus 8" in done.stdout
    for words in (
        ["cpu", "--as", "nhc"], ["--as", "nhc", "--program", "envdoctor"], ["--as", "nhc", "--image", "x"],
        ["cpu", "--as", "kubernetes"], ["cpu", "--as", "nomad"],
    ):  # fmt: skip
        failed = envdoctor("export", *words, home=tmp_path)
        assert (failed.returncode, "expected:" in failed.stderr) == (2, True), words


# Kubernetes


@pytest.mark.parametrize(("profile", "file"), COMPLETE)
def test_a_job_checks_the_node_and_then_the_stack(profile: Profile, file: Lock) -> None:
    exported = kubernetes(check_stack(profile, file), "registry.example.org:5000/team/stack:1", 0)
    job = yaml.safe_load(exported.text)
    pod = job["spec"]["template"]["spec"]
    (check,), (verify,) = pod["initContainers"], pod["containers"]
    assert (job["kind"], job["apiVersion"], job["spec"]["backoffLimit"]) == ("Job", "batch/v1", 0)
    assert (check["command"][:2], verify["command"][:2]) == (["envdoctor", "check"], ["envdoctor", "verify"])
    assert pod["restartPolicy"] == "Never"
    assert len(job["metadata"]["name"]) <= 63
    limits = {name: each.get("resources", {}).get("limits", {}) for name, each in (("c", check), ("v", verify))}
    gpus = "" if profile.cuda is None else str(max(1, profile.when.gpus))
    assert limits["c"] == limits["v"] == ({"nvidia.com/gpu": gpus} if gpus else {})
    assert {mount["name"] for mount in verify["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_an_image_name_cannot_add_fields(tmp_path: Path) -> None:
    profile, file = COMPLETE[0].values
    for image in ("", 'a"\nprivileged: true', "a b", "-x", "a" * 300):
        with pytest.raises(BadInput):
            kubernetes(check_stack(profile, file), image, 0)


@pytest.mark.network
def test_jobs_match_the_schema_of_kubernetes(tmp_path: Path) -> None:
    """The published JSON schemas, in a package of 22 MB that is not a dependency of the tests."""
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, "kubernetes-validate==1.37.0"], check=True)
    for profile, file in (case.values for case in COMPLETE):
        path = tmp_path / f"{profile.id}-{file.platform}-{file.python}.yaml"
        path.write_text(kubernetes(check_stack(profile, file), "registry.example.org/stack:1", 0).text)
    for version in ("1.30", "1.37"):
        done = subprocess.run(
            [tmp_path / "venv/bin/kubernetes-validate", "--strict", "-k", version, *sorted(tmp_path.glob("*.yaml"))],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
