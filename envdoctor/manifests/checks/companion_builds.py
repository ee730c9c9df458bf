"""Checks on packages that are compiled for the CUDA version of torch, though their metadata does not require it."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.knowledge.guides import CompanionBuild, cuda_on_pypi, guide_tables
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TorchSource
from envdoctor.rules.registry import Problem, rule

CHECK = "https://github.com/pytorch/audio/blob/v2.11.0/src/torchaudio/_extension/utils.py"
_PLATFORM = "x86_64"
_PYPI = str(TorchSource())


@rule("RUN009", kind="guide", severity="error", cause="torch-companion-mismatch", url=CHECK,
      needs=("python", "wheels"))  # fmt: skip
def companion_is_for_another_cuda_than_torch(context: GuideContext) -> Iterator[Problem]:
    """torchaudio from PyPI is built for another CUDA minor version than torch. Its import raises RuntimeError.

    torchaudio 2.11.0 requires no certain torch, so that installers combine it with any newer one. 2.11.1 compares the
    major version only.
    """
    for environment in context.environments if context.platform == _PLATFORM else ():
        packages = environment.state.packages
        torch = packages.get("torch")
        for row in guide_tables().companion_build:
            package = packages.get(row.package)
            # Without a solver, an open requirement is not certain to get the newest release of the tables.
            is_from_pypi = (
                package is not None and package.version == row.version and not package.cuda
                and package.origin == _PYPI and (package.pinned or environment.state.resolution == "solved")
            )  # fmt: skip
            is_other = torch is not None and torch.cuda not in ("", "cpu", row.cuda)
            # With an older torch, its rule reports the release that does not fit at all.
            if torch and package and is_from_pypi and is_other and satisfies(torch.version, f">={row.version}"):
                yield _other_cuda(context, package, torch, row)


def _other_cuda(
    context: GuideContext, package: ResolvedPackage, torch: ResolvedPackage, row: CompanionBuild
) -> Problem:
    line = line_of(context, package.line, package.reason)
    releases = (each.version for each in releases_in_range("torch", "") if each.version)
    fitting = next((each for each in releases if cuda_on_pypi(each, _PLATFORM) == row.cuda), "")
    pin = f"{package.name}=={row.version}"
    return Problem(
        "error",
        f"{package.name} {package.version} from PyPI is built for CUDA {row.cuda}, and torch {torch.version} for "
        f"CUDA {torch.cuda}: `import {package.name}` raises RuntimeError",
        (
            guide_evidence(context, package.name, package.reason, line),
            guide_evidence(context, "torch", torch.reason, torch.line),
            table_evidence(pin, f"CUDA {row.cuda}", row.source, row.date),
        ),
        f"Use torch {public_part(fitting)}, which PyPI has for CUDA {row.cuda}.",
        install_step(f"torch=={public_part(fitting)}", pin) if fitting else (),
        line=line,
    )
