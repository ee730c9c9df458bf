"""What a trial does for one environment of a file: its steps in their order, and the modules to import."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import dedent
from typing import Literal, NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.forecast.uses import imported_tops, uses_of_module
from envdoctor.manifests.actions import Install, Run
from envdoctor.manifests.environment_state import IMAGE_ORIGIN, EnvironmentState
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.inputs.records import PackageSet
from envdoctor.manifests.interpreter import GuideTrace, InstallStep
from envdoctor.manifests.trial_records import Untried
from envdoctor.package_index.python_modules import parse_source
from envdoctor.resolution.requirement import InstallRequirement

Seed = Literal["conda", "venv", ""]  # what the environment contains at its start: empty: nothing

# Packages of conda that provide no module of a stack: an environment is tried without them.
_CONDA_TOOLS = lazy_pattern(
    r"python|pip|setuptools|wheel|(?:pytorch-)?cuda(?:-.*|toolkit.*)?|cudatoolkit.*|cudnn|nccl|mkl.*|blas|openblas|ninja"
    r"|make|cmake|git(?:-lfs)?|gcc.*|gxx.*|g\+\+.*|compilers|c-compiler|cxx-compiler|binutils.*|sysroot.*|ffmpeg|libgl.*"
    r"|nodejs|rust|cargo|pkg-config|wget|curl|tmux|vim|htop|unzip|ipykernel|jupyter.*|notebook|nvtop|openssh|uv"
    r"|lib.*|[_-].*|ld[_-]impl.*|ca-certificates|openssl|ncurses|readline|sqlite|tk|tzdata|xz|zlib|bzip2"
)
_BARE_IMAGE = lazy_pattern(
    r"(?:^|/)(?:nvidia/cuda|ubuntu|debian|rockylinux|almalinux|python|miniconda3?|uv|micromamba)$"
)
_WITHOUT_LIBRARIES = lazy_pattern(r"(?:^|/)(?:nvidia/cuda|ubuntu|debian)$|(?:^|/)python:.*slim")
# Variables that would change what runs instead of how a package is built or imported.
_REFUSED_VARIABLES = lazy_pattern(
    r"(?:LD|UV|PIP|PYTHON|GIT|BASH|SSL|XDG|CONDA|SSH|NODE|CURL|REQUESTS|VIRTUAL)_?.*|.*(?:PROXY|proxy)|PATH|HOME|TMPDIR"
    r"|SHELL|ENV|IFS|USER|CC|CXX|NVCC|AR|LD|CFLAGS|CXXFLAGS|LDFLAGS|CUDA_VISIBLE_DEVICES|.*(?:TOKEN|SECRET|KEY|PASSWORD).*"
)
_PYPI = lazy_pattern(r"https?://[^/]*pypi[^/]*/(?:.*/)?simple/?$|https?://(?:mirrors?\.|pypi\.)[^/]+/.*simple/?$")


class PlannedStep(NamedTuple):
    """One call of uv. `lines` are requirements in the notation of a requirements file, each with its line."""

    line: int
    command: str
    lines: tuple[tuple[str, int], ...]
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()  # options for indexes other than the configured ones
    variables: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()  # packages to uninstall before it
    built_with_torch: frozenset[str] = frozenset()  # packages whose build has the torch of the environment


class PlannedImport(NamedTuple):
    """A module and names of it that a program of the file uses."""

    module: str
    names: tuple[str, ...]
    line: int

    @property
    def text(self) -> str:
        """The import in a message: `trl.GRPOConfig`."""
        return ".".join(filter(None, (self.module, next(iter(self.names), ""))))


class TrialPlan(NamedTuple):
    """The trial of one environment."""

    branch: str
    platform: str
    python: str
    steps: tuple[PlannedStep, ...]
    imports: tuple[PlannedImport, ...]
    seed: Seed
    untried: tuple[Untried, ...] = ()
    obstacle: str = ""  # why it cannot be tried
    variables: tuple[tuple[str, str], ...] = ()
    is_system_known: bool = False  # the base image has no libraries but those that the file installs
    toolkit: str = ""
    system_packages: frozenset[str] = frozenset()
    driver: str = ""
    is_seed_newest: bool = True  # the newest setuptools; else that which comes with the Python
    is_seed_unknown: bool = False  # the file does not state what creates the environment

    @property
    def target(self) -> str:
        """The platform and the Python in words."""
        return f"{self.platform}, Python {self.python}"

    @property
    def key(self) -> tuple[object, ...]:
        """Environments with the same key install and import the same."""
        return self.platform, self.python, self.steps, self.imports, self.seed


def plans_of_traces(traces: Sequence[tuple[Guide, GuideTrace]]) -> list[TrialPlan]:
    """The plans of all paths through a file, each environment once."""
    plans: dict[tuple[object, ...], TrialPlan] = {}
    for guide, trace in traces:
        for plan in _plans_of_path(guide, trace):
            plans.setdefault(plan.key, plan)
    return list(plans.values())


def plans_of_sets(sets: Sequence[PackageSet], python: str) -> list[TrialPlan]:
    """The plans of the package sets of a lock. Packages of conda, of repositories and of folders are not tried."""
    plans = []
    for each in sets:
        lines = tuple((f"{p.name}=={p.version}", p.line) for p in each.packages if p.origin == "PyPI" and p.version)
        others = [p for p in each.packages if p.origin != "PyPI"]
        untried = tuple(Untried(what=p.name, reason=f"it comes from {p.origin}", line=p.line) for p in others)
        conda = any(p.origin == "conda" and not _CONDA_TOOLS.fullmatch(p.name) for p in others)
        step = PlannedStep(0, "the packages of the lock", lines, options=("--no-deps",))
        plans.append(TrialPlan(
            each.label, each.platform, each.python or python, (step,) if lines else (), (), "",
            untried, "its packages come from channels of conda" if conda else "",
        ))  # fmt: skip
    return plans


def _plans_of_path(guide: Guide, trace: GuideTrace) -> Iterator[TrialPlan]:
    branch = ", ".join(each.name for each in guide.branches)
    chains = _chains(trace.installs)
    imports = tuple(_imports_of(guide))
    for chain in chains:
        yield _plan_of_chain(chain, trace, branch, imports)


def _key(state: EnvironmentState) -> tuple[str, str, str, int]:
    return state.tool if state.tool == "conda" else "", state.name, state.image, state.image_line


def _chains(installs: Sequence[InstallStep]) -> list[list[InstallStep]]:
    """The steps of each environment. A stage of a Dockerfile begins with the steps of its base stage."""
    chains: list[list[InstallStep]] = []
    for install in installs:
        same = [chain for chain in chains if _key(chain[-1].after) == _key(install.before)]
        following = [chain for chain in same if chain[-1].after.packages is install.before.packages]
        branching = [
            chain[: number + 1]
            for chain in same
            for number, step in enumerate(chain[:-1])
            if step.after.packages is install.before.packages
        ]
        if following or (same and not branching):
            (following or same)[-1].append(install)
        else:
            chains.append([*(branching[-1] if branching else ()), install])
    return chains


def _plan_of_chain(
    chain: Sequence[InstallStep], trace: GuideTrace, branch: str, imports: tuple[PlannedImport, ...]
) -> TrialPlan:
    first, last = chain[0].before, chain[-1].after
    steps: list[PlannedStep] = []
    untried: list[Untried] = []
    installed: dict[str, object] = {}
    for install in chain:
        action = install.action
        removed = tuple(name for name in installed if name not in install.before.packages)
        installed = dict(install.after.packages)
        if action.tool == "conda":
            continue
        step, omitted = _planned_step(install, removed)
        untried += omitted
        if step:
            steps.append(step)
    variables = {name: value for install in chain for name, value in _variables(install.variables)}
    is_bare = bool(_BARE_IMAGE.search(last.image.partition(":")[0])) if last.image else False
    python = re.match(r"3\.\d+", chain[-1].before.python or trace.python)
    return TrialPlan(
        branch,
        trace.platform,
        python[0] if python else "",
        tuple(steps),
        imports,
        _seed(last),
        tuple(dict.fromkeys(untried)),
        _obstacle(chain, first, steps, is_bare=is_bare),
        tuple(variables.items()),
        last.in_dockerfile and _has_no_libraries(last.image),
        last.toolkit,
        chain[-1].system_packages,
        trace.driver,
        last.tool not in ("venv", "image"),
        not last.tool,
    )  # fmt: skip


def _obstacle(
    chain: Sequence[InstallStep], first: EnvironmentState, steps: Sequence[PlannedStep], *, is_bare: bool
) -> str:
    """Why an environment cannot be tried."""
    if first.image and not is_bare:
        return f"the packages of the image {first.image} are part of it"
    if any(package.origin == IMAGE_ORIGIN for package in first.packages.values()):
        return f"the packages of the image {first.image} are part of it"
    conda = [
        requirement.text
        for install in chain
        if install.action.tool == "conda"
        for requirement in install.action.requirements
        if not _CONDA_TOOLS.fullmatch(requirement.name)
    ]
    if conda:
        return f"conda installs {', '.join(conda[:3])}{' and others' if len(conda) > 3 else ''}, and a trial does not"
    return "" if steps else "no step installs a package from an index"


def _has_no_libraries(image: str) -> bool:
    """Whether an image is that of a bare system, which has only the libraries that a file installs."""
    return any(_WITHOUT_LIBRARIES.search(text) for text in (image, image.partition(":")[0]))


def _seed(state: EnvironmentState) -> Seed:
    """What an environment contains at its start: pip and setuptools, or nothing in an environment of uv."""
    if state.tool == "conda":
        return "conda"
    return "venv" if state.seeded or not state.tool else ""


def _planned_step(install: InstallStep, removed: tuple[str, ...]) -> tuple[PlannedStep | None, list[Untried]]:
    """The call of uv for a step, and the parts of the step that a trial does not run."""
    action = install.action
    untried = [
        Untried(what=each.text or each.name, reason="its value is not in the file", line=each.line)
        for each in action.unknown
    ]
    lines = []
    for requirement in action.requirements:
        text = _requirement_line(requirement)
        if text:
            lines.append((text, requirement.line))
        elif requirement.url not in action.read:
            reason = "it is a file or a folder that is not part of the file"
            untried.append(Untried(what=requirement.text or requirement.url, reason=reason, line=requirement.line))
    if not lines:
        if not action.requirements and not action.unknown:
            untried.append(Untried(what=action.command[:100], reason="the file names no packages", line=action.line))
        return None, untried
    folders = [link for link in action.find_links if "://" not in link]
    if action.no_index or folders:
        reason = "its packages come from a folder that is not part of the file"
        return None, [*untried, Untried(what=action.command[:100], reason=reason, line=action.line)]
    return PlannedStep(
        action.line,
        action.command,
        tuple(lines),
        tuple(filter(None, map(_requirement_line, action.constraints))),
        tuple(filter(None, map(_requirement_line, action.overrides))),
        tuple(_options(action)),
        tuple(_indexes(action)),
        tuple(_variables(install.variables)),
        removed,
        action.built_with_torch,
    ), untried


def _requirement_line(requirement: InstallRequirement) -> str:
    """A requirement for uv; empty if it is a path, which the trial does not have."""
    if requirement.url:
        if "://" not in requirement.url or requirement.url.startswith("file:"):
            return ""
        return f"{requirement.name_with_extras} @ {requirement.url}" if requirement.name else requirement.url
    return f"{requirement.name_with_extras}{requirement.specifier}" if requirement.name else ""


def _options(action: Install) -> Iterator[str]:
    flags = {
        "--no-deps": action.no_deps, "--no-build-isolation": action.no_build_isolation,
        "--only-binary=:all:": action.only_binary, "--prerelease=allow": action.pre,
    }  # fmt: skip
    yield from (flag for flag, given in flags.items() if given)
    if action.upgrade and action.tool == "uv":
        yield "--upgrade"
    elif action.upgrade or action.reinstall:  # pip upgrades only what the step names
        yield from (f"--upgrade-package={each.name}" for each in action.requirements if each.name)
    if action.exclude_newer:
        yield f"--exclude-newer={action.exclude_newer}"
    yield from (f"--config-settings={setting}" for setting in action.config_settings)


def _indexes(action: Install) -> Iterator[str]:
    """The options for the indexes of a step. A mirror of PyPI is the configured index."""
    if action.index_url and not _PYPI.match(action.index_url):
        yield f"--default-index={action.index_url}"
    extra = [url for url in action.extra_indexes if not _PYPI.match(url)]
    yield from (f"--index={url}" for url in extra)
    yield from (f"--find-links={url}" for url in action.find_links)
    if action.torch_backend:
        yield f"--torch-backend={action.torch_backend}"
    if extra and (action.tool == "pip" or "unsafe-best-match" in action.command):
        yield "--index-strategy=unsafe-best-match"


def _variables(values: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The variables of a file that change how packages are built or imported."""
    for name, value in values.items():
        if not _REFUSED_VARIABLES.fullmatch(name) and not re.search(r"[$`\0]", value) and len(value) < 200:
            yield name, value


def _imports_of(guide: Guide) -> Iterator[PlannedImport]:
    """The modules that programs and notebooks of the file import, with the names that they use of them."""
    found: dict[tuple[str, str], int] = {}
    blocks = [(block[0][0], "\n".join(text for _, text in block)) for block in guide.python_blocks if block]
    runs = [action for action in guide.actions if isinstance(action, Run)]
    for line, text in (*blocks, *((run.line, run.code) for run in runs if run.code)):
        code = dedent(re.sub(r"^(?:\s*[!%].*|>>> |\.\.\. )", "", text, flags=re.MULTILINE))
        tree = parse_source(code)
        if tree is None:
            continue
        for use in uses_of_module(tree, "", imported_tops(code))[0]:
            if not use.argument:
                found.setdefault((use.module, use.name), line + use.line - 1)
    for run in runs:
        if run.module:
            found.setdefault((run.module, ""), run.line)
    yield from (PlannedImport(module, (name,) if name else (), line) for (module, name), line in found.items())
