"""Checks on names: packages that are not what they seem, commands and modules that are gone, tokens in the open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.knowledge.guides import guide_tables
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.actions import Clone, Run
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.pins import iter_requirements
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

HUB_CLI = "https://huggingface.co/docs/huggingface_hub/guides/cli"
_TOKEN = re.compile(r"\b(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9]{20,}|[0-9a-f]{40})\b")
_REPOSITORIES = frozenset({"transformers", "trl", "peft", "accelerate", "vllm", "verl", "flash-attention",
"unsloth", "kernels",
                           "triton", "liger-kernel", "bitsandbytes", "datasets", "deepspeed"})  # fmt: skip


class _Namesake(NamedTuple):
    name: str
    versions: str  # specifier of what is requested for; empty: any
    cause: str
    what: str
    fix: str
    command: str


_NAMESAKES = (
    _Namesake(
        "flash-attn",
        ">=3",
        "flash-attn-no-wheel",
        "flash-attn on PyPI ends with 2.8.3.post2 and has no 3.x",
        "FlashAttention 3 is a wheel of its own (flash_attn_3, module flash_attn_interface) made for one torch; "
        "or use the kernels hub: kernels-community/vllm-flash-attn3.",
        "uv pip install flash-attn==2.8.3 --no-build-isolation",
    ),
    _Namesake(
        "flash-attn-3",
        "",
        "flash-attn-no-wheel",
        "flash-attn-3 on PyPI is one yanked, empty 0.0.0",
        "Install a FlashAttention 3 wheel built for this torch by its address, or use "
        "kernels-community/vllm-flash-attn3.",
        "",
    ),
    _Namesake(
        "triton-kernels",
        "",
        "silent-slow-path",
        "triton-kernels 0.1.0 on PyPI is an unrelated package: vLLM then takes a slower path",
        "Take python/triton_kernels of the triton repository at the tag of your triton; vLLM 0.12.0 and newer "
        "bring it.",
        "uv pip uninstall triton-kernels",
    ),
    _Namesake(
        "pynvml",
        "",
        "nvml-python-conflict",
        "pynvml is a deprecated name; NVIDIA's binding is nvidia-ml-py",
        "Install nvidia-ml-py.",
        "uv pip install nvidia-ml-py",
    ),
)


@rule("RUN060", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated")
def package_is_not_what_its_name_says(context: GuideContext) -> Iterator[Problem]:
    """A name on PyPI that is empty, unrelated or deprecated stands where another package is meant."""
    for _, requirement, line in iter_requirements(context):
        for row in _NAMESAKES:
            if requirement.name != row.name or (
                row.versions and not _only_above(requirement.specifier, row.versions)
            ):
                continue
            newest = published_releases(row.name)[0]
            yield Problem(
                "warning" if row.name == "pynvml" else "error",
                f"`{requirement.text}`: {row.what}",
                (
                    guide_evidence(context, row.name, requirement.text, line),
                    table_evidence(row.name, f"newest {newest.version}", "release list of PyPI", newest.date),
                ),
                row.fix,
                (row.command,) if row.command else (),
                line=line,
                cause=row.cause,
            )


def _only_above(specifier: str, limit: str) -> bool:
    """Whether a range admits nothing below its limit: no release of the list lies in it, and it asks for a 3."""
    found = re.search(r"(?:>=|==|~=|>)\s*(\d+)", specifier)
    return bool(found and int(found[1]) >= int(limit.strip(">=")))


@rule("RUN061", kind="guide", severity=("error", "warning"), cause="hub-auth", url=HUB_CLI)
def command_is_gone_from_the_hub_library(context: GuideContext) -> Iterator[Problem]:
    """huggingface-cli is gone from huggingface-hub 1.x: `hf auth login`, `hf download`."""
    hub = context.version("huggingface-hub")
    if hub and satisfies(hub, "<1.0"):
        return
    for command in context.guide.commands:
        if "huggingface-cli" not in command.words[:2]:
            continue
        line = line_of(context, command.line, "huggingface-cli")
        text = str(command)
        new = text.replace("huggingface-cli login", "hf auth login").replace(
            "huggingface-cli whoami", "hf auth whoami"
        )
        new = new.replace("huggingface-cli", "hf").partition(" --token")[0]
        yield Problem(
            "error" if hub else "warning",
            "huggingface-cli is gone from huggingface-hub 1.x" + (f"; the guide ends up with {hub}" if hub else ""),
            (
                guide_evidence(context, "command", _TOKEN.sub("(token)", text), line),
                table_evidence("huggingface-cli", "gone in 1.x", HUB_CLI, "2026-11-21"),
            ),
            f"Write {_TOKEN.sub('$HF_TOKEN', new)}.",
            (_TOKEN.sub("$HF_TOKEN", new),),
            line=line,
        )


@rule(
    "RUN062",
    kind="guide",
    severity="warning",
    cause="hub-auth",
    url="https://huggingface.co/docs/hub/security-tokens",
)
def token_is_typed_in_the_open(context: GuideContext) -> Iterator[Problem]:
    """A token on a command line stays in the shell's history, in process lists and in the guide itself."""
    for command in context.guide.commands:
        words = [*command.words, *(f"{name}={value}" for name, value in command.assignments)]
        typed = any(_TOKEN.search(word) for word in words)
        given = next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "--token"), "")
        given = given or next((word.partition("=")[2] for word in words if word.startswith("--token=")), "")
        plain = bool(given) and not given.startswith(("$", "<", "{", "%"))
        if not typed and not plain:
            continue
        line = line_of(context, command.line, "token" if plain else "hf_")
        yield Problem(
            "warning",
            "a token is typed on the command line, where history and process lists keep it",
            (guide_evidence(context, "command", _TOKEN.sub("(token)", command.name), line),),
            "Log in with `hf auth login`, which asks for it, or read HF_TOKEN from a file that only you can read.",
            ("hf auth login",),
            line=line,
        )


