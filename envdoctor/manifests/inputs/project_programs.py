"""The programs of a project whose manifest or README starts none: those of the README, and its own scripts."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import Action, Install
from envdoctor.manifests.block_actions import BlockReader
from envdoctor.manifests.checkout_code import Checkout, checkout_of
from envdoctor.manifests.console_scripts import console_scripts
from envdoctor.manifests.files import Files
from envdoctor.manifests.inputs.records import STANDARD_INPUT, Document
from envdoctor.manifests.markdown import Block, parse_blocks
from envdoctor.manifests.own_names import own_names
from envdoctor.manifests.program_launches import OWN_REQUIREMENTS, Launch, Program
from envdoctor.manifests.write_back import MANIFESTS

_WITH_ENTRY_POINTS = frozenset({"pyproject", "setup.cfg", "setup.py"})
_KINDS = MANIFESTS | {"script"}
_GUIDE = lazy_pattern(
    r"(?i)(?:[\w.-]*readme[\w.-]*|[\w-]*(?:train|eval|infer|demo|usage|run|start|finetun|model|data)[\w-]*)\.md"
)
_SCRIPT = lazy_pattern(r"(?<![\w./-])((?:[\w-]+/)*[\w.-]+\.sh)\b")
# Scripts that install, or that are no part of the usual work.
_OTHER_STEP = lazy_pattern(r"(?i)install|setup|env|build|docker|download|test|format|lint|clean|release|deploy")
_LINK = lazy_pattern(r"\]\((?:\./)?((?:[\w-]+/)*[\w.-]+)/?\)")  # to a guide, or to a folder with a README
_PROGRAM = lazy_pattern(r"`(python3? (?:[\w-]+/)*[\w-]+\.py\b[^`\n]*)`")  # in a sentence
_CODE = lazy_pattern(r"`(([\w.-]+) [^`\n]*)`")
# The head of a README of a Space, in which `app_file` follows `sdk`:
# https://huggingface.co/docs/hub/spaces-config-reference, 2026-11-28
_APP = lazy_pattern(
    r"(---\s*\n(?:(?!---)[^\n]*\n){0,20}?sdk:\s*([a-z]+)\s*\n(?:(?!---)[^\n]*\n){0,20}?)app_file:\s*([\w./-]+\.py)\s*\n"
)
_STARTS = {"streamlit": "streamlit run"}
_MANIFESTS = ("requirements.txt", "environment.yml", "environment.yaml", "pyproject.toml", "setup.py")
_SETUP = lazy_pattern(r"(?i)[\w-]*(?:install|setup|env)[\w-]*\.sh")
_INSTALLS = lazy_pattern(r"\b(?:pip3?|conda|mamba) install\b|\bconda env create\b|\b(?:uv|poetry) (?:add|sync)\b")
_DOCUMENTATION = lazy_pattern(r"docs?(?:/|$)")  # whose requirements build the pages
_MAX_GUIDES = 6
_OTHER_SCRIPT = lazy_pattern(r"(?:setup|conftest|noxfile|tasks|test_\w+|\w+_test|__\w+__)\.py")
_MAX_SCRIPTS = 30
# Programs whose code is not below `if __name__ == "__main__"`, if no file next to them imports them.
_PROGRAM_NAME = lazy_pattern(
    r"(?i)(?:main|app|run|demo|train|finetune|infer|inference|predict|evaluate|generate|server|bot|webui|gui"
    r"|streamlit_app|gradio_app|chatbot)\.py"
)


def with_programs(document: Document, name: str, files: Files) -> Document:
    """The document of a manifest, or of a guide that starts no program, with the programs of its project."""
    is_manifest = document.kind in _KINDS
    is_project = is_manifest or bool(document.origin) or document.kind == "guide"
    checkout = checkout_of(files) if is_project and name != STANDARD_INPUT else None
    if checkout is None or not document.paths:
        return document
    started = [each for path in document.paths for each in path.launches if each.program.is_python]
    if started:
        return _with_named_scripts(document, name, checkout, files, started)
    of_guides = () if document.origin else _of_guides(checkout, files, name, _packages(document))
    if document.kind == "guide" and files.folder and len(document.paths) == 1:
        of_guides = (*_of_guide(checkout, files, files.folder, name, in_text=True)[0], *of_guides)
    is_started = any(each.program.is_python for each in of_guides)
    scripts = _own_scripts(checkout, files, is_started=is_started) if is_manifest or document.origin else ()
    scripts = (*scripts, *(_entry_points(files) if document.kind in _WITH_ENTRY_POINTS else ()))
    paths = tuple(
        path._replace(launches=(*(() if is_manifest else path.launches), *of_guides, *scripts), checkout=checkout)
        for path in document.paths
    )
    return document._replace(paths=paths)


def _with_named_scripts(
    document: Document, name: str, checkout: Checkout, files: Files, started: Sequence[Launch]
) -> Document:
    """The document of a guide with the further programs of the shell scripts that its text names."""
    if document.kind != "guide" or not files.folder or len(document.paths) != 1:
        return document
    known = set(map(checkout.script, started))
    named = _of_guide(checkout, files, files.folder, name, in_text=True, only_scripts=True)[0]
    further = [each for each in named if each.program.is_python and checkout.script(each) not in {*known, ""}]
    (path,) = document.paths
    return document._replace(paths=(path._replace(launches=(*path.launches, *further)),))


def _packages(document: Document) -> frozenset[str]:
    """The packages that the steps of a document name."""
    installs = (each for path in document.paths for each in path.actions if isinstance(each, Install))
    return frozenset(each.name for install in installs for each in install.requirements)


def _of_guides(checkout: Checkout, files: Files, own: str, packages: frozenset[str]) -> tuple[Launch, ...]:
    """The programs that the guides next to a file and those of the repository start, those of the README first.

    The shell scripts that their text names are among them. A guide of another folder that installs further packages
    has an environment of its own for its programs.
    """
    folder = files.folder or checkout.root
    found: dict[tuple[str, str], Launch] = {}
    for path in _guides(checkout, folder.absolute(), own):
        launches, actions = _of_guide(checkout, files, path.parent, path.name)
        is_nested = path.parent not in (folder.absolute(), checkout.root)
        if is_nested and _has_environment(checkout, path.parent, actions, packages):
            continue
        for launch in launches:
            program = launch.program
            found.setdefault((program.script or program.module, program.function and program.subcommand), launch)
    return tuple(found.values())


def _has_environment(checkout: Checkout, folder: Path, actions: Sequence[Action], packages: frozenset[str]) -> bool:
    """Whether the steps of a guide, or a manifest next to it, install more than the packages of the audited file."""
    relative = checkout.relative(folder)
    folders = [relative.rsplit("/", count)[0] for count in range(relative.count("/") + 1)]
    if not _DOCUMENTATION.match(relative) and any(_names_packages(checkout, each, relative) for each in folders):
        return True
    installs = [each for each in actions if isinstance(each, Install)]
    names = {each.name for install in installs for each in install.requirements if each.name}
    return bool(names - packages) or any(each.unknown for each in installs)


def _names_packages(checkout: Checkout, folder: str, own: str) -> bool:
    """Whether a folder has a manifest, a script that installs packages, or a guide, other than that of `own`."""
    files = [path for path in checkout.paths if path.rpartition("/")[0] == folder]
    guides = (path for path in files if path.lower().endswith(".md") and folder != own)
    return any(
        path.rpartition("/")[2] in _MANIFESTS or _SETUP.fullmatch(path.rpartition("/")[2]) for path in files
    ) or any(_INSTALLS.search(checkout.text(path)) for path in guides)


def _guides(checkout: Checkout, folder: Path, own: str) -> list[Path]:
    """The guides of a folder and of the root, the README first, and those to which a README links."""
    found: list[Path] = []
    for each in dict.fromkeys((folder, checkout.root)):
        try:
            names = sorted(path.name for path in each.iterdir() if _GUIDE.fullmatch(path.name))
        except OSError:
            continue
        names.sort(key=lambda name: not name.lower().startswith("readme"))
        text = checkout.text(checkout.relative(each / names[0])) if names else ""
        linked = [name for link in _LINK.findall(text) if (name := _linked_guide(checkout, each, link))]
        found += [each / name for name in [*names[:_MAX_GUIDES], *linked[:_MAX_GUIDES]]]
    return [path for path in dict.fromkeys(found) if path != folder / own]


def _linked_guide(checkout: Checkout, folder: Path, link: str) -> str:
    """The guide to which a link leads: a file, or the README of a folder; empty for other links."""
    if _GUIDE.fullmatch(link.rpartition("/")[2]):
        return link
    names = (f"{link}/{name}" for name in ("README.md", "readme.md", "Readme.md"))
    return next((name for name in names if checkout.relative(folder / name) in checkout.paths), "")


def _named_in_text(checkout: Checkout, text: str, own: Files, *, only_scripts: bool) -> Iterator[Block]:
    """The programs that the text of a guide names outside of its blocks: a command, or a shell script of the project.

    A script can be named without its folder. The head of the README of a Space names its program.
    """
    app = None if only_scripts else _APP.match(text)
    if app:
        yield Block("bash", "", ((app[1].count("\n") + 1, f"{_STARTS.get(app[2], 'python')} {app[3]}"),))
    scripts = console_scripts(own)
    blocks = parse_blocks(text)
    numbers = {number for block in blocks for number, _ in block.lines}
    started = {match[1] for block in blocks for match in _SCRIPT.finditer(block.text)}
    for number, line in enumerate(text.split("\n"), 1):
        if number in numbers:
            continue
        named = [*_PROGRAM.findall(line), *(command for command, name in _CODE.findall(line) if name in scripts)]
        yield from (Block("bash", "", ((number, command),)) for command in (named if not only_scripts else ()))
        for script in _SCRIPT.findall(line):
            if script in started or _OTHER_STEP.search(script):
                continue
            path = script if own.of_project(script, number) else checkout.only_path(script)
            if path:
                started.add(script)
                yield Block("bash", "", ((number, f"bash {path}"),))


def _of_guide(
    checkout: Checkout, files: Files, folder: Path, name: str, *, in_text: bool = False, only_scripts: bool = False
) -> tuple[tuple[Launch, ...], tuple[Action, ...]]:
    """The programs that a guide starts, and its steps; with `in_text` only those that its text names.

    With `only_scripts`, those of the shell scripts among them.
    """
    text = checkout.text(checkout.relative(folder / name))
    names = own_names(checkout.root, text, folder)
    own = Files(folder, *files.platforms).of_repository(checkout.root, names, is_readme=True)
    blocks = [
        *(() if in_text else parse_blocks(text)),
        *_named_in_text(checkout, text, own, only_scripts=only_scripts),
    ]
    reader = BlockReader(blocks, files=own)
    actions = tuple(reader.actions())
    # A guide can leave out the step that enters the directory of the manifest and its programs.
    more = (files.folder,) if files.folder else ()
    launches = tuple(
        each._replace(command=f"{name}:{each.line}: {each.command}", line=0, folders=(*each.folders, *more))
        for each in reader.launches
    )
    return launches, actions


def _entry_points(files: Files) -> tuple[Launch, ...]:
    """The programs that an installation of the project puts on PATH."""
    folders = (files.folder,) if files.folder else ()
    return tuple(Launch(0, name, program, folders) for name, program in console_scripts(files).items())


def _own_scripts(checkout: Checkout, files: Files, *, is_started: bool) -> tuple[Launch, ...]:
    """The scripts next to the manifest that are programs, and that have no requirements of their own.

    Where no guide starts a program, `main.py` is one also without a check of `__name__`.
    """
    folder = files.folder
    if folder is None:
        return ()
    prefix = str(folder.absolute().relative_to(checkout.root))
    prefix = "" if prefix == "." else f"{prefix}/"
    try:
        names = sorted(each.name for each in folder.iterdir() if each.suffix == ".py")
    except OSError:
        return ()
    texts = {name: checkout.text(f"{prefix}{name}") for name in names if not _OTHER_SCRIPT.fullmatch(name)}
    scripts = [
        name for name, text in texts.items()
        if not OWN_REQUIREMENTS.search(text)
        and ("__main__" in text or (not is_started and _is_plain_program(name, texts)))
    ]  # fmt: skip
    return tuple(Launch(0, name, Program(script=name), (folder,)) for name in scripts[:_MAX_SCRIPTS])


def _is_plain_program(name: str, texts: Mapping[str, str]) -> bool:
    """Whether a file has the name of a program and calls functions when it runs, and no other file imports it."""
    imported = re.compile(rf"(?m)^\s*(?:from|import)\s+(?:\.|\w+\.)?{name.removesuffix('.py')}\b")
    if not _PROGRAM_NAME.fullmatch(name) or any(map(imported.search, texts.values())):
        return False
    try:
        with warnings.catch_warnings(action="ignore"):  # of invalid escape sequences
            body = ast.parse(texts[name]).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = [each for each in body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    return bool(calls) or any(isinstance(each, ast.For | ast.While | ast.With) for each in body)
