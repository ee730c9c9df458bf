"""The stages of a Dockerfile with their instructions, and what their base images contain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.images import public_repository
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.container_files import Instruction, is_dockerfile, parse_dockerfile, script_of
from envdoctor.manifests.markdown import Block
from envdoctor.manifests.shell import parse_commands
from envdoctor.manifests.shell_records import Command, ShellState

_STAGE = lazy_pattern(r"(?i)(?:--platform=\S+\s+)?(\S+)(?:\s+as\s+(\S+))?")
_VARIABLE = lazy_pattern(r"\$\{?(\w+)(?::-([^}]*))?\}?")
_SLIM = lazy_pattern(r"-slim\b|slim-")
_ALPINE = lazy_pattern(r"alpine|-ubi\d|rocky|centos|windows|nanoserver|distroless")
# Images of Debian and Ubuntu. The lists of apt are removed in all of them: their Dockerfiles, 2026-11-26.
_DEBIAN = frozenset({
    "ubuntu", "debian", "python", "nvidia/cuda", "pytorch/pytorch", "continuumio/miniconda3", "condaforge/miniforge3",
    "condaforge/mambaforge", "buildpack-deps",
})  # fmt: skip
# Before, its images installed git, curl and wget: docker/pytorch/Dockerfile, 2026-11-26.
_FIRST_PYTORCH, _RELEASE = ">=1.7", lazy_pattern(r":(\d+\.\d+\.\d+)-")
_WITHOUT_PROGRAMS = frozenset({"ubuntu", "debian", "nvidia/cuda"})


class Stage(NamedTuple):
    """A stage of a Dockerfile. `image` is that of its first ancestor, `earlier` are the instructions of ancestors."""

    image: str
    instructions: tuple[Instruction, ...]
    earlier: tuple[Instruction, ...] = ()

    @property
    def is_debian(self) -> bool:
        """Whether the image is a known one of Debian or Ubuntu, whose sh is dash."""
        return _repository(self.image) in _DEBIAN and not _ALPINE.search(self.image)

    @property
    def kind(self) -> str:
        """What the image contains, as the tables of programs and libraries name it; empty if that is not known."""
        name = _repository(self.image)
        if self.is_bare:
            return "bare"
        release = _RELEASE.search(self.image)
        is_pytorch = name == "pytorch/pytorch" and release and satisfies(release[1], _FIRST_PYTORCH)
        return "pytorch" if is_pytorch else "python" if name == "python" and self.is_debian else ""

    @property
    def has_toolkit(self) -> bool:
        """Whether the image is one of CUDA with nvcc, which needs a C compiler."""
        return "-devel" in self.image

    @property
    def is_bare(self) -> bool:
        """Whether the image has no git, curl or wget: Debian, Ubuntu, nvidia/cuda, and the slim images of Python."""
        name = _repository(self.image)
        is_slim = name == "python" and bool(_SLIM.search(self.image))
        return self.is_debian and (is_slim or name in _WITHOUT_PROGRAMS)


def image_stages(blocks: Sequence[Block]) -> Iterator[Stage]:
    """The stages of the Dockerfiles among the blocks of a guide, in their order."""
    for block in blocks:
        if is_dockerfile(block):
            yield from _stages(parse_dockerfile(block.lines))


def _stages(instructions: Sequence[Instruction]) -> Iterator[Stage]:
    named: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    current: Stage | None = None
    name = ""
    for each in (*instructions, Instruction("FROM", ())):
        if each.name == "FROM":
            if current:
                yield current
                named[name] = current
            if each.lines and (match := _STAGE.match(each.lines[0][1].strip())):
                image, name = _expanded(match[1], arguments), (match[2] or "").lower()
                base = named.get(image.lower()) if image else None
                earlier = (*base.earlier, *base.instructions) if base else ()
                current = Stage(base.image if base else image, (), earlier)
        elif current is None and each.name == "ARG" and each.lines:
            key, _, value = each.lines[0][1].strip().partition("=")
            arguments[key] = value.strip("\"'")
        elif current:
            current = current._replace(instructions=(*current.instructions, each))


def commands_of(instruction: Instruction) -> list[Command]:
    """The commands of a RUN instruction; none if they are the lines of a heredoc."""
    script = script_of(instruction)
    return parse_commands(script, ShellState()) if instruction.name == "RUN" and script else []


def shell_text(instruction: Instruction) -> str:
    """The script of an instruction as one text."""
    return "\n".join(text for _, text in script_of(instruction))


def _expanded(image: str, arguments: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda match: arguments.get(match[1], match[2] or match[0]), image)


def _repository(image: str) -> str:
    name = image.partition("@")[0]
    name = name.rpartition(":")[0] or name
    return "" if "$" in image else public_repository(name).removeprefix("library/")
