"""Checks on packages that a guide uses or promises, and that no step installs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.guides import PackageUse, guide_tables
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.actions import Clone, LoadModules, SelectEnvironment, UseImage
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, table_evidence
from envdoctor.manifests.container_files import script_of
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.image_stages import image_stages
from envdoctor.manifests.markdown import Line
from envdoctor.rules.registry import Problem, rule

# Packages that install many others, which the tables do not have.
_BUNDLES = frozenset(
    {
        "unsloth",
        "openrlhf",
        "axolotl",
        "ms-swift",
        "llamafactory",
        "llama-factory",
        "open-r1",
        "nemo-toolkit",
        "skyrl",
    }
)
_BARE_IMAGES = lazy_pattern(r"(?:^|/)(?:nvidia/cuda|ubuntu|debian|rockylinux|python|almalinux|uv)\b")
_INSTALLS_UNKNOWN = lazy_pattern(
    r"\binstall\s+(?:\S+\s+){0,200}\.(?:\[|/|\s|$)|\s(?:-e|--editable)[ =]|\buv sync\b|\bpoetry install\b"
    r"|\benv (?:create|update)\b|\bsetup\.py\b|\bpixi install\b|\bmake\b"
    r"|(?:\b(?:bash|sh|source)\s+|^\.?/?(?=\S*/))\S*(?:install|setup|env|deps|build)\S*\.sh\b"
)
_NGC_PACKAGES = frozenset({"torch", "torchvision", "flash-attn", "transformer-engine", "apex", "triton", "numpy"})
_PROMISE = lazy_pattern(
    r"\b(?:stack|installs?|includes?|contains?|comes? with|ships?|bundles?|environment (?:has|with)|consists of|"
    r"installiert|enthält|umfasst|包含|安装了)\b",
    re.IGNORECASE,
)
_NEGATION = lazy_pattern(
    r"\b(?:not|no|without|never|instead|unlike|avoid|optional(?:ly)?|if you|later|future|supports?|nicht|ohne)\b"
    r"|不|没有|\binstall\s",
    re.IGNORECASE,
)


# The rest of an install command whose line above has no backslash.
_REQUIREMENT = lazy_pattern(r"\s*[\w.-]+(?:\[[\w,]*\])?[=<>~!]=")


@rule(
    "RUN066",
    kind="guide",
    severity=("warning", "info"),
    cause="dependency-pin-violated",
    url="https://packaging.python.org/en/latest/tutorials/installing-packages/",
)
def package_is_used_but_not_installed(context: GuideContext) -> Iterator[Problem]:
    """A command, Python code or a variable needs a package that no step of the guide installs.

    A package that only the text promises is a note.
    """
    if not is_complete(context) or _has_unread_dependencies(context):
        return
    installed = _installed_names(context)
    reported: set[str] = set()
    for use in guide_tables().use:
        hub = context.version("huggingface-hub")
        if use.package in installed or (use.package == "hf-transfer" and satisfies(hub or "1", ">=1")):
            continue
        if use.is_common_dependency and (not _is_closed(context) or _is_in_prose(context, use.package)):
            continue  # another package can require it, or the text names another way to install it
        code = (line for line in _code_lines(context) if not _REQUIREMENT.match(line[1]))
        line = next((line for line in code if re.search(use.pattern, line[1])), None)
        if line and use.package not in reported and not _is_listed(context, use.package):
            reported.add(use.package)
            yield _problem(context, use, line, "warning", f"`{line[1].strip()[:80]}` needs {use.package}")
    for use in guide_tables().use:
        if use.package in installed or use.package in reported or not use.spelling:
            continue
        line = next((line for line in _promises(context) if re.search(rf"(?i)\b(?:{use.spelling})\b", line[1])), None)
        if line:
            reported.add(use.package)
            yield _problem(context, use, line, "info", f"the text promises {use.package}")


def _is_listed(context: GuideContext, package: str) -> bool:
    """Whether an item of a list states the package as a requirement: "- `flash-attn>=2.6.3`"."""
    name = re.escape(package).replace(r"\-", "[-_ ]?")
    return any(re.match(rf"(?i)\s*(?:[-*+]|\d+[.)])\s+[`*_]*{name}(?![\w-])", text) for text in context.guide.lines)


def _problem(context: GuideContext, use: PackageUse, line: Line, status: str, text: str) -> Problem:
    return Problem(
        "warning" if status == "warning" else "info",
        f"{text}, and no step installs it",
        (
            guide_evidence(context, use.package, line[1].strip()[:120], line[0]),
            table_evidence(use.package, "not a dependency of what is installed", use.source, use.date),
        ),
        f"Install {use.package} in an earlier step."
        if status == "warning"
        else f"Add a step that installs {use.package}.",
        install_step(use.package),
        line=line[0],
    )


def is_complete(context: GuideContext) -> bool:
    """Whether the packages are known: no step installs a project, a file or a script that the guide does not show."""
    installs = context.trace.installs
    if not installs or any(_INSTALLS_UNKNOWN.search(command.text) for command in context.guide.commands):
        return False
    if any(
        not step.action.requirements and re.search(r" -r\b| --requirement", step.action.command) for step in installs
    ):
        return False
    images = (action for action in context.actions(UseImage) if action.is_entered)
    if any(not _BARE_IMAGES.search(action.name) and "nvidia/pytorch" not in action.name for action in images):
        return False
    names = {requirement.name for install in installs for requirement in install.action.requirements}
    return bool(names) and not names & _BUNDLES


def _has_unread_dependencies(context: GuideContext) -> bool:
    """Whether a package without a solver's set is not in the tables, which then lack its requirements."""
    unsolved = (each for each in context.trace.installs if each.resolution.state not in ("solved", "partial"))
    names = {part.name for each in unsolved if each.action.tool != "conda" for part in each.action.requirements}
    return any(not published_releases(name) for name in names if name)


