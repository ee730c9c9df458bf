"""Checks on names: misleading package names, removed commands and modules, tokens, repositories without a tag."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Status
from envdoctor.core.remedies import Install, UserCommand, remedy_of, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.guides import ModulePresence, guide_tables
from envdoctor.knowledge.published import find_release, published_releases
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.actions import Clone, Run
from envdoctor.manifests.checks.absent_releases import iter_requirements
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.checks.missing_packages import is_complete
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.options import parse_options
from envdoctor.manifests.own_names import name_key
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import bounded

HUB_CLI = "https://huggingface.co/docs/huggingface_hub/guides/cli"
_TOKEN = lazy_pattern(r"\b(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9]{20,}|(?<=WANDB_API_KEY=)[0-9a-f]{40})\b")
REMOVED_OPTIONS = lazy_pattern(r" --resume-download\b| --local-dir-use-symlinks(?:[ =](?:True|False|auto)\b)?")
_HUB_1 = "2025-10-27"  # the day of huggingface-hub 1.0.0 on PyPI
_REPOSITORIES = frozenset({
    "transformers", "trl", "peft", "accelerate", "vllm", "verl", "flash-attention", "unsloth", "kernels", "triton",
    "liger-kernel", "bitsandbytes", "datasets", "deepspeed",
})  # fmt: skip


class _MisleadingName(NamedTuple):
    """A name on PyPI that does not refer to the expected package."""

    name: str
    first_missing: int  # major version that does not exist on PyPI; 0 if no version is right
    cause: str
    problem: str
    fix: str
    command: str
    newest_only: bool = False  # older releases are sound, and a requirement may name one


_MISLEADING_NAMES = (
    _MisleadingName(
        "flash-attn",
        3,
        "flash-attn-no-wheel",
        "flash-attn on PyPI ends with 2.8.3.post2 and has no 3.x",
        "FlashAttention 3 is a separate wheel (flash_attn_3, module flash_attn_interface) for one torch release. "
        "Or use the kernels hub: kernels-community/vllm-flash-attn3.",
        "uv pip install flash-attn==2.8.3 --no-build-isolation",
    ),
    _MisleadingName(
        "flash-attn-3",
        0,
        "flash-attn-no-wheel",
        "flash-attn-3 on PyPI is an empty, yanked release 0.0.0",
        "Install a FlashAttention 3 wheel built for this torch by its URL, or use "
        "kernels-community/vllm-flash-attn3.",
        "",
    ),
    _MisleadingName(
        "triton-kernels",
        0,
        "silent-slow-path",
        "triton-kernels 0.1.0 on PyPI is an unrelated package, with which vLLM uses a slower path",
        "Install python/triton_kernels of the triton repository at the tag of your triton release. vLLM 0.12.0 and "
        "newer contain it.",
        "uv pip uninstall triton-kernels",
    ),
    _MisleadingName(
        "pynvml",
        0,
        "nvml-python-conflict",
        "pynvml is deprecated in favour of nvidia-ml-py of NVIDIA",
        "Install nvidia-ml-py.",
        "uv pip install nvidia-ml-py",
    ),
    # Read in the source archives on PyPI on 2026-11-26: sklearn 0.0.post12, pytorch 1.0.2, tensorflow-gpu 2.12.0,
    # skimage 0.0, apex 0.9.10dev.
    _MisleadingName(
        "sklearn", 0, "dependency-pin-violated", "sklearn on PyPI is empty, and its setup.py stops with an error",
        "Install scikit-learn.", "uv pip install scikit-learn", newest_only=True,
    ),
    _MisleadingName(
        "pytorch", 0, "dependency-pin-violated", "pytorch on PyPI is empty, and its setup.py stops with an error",
        "Install torch.", "uv pip install torch",
    ),
    _MisleadingName(
        "tensorflow-gpu", 0, "dependency-pin-violated",
        "tensorflow-gpu was removed: the setup.py of its last release, 2.12.0, stops with an error",
        "Install tensorflow, which has the same content since 2.1.", "uv pip install tensorflow", newest_only=True,
    ),
    _MisleadingName(
        "skimage", 0, "dependency-pin-violated", "skimage on PyPI is empty, and its setup.py stops with an error",
        "Install scikit-image.", "uv pip install scikit-image",
    ),
    _MisleadingName(
        "apex", 0, "dependency-pin-violated", "apex on PyPI is a toolkit for the web framework Pyramid, not NVIDIA's",
        "Install NVIDIA's from its repository, without build isolation.",
        "MAX_JOBS=4 uv pip install --no-build-isolation git+https://github.com/NVIDIA/apex.git",
    ),
)  # fmt: skip


@rule("RUN060", kind="guide", severity=("error", "warning", "info"), cause="dependency-pin-violated")
def package_name_refers_to_another_package(context: GuideContext) -> Iterator[Problem]:
    """The name on PyPI is an empty, unrelated or deprecated package. The guide means another one.

    Not reported where the guide clones the project of this name: pip keeps what is built from it.
    """
    cloned = {clone.project for clone in context.actions(Clone) if clone.url}
    for install, requirement, line in iter_requirements(context):
        if requirement.name in cloned:
            continue
        for row in _MISLEADING_NAMES if install.action.tool != "conda" else ():
            if row.newest_only and requirement.specifier:
                continue
            if requirement.name != row.name or _major_version(requirement.specifier) < row.first_missing:
                continue
            newest = next(iter(published_releases(row.name)), None)
            is_known = bool(newest and requirement.pin) and not row.first_missing
            if is_known and not find_release(row.name, requirement.pin):
                continue  # a release that PyPI does not have comes from another index
            listed = f"newest {newest.version}" if newest else row.problem
            yield Problem(
                "info" if row.name == "pynvml" else "error",  # it works, next to nvidia-ml-py from release 12 on
                f"`{requirement.text}`: {row.problem}",
                (
                    guide_evidence(context, row.name, requirement.text, line),
                    table_evidence(row.name, listed, "release list of PyPI", newest.date if newest else "2026-11-26"),
                ),
                row.fix,
                steps(row.command) if row.command else (),
                line=line,
                cause=row.cause,
            )


def _major_version(specifier: str) -> int:
    """The lowest major version in a specifier; 0 if it has no lower bound."""
    match = re.search(r"(?:>=|==|~=|>)\s*(\d+)", specifier)
    return int(match[1]) if match else 0


_WITHOUT_HUB = ", which is part of huggingface-hub: no step installs it"


@rule("RUN061", kind="guide", severity=("error", "warning", "info"), cause="hub-auth", url=HUB_CLI)
def huggingface_cli_was_removed(context: GuideContext) -> Iterator[Problem]:
    """huggingface-hub 1.x has no huggingface-cli. The commands are `hf auth login` and `hf download`."""
    hub = context.version("huggingface-hub")
    if (hub and satisfies(hub, "<1.0")) or (not hub and _project_is_older(context, _HUB_1)):
        return
    is_solved = all(each.resolution.state == "solved" for each in context.trace.installs)
    lacks_hub = not hub and is_solved and is_complete(context)
    install = [Install(packages=("huggingface-hub",))] if lacks_hub else []
    for command in context.guide.commands:
        if "huggingface-cli" not in command.words[:2]:
            continue
        line = line_of(context, command.line, "huggingface-cli")
        text = str(command)
        new = re.sub(r"huggingface-cli (login|whoami)", r"hf auth \1", text)
        new = REMOVED_OPTIONS.sub("", new.replace("huggingface-cli", "hf")).partition(" --token")[0]
        yield Problem(
            _status_without_cli(context, hub),
            "huggingface-cli was removed in huggingface-hub 1.x"
            + (f"; the guide would install {hub}" if hub else ""),
            (
                guide_evidence(context, "command", _TOKEN.sub("(token)", text), line),
                table_evidence("huggingface-cli", "removed in 1.x", HUB_CLI, "2026-11-21"),
            ),
            f"Use {_TOKEN.sub('$HF_TOKEN', new)}{_WITHOUT_HUB if lacks_hub else ''}.",
            (remedy_of([*install, UserCommand(command=_TOKEN.sub("$HF_TOKEN", new))]),),
            line=line,
        )


def _status_without_cli(context: GuideContext, hub: str) -> Status:
    """Of a command without huggingface-cli: what the guide does not show can limit huggingface-hub.

    A script that installs nothing uses an environment that its project can have limited.
    """
    if is_complete(context):
        return "error" if hub else "warning"
    is_script = not context.guide.name.lower().endswith((".md", ".rst", ".txt"))
    return "info" if hub or context.trace.installs or is_script else "warning"


def _project_is_older(context: GuideContext, day: str) -> bool:
    """Whether a project that the guide does not show can limit packages: all its pins are from before a day."""
    urls = [each.url for install in context.trace.installs for each in install.action.requirements]
    is_unknown = any(re.match(r"\.{1,2}(?:/|\[|$)", url) for url in urls)
    pins = [each for _, each, _ in iter_requirements(context) if each.pin]
    releases = [release for each in pins if (release := find_release(each.name, public_part(each.pin)))]
    return is_unknown and bool(releases) and all(release.date < day for release in releases)


@rule(
    "RUN062",
    kind="guide",
    severity="warning",
    cause="hub-auth",
    url="https://huggingface.co/docs/hub/security-tokens",
)
def token_is_on_the_command_line(context: GuideContext) -> Iterator[Problem]:
    """A token on a command line is visible in the shell history, in process lists and in the guide."""
    for command in context.guide.commands:
        words = [*command.words, *(f"{name}={value}" for name, value in command.assignments)]
        options = parse_options(tuple(words), with_value=frozenset({"--token"}))
        token = options.last("--token")
        is_variable = re.search(r"--token[ =][\"']?\$", context.guide.lines[command.line - 1])  # set by an export
        is_literal = bool(token) and not token.startswith(("$", "<", "{", "%")) and not is_variable
        is_key = command.words[:2] == ("wandb", "login") and re.fullmatch(r"[0-9a-f]{40}", command.words[-1])
        if not is_literal and not is_key and not any(_TOKEN.search(word) for word in words):
            continue
        line = line_of(context, command.line, "token" if is_literal else "hf_")
        login, variable = ("wandb login", "WANDB_API_KEY") if is_key else ("hf auth login", "HF_TOKEN")
        yield Problem(
            "warning",
            "a token is on the command line, where it is visible in the shell history and in process lists",
            (guide_evidence(context, "command", _TOKEN.sub("(token)", command.name), line),),
            f"Log in with `{login}`, which prompts for it, or read {variable} from a file with mode 600.",
            steps(login),
            line=line,
        )


@rule(
    "RUN063",
    kind="guide",
    severity=("warning", "info"),
    cause="dependency-pin-violated",
    url="https://pip.pypa.io/en/stable/topics/vcs-support/",
)
def repository_has_no_tag(context: GuideContext) -> Iterator[Problem]:
    """`git+https://...` without a tag installs the current main branch.

    A note if the guide installs nothing else, or is one of this repository.
    """
    checkout = context.guide.checkout
    own = checkout.own_names("\n".join(context.guide.lines)) if checkout else frozenset()
    named = {each.text for install in context.trace.installs for each in install.action.requirements}
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            tail = requirement.url.partition("#")[0].rpartition("/")[2].removesuffix(".git")
            if requirement.url.startswith("git+") and "@" not in tail and tail.lower() in _REPOSITORIES:
                line = line_of(context, requirement.line, requirement.text)
                yield Problem(
                    "warning" if len(named) > 1 and name_key(tail) not in own else "info",
                    f"`{requirement.text}` has no tag: it installs the current main branch",
                    (guide_evidence(context, "URL", requirement.url, line),),
                    f"Add the tag of a release: {requirement.url.partition('#')[0]}@vX.Y.Z, or install it from PyPI.",
                    line=line,
                )


@rule(
    "RUN064",
    kind="guide",
    severity="error",
    cause="library-too-old",
    url="https://github.com/volcengine/verl/releases",
)
def module_does_not_exist_in_this_release(context: GuideContext) -> Iterator[Problem]:
    """The guide runs a module that its release does not have, or a script of `examples/`, which no wheel contains."""
    is_cloned = any("verl" in action.url for action in context.actions(Clone))
    is_installed = any(requirement.name == "verl" for _, requirement, _ in iter_requirements(context))
    for action in context.actions(Run):
        for row in guide_tables().module:
            version = context.version(row.package) or _cloned_release(context, row.package)
            runs_module = row.name in " ".join((action.module, *action.words))
            if runs_module and not satisfies(version or _newest(row.package), row.present):
                yield _missing_module(context, action, row, version)
        script = next((word for word in action.words if re.match(r"(?:\./)?examples/\S+\.(?:sh|py)$", word)), "")
        if script and is_installed and not is_cloned:
            line = line_of(context, action.line, script)
            yield Problem(
                "error",
                f"{script} does not exist: the wheels of verl do not contain examples/",
                (
                    guide_evidence(context, "script", script, line),
                    table_evidence("examples/", "not in the wheels", "files of verl's wheels on PyPI", "2026-11-21"),
                ),
                "Clone the repository at the tag of the installed release.",
                steps(
                    shell_command(
                        "git clone --branch v{} --depth 1 https://github.com/volcengine/verl",
                        context.version("verl") or "X.Y.Z",
                    )
                ),
                line=line,
            )


def _newest(package: str) -> str:
    return next((row.version for row in published_releases(package)), "")


def _missing_module(context: GuideContext, action: Run, row: ModulePresence, version: str) -> Problem:
    """The finding on a module, with the requirement that names no version if there is one."""
    line = line_of(context, action.line, row.name)
    is_gone = row.present.startswith("<")
    state = (
        f"is gone from {row.package} {row.present.lstrip('<=')} on"
        if is_gone
        else f"needs {row.package}{row.present}"
    )
    requirements = (r for _, r, _ in iter_requirements(context) if r.name == row.package)
    unpinned = next((requirement.text for requirement in requirements if not requirement.specifier), "")
    installs = f"the guide would install {version}" if version else f"no step names a version of {row.package}"
    return Problem(
        "error",
        f"{row.name} {state}; {installs}" + (f", because `{unpinned}` names no version" if unpinned else ""),
        (
            guide_evidence(context, "module", row.name, line),
            table_evidence(row.name, row.present, row.source, row.date),
        ),
        f"Name a version: {row.package}{row.present}. Or use {row.instead}.",
        install_step(f"{row.package}{bounded(row.present)}"),
        line=line,
        cause="dependency-pin-violated" if is_gone else "library-too-old",
    )


def _cloned_release(context: GuideContext, package: str) -> str:
    """The release of a cloned repository: its tag, or for the main branch the newest one; empty without a clone."""
    clones = context.actions(Clone)
    if not any(package in action.url.rpartition("/")[2] for action in clones):
        return ""
    tag = next((action.reference for action in clones if re.fullmatch(r"v?\d+(?:\.\d+)+\S*", action.reference)), "")
    return tag.removeprefix("v") or _newest(package)


_INEFFECTIVE_CHECKS = (
    (
        lazy_pattern(r"import\s+flash_attn_3\b"),
        "import flash_attn_3",
        "the module of FlashAttention 3 is flash_attn_interface",
        'python -c "from flash_attn_interface import flash_attn_func"',
    ),
    (
        lazy_pattern(r"^bitsandbytes$"),
        "python -m bitsandbytes",
        "it exits with 0 without a GPU, and without its native library",
        "envdoctor verify",
    ),
)


@rule(
    "RUN065",
    kind="guide",
    severity="warning",
    cause="silent-wrong-result",
    url="https://huggingface.co/docs/bitsandbytes/installation",
)
def sanity_check_is_ineffective(context: GuideContext) -> Iterator[Problem]:
    """The check of the guide does not depend on working kernels."""
    runs = [(action.line, action.code or action.module, action.command) for action in context.actions(Run)]
    runs += [(number, text, text.strip()) for block in context.guide.python_blocks for number, text in block]
    for start, code, shown in runs:
        for pattern, command, reason, replacement in _INEFFECTIVE_CHECKS:
            if pattern.search(code):
                line = line_of(context, start, command.removeprefix("python "))
                yield Problem(
                    "warning",
                    f"`{command}` does not verify the installation: {reason}",
                    (guide_evidence(context, "check", shown, line),),
                    "Call a kernel, or run `envdoctor verify`.",
                    steps(replacement),
                    line=line,
                )
