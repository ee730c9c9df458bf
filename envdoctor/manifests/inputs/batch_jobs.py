"""Scripts that install nothing: the directives of a batch job, and what a check can examine in a script."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import Install, LoadModules, Run, SetVariables, UseImage
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.markdown import Line

NO_PACKAGES = "the packages: the script installs none, and uses an environment that is not in it"
_DIRECTIVE = lazy_pattern(r"#SBATCH\s+-")
_CHECKED_VARIABLE = lazy_pattern(r"(?:NCCL|CUDA|TORCH|PYTORCH|VLLM|HF|TRITON|GLOO|FI|LD|OMP|UCX)_")


def directives(guide: Guide) -> Iterator[Line]:
    """The `#SBATCH` lines of a script."""
    yield from ((number, text) for number, text in enumerate(guide.lines, 1) if _DIRECTIVE.match(text))


def is_batch_job(guide: Guide) -> bool:
    """Whether a text as a whole is a batch script of SLURM, not a guide that contains one."""
    blocks = guide.blocks
    is_whole = len(blocks) == 1 and bool(blocks[0].lines) and blocks[0].lines[0][0] == 1
    return is_whole and blocks[0].language == "bash" and any(directives(guide))


def checked_parts(guide: Guide) -> int:
    """The number of launches, modules and variables of a script that installs nothing; 0 for another script."""
    if any(isinstance(each, Install | UseImage) for each in guide.actions):
        return 0
    return is_batch_job(guide) + sum(map(_is_checked, guide.actions))


def _is_checked(action: object) -> bool:
    if isinstance(action, SetVariables):
        return any(_CHECKED_VARIABLE.match(name) for name, _ in action.values)
    return isinstance(action, LoadModules | Run)
