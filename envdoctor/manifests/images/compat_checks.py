"""Rules on the cuda-compat libraries of an image, which can replace the driver's libcuda."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Evidence
from envdoctor.knowledge.cuda import driver_of_cuda
from envdoctor.knowledge.versions import dotted_numbers
from envdoctor.manifests.images.alternatives import fitting_image
from envdoctor.manifests.images.compatibility import driver_compatibility, is_data_centre
from envdoctor.manifests.images.records import ImageContext
from envdoctor.rules.driver_remedies import upgrade_driver
from envdoctor.rules.facts import gpu_labels, gpus_of
from envdoctor.rules.registry import Problem, evidence, rule

COMPAT_HOOK = (
    "https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/cmd/nvidia-cdi-hook/cudacompat/cudacompat.go"
)
COMPAT_FIRST = "https://github.com/vllm-project/vllm/issues/32373"


@rule("IMG004", kind="image", severity="warning", cause="cuda-compat-lib-conflict", url=COMPAT_HOOK)
def compat_libraries_replace_the_driver_on_a_gpu_without_support(context: ImageContext) -> Iterator[Problem]:
    """The image contains cuda-compat, which the container toolkit puts first, on a GPU that does not support it.

    The toolkit (1.17.5 and newer) compares only driver versions. On GeForce and workstation GPUs CUDA then fails with
    error 804, "forward compatibility was attempted on non supported HW".

    Fix: upgrade the driver, or disable the hook: `cuda-compat-mode = "disabled"` in the section
    `nvidia-container-runtime.modes.legacy` of /etc/nvidia-container-runtime/config.toml.

    References:
    https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    image, machine = context.image, context.machine
    bundled = dotted_numbers(driver_of_cuda(image.compat_cuda))
    driver = dotted_numbers(machine.driver.version.value or "")
    if not bundled or not driver or not gpus_of(machine) or is_data_centre(machine):
        return
    has_compat = image.compat is not None and (machine.system.architecture.value or "") in image.compat
    if has_compat and driver[0] < bundled[0] and driver_compatibility(context).kind == "minor":
        fix, remedies = upgrade_driver(machine, driver_of_cuda(image.compat_cuda))
        yield Problem(
            "warning",
            f"cuda-compat of the image (libcuda of {driver_of_cuda(image.compat_cuda)}) is put before driver "
            f"{machine.driver.version.value}, and {gpu_labels(gpus_of(machine))} does not support it: error 804",
            (evidence("driver.version", machine.driver.version), Evidence("image.compat", "yes", image.source)),
            f'{fix} Or set cuda-compat-mode = "disabled" in the toolkit\'s config.toml.',
            remedies,
        )


@rule("IMG008", kind="image", severity="warning", cause="cuda-compat-lib-conflict", url=COMPAT_FIRST)
def compat_libraries_replace_a_newer_driver(context: ImageContext) -> Iterator[Problem]:
    """The image puts its cuda-compat before the driver, which is as new or newer.

    A libcuda that is older than the kernel module fails with error 803, "system has unsupported display driver / cuda
    driver combination". vLLM's images 0.15 and 0.16 have the directory in /etc/ld.so.conf.d: error 803 was reported
    with `docker --runtime nvidia` and with CDI devices; one report excepts `docker run --gpus all`.

    Fix: use another release of the image, or start the container with an empty file over the one with the directory.

    References:
    https://github.com/gpustack/gpustack/issues/4678
    https://github.com/vllm-project/vllm/pull/33992
    """
    image, machine = context.image, context.machine
    bundled = dotted_numbers(driver_of_cuda(image.compat_cuda))
    driver = dotted_numbers(machine.driver.version.value or "")
    if not image.compat_path or not bundled or not gpus_of(machine) or driver < bundled:
        return
    is_file = image.compat_path.startswith("/")
    option = f"-v /dev/null:{image.compat_path}:ro" if is_file else "-e LD_LIBRARY_PATH="
    other = fitting_image(context)
    yield Problem(
        "warning",
        f"{image.compat_path} of the image puts cuda-compat of CUDA {image.compat_cuda} before driver "
        f"{machine.driver.version.value}, which is not older: error 803",
        (
            evidence("driver.version", machine.driver.version),
            Evidence("image.compat_path", image.compat_path, image.source),
        ),
        (f"Use {other}. Or start" if other else "Start") + f" the container with {option}.",
    )
