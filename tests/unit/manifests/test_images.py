"""`envdoctor check --image`: references, Dockerfiles and configurations on machines of the catalogue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cases import each_case
from support.command import envdoctor
from support.guide_cases import sh

from envdoctor.commands.check import CheckRequest, run
from envdoctor.commands.check_image import ImageCheck
from envdoctor.core.errors import BadInput
from envdoctor.knowledge.image_starts import StartRequirement, start_condition
from envdoctor.knowledge.images import ngc_images
from envdoctor.manifests import audit_guide
from envdoctor.manifests.images.sources import of_reference

# Image, GPU, driver -> verdict, compatibility, rules with errors and warnings.
CASES = {
    "forward compatibility by the image's own list": (
        ("vllm/vllm-openai:v0.10.2", "l4", "550.54"), ("runs", "forward", set()),
    ),
    "no forward compatibility on GeForce": (
        ("vllm/vllm-openai:v0.10.2", "rtx-4090", "550.54"), ("no", "minor", {"IMG002", "IMG004"}),
    ),
    "the driver of the release": (("vllm/vllm-openai:v0.10.2", "l4", "570.26"), ("runs", "full", set())),
    "PTX that the driver does not compile": (
        ("vllm/vllm-openai:v0.10.2", "h100", "565.57.01"), ("limited", "forward", {"TORCH005"}),
    ),
    "a driver of the major version before": (
        ("vllm/vllm-openai:v0.20.0", "l4", "525.60.13"), ("no", "none", {"IMG002", "IMG003"}),
    ),
    "a container of NVIDIA, which starts everywhere": (
        ("nvcr.io/nvidia/pytorch:25.06-py3", "l4", "550.54"), ("limited", "minor", set()),
    ),
    "CUDA 13 of NVIDIA on a driver that its cuda-compat supports": (
        ("nvcr.io/nvidia/pytorch:25.11-py3", "h100", "570.124.06"), ("runs", "forward", set()),
    ),
    "CUDA 13 of NVIDIA on another branch": (
        ("nvcr.io/nvidia/pytorch:25.11-py3", "a100-80gb", "545.23.06"), ("no", "none", {"IMG003"}),
    ),
    "cuda-compat of 13.1 and later for branch 580": (
        ("nvcr.io/nvidia/pytorch:26.06-py3", "h100", "580.95.05"), ("runs", "forward", set()),
    ),
    "GeForce in the list of 12.4, but not for cuda-compat": (
        ("nvidia/cuda:12.4.1-devel-ubuntu22.04", "rtx-4090", "535"), ("limited", "minor", {"IMG004"}),
    ),
    "cuda-compat before a newer driver": (
        ("vllm/vllm-openai:v0.16.0", "h100", "580.95.05"), ("limited", "full", {"IMG008"}),
    ),
    "the same before the driver of its own release": (
        ("vllm/vllm-openai:v0.15.1-cu130", "b200", "580.105.08"), ("limited", "full", {"IMG008"}),
    ),
    "the same before an older driver, for which it is there": (
        ("vllm/vllm-openai:v0.16.0", "l4", "550.54"), ("runs", "forward", set()),
    ),
    "cuda-compat on demand": (("vllm/vllm-openai:v0.17.0", "h100", "580.95.05"), ("runs", "full", set())),
    "a torch without code for the GPU": (
        ("vllm/vllm-openai:v0.8.5", "b200", "580.95.05"), ("no", "full", {"TORCH001"}),
    ),
    "a toolkit older than the GPU": (
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", "b200", "580.95.05"), ("no", "full", {"IMG005"}),
    ),
    "a toolkit that dropped the GPU": (
        ("nvidia/cuda:13.0.1-base-ubuntu22.04", "v100", "580.95.05"), ("no", "full", {"IMG005"}),
    ),
    "another architecture": (
        ("pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime", "gh200", "580.95.05"), ("no", "full", {"IMG001"}),
    ),
    "an architecture in the tag": (
        ("vllm/vllm-openai:v0.11.0-aarch64", "h100", "580.95.05"), ("no", "full", {"IMG001"}),
    ),
    "a mirror with a digest": (
        (f"registry.example.org:5000/mirror/nvidia/cuda:12.8.1-base-ubuntu24.04@sha256:{'0' * 64}", "l4", "570.26"),
        ("runs", "full", set()),
    ),
    "no GPU needed": (("python:3.12-slim-bookworm", "l4", "525.60.13"), ("runs", "unknown", set())),
    "a tag without a version": (("vllm/vllm-openai:latest", "l4", "580.95.05"), ("unknown", "unknown", set())),
    "a digest alone": ((f"nvidia/cuda@sha256:{'a' * 64}", "l4", "580.95.05"), ("unknown", "unknown", set())),
    "a name in no table": (("ghcr.io/team/train:7", "l4", "580.95.05"), ("unknown", "unknown", set())),
}  # fmt: skip


def check(image: str | Path, gpu: str = "l4", driver: str = "580.95.05") -> tuple[ImageCheck, int]:
    result = run(CheckRequest(image=str(image), machine=gpu, driver=driver))
    assert isinstance(result.data, ImageCheck)
    return result.data, result.exit_code


def serious(data: ImageCheck) -> set[str]:
    return {finding.id for finding in data.findings if finding.status not in ("info", "unknown")}


@each_case("name", CASES)
def test_an_image_is_judged(name: str) -> None:
    arguments, (verdict, compatibility, rules) = CASES[name]
    data, exit_code = check(*arguments)
    assert (data.verdict, data.compatibility, serious(data)) == (verdict, compatibility, rules)
    assert exit_code == {"no": 1, "unknown": 3}.get(verdict, 0)
    assert all(finding.fix for finding in data.findings if finding.status in ("error", "warning"))


def test_the_proposed_image_runs() -> None:
    """What a finding proposes instead is judged with the same rules."""
    for image, gpu, driver in (
        ("vllm/vllm-openai:v0.20.0", "l4", "525.60.13"),
        ("nvcr.io/nvidia/pytorch:25.11-py3", "a100", "545.23.06"),
        ("nvidia/cuda:12.8.1-devel-ubuntu22.04", "rtx-4090", "550.54"),
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", "b200", "580.95.05"),
    ):
        data, _ = check(image, gpu, driver)
        text = " ".join(finding.fix for finding in data.findings if finding.status == "error")
        proposed = text.partition("se ")[2] if text.startswith("Use ") else text.partition("Or use ")[2]
        other, exit_code = check(proposed.partition(",")[0], gpu, driver)
        assert exit_code == 0, (image, proposed, [finding.message for finding in other.findings])
        assert not serious(other)


def test_every_container_of_nvidia_is_judged() -> None:
    for row in ngc_images():
        data, _ = check(f"nvcr.io/nvidia/pytorch:{row.tag}-py3", "h100")
        assert data.verdict != "unknown", row.tag


def test_an_unknown_image_names_the_command_that_finds_out(tmp_path: Path) -> None:
    done = envdoctor("check", "--image", "ghcr.io/team/train:7", "--gpu", "l4", home=tmp_path)
    assert done.returncode == 3
    assert "not judged" in done.stdout
    assert (
        "imagetools inspect ghcr.io/team/train:7 --format '{{json .Image}}' | envdoctor check --image -"
        in done.stdout
    )
    assert "docker run --rm --entrypoint cat ghcr.io/team/train:7 /etc/os-release" in done.stdout


DOCKERFILE = """ARG CUDA=12.4.1
FROM nvidia/cuda:${CUDA}-devel-ubuntu22.04 AS base
FROM python:3.12 AS tools
RUN pip install build
FROM base
RUN pip install torch==2.6.0
"""


def test_a_dockerfile_is_judged_by_its_last_stage(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(DOCKERFILE)
    data, exit_code = check(path, "rtx-5090")
    assert (data.image.packages["torch"], data.image.cuda, exit_code) == ("2.6.0", "12.4", 1)
    assert serious(data) == {"TORCH001"}
    assert check(path, "rtx-4090")[0].verdict == "runs"
    assert serious(check(path, "rtx-4090", "545.23.06")[0]) == {"IMG002", "IMG004"}
    path.write_text(DOCKERFILE + "ENV NVIDIA_DISABLE_REQUIRE=1\n")
    assert serious(check(path, "rtx-4090", "545.23.06")[0]) == {"IMG004"}


@pytest.mark.parametrize(
    ("base", "lines", "file"),
    [
        ("vllm/vllm-openai:v0.16.0", "RUN pip install trl", "/etc/ld.so.conf.d/cuda-compat.conf"),
        ("vllm/vllm-openai:v0.16.0", "RUN rm /etc/ld.so.conf.d/cuda-compat.conf && ldconfig", ""),
        (
            "nvidia/cuda:12.8.1-base-ubuntu22.04",
            "RUN echo /usr/local/cuda-12.8/compat > /etc/ld.so.conf.d/00-c.conf && ldconfig",
            "/etc/ld.so.conf.d/00-c.conf",
        ),
        (
            "nvidia/cuda:12.8.1-base-ubuntu22.04",
            "RUN echo /usr/local/cuda/compat/ | tee -a /etc/ld.so.conf.d/c.conf",
            "/etc/ld.so.conf.d/c.conf",
        ),
        ("nvidia/cuda:12.8.1-base-ubuntu22.04", "# RUN echo /x/compat > /etc/ld.so.conf.d/c.conf", ""),
        (
            "nvidia/cuda:12.8.1-base-ubuntu22.04",
            "ENV LD_LIBRARY_PATH=/usr/local/cuda/compat:/opt/lib",
            "LD_LIBRARY_PATH",
        ),
        ("nvcr.io/nvidia/pytorch:25.06-py3", "ENV LD_LIBRARY_PATH=/usr/local/cuda/compat/lib:/opt/lib", ""),
    ],
)
def test_a_dockerfile_that_puts_cuda_compat_before_the_driver(
    tmp_path: Path, base: str, lines: str, file: str
) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(f"FROM alpine:3 AS tools\nRUN echo /x/compat > /etc/ld.so.conf.d/t.conf\nFROM {base}\n{lines}\n")
    data, _ = check(path, "h100", "580.95.05")
    assert data.image.compat_path == file
    assert ("IMG008" in serious(data)) is bool(file)
    older, _ = check(path, "h100", "550.54")
    assert "IMG008" not in serious(older)


def test_cuda_compat_of_the_base_image_does_not_serve_a_newer_torch(tmp_path: Path) -> None:
    """The base image has cuda-compat of CUDA 12.8; torch 2.11 of PyPI is built for CUDA 13."""
    path = tmp_path / "Dockerfile"
    text = "FROM nvidia/cuda:12.8.1-base-ubuntu22.04\nRUN pip install torch==2.11.0\n"
    path.write_text(text)
    data, exit_code = check(path, "l4", "570.26")
    assert (data.compatibility, exit_code, serious(data)) == ("none", 1, {"IMG003"})
    assert "its cuda-compat is that of CUDA 12.8" in data.findings[0].message
    path.write_text(text + "RUN apt-get install -y cuda-compat-13-0\n")
    assert check(path, "l4", "570.26")[1] == 1, "the loader does not find it"
    path.write_text(f"{path.read_text()}ENV LD_LIBRARY_PATH=/usr/local/cuda-13.0/compat\n")
    assert check(path, "l4", "570.26")[0].compatibility == "forward"


@each_case(
    ("text", "verdict", "rules"),
    [
        ("FROM python:3.12-slim\nRUN pip install torch==2.8.0 --index-url https://download.pytorch.org/whl/cpu\n",
         "limited", {"TORCH003"}),
        ("ARG BASE\nFROM $BASE\nRUN pip install torch==2.8.0\n", "unknown", set()),
        ("FROM scratch\nCOPY a /a\n", "runs", set()),
        ("FROM ubuntu:24.04\nRUN pip install pandas\n", "runs", set()),
        ("FROM ubuntu:24.04\nRUN pip install vllm==0.10.2\n", "runs", set()),
        ("FROM ghcr.io/team/base:1\nRUN pip install pandas\n", "unknown", set()),
    ],
)  # fmt: skip
def test_dockerfiles_on_other_base_images(text: str, verdict: str, rules: set[str], tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(text)
    data, _ = check(path, "l4", "580.95.05")
    assert (data.verdict, serious(data)) == (verdict, rules), [finding.message for finding in data.findings]


def test_a_definition_of_apptainer_is_read(tmp_path: Path) -> None:
    path = tmp_path / "image.def"
    path.write_text(
        "Bootstrap: docker\nFrom: nvidia/cuda:12.8.1-base-ubuntu22.04\n%post\n    pip install torch==2.8.0\n"
    )
    assert check(path, "l4", "570.26")[0].verdict == "runs"


def configuration(variables: dict[str, str], architecture: str = "amd64") -> dict[str, object]:
    lines = [f"{name}={value}" for name, value in variables.items()]
    return {"architecture": architecture, "config": {"Env": lines, "Cmd": ["bash"]}}


CUDA129 = {"CUDA_VERSION": "12.9.1", "NVIDIA_REQUIRE_CUDA": "cuda>=12.9 brand=tesla,driver>=550,driver<551"}
NGC = {
    "NVIDIA_PYTORCH_VERSION": "25.06",
    "TORCH_CUDA_ARCH_LIST": "8.0 8.6 9.0+PTX",
    "NVIDIA_REQUIRE_CUDA": "cuda>=9.0",
}


def test_a_configuration_is_judged_by_its_own_requirement(tmp_path: Path) -> None:
    """The forms of skopeo, of imagetools for several platforms, and of docker image inspect."""
    one = configuration(CUDA129)
    inspected = {"Architecture": "amd64", "Config": one["config"], "RepoTags": ["ghcr.io/team/train:7"]}
    path = tmp_path / "image.json"
    for document in (one, {"linux/amd64": one, "linux/arm64": configuration(CUDA129, "arm64")}, [inspected]):
        path.write_text(json.dumps(document))
        data, _ = check(path, "l4", "550.54")
        assert (data.image.cuda, data.compatibility, serious(data)) == ("12.9", "forward", set())
        assert serious(check(path, "l4", "560.35.03")[0]) == {"IMG002"}
    assert data.image.reference == "ghcr.io/team/train:7"
    assert serious(check(path, "gh200")[0]) == {"IMG001"}


@each_case("version", ["cuda13", "13.x", ".", "²1.1", "14.0.0", "99999.4.1", "12.", "1_2.4", "12.99.1", "1" * 5000])
def test_a_configuration_without_a_known_cuda_version_is_not_judged(version: str, tmp_path: Path) -> None:
    path = tmp_path / "image.json"
    path.write_text(json.dumps(configuration({"CUDA_VERSION": version})))
    data, exit_code = check(path)
    assert (data.verdict, exit_code, serious(data)) == ("unknown", 3, set())
    assert [finding.id for finding in data.findings] == ["IMG006"]


def test_a_requirement_without_a_version_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "image.json"
    for require in ("cuda>=x", "cuda>=12.x", "driver<x", "arch>=x", "cuda>=" + "9" * 5000):
        path.write_text(json.dumps(configuration(CUDA129 | {"NVIDIA_REQUIRE_CUDA": require})))
        data, exit_code = check(path)
        assert (data.verdict, exit_code, serious(data)) == ("unknown", 3, set()), require
        assert [finding.id for finding in data.findings if finding.status == "unknown"] == ["IMG002"]


def test_the_code_list_of_nvidias_container_is_used(tmp_path: Path) -> None:
    path = tmp_path / "image.json"
    path.write_text(json.dumps(configuration(NGC)))
    assert serious(check(path, "h100")[0]) == set()
    assert serious(check(path, "t4")[0]) == {"TORCH002"}


def test_a_configuration_on_standard_input(tmp_path: Path) -> None:
    import subprocess

    from support.command import environment, interpreter

    done = subprocess.run(
        [interpreter(), "-m", "envdoctor", "check", "--image", "-", "--gpu", "l4", "--format", "json"],
        input=json.dumps(configuration(CUDA129)), capture_output=True, text=True, env=environment(tmp_path),
        timeout=120, check=False,
    )  # fmt: skip
    data = json.loads(done.stdout)["data"]
    assert (done.returncode, data["verdict"], data["image"]["cuda"]) == (0, "runs", "12.9")


@each_case(
    "text",
    [
        "Not An Image",
        "a b",
        "image:",
        "nvidia/cuda:12.8@sha256:12",
        "-x",
        "",
        "http://x/y",
        "nvidia/cuda:" + "a" * 200,
    ],
)
def test_other_texts_are_rejected(text: str) -> None:
    if not text:
        assert not isinstance(run(CheckRequest(image=text, machine="l4")).data, ImageCheck)
        return
    with pytest.raises(BadInput):
        check(text)


def test_other_documents_and_options_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "image.json"
    for text in ("{", "[1, 2]", '{"config": 3}', "{}", '{"config": {"Env": []}' + "x", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(BadInput):
            check(path)
    path.write_text("RUN true\n")
    with pytest.raises(BadInput, match="no FROM"):
        check(path)
    for request in (
        CheckRequest(image="nvidia/cuda:12.8.1-base-ubuntu22.04", venv="./venv"),
        CheckRequest(image="nvidia/cuda:12.8.1-base-ubuntu22.04", machine="l4", driver="new"),
    ):
        with pytest.raises(BadInput):
            run(request)


def test_without_a_gpu_nothing_is_claimed(tmp_path: Path) -> None:
    done = envdoctor("check", "--image", "vllm/vllm-openai:v0.10.2", "--machine", "cpu-2core", home=tmp_path)
    assert (done.returncode, done.stdout[0]) == (3, "?")
    assert "--gpu NAME" in done.stdout


def test_conditions_of_the_container_runtime() -> None:
    """Alternatives at blanks, conditions at commas; libnvidia-container compares as many numbers as are given."""
    row = StartRequirement(cuda="12.8", branches=(535, 550), geforce=False, data_centre=(450,), source="", date="")
    tesla = {"cuda": "12.2", "driver": "535.104.05", "brand": ("tesla", "nvidia"), "arch": "8.9"}
    assert start_condition(row.text, tesla)
    assert not start_condition(row.text, tesla | {"driver": "545.23.06"})
    assert start_condition(row.text, tesla | {"driver": "545.23.06", "cuda": "12.8"})
    assert not start_condition(row.text, tesla | {"brand": ("geforce",)})
    assert start_condition("brand!=geforce,arch>=7.5", tesla)
    assert start_condition("cuda>=12.8 mig=true", tesla) is None
    assert start_condition("driver>=535.104.05,driver<535.105", tesla)
    assert start_condition("", tesla)


def test_architectures_and_names_of_references() -> None:
    for text, architectures in (
        ("nvidia/cuda:12.8.1-base-ubuntu22.04", ("x86_64", "aarch64")),
        ("lmsysorg/sglang:v0.5.3-cu129-arm64", ("aarch64",)),
        ("lmsysorg/sglang:v0.5.3-cu129-amd64", ("x86_64",)),
        ("nvcr.io/nvidia/pytorch:25.11-py3", ("x86_64", "aarch64")),
        ("nvcr.io/nvidia/pytorch:24.05-py3-igpu", ("aarch64",)),
        ("vllm/vllm-openai:v0.20.0", ("x86_64", "aarch64")),
        ("vllm/vllm-openai:v0.8.5", ()),
    ):
        assert of_reference(text).image.architectures == architectures, text
    assert of_reference("docker://quay.io/copy/nvidia/cuda:12.8.1-base-ubuntu22.04").image.repository == "nvidia/cuda"


HOSTILE_IMAGES = {
    "a password": ("Dockerfile", "FROM https://u:hunter2Zq9XkPw@h/x\n", "a user name or a password"),
    "another system": ("i.json", '{"os": "windows", "config": {"Env": []}}', "an image for windows"),
    "two images": ("i.json", '[{"Config": {"Env": ["CUDA_VERSION=12.4.0"]}}, {"Config": {"Env": []}}]', "2 images"),
}


@each_case("name", HOSTILE_IMAGES)
def test_a_hostile_image_is_bad_input(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file, text, message = HOSTILE_IMAGES[name]
    path = tmp_path_factory.mktemp("image") / file
    path.write_text(text)
    with pytest.raises(BadInput, match=message) as error:
        check(path)
    assert "hunter2" not in str(error.value.message)


def test_a_line_break_of_a_configuration_starts_no_line(tmp_path: Path) -> None:
    config = {"RepoTags": ["a\n::error::x"], "Architecture": "amd64\n::b", "Os": "linux", "Config": {"Env": []}}
    (tmp_path / "i.json").write_text(json.dumps([config]))
    done = envdoctor("check", "--image", "i.json", "--gpu", "l4", home=tmp_path)
    assert not [line for line in done.stdout.splitlines() if line.strip().startswith("::")]


def test_a_reference_with_a_password_is_not_repeated() -> None:
    with pytest.raises(BadInput) as error:
        check("u:hunter2Zq9XkPw@reg/x:1")
    assert "hunter2" not in error.value.message


def test_an_image_of_enroot_with_a_user_is_read() -> None:
    """The torch of the image stays: nothing replaces it."""
    text = sh("enroot import 'docker://$oauthtoken@nvcr.io#nvidia/pytorch:25.01-py3'", "pip install accelerate")
    trace = audit_guide(text, name="a.md").traces[0][1]
    assert trace.installs[-1].before.image == "nvcr.io/nvidia/pytorch:25.01-py3"
