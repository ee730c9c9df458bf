"""Reads an image from its reference, from a Dockerfile, or from the configuration that a registry has of it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from envdoctor.core.decoding import read_text
from envdoctor.core.errors import BadInput
from envdoctor.core.paths import is_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.printable import single_lines
from envdoctor.core.records import OF_A_GUIDE, Machine, Stack, known
from envdoctor.knowledge.image_starts import compat_path, image_architectures, image_base, start_requirement
from envdoctor.knowledge.images import image_contents, known_repository
from envdoctor.knowledge.versions import major_minor
from envdoctor.manifests.actions import InstallSystemPackages, SetVariables, UseImage
from envdoctor.manifests.container_files import parse_apptainer, parse_dockerfile
from envdoctor.manifests.environment_state import EnvironmentState, image_state
from envdoctor.manifests.files import Files
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.images.records import Image
from envdoctor.manifests.images.unread import COMPAT_PACKAGE, GPU_PACKAGES, WITHOUT_GPU, Build, unread_steps
from envdoctor.manifests.inputs.pieces import numbered
from envdoctor.manifests.inputs.scripts import read_apptainer, read_dockerfile
from envdoctor.manifests.interpreter import GuideInterpreter
from envdoctor.manifests.records import build_stack

EXPECTED = "an image reference, a Dockerfile, or the configuration of an image as JSON"
HINT = "envdoctor check --image vllm/vllm-openai:v0.10.2 --gpu l4"
MAX_BYTES = 4 << 20  # the configuration of an image has some KiB
# The grammar of references: github.com/distribution/reference. Upper case is allowed only in the tag.
CUDA_VERSION = lazy_pattern(r"([0-9]{1,3}\.[0-9]{1,3})(?:\.[0-9]{1,6})*")  # 12.9.1, 12.9.1.010
REFERENCE = lazy_pattern(
    r"(?:docker://|docker-daemon:)?"
    r"(?P<name>(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]{0,100}[a-zA-Z0-9])?(?::\d{1,5})?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+){0,20}(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+){0,20}){0,8})"
    r"(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
FROM_PLATFORM = lazy_pattern(r"--platform=linux/(\w+)")
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
OTHER_REQUIREMENT = lazy_pattern(r"NVIDIA_REQUIRE_(?!CUDA$|JETPACK).*")
CODE_LIST = "TORCH_CUDA_ARCH_LIST"  # the GPU code of what the image's builder compiled
# A directory of cuda-compat, but not compat/lib of NVIDIA's containers: their entry point creates it on demand.
COMPAT_DIRECTORY = lazy_pattern(r"/usr/local/cuda[\w.-]{0,20}/compat/?(?::|$)")
# A step that writes the directory into a file of the loader's configuration, or removes such a file.
LOADER_STEP = lazy_pattern(
    r"compat/?[\"']?\s{0,5}(?:>{1,2}|\|\s{0,5}tee(?:\s{1,5}-a)?)\s{0,5}(?P<written>/etc/ld\.so\.conf\.d/[\w.-]{1,100})"
    r"|\brm\s[^\n&;|]{0,300}/etc/ld\.so\.conf\.d/[\w.-]{0,100}compat"
)
# FROM https://user:password@registry/image; a digest follows an @ as well
FROM_CREDENTIALS = lazy_pattern(r"(?im)^\s{0,20}FROM\s[^\n]{0,2000}(?:://|@(?!sha256:))")


class ReadImage(NamedTuple):
    """An image and its packages as an environment."""

    image: Image
    stack: Stack


def read_image(text: str, machine: Machine | None, today: str) -> ReadImage:
    """Read `text`: a reference, a file, or `-` for a configuration on standard input. Raises BadInput."""
    if text == "-":
        return _of_configuration(
            sys.stdin.buffer.read(MAX_BYTES).decode("utf-8", "replace"), "standard input", machine
        )
    if is_file(text):
        content = read_text(Path(text), expected=EXPECTED, hint=HINT, max_bytes=MAX_BYTES)
        if content.lstrip().startswith(("{", "[")):
            return _of_configuration(content, text, machine)
        return _of_build_file(content, text, machine, today)
    return of_reference(text)


def of_reference(text: str) -> ReadImage:
    """The image of a reference. Without a tag, or with a digest alone, its contents are unknown."""
    match = REFERENCE.fullmatch(text)
    if not match:
        if re.search(r"://|@(?!sha256:)", text):
            raise _credentials("--image")
        raise BadInput(f"{text[:200]!r} is no image reference and no file", expected=EXPECTED, hint=HINT)
    name, tag, digest = match["name"], match["tag"] or "", match["digest"] or ""
    reference = name + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")
    state = image_state(UseImage(0, "", name, tag))
    return ReadImage(_image(reference, "name and tag", name, tag, state), build_stack(state))


def _image(reference: str, source: str, name: str, tag: str, state: EnvironmentState) -> Image:
    """An image with what its name and tag imply, and the packages of a state."""
    repository = known_repository(name)
    contents = image_contents(name, tag)
    base = image_base(repository, tag)
    require = start_requirement(repository, tag, contents.cuda)
    torch = state.packages.get("torch")
    built = torch.cuda if torch and torch.cuda != "cpu" else ""
    return Image(
        reference=reference,
        source=source,
        repository=repository,
        tag=tag,
        cuda=built or state.image_cuda or ("" if state.toolkit == "?" else state.toolkit),
        system=state.system,
        python=state.python,
        packages={each: package.version for each, package in state.packages.items() if package.version},
        architectures=image_architectures(repository, tag, contents.release),
        require=require,
        has_requirement=True if require else None,
        compat=base.compat if base else None,
        compat_cuda=".".join(contents.cuda.split(".")[:2]),
        compat_path=compat_path(repository, contents.release),
        has_toolkit=bool(state.toolkit),
        uses_gpu=_uses_gpu(name, state),
    )


def _uses_gpu(name: str, state: EnvironmentState) -> bool:
    """Whether an image may use a GPU: not if it has no package with CUDA code on a base image without CUDA."""
    torch = state.packages.get("torch")
    if not WITHOUT_GPU.search(name) or state.toolkit or (torch and torch.cuda != "cpu"):
        return True
    return any(GPU_PACKAGES.fullmatch(package) for package in state.packages)


def _of_build_file(text: str, name: str, machine: Machine | None, today: str) -> ReadImage:
    """The image that a Dockerfile or an Apptainer definition builds: that of its last stage."""
    is_apptainer = re.match(r"(?im)(?:\s*(?:#.*)?\n)*\s*bootstrap\s*:", text)
    files = Files(Path(name).parent)
    document = (read_apptainer if is_apptainer else read_dockerfile)(text, Path(name).name, files)
    if FROM_CREDENTIALS.search(text):
        raise _credentials(name)
    guide = document.paths[0]
    bases = [action for action in guide.actions if isinstance(action, UseImage)]
    if not bases:
        raise BadInput(f"{name} has no FROM with an image", expected=EXPECTED, hint=HINT)
    interpreter = GuideInterpreter(guide, machine, today)
    interpreter.run()
    chain = _stages(bases)
    base, lines = chain[-1], {chain[0].line, chain[-1].line}
    state = [state for state in interpreter.states.values() if state.image_line in lines][-1]
    image = _image(f"{base.name}:{base.tag}" if base.tag else base.name, name, base.name, base.tag, state)
    image = _with_compat_package(_with_variables(image, _variables(guide)), guide)
    instructions = (parse_apptainer if is_apptainer else parse_dockerfile)(numbered(text))
    image = _with_loader_configuration(image, _lines_of_stages(text, bases, chain))
    platform = FROM_PLATFORM.search(base.command)
    image = msgspec.structs.replace(
        image,
        unread=unread_steps(Build(document, instructions, chain), frozenset(image.packages)),
        architectures=(ARCHITECTURES.get(platform[1], platform[1]),) if platform else image.architectures,
    )
    return ReadImage(image, build_stack(state))


def _credentials(name: str) -> BadInput:
    """The error for a reference with a user name or a password, which is not repeated."""
    return BadInput(
        f"the image in {name} is an address with a scheme, a user name or a password",
        expected="the name of an image, such as vllm/vllm-openai:v0.10.2",
        hint="docker login REGISTRY",
    )


def _stages(bases: list[UseImage]) -> list[UseImage]:
    """The last stage, then those that it starts from. A stage can only start from one that is above it."""
    chain = [bases[-1]]
    above = bases[:-1]
    while not chain[-1].tag:
        index = next((n for n in reversed(range(len(above))) if above[n].stage == chain[-1].name), -1)
        if index < 0:
            break
        chain.append(above[index])
        above = above[:index]
    return chain


def _variables(guide: Guide) -> dict[str, str]:
    return {
        name: value for action in guide.actions if isinstance(action, SetVariables) for name, value in action.values
    }


def _with_compat_package(image: Image, guide: Guide) -> Image:
    """The image with a cuda-compat package that it installs and puts on LD_LIBRARY_PATH.

    The container toolkit uses /usr/local/cuda/compat alone, which is that of the base image's CUDA release.
    """
    names = (name for each in guide.actions if isinstance(each, InstallSystemPackages) for name in each.names)
    releases = [f"{found[1]}.{found[2]}" for name in names if (found := COMPAT_PACKAGE.match(name))]
    if not releases or "compat" not in _variables(guide).get("LD_LIBRARY_PATH", ""):
        return image
    return msgspec.structs.replace(image, compat=("x86_64", "aarch64"), compat_cuda=max(releases, key=major_minor))


def _lines_of_stages(text: str, bases: list[UseImage], chain: list[UseImage]) -> str:
    """The lines of the stages that make up the image, in their order in the file."""
    lines = text.splitlines()
    starts = [*(base.line for base in bases), len(lines) + 1]
    ends = dict(pairwise(starts))
    parts = (lines[base.line - 1 : ends[base.line] - 1] for base in reversed(chain))
    return "\n".join(line for part in parts for line in part if not line.lstrip().startswith("#"))


def _with_loader_configuration(image: Image, lines: str) -> Image:
    """The image with cuda-compat in a file of /etc/ld.so.conf.d, or without it where the last step removes it."""
    for step in LOADER_STEP.finditer(lines):
        image = msgspec.structs.replace(image, compat_path=step["written"] or "")
    return image


def _with_variables(image: Image, variables: Mapping[str, str]) -> Image:
    """The image with variables that change whether it starts."""
    fields: dict[str, Any] = {}
    if variables.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "t", "true"):
        return msgspec.structs.replace(image, require="", has_requirement=False, other_requirements=())
    if "NVIDIA_REQUIRE_CUDA" in variables:
        require = variables["NVIDIA_REQUIRE_CUDA"]
        fields = {"require": require, "has_requirement": bool(require)}
    # github.com/NVIDIA/nvidia-container-toolkit, GetRequirements: every variable with the prefix but that of Jetson.
    others = {name: value for name, value in variables.items() if OTHER_REQUIREMENT.fullmatch(name) and value}
    if others:
        fields |= {"other_requirements": tuple(others.values()), "has_requirement": True}
    if CODE_LIST in variables:
        fields["code_list"] = variables[CODE_LIST]
    if COMPAT_DIRECTORY.search(variables.get("LD_LIBRARY_PATH", "")):
        fields["compat_path"] = "LD_LIBRARY_PATH"
    return msgspec.structs.replace(image, **fields)


def _of_configuration(text: str, name: str, machine: Machine | None) -> ReadImage:
    """The image of `docker image inspect`, `skopeo inspect --config` or `docker buildx imagetools inspect`."""
    try:
        data = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name} is not JSON: {error}", expected=EXPECTED, hint=HINT) from error
    data = single_lines(data)
    configurations = list(_configurations(data))
    if not configurations:
        raise BadInput(f"{name} is no configuration of an image", expected=EXPECTED, hint=HINT)
    if isinstance(data, list) and len(configurations) > 1:
        raise BadInput(
            f"{name} has {len(configurations)} images", expected="the configuration of one image", hint=HINT
        )
    systems = {each.system for each in configurations} - {"", "linux"}
    configurations = [each for each in configurations if each.system in ("", "linux")]
    if not configurations:
        raise BadInput(
            f"{name} is an image for {', '.join(sorted(systems))}", expected="an image for Linux", hint=HINT
        )
    wanted = machine.system.architecture.value if machine else ""
    chosen = next((each for each in configurations if each.architecture == wanted), configurations[0])
    variables = chosen.variables
    tagged = next((each.tag for each in configurations if each.tag), "") or _tag_of_variables(variables)
    read = of_reference(tagged) if REFERENCE.fullmatch(tagged) else of_reference("image/of-configuration")
    image, stack = read
    cuda = found[1] if (found := CUDA_VERSION.fullmatch(variables.get("CUDA_VERSION", ""))) else ""
    architectures = tuple(dict.fromkeys(each.architecture for each in configurations if each.architecture))
    image = msgspec.structs.replace(
        image,
        reference=tagged or name,
        source=f"configuration in {name}",
        cuda=image.cuda or cuda,
        architectures=architectures,
        require="",
        has_requirement=False,
        has_toolkit=image.has_toolkit or "NVIDIA_REQUIRE_CUDA" in variables,
        compat_cuda=cuda or image.compat_cuda,
        unread=() if architectures else ("its architecture, which the configuration does not name",),
    )
    return ReadImage(_with_variables(image, variables), _with_code(stack, variables))


class _Configuration(NamedTuple):
    variables: dict[str, str]
    architecture: str
    tag: str
    system: str


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. With a key that occurs twice it is not known which value a container tool uses."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:100]!r} occurs twice")
    return found


def _configurations(data: Any) -> list[_Configuration]:
    """The configurations in a document: one, one for each platform, or a list."""
    if isinstance(data, list):
        return [found for each in data[:16] for found in _configurations(each)]
    if not isinstance(data, dict):
        return []
    config = data.get("config", data.get("Config"))
    if not isinstance(config, dict):
        return [found for value in list(data.values())[:16] for found in _configurations(value) if value is not data]
    pairs = (str(line).partition("=") for line in config.get("Env") or ())
    tags = data.get("RepoTags")
    architecture = str(data.get("architecture", data.get("Architecture", "")))
    system = str(data.get("os", data.get("Os", ""))).lower()
    tag = str(tags[0]) if isinstance(tags, list) and tags else ""
    architecture = ARCHITECTURES.get(architecture, architecture)
    return [_Configuration({k: v for k, _, v in pairs}, architecture, tag, system)]


def _tag_of_variables(variables: Mapping[str, str]) -> str:
    """The image that variables of NVIDIA's and vLLM's builders name."""
    if release := variables.get("NVIDIA_PYTORCH_VERSION"):
        return f"nvcr.io/nvidia/pytorch:{release}-py3"
    return variables.get("VLLM_IMAGE_TAG", "")


def _with_code(stack: Stack, variables: Mapping[str, str]) -> Stack:
    """The environment with the GPU code of NVIDIA's torch, which the image's variable lists."""
    build = stack.torch.value
    names = variables.get(CODE_LIST, "").replace(";", " ").split()
    if not build or "NVIDIA_PYTORCH_VERSION" not in variables or not names:
        return stack
    plain = [name.partition("+")[0].replace(".", "") for name in names]
    code = tuple(f"sm_{name}" for name in plain)
    code += tuple(f"compute_{name}" for name, text in zip(plain, names, strict=True) if text.endswith("+PTX"))
    torch = msgspec.structs.replace(build, architectures=known(code, f"{OF_A_GUIDE}: {CODE_LIST}"))
    return msgspec.structs.replace(stack, torch=msgspec.structs.replace(stack.torch, value=torch))
