"""Checks on what public services no longer offer: runners and actions of GitHub, and tags of images."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Status
from envdoctor.knowledge.images import image_contents, public_repository
from envdoctor.knowledge.published import find_release, is_older_than_table, nearest_release, published_releases
from envdoctor.knowledge.services import (
    ArchivedSystem,
    UnlistedTag,
    archived_system,
    disabled_action,
    removed_runner,
    unlisted_cuda_tag,
)
from envdoctor.knowledge.torch_builds import torch_libraries
from envdoctor.knowledge.versions import dotted_numbers, satisfies
from envdoctor.manifests.actions import Clone, UseImage, UseRunner, UseWorkflowAction
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

RUNNERS = "https://github.com/actions/runner-images#available-images"
ARTIFACTS = "https://github.blog/changelog/2024-04-16-deprecation-notice-v3-of-the-artifact-actions/"
CUDA_TAGS = "https://gitlab.com/nvidia/container-images/cuda/-/blob/master/doc/supported-tags.md"
ARCHIVES = "https://www.debian.org/distrib/archive"
PYTORCH_TAGS = "https://hub.docker.com/r/pytorch/pytorch/tags"
GIT_PROTOCOL = "https://github.blog/2021-09-01-improving-git-protocol-security-github/"
IMAGE_TAGS = "https://docs.docker.com/docker-hub/repos/manage/hub-images/tags/"
_OF_RELEASES = {"pytorch/pytorch": "torch", "vllm/vllm-openai": "vllm", "lmsysorg/sglang": "sglang"}
_NGC_MONTH = lazy_pattern(r"\d\d\.(\d\d)-py3")
_PYTORCH_TAG = lazy_pattern(r"(?P<torch>\d\.\d+\.\d)-cuda\d+\.\d+-cudnn(?P<cudnn>\d+)-(?:runtime|devel)")
_CUDNN = lazy_pattern(r"nvidia-cudnn-cu\d\d==(\d+)[\d.]*")
_OLDEST_CUDA = (11,)
# From this release on the lists have every tag: none of its tags was deleted when they were read.
_COMPLETE_FROM = (12, 4)
_NEW_SYSTEMS = ("ubuntu22.04", "ubuntu24.04")  # a CUDA release that was made before them never had their tags


@rule("RUN100", kind="guide", severity=("error", "warning"), cause="service-withdrawn", url=RUNNERS)
def runner_image_was_removed(context: GuideContext) -> Iterator[Problem]:
    """A job of a workflow runs on an image that GitHub removed. The job is never started.

    A warning if the removal was only announced. Labels of self-hosted runners are not judged.
    """
    for action in context.actions(UseRunner):
        row = removed_runner(action.label)
        if row:
            day = f" on {row.removed}" if row.removed else ""
            verb = "announced to remove" if row.is_announced else "removed"
            yield Problem(
                "warning" if row.is_announced else "error",
                f"GitHub {verb} the runner image {action.label}{day}: no runner takes a job with this label",
                (
                    guide_evidence(context, "runs-on", action.label, action.line),
                    table_evidence(action.label, f"removed{day}", row.source, row.date),
                ),
                f"Use runs-on: {row.instead}.",
                line=action.line,
            )


@rule("RUN101", kind="guide", severity="error", cause="service-withdrawn", url=ARTIFACTS)
def workflow_action_is_disabled(context: GuideContext) -> Iterator[Problem]:
    """GitHub fails each run of the old releases of its artifact and cache actions."""
    for action in context.actions(UseWorkflowAction):
        row = disabled_action(action.name, action.reference)
        if row:
            since = f" since {row.since}" if row.since else ""
            yield Problem(
                "error",
                f"GitHub fails every run of {action.name}@{action.reference}{since}",
                (
                    guide_evidence(context, "uses", f"{action.name}@{action.reference}", action.line),
                    table_evidence(action.name, f"disabled: {', '.join(row.references)}", row.source, row.date),
                ),
                f"Use {action.name}@{row.instead}.",
                line=action.line,
            )


@rule("RUN102", kind="guide", severity=("error", "warning"), cause="service-withdrawn", url=CUDA_TAGS)
def cuda_image_has_no_such_tag(context: GuideContext) -> Iterator[Problem]:
    """NVIDIA's lists of the tags of nvidia/cuda do not contain the tag: it was deleted, or never existed.

    From CUDA 12.4 on the tags have `cudnn` without a number. The images of CUDA 10 and older were deleted. A warning
    for CUDA 11.0 to 12.3, of which some unlisted tags may still exist. Newer tags than the lists are not judged.
    """
    for action in context.actions(UseImage):
        if public_repository(action.name) != "nvidia/cuda":
            continue
        if found := unlisted_cuda_tag(action.tag):
            yield _unlisted(context, action, found)


def _unlisted(context: GuideContext, action: UseImage, found: UnlistedTag) -> Problem:
    version, system = action.tag.partition("-")[0], action.tag.rpartition("-")[2]
    numbers = dotted_numbers(version)
    is_new_system = found.reason == "system" and system in _NEW_SYSTEMS
    is_certain = numbers < _OLDEST_CUDA or numbers >= _COMPLETE_FROM or is_new_system
    status: Status = "error" if is_certain else "warning"
    reason = {
        "cudnn": f"the tags of CUDA {version} have `{found.row.cudnn}`",
        "system": f"CUDA {version} has no image for {system}",
        "release": f"NVIDIA lists no such image of CUDA {version}; it deletes images of old releases",
    }[found.reason]
    line = line_of(context, action.line, action.tag)
    listed = found.listed or "no tag of this CUDA release"
    return Problem(
        status,
        f"image {action.name}:{action.tag} {'does not exist' if is_certain else 'may be deleted'}: {reason}",
        (
            guide_evidence(context, "image", action.tag, line),
            table_evidence("nvidia/cuda", listed, found.row.source, found.row.date),
        ),
        f"Use {action.name}:{found.listed}." if found.listed else "Use the image of a newer CUDA release.",
        line=line,
    )  # fmt: skip


@rule("RUN111", kind="guide", severity="error", cause="service-withdrawn", url=PYTORCH_TAGS)
def pytorch_image_has_another_cudnn(context: GuideContext) -> Iterator[Problem]:
    """The tag of a pytorch/pytorch image names another cuDNN than torch's build has, so that there is no such image.

    Up to 2.3 the tags have cudnn8, from 2.4 on cudnn9.
    """
    for action in context.actions(UseImage):
        found = _PYTORCH_TAG.fullmatch(action.tag) if public_repository(action.name) == "pytorch/pytorch" else None
        row = next((row for row in torch_libraries() if found and found["torch"] in row.versions), None)
        cudnn = _CUDNN.search(" ".join(row.libraries)) if row else None
        if found and row and cudnn and cudnn[1] != found["cudnn"]:
            line = line_of(context, action.line, action.tag)
            tag = action.tag.replace(f"cudnn{found['cudnn']}", f"cudnn{cudnn[1]}")
            yield Problem(
                "error",
                f"image {action.name}:{action.tag} does not exist: torch {found['torch']} has cuDNN {cudnn[1]}",
                (
                    guide_evidence(context, "image", action.tag, line),
                    table_evidence(f"torch {found['torch']}", cudnn[0], row.source, row.date),
                ),
                f"Use {action.name}:{tag}.",
                line=line,
            )


@rule("RUN103", kind="guide", severity="error", cause="service-withdrawn", url=ARCHIVES)
def package_servers_of_the_system_are_gone(context: GuideContext) -> Iterator[Problem]:
    """The image is a release of Debian, Ubuntu or CentOS whose packages have moved to an archive.

    `apt-get update` ends with 404, `yum` finds no mirror. Reported where a step installs packages of the system and
    nothing names the archive.
    """
    images = context.actions(UseImage)
    for number, action in enumerate(images):
        row = archived_system(public_repository(action.name).removeprefix("library/"), action.tag)
        end = next((each.line for each in images[number + 1 :] if each.line > action.line), 1 << 30)
        if row and row.archive not in "\n".join(context.guide.lines):
            step = next((each for each in context.guide.commands if action.line <= each.line < end
                         and _reads_packages(each.words, row)), None)  # fmt: skip
            if step:
                yield _archived(context, action, row, step.line)


def _reads_packages(words: tuple[str, ...], row: ArchivedSystem) -> bool:
    """Whether a command reads the package servers of the system."""
    names = {word.rpartition("/")[2] for word in words[:3]}
    if row.repository == "centos":
        return bool(names & {"yum", "dnf"}) and bool({"install", "update", "upgrade", "makecache"} & {*words})
    return bool(names & {"apt", "apt-get"}) and bool({"install", "update", "upgrade"} & {*words})


def _archived(context: GuideContext, action: UseImage, row: ArchivedSystem, step: int) -> Problem:
    return Problem(
        "error",
        f"the packages of {action.name}:{action.tag} have moved to {row.archive}: the step of line {step} fails",
        (
            guide_evidence(context, "image", f"{action.name}:{action.tag}", action.line),
            table_evidence(row.repository, f"moved: {', '.join(row.versions)}", row.source, row.date),
        ),
        f"Use an image of a supported release, or replace the package servers with {row.archive} first.",
        line=action.line,
    )


@rule("RUN176", kind="guide", severity=("error", "warning"), cause="service-withdrawn", url=IMAGE_TAGS)
def image_names_a_release_that_does_not_exist(context: GuideContext) -> Iterator[Problem]:
    """The tag of an image names a release of torch, vLLM or SGLang that was never made, or a month above 12.

    A warning for the images of vLLM and SGLang, which can have tags of their own. Releases that are newer than the
    tables are not judged. `nvidia/cuda` has no tag `latest`.
    """
    for action in context.actions(UseImage):
        name = public_repository(action.name)
        line = line_of(context, action.line, action.tag)
        month = _NGC_MONTH.match(action.tag) if name == "nvidia/pytorch" else None
        if name == "nvidia/cuda" and action.tag in ("", "latest") and "@" not in action.command:
            reason = "the tag latest was removed, and each image needs a tag with a CUDA release"
            yield _no_such_image(context, action, line, reason, "Name a tag such as 12.8.1-devel-ubuntu22.04.")
        elif month and not 1 <= int(month[1]) <= 12:
            yield _no_such_image(context, action, line, f"a release is a year and a month, {month[1]} is no month",
                                 "Name a release of NVIDIA's catalogue.")  # fmt: skip
        for package, version in _named_releases(name, action.tag).items():
            if nearest := _absent_release(package, version):
                status: Status = "error" if package == "torch" else "warning"
                reason = f"{package} has no release {version}"
                fix = f"Use the image of {package} {nearest}."
                yield replace(_no_such_image(context, action, line, reason, fix), status=status)


def _named_releases(name: str, tag: str) -> dict[str, str]:
    """The releases of packages in the tag of an image of the project itself."""
    contents = image_contents(name, tag) if name in _OF_RELEASES else None
    return {_OF_RELEASES[name]: contents.versions.get(_OF_RELEASES[name], "")} if contents else {}


def _absent_release(package: str, version: str) -> str:
    """The nearest release to one that does not exist; empty for a release, and outside of the table."""
    releases = published_releases(package)
    if not version or not releases or find_release(package, version) or is_older_than_table(package, version):
        return ""
    is_newer = satisfies(version, f">{releases[0].version}") is not False
    nearest = nearest_release(package, version)
    return nearest.version if nearest and not is_newer else ""


def _no_such_image(context: GuideContext, action: UseImage, line: int, reason: str, fix: str) -> Problem:
    image = f"{action.name}:{action.tag}".rstrip(":")
    return Problem(
        "error",
        f"image {image} does not exist: {reason}",
        (guide_evidence(context, "image", image, line),),
        fix,
        line=line,
    )


@rule("RUN119", kind="guide", severity="error", cause="service-withdrawn", url=GIT_PROTOCOL)
def github_no_longer_serves_the_git_protocol(context: GuideContext) -> Iterator[Problem]:
    """GitHub ended the unencrypted git protocol on 2022-03-15: `git clone git://github.com/...` fails."""
    if re.search("insteadof", "\n".join(context.guide.lines), re.IGNORECASE):
        return  # a setting of git replaces the address
    urls = [(each.url, each.url, each.line) for each in context.actions(Clone)]
    for install in context.trace.installs:
        requirements = (*install.action.requirements, *install.action.unknown)
        urls += [(each.url.removeprefix("git+"), each.text, each.line) for each in requirements]
    for url, text, start in urls:
        if url.startswith("git://github.com/"):
            line = line_of(context, start, text)
            yield Problem(
                "error",
                f"`{text}`: GitHub no longer serves git://, and the installation stops",
                (
                    guide_evidence(context, "URL", text, line),
                    table_evidence("git:// of GitHub", "ended on 2022-03-15", GIT_PROTOCOL, "2026-11-26"),
                ),
                f"Use {text.replace('git://', 'https://')}.",
                line=line,
            )