@rule(
    "RUN063",
    kind="guide",
    severity="warning",
    cause="dependency-pin-violated",
    url="https://pip.pypa.io/en/stable/topics/vcs-support/",
)
def repository_is_taken_without_a_tag(context: GuideContext) -> Iterator[Problem]:
    """`git+https://...` without a tag installs whatever the main branch is today."""
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            tail = requirement.url.partition("#")[0].rpartition("/")[2].removesuffix(".git")
            if requirement.url.startswith("git+") and "@" not in tail and tail.lower() in _REPOSITORIES:
                line = line_of(context, requirement.line, requirement.text)
                yield Problem(
                    "warning",
                    f"`{requirement.text}` has no tag: it installs the main branch of the day",
                    (guide_evidence(context, "address", requirement.url, line),),
                    f"Add the release: {requirement.url.partition('#')[0]}@vX.Y.Z, or install it from PyPI.",
                    line=line,
                )


@rule(
    "RUN064",
    kind="guide",
    severity="error",
    cause="library-too-old",
    url="https://github.com/volcengine/verl/releases",
)
def module_is_not_in_this_release(context: GuideContext) -> Iterator[Problem]:
    """A module is started that the guide's release does not have, or a script of `examples/` that no wheel
    carries.
    """
    cloned = any(isinstance(action, Clone) and "verl" in action.url for action in context.guide.actions)
    installed = any(
        requirement.name == "verl" and not requirement.url for _, requirement, _ in iter_requirements(context)
    )
    for action in context.guide.actions:
        if not isinstance(action, Run):
            continue
        for row in guide_tables().module:
            version = context.version(row.package) or _cloned_release(context, row.package)
            if (
                row.name not in " ".join((action.module, *action.words))
                or not version
                or satisfies(version, row.present)
            ):
                continue
            line = line_of(context, action.line, row.name)
            yield Problem(
                "error",
                f"{row.name} is not in {row.package} {version}; releases {row.present} have it",
                (
                    guide_evidence(context, "module", row.name, line),
                    table_evidence(row.name, row.present, row.source, row.date),
                ),
                f"Use {row.instead}, or pin {row.package}{row.present}.",
                (f"uv pip install '{row.package}{row.present}'",),
                line=line,
                cause="library-too-old" if row.present.startswith(">") else "dependency-pin-violated",
            )
        script = next((word for word in action.words if re.match(r"(?:\./)?examples/\S+\.(?:sh|py)$", word)), "")
        if script and installed and not cloned:
            line = line_of(context, action.line, script)
            yield Problem(
                "error",
                f"{script} is not there: verl's wheels do not carry examples/",
                (
                    guide_evidence(context, "script", script, line),
                    table_evidence("examples/", "not in the wheels", "files of verl's wheels on PyPI", "2026-11-21"),
                ),
                "Clone the repository at the tag of the installed release.",
                (
                    f"git clone --branch v{context.version('verl') or 'X.Y.Z'} --depth 1 https://github.com/volcengine/verl",
                ),
                line=line,
            )


def _cloned_release(context: GuideContext, package: str) -> str:
    """The release that a clone stands for: its tag, or the newest one for the main branch; empty without a clone."""
    clones = [action for action in context.guide.actions if isinstance(action, Clone)]
    if not any(package in action.url.rpartition("/")[2] for action in clones):
        return ""
    tag = next((action.reference for action in clones if re.fullmatch(r"v?\d+(?:\.\d+)+\S*", action.reference)), "")
    return tag.removeprefix("v") or next((row.version for row in published_releases(package)), "")


_EMPTY_PROOFS = (
    (
        re.compile(r"import\s+flash_attn_3\b"),
        "import flash_attn_3",
        "FlashAttention 3's module is flash_attn_interface",
        'python -c "from flash_attn_interface import flash_attn_func"',
    ),
    (
        re.compile(r"^bitsandbytes$"),
        "python -m bitsandbytes",
        "it exits with 0 without a GPU and with its native library missing",
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
def sanity_check_proves_nothing(context: GuideContext) -> Iterator[Problem]:
    """A check passes although what it is meant to show does not work."""
    for action in context.guide.actions:
        if not isinstance(action, Run):
            continue
        for pattern, shown, why, better in _EMPTY_PROOFS:
            if pattern.search(action.code or action.module):
                line = line_of(context, action.line, shown.removeprefix("python "))
                yield Problem(
                    "warning",
                    f"`{shown}` proves nothing: {why}",
                    (guide_evidence(context, "check", action.command, line),),
                    "Call a kernel instead, or run `envdoctor verify`.",
                    (better,),
                    line=line,
                )
