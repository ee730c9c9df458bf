"""Checks on images that copy the packages of another stage, and not the programs that pip installed with them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checks.evidence import command_evidence, guide_evidence
from envdoctor.manifests.checks.image_programs import text_of
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.image_stages import Stage, commands_of, image_stages
from envdoctor.manifests.shell_records import Command
from envdoctor.rules.registry import Problem, rule

STAGES = "https://docs.docker.com/build/building/multi-stage/"
_COPY = lazy_pattern(r"^COPY\s[^\n]*--from=(\S+)\s+(?:--\S+\s+)*(\S+)\s+\S+\s*$", re.MULTILINE)
_PACKAGES = lazy_pattern(r"/(?:site|dist)-packages/?$")
_INSTALLS = lazy_pattern(
    r"\b(?:pip3?|uv|conda|mamba|poetry|pdm|pipx)\s+(?:pip\s+)?(?:install|add|sync)\b|requirements"
)
# Programs of Python packages, and the module that starts the same one.
_MODULES = {
    "uvicorn": "uvicorn", "gunicorn": "gunicorn", "hypercorn": "hypercorn", "celery": "celery", "flask": "flask",
    "streamlit": "streamlit", "jupyter": "jupyter", "mlflow": "mlflow", "fastapi": "fastapi",
    "torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.accelerate_cli", "pytest": "pytest",
}  # fmt: skip


@rule("RUN250", kind="guide", severity="error", cause="wrong-python-env", url=STAGES)
def image_copies_packages_without_their_programs(context: GuideContext) -> Iterator[Problem]:
    """`COPY --from=build .../site-packages ...` brings no program such as uvicorn, which pip installs in `bin`.

    The container stops: its program is not found. Not reported where a step copies a directory with programs, or
    installs packages in the last stage.
    """
    for stage in image_stages(context.guide.blocks):
        text = "\n".join(map(text_of, (*stage.earlier, *stage.instructions)))
        copies = _COPY.findall(text)
        packages = [source for _, source in copies if _PACKAGES.search(source)]
        others = [source for _, source in copies if not _PACKAGES.search(source)]
        if not packages or any(map(_can_have_programs, others)) or _INSTALLS.search(text):
            continue
        program = _program(stage)
        if program:
            name = unwrap(program).name
            yield Problem(
                "error",
                f"`{program}` stops: the stage copies {packages[0]}, and {name} is in the bin directory of the other "
                "stage",
                (
                    *command_evidence(context, program),
                    guide_evidence(context, "copied", packages[0], _line(stage, packages[0])),
                ),
                f"Copy /usr/local/bin/{name} as well, or start python -m {_MODULES[name]}.",
                line=program.line,
            )


def _can_have_programs(source: str) -> bool:
    """Whether a copied path can contain programs: a `bin`, a directory above one, or what is not known."""
    return not re.search(r"\.\w{1,6}$|/lib(?:/|$)", source)


def _program(stage: Stage) -> Command | None:
    """The program of a Python package that the container of a stage starts."""
    starts = [each for each in stage.instructions if each.name in ("CMD", "ENTRYPOINT")]
    commands = [command for each in starts for command in commands_of(each._replace(name="RUN"))[:1]]
    return next((each for each in commands if unwrap(each).name in _MODULES and "/" not in each.words[0]), None)


def _line(stage: Stage, source: str) -> int:
    lines = (line for each in stage.instructions for line in each.lines)
    return next((number for number, text in lines if source in text), stage.instructions[0].lines[0][0])
