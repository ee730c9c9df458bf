"""Every pair of releases since 2023 that metadata decides, as a list of two packages.

A pair outside of the required range is reported, a pair inside is not. Builds that are no release are not judged.
"""

from __future__ import annotations

import random

import pytest

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.core.records import Finding
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import required_specifier
from envdoctor.knowledge.versions import is_prerelease, satisfies
from envdoctor.reports import parse_report

PAIRS = (
    ("torchvision", "torch"), ("torchaudio", "torch"), ("xformers", "torch"), ("vllm", "torch"),
    ("vllm", "torchvision"), ("vllm", "torchaudio"), ("vllm", "xformers"), ("torch", "triton"),
    ("bitsandbytes", "torch"), ("flash-attn", "torch"),
)  # fmt: skip
FIRST_DAY = "2023"
SEED, SAMPLE = 24, 16
# Rules that compare the CUDA builds, or a build from source with a release, and not the versions.
OTHER_RULES = {"BNB001", "PKG011", "VLLM002", "VLLM003"}
NO_RELEASE = (
    "+git1a2b3c4", "+git1a2b3c4.d20250801", "+d20250801", ".dev20250801", ".dev20250801+cu128", "rc1",
    "a0+872d972e41.nv24.08",
)  # fmt: skip


def releases(package: str) -> list[str]:
    rows = published_releases(package)
    return [row.version for row in rows if row.date >= FIRST_DAY and not is_prerelease(row.version)]


def reported(*pins: tuple[str, str]) -> list[Finding]:
    """The errors and warnings about the versions in the output of `pip list`."""
    rows = "\n".join(f"{name} {version}" for name, version in pins)
    findings = diagnose_report(parse_report(f"Package Version\n------- -------\n{rows}\n"))
    return [each for each in findings if each.status in ("error", "warning") and each.id not in OTHER_RULES]


def judge(package: str, version: str, dependency: str, installed: str) -> str:
    """What is wrong with the findings of a pair; empty if nothing is."""
    specifier = required_specifier(package, version, dependency)
    fits = satisfies(installed, specifier) if specifier else None
    found = [finding.id for finding in reported((package, version), (dependency, installed))]
    if bool(found) == (fits is False):
        return ""
    return f"{package} {version} ({dependency}{specifier}) with {dependency} {installed}: {found or 'no finding'}"


def all_pairs(package: str, dependency: str) -> list[tuple[str, str, str, str]]:
    return [(package, first, dependency, second) for first in releases(package) for second in releases(dependency)]


def test_sampled_pairs_are_judged_as_metadata_does() -> None:
    draw = random.Random(SEED)
    pairs = [pair for names in PAIRS for pair in draw.sample(all_pairs(*names), SAMPLE)]
    assert [wrong for pair in pairs if (wrong := judge(*pair))] == []


@pytest.mark.long
@pytest.mark.parametrize(("package", "dependency"), PAIRS)
def test_each_pair_is_judged_as_metadata_does(package: str, dependency: str) -> None:
    pairs = all_pairs(package, dependency)
    assert len(pairs) > 100
    assert [wrong for pair in pairs if (wrong := judge(*pair))] == []


@pytest.mark.parametrize("suffix", NO_RELEASE)
def test_builds_that_are_no_release_are_not_judged(suffix: str) -> None:
    draw = random.Random(SEED)
    for package, dependency in PAIRS:
        if package == "bitsandbytes":
            continue  # it requires a lower bound only, which also holds for builds
        for _ in range(2):
            version, installed = draw.choice(releases(package)), draw.choice(releases(dependency)) + suffix
            assert reported((package, version), (dependency, installed)) == [], (package, version, installed)
