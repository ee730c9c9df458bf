"""Checks on paths and scripts for another Python, and on local versions without the index that has them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.actions import Download, Install, InstallSystemPackages, SelectEnvironment, SetVariables
from envdoctor.manifests.checks.absent_releases import iter_requirements
from envdoctor.manifests.checks.conflicting_bounds import SPECIFIERS, contradicting_bounds
from envdoctor.manifests.checks.evidence import guide_command, guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.torch_index_text import INDEX_URL
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule

PIP_SCRIPT = "https://pip.pypa.io/en/stable/installation/#get-pip-py"
_LIBRARY_PATH = lazy_pattern(r"/lib/python(3\.\d{1,2})/(?:site|dist)-packages\b")
_GET_PIP = lazy_pattern(r"bootstrap\.pypa\.io/get-pip\.py")
_LOCAL_BUILD = lazy_pattern(r"\+(cu\d{3}|cpu|rocm[\d.]+)$")
_INSTALLED_FROM = lazy_pattern(r"requirements[^/]*\.txt$|\.ya?ml$")  # `conda env create` stops as well
_MAX_LISTED = 20  # a longer list of pins describes an installed environment
_OLDEST_PYTHON_OF_PIP = "3.10"


@rule("RUN047", kind="guide", severity=("error", "warning"), cause="python-unsupported", url=PIP_SCRIPT)
def path_or_script_is_for_another_python(context: GuideContext) -> Iterator[Problem]:
    """A variable names the packages of another Python than the environment has, or get-pip.py needs a newer one.

    An environment with Python 3.10 has no directory `lib/python3.8/site-packages`: the variable has no effect.
    get-pip.py without a version in its address stops on a Python that the newest pip does not support.
    """
    python = ""
    for action in context.guide.actions:
        if isinstance(action, SelectEnvironment) and action.python:
            python = action.python
        elif isinstance(action, InstallSystemPackages):
            named = (match[1] for name in action.names if (match := re.fullmatch(r"python(3\.\d+)(?:-\w+)?", name)))
            python = next(named, python)
        elif isinstance(action, SetVariables):
            yield from _other_library_path(context, action, python)
        elif isinstance(action, Download) and _GET_PIP.search(action.url):
            yield from _get_pip(context, action, python)


def _other_library_path(context: GuideContext, action: SetVariables, python: str) -> Iterator[Problem]:
    for name, value in action.values:
        found = _LIBRARY_PATH.search(value)
        if not found or not re.fullmatch(r"3\.\d+", python) or found[1] == python:
            continue
        line = line_of(context, action.line, found[0])
        corrected = value.replace(f"/python{found[1]}/", f"/python{python}/")
        yield Problem(
            "warning",
            f"{name} names the packages of Python {found[1]}; the environment has Python {python}",
            (guide_evidence(context, name, value[:120], line),),
            f"Use the directory of Python {python} in this environment.",
            guide_command(shell_command("export {}={}", name, corrected))
            if not re.search(r"[\s'\"]", corrected)
            else (),
            line=line,
        )


def _get_pip(context: GuideContext, action: Download, python: str) -> Iterator[Problem]:
    if not python or satisfies(python, f"<{_OLDEST_PYTHON_OF_PIP}") is not True:
        return
    line = line_of(context, action.line, "get-pip.py")
    yield Problem(
        "error",
        f"get-pip.py of this address needs Python {_OLDEST_PYTHON_OF_PIP}; the guide installs Python {python}",
        (
            guide_evidence(context, "script", action.url, line),
            table_evidence("newest pip for Python 3.9", "26.0.1", "Requires-Python on PyPI", "2026-11-26"),
        ),
        f"Use the script for Python {python}.",
        steps(shell_command("curl -O https://bootstrap.pypa.io/pip/{}/get-pip.py", python)),
        line=line,
    )


@rule("RUN014", kind="guide", severity="error", cause="platform-no-wheel", url=SPECIFIERS)
def local_version_is_not_on_pypi(context: GuideContext) -> Iterator[Problem]:
    """`torch==2.1.2+cu121` without the PyTorch index: PyPI and its mirrors have no local versions such as +cu121."""
    if any(re.search(r"whl/(?:cu\d|cpu|rocm|torch)|download\.pytorch", each.text) for each in context.guide.commands):
        return  # a configuration, or another step, names the index
    for install, requirement, line in iter_requirements(context):
        local = _LOCAL_BUILD.search(requirement.pin)
        if not local or _has_other_source(context, install.action, install.variables):
            continue
        pin = f"{requirement.name}=={public_part(requirement.pin)}"
        item = context.guide.lines[line - 1].strip()  # below `pip:` of an environment.yml
        is_listed = item.startswith("- ") and item[2:].lstrip(" '\"").startswith(requirement.text)
        excluded = {name for name, _ in contradicting_bounds(install)}  # another release of torch is needed
        builds = {each.name: _LOCAL_BUILD.search(each.pin) for each in install.action.requirements}
        torch = builds.get("torch")
        is_other_build = torch is not None and torch[1] != local[1]  # RUN004 has the command
        has_command = not is_listed and not is_other_build and excluded.isdisjoint(TORCH_FAMILY)
        yield Problem(
            "error",
            f"{requirement.text} is not on PyPI, and the step names no index that has it",
            (guide_evidence(context, requirement.name, requirement.text, line),),
            f"Add `- --extra-index-url {INDEX_URL}{local[1]}` below `pip:`."
            if is_listed
            else f"torch is the build {torch[1]}: name the same build."
            if torch and is_other_build
            else f"Use the PyTorch index: --torch-backend={local[1]}.",
            install_step(pin, backend=local[1]) if has_command else (),
            line=line,
        )


def _has_other_source(context: GuideContext, action: Install, variables: dict[str, str]) -> bool:
    """Whether a step can take packages from elsewhere, or lists what an environment already has."""
    sources = (action.index_url, *action.extra_indexes, *action.find_links, action.torch_backend)
    is_configured = any(name.startswith(("PIP_", "UV_")) for name in variables)
    is_list = len(action.requirements) > _MAX_LISTED and all(each.pin for each in action.requirements)
    is_list = is_list and not _INSTALLED_FROM.search(context.guide.name)  # a file for `pip install -r`
    return any(sources) or is_configured or is_list or action.no_index or action.tool not in ("pip", "uv")
