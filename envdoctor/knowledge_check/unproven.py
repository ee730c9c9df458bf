"""Lists of table rows that no wheel's metadata or sources prove: the reason, and what would disprove a row."""

from __future__ import annotations

from typing import NamedTuple


class Unproven(NamedTuple):
    """Why a check cannot confirm the rows of a list, and an observation that contradicts one."""

    reason: str
    disproof: str  # one sentence


_NATIVE = "native code: not in METADATA"
_COMPILED = "compatibility of compiled code: not in METADATA"
_TORCH_INDEX = "only the PyTorch index has these"
_NVIDIA = "NVIDIA's documents: not in METADATA"
_PROJECTS = "documents or sources of the projects: not in METADATA"
_MEASURED = "measurements: not in METADATA"
_SERVICES = "offers of public services: not in METADATA"
_IMAGES = "content of container images: not in METADATA"

UNPROVEN = {
    "breaks break": Unproven(
        "failures that the metadata permits",
        "The versions of `when`, installed together without those of `unless`, import and run without the problem.",
    ),
    "call_needs call": Unproven(
        _PROJECTS, "The call succeeds with a release of the row in an environment without the packages of `needs`."
    ),
    "call_needs data": Unproven(
        _PROJECTS, "The call succeeds with a release of the row before the data is downloaded."
    ),
    "call_needs launcher": Unproven(_PROJECTS, "Another package installs the program."),
    "cloud_instances provider": Unproven(
        _SERVICES, "The provider's list of instance types gives another GPU or another number of GPUs."
    ),
    "cpu_use line": Unproven(
        _PROJECTS, "The program prints the line also while it uses a GPU, or on purpose without one."
    ),
    "cxx_standards build": Unproven(
        _PROJECTS, "The setup.py of a release in `versions` gives nvcc or the compiler a newer -std, or none."
    ),
    "cxx_standards header": Unproven(
        _NATIVE, "ATen/ATen.h in the wheel of this release of torch has an #error for another standard."
    ),
    "image_programs program": Unproven(
        _IMAGES, "An image of a kind of the row contains the program, before any step installs a package."
    ),
    "call_changes passed_argument": Unproven(
        _PROJECTS, "The caller in the wheel of `first` does not pass the argument, or that of `last` does."
    ),
    "call_changes positional": Unproven(
        _PROJECTS, "The function in the wheel of `first` accepts more arguments by position, or of `last` does not."
    ),
    "call_changes refused_call": Unproven(
        _PROJECTS, "The function of `first` does more than raise the exception, or that of `last` only raises it."
    ),
    "call_changes refused_method": Unproven(
        _PROJECTS, "A class with the method trains with the release `first`, or does not with `last`."
    ),
    "call_changes removed_argument": Unproven(
        _PROJECTS, "The signature in the wheel of `first` has one of the arguments, or that of `last` lacks one."
    ),
    "call_changes required_argument": Unproven(
        _PROJECTS, "The function works without the argument in the release `first`, or does not in `last`."
    ),
    "call_changes returned": Unproven(
        _PROJECTS, "The function in the sources of `first` returns `before` values, or that of `last` `after`."
    ),
    "namesakes namesake": Unproven(
        _PROJECTS, "A release of `package` has one of the names in `module`, or its module can be imported."
    ),
    "dataclass_fields compared": Unproven(
        "a campaign of the tests reads it from the wheels",
        "The index has a later release of one of the minor series.",
    ),
    "dataclass_fields dataclass": Unproven(
        "a campaign of the tests reads it from the wheels",
        "The class in the wheel of a compared release has another field, or lacks one of the row.",
    ),
    "ngc_images constraints": Unproven(
        _IMAGES, "/etc/pip/constraint.txt is missing or empty in an image of `first` or a later one."
    ),
    "companions checked": Unproven(
        _PROJECTS, "A release of the row disables a torch of its range when it is imported, or accepts another one."
    ),
    "companions conda": Unproven(
        _COMPILED, "The channel of the package on conda has no build of the release for one of these torch releases."
    ),
    "companions equal": Unproven(
        _PROJECTS, "The parts work together at different versions, one of them in the range of the row."
    ),
    "companions numpy2": Unproven(
        _COMPILED, "An import of a release before `first` with numpy 2 works, or one from `first` on fails."
    ),
    "companions pairing": Unproven(
        _COMPILED, "An import of the row's release with a torch outside of its range works, or one within it fails."
    ),
    "companions same_module": Unproven(
        _PROJECTS, "The wheels of the two packages have no file with the same path."
    ),
    "companions undeclared": Unproven(
        _COMPILED, "An import of the row's release with a torch outside of its range works, or one within it fails."
    ),
    "companions withdrawn": Unproven(_PROJECTS, "The index lists a release of the row."),
    "cuda release": Unproven(
        _NVIDIA, "The release notes of the CUDA toolkit give another driver, or CUDA starts with an older one."
    ),
    "gpu_catalogue gpu": Unproven(
        _MEASURED, "The GPU has another memory size in nvidia-smi, or another bandwidth in its data sheet."
    ),
    "gpu_speeds pcie": Unproven(
        _MEASURED, "`envdoctor bench` reports another copy speed on a healthy machine with links of that generation."
    ),
    "gpu_speeds speed": Unproven(
        _MEASURED, "`envdoctor bench` on a healthy GPU is a tenth below or above `typical`, or exceeds `peak`."
    ),
    "gpus gpu": Unproven(
        _NVIDIA, "`nvidia-smi --query-gpu=name,compute_cap` prints another capability for a matching name."
    ),
    "guides companion_build": Unproven(
        _PROJECTS, "The sources in the wheel name another CUDA version, or the import accepts one."
    ),
    "git_builds build": Unproven(
        _PROJECTS, "`uv pip install git+URL` of the repository builds in isolation, without torch in the environment."
    ),
    "guides inherited": Unproven(
        _PROJECTS, "A class of the packages with that base class does not accept one of the names, in any release."
    ),
    "guides module": Unproven(
        _PROJECTS, "A wheel within the range of `present` lacks the module, or one outside of it contains the module."
    ),
    "guides build_option": Unproven(
        _PROJECTS, "A build of `first` or a newer release accepts the option."
    ),
    "guides program_option": Unproven(
        _PROJECTS, "A release of the program accepts another option."
    ),
    "guides removed_option": Unproven(
        _PROJECTS, "The program in the wheel of `first` accepts the option, or that of `last` does not."
    ),
    "guides switch": Unproven(
        _PROJECTS, "The sources of a release of torch read the variable."
    ),
    "guides ubuntu_cuda": Unproven(
        "packages of Ubuntu: not in METADATA",
        "`apt-cache policy nvidia-cuda-toolkit` of that Ubuntu has another version.",
    ),
    "guides use": Unproven(
        _PROJECTS, "A text that matches the pattern runs in an environment without the package."
    ),
    "health harmless": Unproven(
        _NVIDIA, "A line that matches is printed for a GPU that NVIDIA's documents call faulty."
    ),
    "health message": Unproven(
        _NVIDIA, "NVIDIA's documents recommend another action for a line that matches."
    ),
    "health xid": Unproven(
        _NVIDIA, "NVIDIA's catalogue of Xid errors gives another meaning or action for the code."
    ),
    "image_releases image": Unproven(
        _IMAGES, "The Dockerfile of one of these releases names another CUDA version, Python or system."
    ),
    "image_starts base": Unproven(
        _IMAGES, "An image of the repository has cuda-compat for another set of architectures."
    ),
    "image_starts compat_path": Unproven(
        _IMAGES, "The linker of an image of these releases finds another libcuda.so.1 first."
    ),
    "image_starts platform": Unproven(
        _IMAGES, "The manifest of an image of the repository lists another set of architectures."
    ),
    "image_starts requirement": Unproven(
        _IMAGES, "NVIDIA_REQUIRE_CUDA of an image with that CUDA version permits another set of driver branches."
    ),
    "image_steps table": Unproven(
        _PROJECTS, "A listed program needs a GPU in the build of an image, or one that is not listed needs none."
    ),
    "images cuda": Unproven(
        _IMAGES, "The registry has no image with this version and system."
    ),
    "images nvcc": Unproven(
        _PROJECTS, "The package works in an image without nvcc."
    ),
    "images python": Unproven(
        _IMAGES, "/etc/os-release in the image names another system."
    ),
    "images uv": Unproven(
        _IMAGES, "The registry has no image with this tag."
    ),
    "images system": Unproven(
        _IMAGES, "`ldd --version` or `python3 --version` in the system's image prints another version."
    ),
    "modules row": Unproven(
        "the files of up to 70 releases of a library: not in METADATA",
        "A release within the periods of the row lacks the module or name, or one outside of them contains it.",
    ),
    "ngc_images image": Unproven(
        _NVIDIA, "The release notes or the start banner of the image give another CUDA version, torch or system."
    ),
    "ngc_images gpus": Unproven(
        _NVIDIA, "The release notes of one of the images give other compute capabilities."
    ),
    "notebook_services service": Unproven(
        "packages of notebook services: not in METADATA",
        "`pip list` in a new notebook of the service prints another set.",
    ),
    "mac_wheels package": Unproven(
        "names of the files of all releases",
        "A release outside of the range has a wheel for the processor, or one in it has none.",
    ),
    "python_limits limit": Unproven(
        "resolutions of an index by uv: no single wheel shows them",
        "`uv pip compile` for that Python, with a package of the row, gives a newer release than the row.",
    ),
    "changed_names addition": Unproven(
        "names in files of the wheels: not in METADATA",
        "`before` has a name of the row, or `first` lacks it.",
    ),
    "changed_names removal": Unproven(
        "names that exist only when the module is loaded: not in METADATA",
        "`last` lacks a name of the row, or `next` has it.",
    ),
    "runtime_needs module": Unproven(
        _PROJECTS, "A release from `first` on can be imported without one of the modules, or requires one."
    ),
    "runtime_needs system": Unproven(
        _IMAGES, "In an image of a kind of the row, the package works after `pip install` alone."
    ),
    "standard_library python": Unproven(
        "the standard library of CPython: not in a wheel",
        "The import of the name works with that Python, or fails with the one before.",
    ),
    "system_packages package": Unproven(
        "package names of Linux distributions: not in METADATA",
        "The distribution has no package of that name, or the package does not contain the program or library.",
    ),
    "toolkits toolkit": Unproven(
        _NVIDIA, "The toolkit's nvcc accepts a newer gcc, or compiles for an architecture outside of the range."
    ),
    "torch_builds build": Unproven(
        _NATIVE, "`envdoctor archs` with that build installed, or cuobjdump --list-elf, prints other architectures."
    ),
    "torch_removals removal": Unproven(
        _NATIVE, "The wheel of that release contains the module, or the wheel of the release before does not."
    ),
    "torch_wheels release": Unproven(
        _TORCH_INDEX, "METADATA of that wheel on the PyTorch index has other requirements."
    ),
    "torch_wheels wheel": Unproven(
        _TORCH_INDEX, "The PyTorch index gives another SHA-256 or size for the file."
    ),
    "services action": Unproven(
        _SERVICES, "A workflow on GitHub with one of the references runs."
    ),
    "services apt_absent": Unproven(
        _SERVICES, "`apt-get update && apt-get install` of the package works in an unchanged image of the system."
    ),
    "services apt_python": Unproven(
        _SERVICES, "`apt-get install` of another Python works in an unchanged image of the system."
    ),
    "services archived_system": Unproven(
        _SERVICES, "`apt-get update` or `yum makecache` works in an unchanged image of one of the releases."
    ),
    "services cuda_tag": Unproven(
        _SERVICES, "`docker pull` of a listed tag fails, or that of an unlisted tag of these releases works."
    ),
    "services managed_python": Unproven(
        _SERVICES, "`pip install` of the system's Python works in an unchanged image."
    ),
    "services runner": Unproven(
        _SERVICES, "A job on GitHub with one of the labels is started."
    ),
    "source_needs source": Unproven(
        _PROJECTS, "The source archive of the package builds in an image that has only a compiler and Python."
    ),
    "wheel_cuda wheel": Unproven(
        _NATIVE, "`readelf -d` of a compiled module of one of these releases names libraries of another CUDA version."
    ),
    "wheel_code abi": Unproven(
        _NATIVE, "`nm -D --undefined-only` of the named module lists symbols of torch with the other ABI."
    ),
    "wheel_code wheel": Unproven(
        _NATIVE, "`cuobjdump --list-elf --list-ptx` on a module of one of these wheels prints other architectures."
    ),
    "wheel_code minimum": Unproven(
        _PROJECTS, "The library's kernels run on a GPU with a lower compute capability."
    ),
    "wheel_code newest": Unproven(
        _PROJECTS, "A build of one of these releases, of any index, runs on a GPU with a higher compute capability."
    ),
    "trial_needs build": Unproven(
        _PROJECTS, "An isolated build that prints the message works with the packages in its environment missing."
    ),
    "trial_needs need": Unproven(
        _PROJECTS, "A build or an import that prints the message works after a change of the packages alone."
    ),
}  # fmt: skip

# Lists that pages, METADATA or sources of wheels prove.
DERIVABLE = frozenset({"guides pypi_torch", "pythons python", "torch_builds release", "guides argument",
                       "torch_libraries release", "companions bitsandbytes"})  # fmt: skip
# Tables and lists of envdoctor's own texts and measurements of itself, which state nothing about a library.
TEXTS = frozenset(
    {
        "calibration",
        "causes",
        "descriptions",
        "fleet",
        "phrases",
        "health rule",
        "notebook_services table",
        "translations",
    }
)


def is_text(table: str, rows: str) -> bool:
    """Whether a list states nothing about a library."""
    return table in TEXTS or f"{table} {rows}" in TEXTS
