"""A guide followed in order: which environment each step acts on, and what that environment holds afterwards."""

from __future__ import annotations

import re
from typing import NamedTuple

from envdoctor.core.records import Machine
from envdoctor.knowledge.guides import guide_tables, system_of_image
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.actions import Download, Environment, Image, Install, Modules, System, Uninstall, Variables
from envdoctor.manifests.choose import Choice, Chosen, Place, Solver
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.requirement import Wanted, parse_wheel_name
from envdoctor.manifests.sources import cuda_name, cuda_of_torch, source_of

_CONDA_NAMES = {"pytorch": "torch", "pytorch-gpu": "torch", "huggingface-hub": "huggingface-hub"}
_COMPANIONS = ("torchvision", "torchaudio")


class State(NamedTuple):
    """One environment at one moment."""

    name: str = ""
    tool: str = ""  # uv, venv, conda, image; empty: the system's Python
    python: str = ""
    python_line: int = 0
    seeded: bool = True  # pip and setuptools are there
    image: str = ""
    image_line: int = 0
    building: bool = False  # inside a Dockerfile: no driver in sight
    system: str = ""
    glibc: str = ""
    toolkit: str = ""  # CUDA toolkit with nvcc: "12.8"; "?" of unknown version; empty: none seen
    base_cuda: str = ""  # CUDA that the image says it has
    packages: dict[str, Chosen] = {}
    asked: dict[str, Chosen] = {}  # what the guide itself names, as it was first given, whatever became of it


class Installed(NamedTuple):
    """One installation with the environment before and after."""

    step: Install
    before: State
    after: State
    choice: Choice
    variables: dict[str, str]
    build_helpers: frozenset[str]  # packages and system packages that an earlier step brought


class Journey(NamedTuple):
    """The whole way. `ends`: each environment as the guide leaves it, in order of first use."""

    guide: Guide
    platform: str
    driver: str
    today: str
    installed: tuple[Installed, ...]
    ends: tuple[State, ...]
    variables: dict[str, str]
    modules: tuple[str, ...]