def _installed_names(context: GuideContext) -> set[str]:
    """The packages of all environments, the names and extras that steps install, and cloned repositories."""
    names = {name for environment in context.environments for name in environment.state.packages}
    names |= {each.name for each in context.guide.left_out} | context.guide.of_project
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            names |= {requirement.name, *requirement.extras}
    names |= {clone.project for clone in context.actions(Clone) if clone.url}
    if any("nvidia/pytorch" in action.name for action in context.actions(UseImage)):
        names |= _NGC_PACKAGES
    return names | ({"flash-attn"} if names & {"flash-attention", "flash-attn-3"} else set())


def _code_lines(context: GuideContext) -> Iterator[Line]:
    """Commands that are no installations, Python code, and configuration files."""
    for command in context.guide.commands:
        if "install" not in command.words[:4] and command.name not in ("echo", "printf"):
            yield command.line, command.text
    for stage in image_stages(context.guide.blocks):
        for each in stage.instructions:
            yield from script_of(each) if each.name in ("CMD", "ENTRYPOINT") else ()
    for lines in context.guide.python_blocks:
        yield from ((number, text.partition("#")[0]) for number, text in lines)
    for block in context.guide.blocks:
        if block.language in ("yaml", "yml", "json", "ini"):
            yield from block.lines


def _is_closed(context: GuideContext) -> bool:
    """Whether all packages of the environment are known: it is new, and each step is solved with an index."""
    is_new = any(each.new for each in context.actions(SelectEnvironment)) or bool(context.actions(UseImage))
    steps = [install.action for install in context.trace.installs]
    is_unknown = any(
        each.unknown or "$" in each.command or any(part.url and not part.wheel for part in each.requirements)
        for each in steps
    )
    return is_new and not is_unknown and context.index_facts is not None and not context.actions(LoadModules)


def _is_in_prose(context: GuideContext, package: str) -> bool:
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    prose = (text for number, text in enumerate(context.guide.lines, 1) if number not in code)
    return any(package.replace("-", "") in re.sub(r"[-_ ]", "", text).lower() for text in prose)


def _promises(context: GuideContext) -> Iterator[Line]:
    """Sentences of the text that promise packages."""
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    for number, text in enumerate(context.guide.lines, 1):
        if number not in code and _PROMISE.search(text) and not _NEGATION.search(text):
            yield number, text
