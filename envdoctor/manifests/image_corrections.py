"""Corrections of Dockerfiles: tags of images, instructions in place of commands, and steps that the build needs."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.manifests.edited_lines import EditedLines, named

_EXPORT = lazy_pattern(r"(\s*)RUN\s+export\s+([A-Za-z_]\w*=(?:\"[^\"$`]*\"|[^\s\"'$`&|;]+))\s*")
_CHANGES_FOLDER = lazy_pattern(r"(\s*)RUN\s+cd\s+([^\s&|;]+)\s*")

# The commands that replace the package servers of an image by an archive. Releases in it are no longer signed again.
_ARCHIVES = {
    "archive.debian.org": (
        "sed -i -e 's#http://\\(deb\\|security\\).debian.org#http://archive.debian.org#' -e '/-updates/d' "
        "/etc/apt/sources.list && echo 'Acquire::Check-Valid-Until \"false\";' > /etc/apt/apt.conf.d/99archive"
    ),
    "old-releases.ubuntu.com": (
        "sed -i 's#http://\\(archive\\|security\\).ubuntu.com#http://old-releases.ubuntu.com#' /etc/apt/sources.list"
    ),
    "vault.centos.org": (
        "sed -i -e 's/^mirrorlist/#mirrorlist/' "
        "-e 's|^#\\?baseurl=http://mirror.centos.org|baseurl=http://vault.centos.org|' /etc/yum.repos.d/CentOS-*"
    ),
}


def accept_terms(lines: EditedLines, finding: Finding) -> bool:
    """Accept the terms of the channels: the variable is that of conda-anaconda-tos."""
    return lines.insert_instruction(finding.line, "ENV CONDA_PLUGINS_AUTO_ACCEPT_TOS=yes")


def permit_pip(lines: EditedLines, finding: Finding) -> bool:
    """Permit pip to install into the Python of the system of an image."""
    is_uv = "`uv " in finding.message
    return lines.insert_instruction(finding.line, f"ENV {'UV' if is_uv else 'PIP'}_BREAK_SYSTEM_PACKAGES=1")


def use_new_key(lines: EditedLines, finding: Finding) -> bool:
    """Name the key that signs the repository today, in each line of the command."""
    found = [lines.replace(number, r"7fa2af80\.pub", "3bf863cc.pub") for number in lines.statement(finding.line)]
    return any(found)


def use_instruction(lines: EditedLines, finding: Finding) -> bool:
    """Write ENV and WORKDIR where a RUN has nothing but an assignment or a `cd`."""
    if len(lines.statement(finding.line)) > 1:
        return False
    line = lines.of(finding.line)
    if found := _EXPORT.fullmatch(line):
        return lines.set(finding.line, f"{found[1]}ENV {found[2]}")
    if found := _CHANGES_FOLDER.fullmatch(line):
        return lines.set(finding.line, f"{found[1]}WORKDIR {found[2]}")
    return False


def use_bash(lines: EditedLines, finding: Finding) -> bool:
    """Let RUN use bash. conda's function needs its hook as well, which the text does not determine."""
    if "conda" in finding.message:
        return False
    return lines.insert_instruction(finding.line, 'SHELL ["/bin/bash", "-c"]')


def confirm(lines: EditedLines, finding: Finding) -> bool:
    """Confirm an installation by apt, or read its lists in the same step."""
    numbers = lines.statement(finding.line)
    if finding.fix.startswith("Add -y"):
        pattern, new = r"\b(apt(?:-get)?\s+install)(?=\s)(?!.*\s-y\b)", r"\1 -y"
    else:
        pattern, new = r"\b((?:sudo\s+)?)(apt(?:-get)?)(\s+(?:-\S+\s+)*install)(?=\s)", r"\1\2 update && \1\2\3"
    return any(lines.replace(number, pattern, new) for number in numbers if number >= finding.line)


def copy_before(lines: EditedLines, finding: Finding) -> bool:
    """Copy a requirements file above the step that reads it."""
    path = named(r"^Copy ([\w./-]+\.txt) before this RUN\.$", finding.fix)
    if not path or path.startswith("/") or ".." in path:
        return False
    folder = f"{path.rpartition('/')[0]}/" if "/" in path else "./"
    return lines.insert_instruction(finding.line, f"COPY {path} {folder}")


def declare_argument(lines: EditedLines, finding: Finding) -> bool:
    """Declare an argument of another stage below the FROM of the stage that uses it."""
    argument = named(r"^Add `(ARG \w+)` below the FROM", finding.fix)
    image = lines.image_of(finding.line)
    return bool(argument and image) and lines.insert_instruction(image, argument, below=True)


def use_archive(lines: EditedLines, finding: Finding) -> bool:
    """Read the packages of a release that ended from the archive of its distribution."""
    archive = named(r"have moved to (\S+): the step", finding.message)
    command = _ARCHIVES.get(archive, "")
    return bool(command) and lines.insert_instruction(finding.line, f"RUN {command}", below=True)
