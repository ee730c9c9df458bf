"""Checks on the scripts that commands of a guide start, and that its checkout does not have."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

from envdoctor.core.paths import exists
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.wording import join_words
from envdoctor.manifests.actions import Clone
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.absent_started_modules import absent_started_modules
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.left_out_folders import has_options_of
from envdoctor.manifests.checks.misspelled_scripts import is_alike, misspelled_scripts
from envdoctor.manifests.checks.script_directories import misplaced_programs
from envdoctor.manifests.checks.sibling_projects import scripts_of_siblings
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import can_come_from_elsewhere, clones_another, submodule_paths
from envdoctor.manifests.own_names import name_key, repository_name
from envdoctor.manifests.program_launches import Launch
from envdoctor.rules.registry import Problem, rule

BASH = "https://www.gnu.org/software/bash/manual/bash.html#Command-Search-and-Execution"
# Names of the programs of a reader, with which guides of libraries show a launcher.
_USUAL = lazy_pattern(r"(?:train\w*|main|run|test|app|demo|inference|eval\w*|finetune|sample|generate)\.\w+")
_PATH = lazy_pattern(r"(?<![\w./-])(?:\./)?(?:[\w.-]+/)+[\w.-]+\.\w+")
_OF_EXAMPLES = lazy_pattern(r"(?:^|/)(?:examples?|samples?|docs?|templates?|tutorials?)(?:/|_)")
_CODE = (".py", ".sh", ".bash", ".slurm", ".sbatch")
_COPIES_ROOT = lazy_pattern(r"\s*(?:COPY|ADD)\s+(?:--(?!from)\S+\s+)*\./?\s", re.IGNORECASE)
_PERMITS = lazy_pattern(r"[\s$]*(?:sudo\s+)?chmod\s")  # names a file that exists
_MODULE = lazy_pattern(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_LIKENESS = 0.6
_SAME_NAME = 0.85  # likeness of a name with a letter that is missing or wrong
_MIN_PRESENT = 3  # scripts that show that a guide is the one of its checkout


class _Absent(NamedTuple):
    """A script that the checkout does not have, with the file that is meant."""

    script: str
    launch: Launch
    nearest: str
    has_left_out_cd: bool
    fix: str


@rule("RUN182", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=BASH)
def script_is_not_in_the_checkout(context: GuideContext) -> Iterator[Problem]:
    """A command starts a script in a folder of the checkout that does not have it.

    Only in a clone of git that has most of the scripts that the guide starts, or has one in a directory that the
    guide neither names nor enters, or has one that defines the options of the command. Scripts that a step makes,
    downloads or clones are left out, and so are names that a reader is to replace. A script that a sentence starts is
    reported if a file has almost the same name. Also reported: `python -m package.module` of a package that lacks the
    module, an application of a server that is in a directory which the guide neither names nor enters, and a
    script in `../project` of a project that pip installs and no step clones.
    """
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    yield from misspelled_scripts(context, checkout)
    yield from scripts_of_siblings(context, checkout)
    yield from absent_started_modules(context, checkout)
    launches = _own_launches(context, checkout)
    named = {each.program.script: each for each in reversed(launches)}
    named |= {each.program.script: each for each in reversed(launches) if has_options_of(context, checkout, each)}
    absent = {script: each for script, each in named.items() if not _is_there(checkout, each)}
    if len(absent) * 2 > len(named):  # they are those of another project
        absent = {script: each for script, each in absent.items() if _is_of_checkout(context, checkout, each)}
    found: dict[tuple[str, str], list[_Absent]] = {}  # by directory and fix
    for script, launch in sorted(absent.items(), key=lambda item: item[1].line):
        starts = {each.line for each in launches if each.program.script == script}
        if not can_come_from_elsewhere(context.guide, checkout, script, starts):
            for each in _absent(context, checkout, script, launch):
                found.setdefault((posixpath.dirname(posixpath.normpath(script)), each.fix), []).append(each)
    yield from (_problem(context, group) for group in found.values())


def _own_launches(context: GuideContext, checkout: Checkout) -> list[Launch]:
    """The starts of scripts. After `cd $COCOAPI`, only of folders of which another script is there."""
    launches = [each for each in context.guide.launches if each.line and each.program.script]
    misplaced = misplaced_programs(context)  # RUN293
    launches = [each for each in launches if (each.line, each.program.script) not in misplaced]
    there = {posixpath.dirname(each.program.script) for each in launches if _is_there(checkout, each)}
    return [each for each in launches if not each.has_returned or posixpath.dirname(each.program.script) in there]


def _is_of_checkout(context: GuideContext, checkout: Checkout, launch: Launch) -> bool:
    """Whether a script is one of the checkout, that has it in another folder or another file of its command."""
    path = posixpath.normpath(launch.program.script)
    same = [each for each in checkout.paths if posixpath.basename(each) == posixpath.basename(path)]
    is_moved = _is_in_unnamed_folder(context, checkout, launch) or _has_longer_folders(same, path)
    is_moved = is_moved or has_options_of(context, checkout, launch)
    is_own = bool(_numbered(checkout, launch)) or _gets_own_file(context, checkout, launch)
    is_own = is_own or _is_in_own_clone(context, checkout, launch)
    return is_moved or bool(_in_folder_of_like_name(same, path)) or is_own


def _is_in_own_clone(context: GuideContext, checkout: Checkout, launch: Launch) -> bool:
    """Whether the guide clones or copies the project, which has several others of its kind in the folder."""
    path = posixpath.normpath(launch.program.script)
    folder, suffix = posixpath.dirname(path), posixpath.splitext(path)[1]
    kin = [each for each in checkout.paths if posixpath.dirname(each) == folder and each.endswith(suffix)]
    names = checkout.own_names("\n".join(context.guide.lines))
    is_cloned = any(name_key(repository_name(each.url)) in names for each in context.actions(Clone))
    is_copied = bool(launch.instruction) and any(map(_COPIES_ROOT.match, context.guide.lines))
    is_own = is_cloned or is_copied
    return bool(folder) and len(kin) >= _MIN_PRESENT and checkout.root in launch.folders and is_own


def _has_longer_folders(files: Sequence[str], path: str) -> bool:
    """Whether the folders of all files have the words of the folder of a path, and others: `code_bow` for `code`."""
    folder = posixpath.dirname(path)
    longer = (posixpath.dirname(each) for each in files)
    is_usual = _USUAL.fullmatch(posixpath.basename(path))
    return bool(files) and bool(folder) and not is_usual and all(_words(folder) < _words(each) for each in longer)


def _is_there(checkout: Checkout, launch: Launch) -> bool:
    folders = (*launch.folders, checkout.root)
    if launch.program.script.startswith("/") or any(exists(each / launch.program.script) for each in folders):
        return True
    started = [checkout.relative(each / launch.program.script) for each in launch.folders]
    return any(script.startswith(f"{each}/") for each in submodule_paths(checkout) for script in started)


def _problem(context: GuideContext, group: Sequence[_Absent]) -> Problem:
    """The absent scripts of a directory that have the same fix, as one problem."""
    first = group[0]
    lines = {each.script: line_of(context, each.launch.line, each.script) for each in group}
    verb = "is" if len(group) == 1 else "are"
    return Problem(
        "warning" if first.has_left_out_cd else "error",
        f"{join_words([each.script for each in group])} {verb} not in the checkout"
        + (f"; {first.nearest} is" if first.nearest else ""),
        (
            *(guide_evidence(context, "command", each.launch.command, lines[each.script]) for each in group),
            *(table_evidence("files", f"no {posixpath.normpath(each.script)}", "the checkout") for each in group),
        ),
        first.fix,
        line=lines[first.script],
    )


def _absent(context: GuideContext, checkout: Checkout, script: str, launch: Launch) -> Iterator[_Absent]:
    path = posixpath.normpath(script)
    folder, _, name = path.rpartition("/")
    code = sorted(each for each in checkout.paths if each.endswith(_CODE))
    elsewhere = [each for each in code if each.rpartition("/")[2] == name]
    below = [each for each in elsewhere if folder and _is_below_first_folder(each, path, checkout, launch)]
    below = below or _in_folder_of_like_name(elsewhere, path)
    is_in_folder = (
        bool(folder)
        and not any(each.endswith(f"/{path}") for each in elsewhere)
        and (any(each.startswith(f"{folder}/") for each in code) or _has_longer_folders(elsewhere, path))
    )
    below = below or (elsewhere if is_in_folder else [])
    has_left_out_cd = bool(elsewhere) and not below
    is_in_unnamed = _is_in_unnamed_folder(context, checkout, launch) or has_options_of(context, checkout, launch)
    is_of_reader = bool(_USUAL.fullmatch(name)) and not is_in_unnamed
    if has_left_out_cd and (folder or len(elsewhere) > 1 or is_of_reader):
        return  # the guide leaves out the step that enters its directory
    if elsewhere:
        is_unclear = is_in_folder and (len(below) > 1 or _USUAL.fullmatch(name))
        most_alike = max(below or elsewhere, key=lambda each: difflib.SequenceMatcher(None, path, each).ratio())
        nearest = "" if is_unclear else most_alike
    elif folder and any(each.startswith(f"{path.partition('/')[0]}/") for each in code):
        suffix = posixpath.splitext(path)[1]
        alike = [each for each in code if posixpath.dirname(each) == folder and each.endswith(suffix)]
        stem = posixpath.splitext(name)[0]
        started = {checkout.script(each) for each in context.guide.launches if each.line}  # by steps of their own
        others = [
            base for each in alike
            if is_alike(stem, posixpath.splitext(base := posixpath.basename(each))[0]) or each not in started
        ]  # fmt: skip
        other = _alike(name, others, _SAME_NAME if name.startswith("test_") else _LIKENESS)
        nearest = f"{folder}/{other}" if other else ""
    else:
        nearest = "" if folder else _other_name(context, checkout, launch, code)
        is_own = _gets_own_file(context, checkout, launch)
        is_usual = not folder and _USUAL.fullmatch(name)
        if not nearest and not is_own and (is_usual or not _is_in_own_directory(context, checkout, launch)):
            return
    fix = "Name a script of the checkout, or use the version of the project that has it."
    if nearest:
        fix = (
            _start_of(checkout, nearest)
            if has_left_out_cd
            else f"Start {nearest}, if it is the script that is meant."
        )
    yield _Absent(script, launch, nearest, has_left_out_cd, fix)


def _start_of(checkout: Checkout, script: str) -> str:
    """How a script of another directory starts: as a module where it imports modules of the root."""
    folder, source = posixpath.dirname(script), checkout.source(script)
    tops = {each.top for each in source.imports if each.top and not each.level}
    here = {each for each in tops if {f"{folder}/{each}", f"{folder}/{each}.py"} & checkout.paths}
    is_of_root = any({each, f"{each}.py"} & checkout.paths for each in tops - here)
    module = script.removesuffix(".py").replace("/", ".")
    if (
        script.endswith(".py")
        and is_of_root
        and not (source.changes_path or source.added)
        and _MODULE.fullmatch(module)
    ):
        return f"Start it in the root as `python -m {module}`: it imports modules of the root."
    return f"Enter the directory {folder} first, or start {script}."


def _is_in_unnamed_folder(context: GuideContext, checkout: Checkout, launch: Launch) -> bool:
    """Whether the only file of a name is in a folder that the guide neither enters nor names.

    The command starts it in the root of the checkout. An image can have another working directory.
    """
    name = launch.program.script.removeprefix("./")
    files = [each for each in checkout.paths if posixpath.basename(each) == name]
    folder = posixpath.dirname(files[0]) if len(files) == 1 else ""
    if not folder or launch.instruction or checkout.root not in launch.folders:
        return False
    if any(command.name in ("cd", "pushd", "docker", "podman") for command in context.guide.commands):
        return False
    parts = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, folder.split('/')))})(?![\w-]|\.\w)")
    return not any(parts.search(line) for line in context.guide.lines)


def _gets_own_file(context: GuideContext, checkout: Checkout, launch: Launch) -> bool:
    """Whether a command passes a file of the checkout that is no example, and the guide starts a script next to it.

    Such as `accelerate launch --config_file configs/fsdp.yaml train.py` and `torchrun eval.py`.
    """
    passed = {posixpath.normpath(each) for each in _PATH.findall(launch.command)}
    has_own = any(not _OF_EXAMPLES.search(each) and each in checkout.paths for each in passed)
    others = [
        each for each in context.guide.launches if each.line and "/" not in each.program.script.removeprefix("./")
    ]
    return has_own and any(
        _is_there(checkout, each) for each in others if each.program.script not in ("", "setup.py")
    )


def _in_folder_of_like_name(files: list[str], path: str) -> list[str]:
    """The only file of a name, if its folder is almost the one of a path: `scripts/a.sh` for `script/a.sh`."""
    folder = posixpath.dirname(path)
    likeness = difflib.SequenceMatcher(None, folder, posixpath.dirname(files[0])).ratio() if files else 0
    return files if folder and len(files) == 1 and likeness >= _SAME_NAME else []


def _is_in_own_directory(context: GuideContext, checkout: Checkout, launch: Launch) -> bool:
    """Whether only starts of programs name a script without folder, or the folder of it: no step can make it.

    The guide clones no other repository, and starts several scripts that its checkout has.
    """
    first = posixpath.normpath(launch.program.script).partition("/")[0]
    launches = [each for each in context.guide.launches if each.line and each.program.script]
    present = {each.program.script for each in launches if _is_there(checkout, each)}
    starts = {each.line for each in launches if posixpath.normpath(each.program.script).partition("/")[0] == first}
    is_named = any(
        re.search(rf"(?<![\w-]){re.escape(first)}" + ("" if first.endswith(_CODE) else r"\b(?=/|`)"), line)
        for number, line in enumerate(context.guide.lines, 1)
        if number not in starts and not _PERMITS.match(line)
    )
    return len(present) >= _MIN_PRESENT and not is_named and not clones_another(context.guide, checkout)


def _is_below_first_folder(other: str, path: str, checkout: Checkout, launch: Launch) -> bool:
    """Whether a file is in the first folder of a path, which the directory of the command has."""
    first = path.partition("/")[0]
    return any(other.startswith(f"{checkout.relative(each / first)}/") for each in launch.folders)


def _other_name(context: GuideContext, checkout: Checkout, launch: Launch, code: list[str]) -> str:
    """A script next to which an absent one would be, with a name that is alike: `run_chat.py` for `chat.py`.

    The guide also starts a script of that directory that exists. Two of them, if the name is a usual one. A name with
    a wrong letter needs no others.
    """
    if numbered := _numbered(checkout, launch):
        return numbered
    name = posixpath.basename(launch.program.script)
    started = {
        checkout.script(each)
        for each in context.guide.launches
        if each.line and each.folders == launch.folders and "/" not in posixpath.normpath(each.program.script)
    }
    started = {each for each in started if each and posixpath.basename(each) != "setup.py"}
    folders = {*map(checkout.relative, launch.folders)}
    suffix = posixpath.splitext(name)[1]
    named = {
        posixpath.basename(each): each
        for each in code
        if posixpath.dirname(each) in folders and posixpath.splitext(each)[1] == suffix
    }
    if len(started) < (2 if _USUAL.fullmatch(name) else 1):
        stem = posixpath.splitext(name)[0]
        alike = [path for each, path in named.items() if is_alike(stem, posixpath.splitext(each)[0])]
        return alike[0] if len(alike) == 1 else ""
    return named.get(_alike(name, [*named], _SAME_NAME), "")


def _numbered(checkout: Checkout, launch: Launch) -> str:
    """The only file of the name with a number before it, in the directory of a command: `1-app.py` for `app.py`."""
    folders = {*map(checkout.relative, launch.folders)} - {"."} | ({""} if checkout.root in launch.folders else set())
    name = posixpath.normpath(launch.program.script)
    files = [each for each in checkout.paths if posixpath.dirname(each) in folders]
    numbered = [each for each in files if re.fullmatch(rf"\d+[-_. ]*{re.escape(name)}", posixpath.basename(each))]
    return numbered[0] if len(numbered) == 1 else ""


def _alike(name: str, names: Sequence[str], likeness: float) -> str:
    """The only name with the same words and others, or without some; otherwise the one with a likeness."""
    words = [each for each in names if _has_words_of(name, each)]
    alike = difflib.get_close_matches(name, names, n=1, cutoff=likeness)
    return words[0] if len(words) == 1 else next(iter(alike), "")


def _has_words_of(name: str, other: str) -> bool:
    """Whether one has all words of the other, or the same words joined in another order: `beireval`, `eval_beir`."""
    words, others = _words(name), _words(other)
    joined, parts = min((words, others), key=len), max((words, others), key=len)
    is_joined = len(joined) == 1 and len(parts) in (2, 3) and {*map("".join, permutations(parts))} & joined
    return words <= others or others <= words or bool(is_joined)


def _words(name: str) -> set[str]:
    return {*re.split(r"[_-]", posixpath.splitext(name)[0].lower())}
