"""Rules on a container image and the machine that is to run it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from envdoctor.core.command_line import command_line
from envdoctor.core.records import Evidence, Finding
from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import Capability, capability_of, runs_as_ptx, runs_native
from envdoctor.knowledge.cuda import OLDEST_DRIVER, driver_of_cuda, oldest_driver, toolkit
from envdoctor.knowledge.image_starts import image_base, start_condition
from envdoctor.knowledge.versions import major_minor
from envdoctor.manifests.corrections import worded_for_a_guide
from envdoctor.manifests.images.alternatives import fitting_image
from envdoctor.manifests.images.compatibility import driver_compatibility, is_data_centre, start_properties
from envdoctor.manifests.images.records import Image, ImageContext
from envdoctor.rules.driver_remedies import upgrade_driver
from envdoctor.rules.facts import gpu_labels, gpus_of, require_value
from envdoctor.rules.registry import IMAGE_RULES, RULES, Problem, evidence, rule, run_rule
from envdoctor.rules.torch_build import code_of_torch

MANIFESTS = "https://docs.docker.com/build/building/multi-platform/"
TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
MINOR = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
FORWARD = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
# Rules on environments that an image's packages can break on a machine. IMG003 replaces TORCH004.
PACKAGE_RULES = ("TORCH001", "TORCH002", "TORCH003", "TORCH005", "VLLM004", "VLLM005")
SHOWN_UNREAD = 5
OLDEST_OF_EVERY_TOOLKIT: Capability = (7, 5)  # NVIDIA's containers before CUDA 13 differ below it


def judge_image(context: ImageContext) -> tuple[Finding, ...]:
    """The findings on an image, worst first, with those of its packages on the GPUs."""
    found = [finding for each in IMAGE_RULES.values() for finding in run_rule(each, context)]
    of_packages = (f for name in PACKAGE_RULES for f in run_rule(RULES[name], context.machine, context.stack))
    found += [_without_commands(finding) for finding in of_packages if finding.status in ("error", "warning")]
    order = {"error": 0, "crashed": 1, "warning": 2, "unknown": 3, "info": 4}
    return tuple(sorted(found, key=lambda finding: (order.get(finding.status, 9), finding.id)))


def _without_commands(finding: Finding) -> Finding:
    """A finding on the packages of an image: commands would act on this machine and not on the image."""
    worded = worded_for_a_guide(Problem("info", finding.message, (), finding.fix))
    # A CPU build in an image runs, without the GPU.
    status = "warning" if finding.id == "TORCH003" else finding.status
    return msgspec.structs.replace(finding, status=status, message=worded.message, fix=worded.fix, remedies=())


@rule("IMG001", kind="image", severity=("error", "info"), cause="platform-no-wheel", url=MANIFESTS)
def image_is_for_another_architecture(context: ImageContext) -> Iterator[Problem]:
    """The image has no variant for the machine's CPU architecture.

    A pull fails with "no matching manifest", or every program fails with "exec format error". The suffix of a tag
    (`-aarch64`, `-amd64`), the configuration of the image, or a table of tags names its architectures.

    Fix: use a tag for this architecture, or a multi-platform one.
    """
    image, machine = context.image, context.machine.system.architecture.value
    listing = shell_command("docker buildx imagetools inspect {}", image.reference)
    if machine and image.architectures and machine not in image.architectures:
        yield Problem(
            "error",
            f"the image is for {' and '.join(image.architectures)}; this machine is {machine}",
            (Evidence("image.architectures", " ".join(image.architectures), image.source),),
            f"Use a tag for {machine}; the list of an image's platforms:",
            steps(listing),
        )
    elif machine == "aarch64" and not image.architectures:
        yield Problem(
            "info",
            f"it is not known whether {image.reference} has a variant for {machine}: {listing}",
            (evidence("system.architecture", context.machine.system.architecture),),
            "",
        )


@rule("IMG002", kind="image", severity=("error", "unknown"), cause="driver-too-old", url=TOOLKIT)
def container_runtime_rejects_the_driver(context: ImageContext) -> Iterator[Problem]:
    """A variable NVIDIA_REQUIRE_* of the image does not hold for the driver, so that the container does not start.

    `nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8`. Images on `nvidia/cuda` require the
    CUDA version of the image, or a driver branch that its cuda-compat supports on data-centre and workstation GPUs.
    The check is that of `docker run --gpus` in the toolkit's legacy mode; CDI devices are not checked.

    Fix: upgrade the driver, or use an image for an older CUDA. Where minor-version compatibility suffices,
    `NVIDIA_DISABLE_REQUIRE=1` skips the check.
    """
    image, machine = context.image, context.machine
    requirements = [text for text in (image.require, *image.other_requirements) if text.strip()]
    if not gpus_of(machine):
        return
    if image.has_requirement is None and image_base(image.repository, image.tag) is not None:
        yield from _unknown_requirement(context)
    if not requirements:
        return
    require_value("driver.version", machine.driver.version)
    results = [(start_condition(text, start_properties(machine)), text) for text in requirements]
    failed = next((each for each in results if each[0] is False), None)
    holds, require = failed or next((each for each in results if each[0] is None), (True, ""))
    if holds:
        return
    condition = require.split()[0]
    if holds is None:
        yield Problem(
            "unknown",
            f"not evaluated: NVIDIA_REQUIRE_* has another property or an invalid value: {require[:200]}",
            (evidence("driver.version", machine.driver.version),),
            "",
        )
        return
    kind = driver_compatibility(context).kind
    fix, remedies = _upgrade(context, driver_of_cuda(image.cuda) or _oldest(image.cuda))
    if kind == "none":
        fix, remedies = f"The driver does not support CUDA {image.cuda} either, see IMG003.", ()
    elif kind == "minor":
        fix += " Native code would run on this driver: docker run -e NVIDIA_DISABLE_REQUIRE=1 skips the check."
    yield Problem(
        "error",
        f"the container runtime refuses to start it: driver {machine.driver.version.value} with CUDA "
        f"{machine.driver.cuda.value or 'unknown'} does not satisfy {condition}",
        (
            Evidence("NVIDIA_REQUIRE", require[:500], image.source),
            evidence("driver.version", machine.driver.version),
            evidence("driver.cuda", machine.driver.cuda),
        ),
        fix,
        remedies,
    )


def _unknown_requirement(context: ImageContext) -> Iterator[Problem]:
    """A requirement in no table. Its `cuda>=` of the image's release holds for a driver that fully supports it."""
    image = context.image
    if driver_compatibility(context).kind in ("minor", "forward"):
        yield Problem(
            "unknown",
            f"not evaluated: NVIDIA_REQUIRE_CUDA of CUDA {image.cuda} is in no table, and the driver is older",
            (
                evidence("driver.version", context.machine.driver.version),
                Evidence("image.cuda", image.cuda, image.source),
            ),
            "",
        )


