"""Readers of files with commands: scripts, Dockerfiles, Apptainer definitions, notebooks, guides, web pages, text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.files import Files
from envdoctor.manifests.guide import parse_guide, parse_paths
from envdoctor.manifests.inputs.batch_jobs import NO_PACKAGES, checked_parts
from envdoctor.manifests.inputs.left_out_folders import only_files
from envdoctor.manifests.inputs.pieces import guides_of_code, numbered, unread_parts
from envdoctor.manifests.inputs.records import STANDARD_INPUT, Document
from envdoctor.manifests.markdown import SHELL_COMMANDS, Block, Line
from envdoctor.manifests.notebook_cells import cell_blocks
from envdoctor.manifests.own_names import name_key, own_names, repository_name
from envdoctor.manifests.restructured_text import is_restructured_text, to_markdown
from envdoctor.manifests.shell import without_prompt
from envdoctor.manifests.working_directory import repository_of

_CLONE = lazy_pattern(r"git clone\s[^\n;&|]{0,200}?((?:https?://|git@)[\w.@:/-]+)")
_COMMAND = lazy_pattern(r"\s*(?:>\s+)?(?:sudo\s+)?([\w./-]+)\s+\S")


def _read_block(kind: str, language: str, text: str, name: str, files: Files) -> Document:
    """A file of one block. In a folder of the repository that it clones, its commands run in the root."""
    if files.folder and repository_of(files.folder) != files.folder.absolute():
        files = _files_of_clone(text, name, files, is_readme=False)
    guides = guides_of_code([Block(language, "", numbered(text))], text, name, files)
    return Document(kind, tuple(guides), unread=unread_parts(guides, files))


def read_script(text: str, name: str, files: Files) -> Document:
    """A shell script or a batch job of SLURM."""
    document = _read_block("script", "bash", text, name, files)
    installs_nothing = any(map(checked_parts, document.paths))
    return document._replace(unread=(*document.unread, NO_PACKAGES)) if installs_nothing else document


def read_dockerfile(text: str, name: str, files: Files) -> Document:
    """A Dockerfile with its stages."""
    return _read_block("Dockerfile", "dockerfile", text, name, files)


def read_apptainer(text: str, name: str, files: Files) -> Document:
    """A definition of Apptainer or Singularity."""
    return _read_block("Apptainer", "", text, name, files)


def read_guide(text: str, name: str, files: Files) -> Document:
    """A setup guide in Markdown or reStructuredText, with its alternatives."""
    if name.lower().endswith(".rst") or is_restructured_text(text):
        text = to_markdown(text)
    guide = parse_guide(text, name)
    own = files_of_guide(text, name, files)
    paths = parse_paths(guide, text, name, own)
    found = only_files(paths, own)
    if found:
        own = own.with_second_folder(found[0].left_out_folder)
        paths = parse_paths(guide, text, name, own)
    absent = tuple(each for each in own.missing.values() if each.is_absent and each.in_repository)
    absent += tuple(each for each in found if each.path not in own.missing)
    paths = [each._replace(absent_files=absent) for each in paths]
    shown = paths[0] if len(paths) == 1 else guide
    return Document("guide", tuple(paths), shown, unread=unread_parts(paths, own))


def files_of_guide(text: str, name: str, files: Files) -> Files:
    """The files of the repository that contains the guide; none for standard input."""
    if files.folder is None or name == STANDARD_INPUT:
        return files.without_folder()
    root = repository_of(files.folder)
    return files.of_repository(root, own_names(root, text, files.folder), is_readme=name.lower().startswith("readme"))


def read_notebook(text: str, name: str, files: Files) -> Document:
    """A Jupyter notebook: `!pip` and `%pip` lines, `%%bash` cells, and Python code."""
    files = _files_of_clone(text, name, files, is_readme=True)
    blocks = []
    for block in cell_blocks(text):
        first = block.lines[0][1].strip() if block.lines else ""
        if written := re.fullmatch(r"%%(?:writefile|file)\s+([\w./-]+)", first):
            files.add(written[1], block.lines[1:])
        else:
            blocks.append(block)
    guides = guides_of_code(blocks, text, name, files)
    return Document("notebook", tuple(guides), unread=unread_parts(guides, files))


def _files_of_clone(text: str, name: str, files: Files, *, is_readme: bool) -> Files:
    """The files of the repository that a notebook, a script or a Dockerfile is in, if it clones this repository."""
    if files.folder is None or name == STANDARD_INPUT:
        return files
    folder = files.folder.absolute()
    cloned = {name_key(repository_name(url)) for url in _CLONE.findall(text)}
    root = repository_of(folder)
    if root == folder and name_key(folder.parent.name) in cloned:  # an archive without .git
        root = folder.parent
    names = own_names(root)
    return files.of_repository(root, names, is_readme=is_readme) if cloned & names else files


def read_web_page(text: str, name: str, files: Files) -> Document:
    """A web page saved as HTML: its preformatted texts."""
    parser = _PageParser()
    parser.feed(text)
    guides = guides_of_code(parser.blocks, text, name, files)
    return Document("web page", tuple(guides), unread=unread_parts(guides, files))


class _PageParser(HTMLParser):
    """Collects the `<pre>` elements of a page as blocks."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self.depth = 0
        self.first_line = 0
        self.language = ""
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Start a preformatted text, or read its language."""
        classes = next((value or "" for name, value in attrs if name == "class"), "")
        language = re.search(r"(?:language|highlight|lang|brush)[-: ]+(?:source-)?(\w+)", classes)
        if tag == "pre":
            self.depth += 1
            if self.depth == 1:
                self.first_line, self.parts = self.getpos()[0], []
        if language and (not self.depth or not self.language):
            self.language = {"text": "", "default": "", "none": ""}.get(language[1], language[1])

    def handle_endtag(self, tag: str) -> None:
        """End a preformatted text."""
        if tag == "pre" and self.depth:
            self.depth -= 1
            if not self.depth:
                self.blocks.append(Block(self.language, "", numbered("".join(self.parts), self.first_line)))
                self.language = ""

    def handle_data(self, data: str) -> None:
        """Collect the text."""
        if self.depth:
            self.parts.append(data)


def read_text(text: str, name: str, files: Files) -> Document:
    """Plain text with commands on lines of their own."""
    lines: list[Line] = []
    blocks: list[Block] = []
    continues = False
    for number, line in numbered(text):
        if continues or is_command_line(line):
            lines.append((number, re.sub(r"^\s*>\s+", "", without_prompt(line))))
            continues = line.rstrip().endswith("\\")
        elif lines:
            blocks.append(Block("bash", "", tuple(lines)))
            lines = []
    blocks += [Block("bash", "", tuple(lines))] if lines else []
    guides = guides_of_code(blocks, text, name, files)
    return Document("text", tuple(guides), unread=unread_parts(guides, files))


def is_command_line(line: str) -> bool:
    """Whether a line of a text is a command of a program that guides use."""
    match = _COMMAND.match(without_prompt(line))
    return bool(match) and match[1].rpartition("/")[2] in SHELL_COMMANDS if match else False