class _Traveller:
    """Goes through the actions and keeps the environments."""

    def __init__(self, guide: Guide, machine: Machine | None, today: str) -> None:
        self.guide = guide
        self.today = today
        architecture = machine.system.architecture.value if machine else ""
        self.platform = {"arm64": "aarch64"}.get(architecture or "", architecture or guide.stated.architecture)
        self.driver = (machine.driver.version.value if machine else "") or guide.stated.driver
        self.glibc = (machine.system.glibc.value if machine else "") or ""
        self.states: dict[str, State] = {"": State(glibc=self.glibc)}
        self.current = ""
        self.outside = ""  # where a Dockerfile's end leads back to
        self.variables: dict[str, str] = {}
        self.modules: list[str] = []
        self.helpers: set[str] = set()
        self.installed: list[Installed] = []

    @property
    def state(self) -> State:
        return self.states[self.current]

    def put(self, state: State) -> None:
        self.states[self.current] = state

    def follow(self) -> None:
        for action in self.guide.actions:
            if isinstance(action, Install):
                self.install(action)
            elif isinstance(action, Environment):
                self.enter(action)
            elif isinstance(action, Image):
                self.start_image(action)
            elif isinstance(action, Uninstall):
                kept = {name: each for name, each in self.state.packages.items() if name not in action.names}
                self.put(self.state._replace(packages=kept))
            elif isinstance(action, Variables):
                self.variables.update(action.values)
                self._find_toolkit(
                    " ".join(value for name, value in action.values if "CUDA" in name or name == "PATH")
                )
            elif isinstance(action, Modules):
                self.modules += action.names
                self._find_toolkit(" ".join(action.names))
            elif isinstance(action, System):
                self._add_system_packages(action)
            elif isinstance(action, Download) and action.file.endswith(".run"):
                self._find_toolkit(action.file)

    def _find_toolkit(self, text: str) -> None:
        found = re.search(r"cuda[a-z]*[-_/]?(\d{2})[.\-_](\d)", text, re.IGNORECASE)
        if found:
            self.put(self.state._replace(toolkit=f"{found[1]}.{found[2]}"))
        elif re.search(r"\bcuda\b|nvhpc", text, re.IGNORECASE) and not self.state.toolkit:
            self.put(self.state._replace(toolkit="?"))

    def _add_system_packages(self, action: System) -> None:
        self.helpers.update(action.names)
        for name in action.names:
            found = re.match(r"cuda-(?:toolkit|nvcc|compiler)-(\d+)-(\d+)", name)
            if found:
                self.put(self.state._replace(toolkit=f"{found[1]}.{found[2]}"))
            elif python := re.fullmatch(r"python(3\.\d+)(?:-\w+)?", name):
                self.put(self.state._replace(python=python[1], python_line=action.line))
            elif name in ("cuda", "cuda-toolkit"):
                self.put(self.state._replace(toolkit="?"))
            elif name == "nvidia-cuda-toolkit":
                row = next((row for row in guide_tables().ubuntu_cuda if row.system == self.state.system), None)
                self.put(self.state._replace(toolkit=row.cuda if row else "?"))

    def enter(self, action: Environment) -> None:
        """Into a new or an earlier environment; one below the same image or machine inherits its system and
        toolkit.
        """
        key = f"{action.tool if action.tool == 'conda' else 'venv'}:{action.name.removeprefix('./')}"
        if action.tool == "leave":
            self.current = self.outside
            return
        if (
            action.new
            and self.state.image
            and not self.state.building
            and self._has_title(self.state.image_line, action.line)
        ):
            self.current = ""  # another chapter: no longer inside the container of the earlier one
        base = self.state
        if action.new:
            self.states[key] = State(
                action.name,
                action.tool,
                action.python or ("" if action.tool == "conda" else base.python),
                action.line,
                action.seeded,
                base.image,
                base.image_line,
                base.building,
                base.system,
                base.glibc,
                base.toolkit,
                base.base_cuda,
            )
            self.current = key
        elif key in self.states:
            self.current = key
        elif action.tool == "conda" or self.current == "":
            self.states[key] = base._replace(name=action.name, tool=action.tool)
            self.current = key

    def _has_title(self, first: int, last: int) -> bool:
        return any(
            text.startswith("## ") or (text.startswith("# ") and first < 0) for text in self.guide.lines[first:last]
        )

    def start_image(self, action: Image) -> None:
        if not action.entered:
            return
        if action.building and not self.state.building:
            self.outside = self.current
        key = f"image:{action.name}:{action.tag}:{action.line}"
        same = next(
            (
                name
                for name in self.states
                if name.startswith(f"image:{action.name}:{action.tag}:") and not action.building
            ),
            key,
        )
        if same not in self.states:
            self.states[same] = state_of_image(action)
        self.current = same

    def install(self, step: Install) -> None:
        if step.target and step.tool == "conda" and f"conda:{step.target}" in self.states:
            self.current = f"conda:{step.target}"
        state = self.state
        variables = self.variables | dict(step.variables)
        step = step._replace(
            backend=step.backend or variables.get("UV_TORCH_BACKEND", "") if step.tool == "uv" else "",
            index_url=step.index_url or variables.get("UV_INDEX_URL" if step.tool == "uv" else "PIP_INDEX_URL", ""),
            extra_indexes=step.extra_indexes or tuple(variables.get("PIP_EXTRA_INDEX_URL", "").split()),
            until=step.until or variables.get("UV_EXCLUDE_NEWER", "")[:10],
        )
        source = source_of(step)
        until = min(self.today, step.until or "9")
        place = Place(self.platform, state.python, state.glibc, until, source=source)
        if step.tool == "conda":
            choice = Choice(_from_conda(step, until), ())
        else:
            solver = Solver(
                place, state.packages, upgrade=step.upgrade or step.reinstall, with_dependencies=not step.no_deps
            )
            choice = solver.solve(step.wanted, step.constraints)
        picks = {name: self._with_build(pick, state, step) for name, pick in choice.picks.items()}
        picks |= {each.name: _from_address(each) for each in step.wanted if each.address and each.name}
        picks |= _named_again(step, picks, state.packages)
        packages = state.packages | picks
        named = {each.name: packages[each.name] for each in step.wanted if each.name in packages}
        after = state._replace(packages=packages, asked=_asked(state.asked, named))
        if any(name in packages for name in ("cuda-toolkit", "cuda-nvcc", "cuda")) and step.tool == "conda":
            after = after._replace(toolkit=after.toolkit or "?")
        self.installed.append(
            Installed(step, state, after, choice._replace(picks=picks), variables, frozenset(self.helpers))
        )
        self.put(after)

    def _with_build(self, pick: Chosen, state: State, step: Install) -> Chosen:
        """torch and its companions with the CUDA of the place that they come from."""
        source = source_of(step)
        if pick is state.packages.get(pick.name) or step.tool == "conda":
            return pick
        if pick.name in _COMPANIONS:
            return pick._replace(cuda=source.cuda, origin=str(source))
        if pick.name != "torch":
            return pick
        cuda = (
            "cpu"
            if source.backend == "auto" and state.building
            else cuda_of_torch(pick.version, source, self.platform, self.driver)
        )
        origin = (
            str(source) if source.backend and cuda == source.cuda else "PyPI" if not source.backend else str(source)
        )
        version = pick.version
        if source.nightly and not pick.pinned and pick.name == "torch":
            version = f"{pick.version}.dev0"
        return pick._replace(cuda=cuda, origin=origin, version=version)


