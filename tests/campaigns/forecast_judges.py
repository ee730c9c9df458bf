"""Judges whether a forecast of the replay is right, by other means than the forecast itself.

A conflict of requirements: by the library packaging. A missing wheel: by uv. A missing name: by the tables of names
in envdoctor/knowledge/names, by the Python sources of the release if the word occurs in none of them or not in that
of the module, by the only definition of a function in its module, or by Python, which imports the release and reads a
signature. Releases that need gigabytes are not installed.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Mapping
from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envdoctor.forecast.records import Break
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.names import find_name
from envdoctor.locking.uv import find_uv
from envdoctor.package_index.public_names import FUNCTION
from envdoctor.package_index.python_library import Library

PYTHON, PLATFORM = "3.12", "x86_64-manylinux_2_35"
MARKERS = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0", "platform_machine": "x86_64",
           "platform_system": "Linux", "sys_platform": "linux", "extra": ""}  # fmt: skip
READ_SIGNATURE = """
import importlib, inspect, sys
path, argument = sys.argv[1:]
parts = path.split(".")
value = importlib.import_module(parts[0])
for part in parts[1:]:
    value = getattr(value, part)
parameters = inspect.signature(value).parameters.values()
accepts = any(each.name == argument or each.kind is each.VAR_KEYWORD for each in parameters)
print("present" if accepts else "missing")
"""
# That, with what they require, have gigabytes.
LARGE = ("accelerate", "bitsandbytes", "peft", "ray", "sentence-transformers", "torch", "torchaudio", "torchvision",
         "trl", "vllm", "xformers")  # fmt: skip
FunctionOf = Callable[[Break], str]  # the dotted name of the function that a missing argument belongs to
NAME_KINDS = ("module", "name", "argument", "attribute", "result")


def judge_requirement(found: Break, versions: Mapping[str, str], pin: Pin, wheels: Wheels) -> str:
    """A conflict of two packages, by the library packaging."""
    is_own = found.user == pin.name
    owner = pin if is_own else Pin(found.user, versions[found.user])
    installed = versions if is_own else {pin.name: pin.version}
    metadata = wheels.metadata(owner)
    for line in metadata.requires if metadata else ():
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate(MARKERS)
        if name in installed and applies and not requirement.specifier.contains(installed[name], prereleases=True):
            return "confirmed"
    return "refuted"


def judge_name(found: Break, pin: Pin, wheels: Wheels, function_of: FunctionOf) -> str:
    """A missing name, by the table of names, else by the words of the release."""
    own = found.user == pin.name
    owner, version = pin.name, pin.version
    if own:  # the new release uses what another package does not have
        owner, _, version = found.message.partition("which ")[2].partition(" does not")[0].partition(" ")
    name = found.evidence[0].value.rpartition(" ")[2].partition("(")[0].strip(".")
    last = name.rpartition(".")[2]
    if found.kind == "name" and (spans := find_name(owner, last)):
        present = any(span.can_be_in(version) for span in spans)
        # A name can also have moved to another module, which the table does not know.
        if not present:
            return "confirmed"
    library = wheels.library(Pin(owner, version))
    if library is None:
        return "undecided"
    argument = found.evidence[0].value.partition("(")[2].partition("=")[0] if found.kind == "argument" else ""
    if (argument or last) not in library.words or lacks_import(library, found.evidence[0].value):
        return "confirmed"
    if not argument:
        return "undecided"
    state = judge_by_definition(library, function_of(found), argument)
    if state == "undecided" and owner not in LARGE:
        state = judge_by_import(Pin(owner, version), function_of(found), argument)
    return state


def lacks_import(library: Library, statement: str) -> bool:
    """Whether the wheel has no file for the module of `from X import Y`, or one that cannot provide the name."""
    words = statement.split()
    if words[0] not in ("from", "import"):
        return False
    stem, name = words[1].replace(".", "/"), words[-1].partition(".")[0]
    files = (*library.sources.paths, *library.sources.compiled)
    path = next((each for each in (f"{stem}.py", f"{stem}/__init__.py") if each in library.sources.paths), "")
    if not path:
        return not any(each.startswith((f"{stem}/", f"{stem}.")) for each in files)
    others = r"import \*|__getattr__|_LazyModule|globals\(\)"
    is_module = any(each.startswith((f"{stem}/{name}/", f"{stem}/{name}.")) for each in files)
    return not is_module and not re.search(rf"\b{name}\b|{others}", library.sources.read(path))


@cache
def judge_wheel(pin: Pin) -> str:
    """Whether uv finds no wheel of a release for the Python and the platform."""
    command = [
        find_uv(), "pip", "compile", "-", "-q", "--no-deps", "--only-binary", ":all:", "--python-version", PYTHON,
        "--python-platform", PLATFORM,
    ]  # fmt: skip
    text = f"{pin.name}=={pin.version}"
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return "refuted"
    return "confirmed" if "no wheels with a matching" in result.stderr else "undecided"


def judge_by_definition(library: Library, function: str, argument: str) -> str:
    """Whether the only definition of a function, in the file of its module and undecorated, has an argument."""
    module, _, name = function.rpartition(".")
    stem = module.replace(".", "/")
    path = next((each for each in (f"{stem}.py", f"{stem}/__init__.py") if each in library.sources.paths), "")
    nodes = ast.walk(ast.parse(library.sources.read(path))) if path else ()
    defined = [each for each in nodes if isinstance(each, FUNCTION) and each.name == name]
    if len(defined) != 1 or defined[0].decorator_list:
        return "undecided"
    arguments = defined[0].args
    names = {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}
    return "refuted" if arguments.kwarg or argument in names else "confirmed"


@cache
def judge_by_import(pin: Pin, function: str, argument: str) -> str:
    """Whether a function of a release accepts an argument, by its signature in an environment of its own."""
    command = [
        find_uv(), "run", "-q", "--isolated", "--no-project", "--no-config", "--python", PYTHON, "--with",
        f"{pin.name}=={pin.version}", "python", "-c", READ_SIGNATURE, function, argument,
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return {"missing": "confirmed", "present": "refuted"}.get(result.stdout.strip(), "undecided")


def judge_forecast(
    breaks: tuple[Break, ...], versions: Mapping[str, str], pin: Pin, wheels: Wheels, function_of: FunctionOf
) -> str:
    """The best state of the breaks of one upgrade: one that is confirmed suffices."""
    states = []
    for found in breaks:
        if found.kind in NAME_KINDS:
            states.append(judge_name(found, pin, wheels, function_of))
        elif found.kind == "requirement":
            states.append(judge_requirement(found, versions, pin, wheels))
        else:
            states.append(judge_wheel(pin) if found.kind == "wheel" else "undecided")
    return next((state for state in ("confirmed", "undecided", "refuted") if state in states), "")