@rule("IMG003", kind="image", severity=("error", "unknown", "info"), cause="driver-too-old", url=MINOR)
def driver_is_older_than_the_cuda_of_the_image(context: ImageContext) -> Iterator[Problem]:
    """The driver is older than the CUDA release of the image.

    Within a CUDA major version native code runs (minor-version compatibility), but the driver does not compile PTX of
    the newer release, as Triton and vLLM's FlashAttention 2 need on some GPUs. On data-centre GPUs the cuda-compat
    libraries in the image make a driver of certain older branches sufficient (forward compatibility).

    Fix: upgrade the driver, or use an image for an older CUDA.

    References:
    https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    image, machine = context.image, context.machine
    if not image.cuda or not gpus_of(machine):
        return
    require_value("driver.version", machine.driver.version)
    found = driver_compatibility(context)
    driver = machine.driver.version.value or ""
    if found.kind in ("full", "unknown"):
        return
    shown = (evidence("driver.version", machine.driver.version), Evidence("image.cuda", image.cuda, image.source))
    newer = driver_of_cuda(image.cuda)
    if found.kind == "forward":
        yield Problem(
            "info",
            f"driver {driver} runs CUDA {image.cuda} by forward compatibility, with cuda-compat of the image"
            + (" if it contains the package" if image.compat is None else ""),
            shown,
            "The container toolkit must put /usr/local/cuda/compat first: 1.17.4 alone does not.",
            url=FORWARD,
        )
    elif found.kind == "minor":
        yield Problem(
            "info",
            f"driver {driver} runs native code of CUDA {image.cuda} by minor-version compatibility, but does not "
            f"compile its PTX; {newer} and newer support all of it",
            shown,
            "",
        )
    else:
        fix, remedies = _upgrade(context, _oldest(image.cuda))
        is_sure = image.compat is not None or not is_data_centre(machine)
        message = f"driver {driver} does not support CUDA {image.cuda}: {found.reason}"
        yield Problem("error" if is_sure else "unknown", message, shown, fix, remedies)


@rule("IMG005", kind="image", severity=("error", "warning"), cause="gpu-arch-not-in-build", url="")
def cuda_of_the_image_does_not_support_the_gpu(context: ImageContext) -> Iterator[Problem]:
    """The CUDA release of the image is older than the GPU, or has dropped it.

    Its compiler and its libraries have no code for the GPU. Where the image contains a torch of PyTorch, TORCH001 and
    TORCH002 report the same by the build's list of architectures.

    Fix: use an image with a CUDA release that supports the GPU.

    References:
    https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/
    """
    image = context.image
    kit = toolkit(major_minor(image.cuda)) if image.cuda else None
    if kit is None or code_of_torch(context.machine, context.stack)[0]:
        return
    for gpu in gpus_of(context.machine):
        capability = capability_of(gpu)
        if capability is None:
            continue
        newest, oldest = major_minor(kit.newest), major_minor(kit.oldest)
        if oldest <= capability <= newest:
            continue
        side = "newer" if capability > newest else "older"
        is_sure = capability > newest or major_minor(image.cuda)[0] >= 13 or capability >= OLDEST_OF_EVERY_TOOLKIT
        yield Problem(
            "error" if is_sure else "warning",
            f"CUDA {image.cuda} of the image compiles for {kit.oldest} to {kit.newest}; {gpu_labels([gpu])} with "
            f"compute capability {gpu.compute_capability.value} is {side}",
            (
                evidence(f"gpus.{gpu.index}.compute_capability", gpu.compute_capability),
                Evidence(f"CUDA {image.cuda}", f"{kit.oldest} to {kit.newest}", kit.source),
            ),
            f"Use {_other_image(context) or 'an image for a CUDA release that supports the GPU'}.",
        )
        return


@rule("IMG006", kind="image", severity="unknown", cause="container-no-gpu", url=MANIFESTS)
def contents_of_the_image_are_unknown(context: ImageContext) -> Iterator[Problem]:
    """The CUDA version of the image is in no table, so that nothing about it is judged.

    The configuration of an image, which the registry has without its layers, names CUDA_VERSION, NVIDIA_REQUIRE_CUDA
    and the architecture: `skopeo inspect --config docker://REF | envdoctor check --image -`.
    """
    image = context.image
    if image.is_known and not image.uses_gpu:
        return
    if image.is_known and image.cuda:
        if driver_of_cuda(image.cuda) or driver_compatibility(context).kind != "unknown":
            return
        yield Problem(
            "unknown",
            f"not judged: the drivers that run CUDA {image.cuda} of the image are in no table",
            (Evidence("image.cuda", image.cuda, image.source),),
            "",
        )
        return
    if "$" in image.reference:
        yield Problem(
            "unknown",
            f"not judged: the base image {image.reference} has a variable without a value",
            (Evidence("FROM", image.reference, image.source),),
            "Judge the image that you build it from, or give the ARG a default: envdoctor check --image IMAGE",
        )
        return
    inspect = shell_command("docker buildx imagetools inspect {} --format '{{json .Image}}'", image.reference)
    check = command_line("envdoctor", "check", "--image", "-", *context.options)
    reason = "its name and tag are in no table"
    if image.repository and not image.tag:
        reason = "without a tag its release is unknown"
    elif image.packages:
        reason = f"no package with a known CUDA version in {image.source}"
    elif image.repository:
        reason = f"the CUDA version of {image.repository}:{image.tag} is in no table"
    yield Problem(
        "unknown",
        f"not judged: {reason}",
        (Evidence("image", image.reference, image.source),),
        "Its configuration names the CUDA version and the requirements, without a pull. Or read its files.",
        steps(f"{inspect} | {check}") + _look_inside(image),
    )


@rule("IMG007", kind="image", severity="unknown", cause="container-no-gpu", url=MANIFESTS)
def parts_of_the_image_were_not_read(context: ImageContext) -> Iterator[Problem]:
    """Steps of the Dockerfile, or releases that it installs, are not known, and can change what the image needs.

    A requirements file that is missing, a script, a wheel, a repository, a release in no table, or files of another
    image can contain a torch for a newer CUDA version.

    Fix: put the files next to the Dockerfile and pin known releases, or judge the configuration of the built image.
    """
    unread = (*context.image.unread, *_uncovered_code(context))
    for text in unread[:SHOWN_UNREAD]:
        yield Problem(
            "unknown", f"not enough to judge: {text}", (Evidence("not read", text, context.image.source),), ""
        )
    if len(unread) > SHOWN_UNREAD:
        yield Problem(
            "unknown",
            f"not enough to judge: {len(unread) - SHOWN_UNREAD} more parts were not read: --format json lists them",
            (Evidence("not read", str(len(unread)), context.image.source),),
            "",
        )


def _uncovered_code(context: ImageContext) -> Iterator[str]:
    """TORCH_CUDA_ARCH_LIST without code for a GPU: extensions that were compiled with it do not run there."""
    text = context.image.code_list
    if not text.strip() or code_of_torch(context.machine, context.stack)[0]:
        return  # without a list every GPU is built for; the code of a known torch is judged by TORCH001
    names = [name.partition("+") for name in text.replace(";", " ").split()]
    native = [f"sm_{name.replace('.', '')}" for name, _, _ in names]
    ptx = [f"compute_{name.replace('.', '')}" for name, _, suffix in names if suffix == "PTX"]
    for gpu in gpus_of(context.machine):
        capability = capability_of(gpu)
        if capability and not runs_native(native, capability) and not runs_as_ptx(ptx, capability):
            yield f"TORCH_CUDA_ARCH_LIST={text[:100]} names no code for {gpu_labels([gpu])}"
            return


def _look_inside(image: Image) -> tuple[Remedy, ...]:
    if image.source.startswith("configuration"):
        return ()
    return steps(
        shell_command(
            "docker run --rm --entrypoint cat {} /etc/os-release /usr/local/cuda/version.json", image.reference
        )
    )


def _oldest(cuda: str) -> str:
    return ".".join(f"{part:02}" for part in oldest_driver(cuda) or OLDEST_DRIVER[12])


def _upgrade(context: ImageContext, driver: str) -> tuple[str, tuple[Remedy, ...]]:
    """The fix and the remedies for a driver that is too old: another one, or another image."""
    fix, remedies = upgrade_driver(context.machine, driver)
    other = _other_image(context)
    return f"{fix}{f' Or use {other}.' if other else ''}", remedies


def _other_image(context: ImageContext) -> str:
    """Another image of the repository, as the object of a sentence; empty if none fits."""
    fitting = fitting_image(context)
    return f"{fitting}, which fits this driver and GPU" if fitting else ""