def _asked(before: dict[str, Chosen], named: dict[str, Chosen]) -> dict[str, Chosen]:
    """What the guide names: a later mention counts if it is exact, or if the earlier one was open."""
    return before | {
        name: each for name, each in named.items() if each.pinned or not (name in before and before[name].pinned)
    }


def _named_again(step: Install, picks: dict[str, Chosen], held: dict[str, Chosen]) -> dict[str, Chosen]:
    """Packages that came as somebody's requirement and that the guide now names itself: the place to pin them."""
    return {
        each.name: held[each.name]._replace(
            line=each.line, reason=each.text, pinned=bool(each.pin), specifier=each.specifier
        )
        for each in step.wanted
        if picks.get(each.name) is held.get(each.name)
        and held.get(each.name)
        and held[each.name].reason.startswith("required by")
    }


def state_of_image(action: Image) -> State:
    """What a container image holds at the start, as far as its name and tag tell."""
    text = f"{action.name}:{action.tag}"
    system = system_of_image(text)
    state = State(text, "image", image=text, image_line=action.line, building=action.building)
    if system:
        # Images on older systems bring another Python than their own, which is too old for the field.
        python = system.python if satisfies(system.python, ">=3.10") else ""
        state = state._replace(system=system.name, glibc=system.glibc, python=python, python_line=action.line)
    found = re.search(r"cuda-?(\d{2})\.(\d)", text) or (
        re.match(r"(\d{2})\.(\d)", action.tag) if action.name.endswith("cuda") else None
    )
    cuda = f"{found[1]}.{found[2]}" if found else ""
    devel = "devel" in action.tag or "nvidia/pytorch" in action.name or "vllm" in action.name or "verl" in action.name
    packages: dict[str, Chosen] = {}
    if action.name.endswith("nvidia/pytorch"):
        row = next((row for row in guide_tables().ngc if action.tag.startswith(row.tag)), None)
        cuda = ".".join(row.cuda.split(".")[:2]) if row else ""
        version = f"{row.torch}+nv{row.tag}" if row else ""
        state = state._replace(python=row.python if row else "", python_line=action.line)
        packages = {"torch": Chosen("torch", version, action.line, text, True, cuda, "the container")} if row else {}
    elif action.name.endswith("pytorch/pytorch") and (release := re.match(r"\d+\.\d+\.\d+", action.tag)):
        packages = {"torch": Chosen("torch", release[0], action.line, text, True, cuda, "the container")}
    elif action.name.endswith("vllm-openai") and (release := re.match(r"v?(\d+\.\d+\.\d+\S*)", action.tag)):
        packages = {"vllm": Chosen("vllm", release[1], action.line, text, True, "", "the container")}
    return state._replace(toolkit=cuda or "?" if devel else "", base_cuda=cuda, packages=packages, asked=packages)


def _from_conda(step: Install, until: str) -> dict[str, Chosen]:
    found: dict[str, Chosen] = {}
    named = {each.name: each for each in step.wanted}
    toolkits = (each.specifier for name, each in named.items() if name in ("pytorch-cuda", "cudatoolkit"))
    cuda = next((cuda_name("cu" + re.sub(r"\D", "", each.partition(".*")[0])[:3]) for each in toolkits), "")
    for each in step.wanted:
        name = _CONDA_NAMES.get(each.name, each.name)
        limit = "<=2.5.1" if name == "torch" and "pytorch" in step.channels else ""
        specifier = ",".join(part for part in (each.specifier, limit) if part)
        fitting = releases_in_range(name, specifier, until)
        version = fitting[0].version if fitting else each.specifier.strip("=<>*.")
        if version:
            chosen_cuda = ("cpu" if "cpuonly" in named else cuda) if name == "torch" else ""
            found[name] = Chosen(
                name, version, each.line, each.text, bool(each.specifier), chosen_cuda, "conda", each.specifier
            )
    return found


def _from_address(each: Wanted) -> Chosen:
    wheel = parse_wheel_name(each.wheel) if each.wheel else None
    version = wheel.version if wheel else ""
    name = wheel.name if wheel else each.name
    found = re.search(r"\+(cu\d{2,3}|cpu)", version)
    cuda = cuda_name(found[1]) if found and public_part(version) else ""
    return Chosen(name, version, each.line, each.text, bool(wheel), cuda, "a direct address", label=each.wheel)


def follow(guide: Guide, machine: Machine | None, today: str) -> Journey:
    """The guide, followed."""
    traveller = _Traveller(guide, machine, today)
    traveller.follow()
    ends = tuple(state for state in traveller.states.values() if state.packages)
    return Journey(
        guide,
        traveller.platform,
        traveller.driver,
        today,
        tuple(traveller.installed),
        ends,
        traveller.variables,
        tuple(traveller.modules),
    )
