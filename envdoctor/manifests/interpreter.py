"""Interprets a guide: applies its actions in order, and records the state of each environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from envdoctor.core.records import Machine
from envdoctor.environment.markers import Markers
from envdoctor.knowledge.guides import guide_tables
from envdoctor.knowledge.versions import cuda_of_local, is_prerelease, local_part
from envdoctor.manifests.actions import (
    Action,
    AddWheel,
    Download,
    Install,
    InstallSystemPackages,
    LoadModules,
    Run,
    SelectEnvironment,
    SetVariables,
    Uninstall,
    UseImage,
    torch_source,
    without_python,
)
from envdoctor.manifests.assumed_python import USUAL_PYTHON
from envdoctor.manifests.cloned_projects import CLONE_ORIGIN, with_cloned_releases
from envdoctor.manifests.environment_state import EnvironmentState, image_state, of_another_file, python_of_system
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.local_wheels import folder_of, from_local_folder
from envdoctor.manifests.stated_python import USER, python_origin
from envdoctor.manifests.step_packages import (
    merge_requested,
    newly_named,
    stated_build,
    with_new_packages,
    without_constrained,
)
from envdoctor.manifests.step_resolution import COMPANIONS, CONDA_NAMES, less_certain, package_at_url, resolve_step
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.resolver import Resolution, ResolvedPackage, ResolverTarget
from envdoctor.resolution.step import StepSolver
from envdoctor.resolution.torch_sources import torch_cuda

_MAX_SUPERSEDED = 4


class InstallStep(NamedTuple):
    """An install action with the environment before and after it."""

    action: Install
    before: EnvironmentState
    after: EnvironmentState
    resolution: Resolution
    variables: dict[str, str]
    system_packages: frozenset[str]  # installed by earlier steps
    target: ResolverTarget  # that the step was resolved for


class GuideTrace(NamedTuple):
    """The result of interpreting a guide.

    `final_states` holds its environments in order of first use, after the superseded ones that its programs use.
    """

    platform: str
    driver: str
    today: str
    installs: tuple[InstallStep, ...]
    final_states: tuple[EnvironmentState, ...]
    python: str = ""  # of environments for which the guide names none
    python_origin: str = ""  # the place outside of the commands that states it
    limiting_pins: frozenset[tuple[str, str]] = frozenset()  # of which the usual Pythons have no wheel
    earlier: tuple[InstallStep, ...] = ()  # of the guide that installs this file, with negative lines

    @property
    def all_installs(self) -> tuple[InstallStep, ...]:
        """Those of the guide that installs this file, and its own."""
        return (*self.earlier, *self.installs)

    @property
    def targets(self) -> list[str]:
        """What the steps were solved for: `x86_64, Python 3.10 (README.md, line 12)`."""
        solved = [each.before for each in self.installs if each.resolution.state in ("solved", "partial", "conflict")]
        origin = f" ({self.python_origin})" if self.python_origin else ""
        assumed = "" if self.python == USUAL_PYTHON else " (not stated: the newest that fits the pins)"
        origins = ["" if each.python_line > 0 else origin or ("" if each.python else assumed) for each in solved]
        pythons = [f"{each.python or self.python}{origin}" for each, origin in zip(solved, origins, strict=True)]
        return list(dict.fromkeys(f"{self.platform}, Python {python}" for python in pythons))


class GuideInterpreter:
    """Applies the actions of a guide. The facts of `machine` take precedence over those in the guide."""

    def __init__(
        self, guide: Guide, machine: Machine | None, today: str, solver: StepSolver | None = None, python: str = ""
    ) -> None:
        self.guide = guide
        self.machine = machine
        self.today = today
        self.solver = solver
        self.python = python or USUAL_PYTHON  # of environments for which the guide names none
        stated = guide.stated_machine
        architecture = machine.system.architecture.value if machine else ""
        self.platform = {"arm64": "aarch64"}.get(architecture or "", architecture or stated.architecture)
        self.driver = (machine.driver.version.value if machine else "") or stated.driver
        glibc = (machine.system.glibc.value if machine else "") or ""
        self.first = EnvironmentState(glibc=glibc, python=guide.python, pip=guide.pip)
        self.states: dict[str, EnvironmentState] = {"": self.first}
        self.current = ""  # key of the active environment
        self.outside_image = ""  # key of the environment to return to at the end of a Dockerfile or of a container
        self.stages: dict[str, str] = {}  # name of a stage of a Dockerfile -> key of its environment
        self.base_stages: set[str] = set()  # keys of the stages from which a later one starts
        self.variables: dict[str, str] = {}
        self.system_packages: set[str] = set()
        self.wheels: dict[str, list[str]] = {}  # folder -> wheels that steps put in it
        self.installs: list[InstallStep] = []
        self.earlier: tuple[InstallStep, ...] = ()
        self.used: list[tuple[str, EnvironmentState]] = []  # the environments in which programs run
        if guide.earlier:
            self._enter_earlier(guide.earlier)

    def _enter_earlier(self, earlier: Guide) -> None:
        """Start in the environment that the steps of another guide leave, unless they have no solution."""
        own = self.guide
        guide = earlier._replace(python=own.python, python_origin=own.python_origin, pip=own.pip)
        if own.python and own.python_origin == USER:  # which comes before those of a guide
            guide = guide._replace(actions=tuple(map(without_python, guide.actions)))
        other = GuideInterpreter(guide, self.machine, self.today, self.solver, self.python)
        other.platform = self.platform
        other.run()
        if other._state.resolution != "conflict":
            steps = (each._replace(action=each.action._replace(line=-each.action.line)) for each in other.installs)
            self.earlier, self.first = tuple(steps), of_another_file(other._state)
            self.states = self.states if any(isinstance(each, UseImage) for each in own.actions) else {"": self.first}
            self.variables, self.system_packages, self.wheels = other.variables, other.system_packages, other.wheels

    def run(self) -> GuideTrace:
        """Apply all actions."""
        for action in self.guide.actions:
            if isinstance(action, Install):
                self._install(action)
            elif isinstance(action, SelectEnvironment):
                self._select_environment(action)
            elif isinstance(action, UseImage):
                self._use_image(action)
            elif isinstance(action, Uninstall):
                packages = self._state.packages.items()
                self._update(packages={name: package for name, package in packages if name not in action.names})
            elif isinstance(action, SetVariables):
                self.variables.update(action.values)
                self._detect_toolkit(
                    " ".join(value for name, value in action.values if "CUDA" in name or name == "PATH")
                )
            elif isinstance(action, InstallSystemPackages):
                self._install_system_packages(action)
            elif isinstance(action, AddWheel):
                self.wheels.setdefault(folder_of(action.folder), []).append(action.file)
            elif isinstance(action, Run) and not action.code:
                self.used.append((self.current, self._state))
            else:
                self._read_names(action)
        final_states = tuple(
            state for key, state in self.states.items() if state.packages and key not in self.base_stages
        )
        used = tuple(self._superseded_states())
        return GuideTrace(
            self.platform,
            self.driver,
            self.today,
            tuple(self.installs),
            used + final_states,
            self.python,
            python_origin(self.guide, self.first if self.earlier else EnvironmentState()),
            earlier=self.earlier,
        )

    def _superseded_states(self) -> Iterator[EnvironmentState]:
        """The environments in which programs run, and of which a later step replaces or removes packages."""
        seen: list[dict[str, ResolvedPackage]] = []
        for key, state in self.used:
            last = self.states[key].packages
            replaced = [name for name, package in state.packages.items() if last.get(name) is not package]
            if replaced and state.packages not in seen and len(seen) < _MAX_SUPERSEDED:
                seen.append(state.packages)
                yield state._replace(is_superseded=True)

    @property
    def _state(self) -> EnvironmentState:
        return self.states[self.current]

    def _update(self, **fields: Any) -> None:
        self.states[self.current] = self._state._replace(**fields)

    def _detect_toolkit(self, text: str) -> None:
        """Record a CUDA toolkit that a path, a module or an installer file names."""
        match = re.search(r"cuda[a-z]*[-_/]?(\d{2})[.\-_](\d)", text, re.IGNORECASE)
        if match:
            self._update(toolkit=f"{match[1]}.{match[2]}")
        elif re.search(r"\bcuda\b|nvhpc", text, re.IGNORECASE) and not self._state.toolkit:
            self._update(toolkit="?")

    def _read_names(self, action: Action) -> None:
        """Record the toolkit that modules or the file of an installer name, and the Python of a module."""
        names = action.names if isinstance(action, LoadModules) else ()
        self._detect_toolkit(" ".join(names) or _toolkit_text(action))
        for name in names:
            if match := re.match(r"(?:\w+-)?python3?/(3\.\d+)", name, re.IGNORECASE):
                self._update(python=match[1], python_line=action.line)

    def _install_system_packages(self, action: InstallSystemPackages) -> None:
        self.system_packages.update(action.names)
        for name in action.names:
            if match := re.match(r"cuda-(?:toolkit|nvcc|compiler)-(\d+)-(\d+)", name):
                self._update(toolkit=f"{match[1]}.{match[2]}")
            elif match := re.fullmatch(r"python(3\.\d+)(?:-\w+)?", name):
                self._update(python=match[1], python_line=action.line)
            elif name in ("cuda", "cuda-toolkit"):
                self._update(toolkit="?")
            elif name == "nvidia-cuda-toolkit":
                row = next((row for row in guide_tables().ubuntu_cuda if row.system == self._state.system), None)
                self._update(toolkit=row.cuda if row else "?")
        if "python3-pip" in action.names and (python := python_of_system(self._state, self.guide.lines)):
            self._update(python=python, python_line=action.line)

    def _select_environment(self, action: SelectEnvironment) -> None:
        """Activate a new or an existing environment. A new one inherits system and toolkit of the active one."""
        key = f"{action.tool if action.tool == 'conda' else 'venv'}:{action.name.removeprefix('./')}"
        if action.tool == "leave":
            self.current = self.outside_image
            return
        base = self._state
        if (
            self.earlier and not base.in_dockerfile
        ):  # a project that states its Python: the guide has created the environment
            self._update(python=base.python or action.python, python_line=base.python_line or action.line)
            return
        if action.python and not action.new:  # `conda install python=3.10`
            key = key if key in self.states else self.current
            self.states[key] = self.states[key]._replace(python=action.python, python_line=action.line)
            return
        if action.clone and (original := self.states.get(f"conda:{action.clone}")):
            self.states[key] = original._replace(name=action.name)
            self.current = key
            return
        if action.new:
            if base.image and not base.in_dockerfile and self._has_heading(base.image_line, action.line):
                self.current = ""  # a new section of the guide does not continue inside the container
                base = self._state
            inherited = (self.guide.python, 0) if action.tool == "conda" else (base.python, base.python_line)
            python, python_line = (action.python, action.line) if action.python else inherited
            self.states[key] = base._replace(
                name=action.name, tool=action.tool, python=python, python_line=python_line, seeded=action.seeded,
                pip=action.pip, packages={}, requested={}, resolution="solved",
            )  # fmt: skip
            self.current = key
        elif key in self.states:
            self.current = key
        elif action.tool == "conda" or self.current == "":
            self.states[key] = base._replace(name=action.name, tool=action.tool)
            self.current = key

    def _has_heading(self, first: int, last: int) -> bool:
        lines = self.guide.lines[first:last]
        return any(line.startswith("## ") or (line.startswith("# ") and first < 0) for line in lines)

    def _use_image(self, action: UseImage) -> None:
        if not action.is_entered:
            return
        if not self.current.startswith(("image:", "stage:")):
            self.outside_image = self.current
        if action.in_dockerfile and not action.tag and action.name in self.stages:
            base = self.states[self.stages[action.name]]
            self.base_stages.add(self.stages[action.name])
            self.current = f"stage:{action.line}"
            self.states[self.current] = base
            self.stages |= {action.stage: self.current} if action.stage else {}
            return
        prefix = f"image:{action.name}:{action.tag}:"
        same_image = (key for key in self.states if key.startswith(prefix) and not action.in_dockerfile)
        self.current = next(same_image, f"{prefix}{action.line}")
        state = self.first if self.earlier and action.in_dockerfile else image_state(action)
        # The Python of a project is not that of its containers.
        python = state.python or (self.guide.python if self.guide.python_origin in ("", USER) else "")
        self.states.setdefault(self.current, state._replace(python=python))
        self.stages |= {action.stage: self.current} if action.stage else {}

    def _install(self, action: Install) -> None:
        if action.target and action.tool == "conda" and f"conda:{action.target}" in self.states:
            self.current = f"conda:{action.target}"
        before = self._state
        variables = self.variables | dict(action.variables)
        is_uv = action.tool == "uv"
        invalid = [each for each in action.requirements if not each.has_valid_specifier]
        known = tuple(each for each in action.requirements if each not in invalid)
        action = action._replace(
            unknown=(*action.unknown, *invalid),
            requirements=self._applicable(known, before.python),
            constraints=self._applicable(action.constraints, before.python),
            overrides=self._applicable(action.overrides, before.python),
            torch_backend=action.torch_backend or variables.get("UV_TORCH_BACKEND", "") if is_uv else "",
            index_url=action.index_url or variables.get("UV_INDEX_URL" if is_uv else "PIP_INDEX_URL", ""),
            extra_indexes=action.extra_indexes or tuple(variables.get("PIP_EXTRA_INDEX_URL", "").split()),
            exclude_newer=action.exclude_newer or variables.get("UV_EXCLUDE_NEWER", "")[:10],
        )
        action = from_local_folder(action, self.wheels, before.packages, self.platform)
        released, resolution = self._resolve(action, before)
        resolved = {name: self._with_cuda(package, action) for name, package in resolution.packages.items()}
        tagged = with_cloned_releases(action, self.guide).requirements
        for requirement in set(released.requirements) - set(action.requirements):
            if package := resolved.get(requirement.name):
                # The newest release is not that of a main branch, which has its requirements.
                version = package.version if requirement in tagged else ""
                resolved[requirement.name] = package._replace(origin=CLONE_ORIGIN, version=version)
        for requirement in released.requirements:
            if requirement.url and requirement.name:
                resolved[requirement.name] = package_at_url(requirement)
        for requirement in action.unknown:
            if requirement.name:
                resolved[requirement.name] = package_at_url(requirement)
        resolved |= newly_named(action, resolved, before.packages)
        resolved = without_constrained(action, before, resolved, self.guide)
        packages = with_new_packages(action, before.packages, resolved)
        toolkit = before.toolkit
        if action.tool == "conda" and not packages.keys().isdisjoint({"cuda-toolkit", "cuda-nvcc", "cuda"}):
            toolkit = toolkit or "?"
        others = CONDA_NAMES if action.tool == "conda" else {}
        names = [others.get(each.name, each.name) for each in action.requirements]
        requested = merge_requested(before.requested, {name: packages[name] for name in names if name in packages})
        state = less_certain(before.resolution, resolution.state)
        self._update(packages=packages, requested=requested, toolkit=toolkit, resolution=state)
        self.installs.append(
            InstallStep(
                action,
                before,
                self._state,
                resolution._replace(packages=resolved),
                variables,
                frozenset(self.system_packages),
                self._target(released, before),
            )
        )

    def _resolve(self, action: Install, before: EnvironmentState) -> tuple[Install, Resolution]:
        """The step with the releases of clones, and its resolution.

        The newest release, which stands for a main branch, is left out if it has no solution.
        """
        index = self.solver.index if self.solver else None
        released = with_cloned_releases(action, self.guide, index)
        resolution = resolve_step(released, before, self._target(action, before), self.solver)
        if resolution.conflict and index and (tagged := with_cloned_releases(action, self.guide)) != released:
            return tagged, resolve_step(tagged, before, self._target(action, before), self.solver)
        return released, resolution

    def _applicable(
        self, requirements: tuple[InstallRequirement, ...], python: str
    ) -> tuple[InstallRequirement, ...]:
        """The requirements whose markers hold on the machine, for the usual Python if the guide names none."""
        if not any(requirement.marker for requirement in requirements):
            return requirements
        markers = Markers(python or self.python, self.platform)
        return tuple(each for each in requirements if not each.marker or markers.holds(each.marker))

    def _target(self, action: Install, before: EnvironmentState) -> ResolverTarget:
        python = re.match(r"3\.\d+", before.python)
        return ResolverTarget(
            self.platform,
            python[0] if python else self.python,
            before.glibc,
            min(self.today, action.exclude_newer or "9"),
            source=torch_source(action),
        )

    def _with_cuda(self, package: ResolvedPackage, action: Install) -> ResolvedPackage:
        """torch, torchvision and torchaudio with the CUDA version of their build."""
        source = torch_source(action)
        if package is self._state.packages.get(package.name) or action.tool == "conda":
            return package
        if source.is_for_other_gpus and package.name in (*COMPANIONS, "torch") and not package.pinned:
            return package._replace(version="", origin=str(source))  # its index has other releases than PyPI
        version = stated_build(package, action)
        if package.name in COMPANIONS:
            return package._replace(cuda=cuda_of_local(version) or source.cuda, origin=str(source))
        if package.name != "torch":
            return package
        is_cpu = source.backend == "auto" and self._state.in_dockerfile
        cuda = "cpu" if is_cpu else torch_cuda(version, source, self.platform, self.driver)
        if any("torch_stable.html" in page for page in action.find_links) and not local_part(version):
            cuda = ""  # a page with all builds of old releases
        is_release = source.nightly and not package.pinned and not is_prerelease(package.version)
        version = f"{package.version}.dev0" if is_release else package.version
        return package._replace(cuda=cuda, origin=str(source), version=version)


def _toolkit_text(action: Action) -> str:
    """The part of an action that can name a CUDA toolkit: the file of an installer."""
    return action.file if isinstance(action, Download) and action.file.endswith(".run") else ""
