"""Lists of installed packages: pip, uv, conda, `pip show`, and pairs that people write down."""

from __future__ import annotations

import re

from envdoctor.reports.layout import command_of
from envdoctor.reports.section import Line, Said, distribution_name, find, is_version

TAGGED = re.compile(r"\[(pip\d?|conda|uv)\]\s+(.*)$")
PINNED = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]{0,80})\s?(?:\[[\w,-]{1,60}\])?==\s?([\w.+!-]{1,60})\s?(?:;.{0,200}|#.{0,200})?$"
)
AT_URL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,80}) @ (\S{4,400})$")
COLUMN = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,80})\s{2,60}(\d[\w.+!-]{0,60})(?:\s+(\S.{0,200}))?$")
SPACED = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,80})\s(\d[\w.+!-]{0,60})(?:\s+(\S.{0,200}))?$")
HEADER = re.compile(
    r"(?:Package\s+Version|# Name\s+Version|List of packages in environment|# packages in environment"
    r"|Name\s+Version\s+Build)"
)
LIST_COMMAND = re.compile(r"(?:\S*python\S* -m )?(?:\S*/)?(?:uv )?(?:pip[\d.]{0,4} |conda list|mamba list)")
PAIR = re.compile(
    r"[-*\u2022\u00b7\s]{0,6}[`*\"']{0,3}([A-Za-z][A-Za-z0-9._ -]{1,30}?)[`*\"']{0,3}\s?(?:[vV]ersion)?[`*\"']{0,3}"
    r"\s?(?::|==?|\s)\s?[`*\"']{0,3}v?(\d[\w.+!-]{0,60}?)[`*\"',;.]{0,3}$"
)
# Of these a single line is enough, wherever it stands; prose names other things with numbers, too.
SPOKEN = frozenset({
    "accelerate", "bitsandbytes", "causal-conv1d", "cuda-python", "cupy-cuda12x", "datasets", "deepspeed",
    "flash-attn", "flash-attn-3", "flashinfer", "flashinfer-python", "huggingface-hub", "kernels", "liger-kernel",
    "llamafactory", "lmdeploy", "mamba-ssm", "mkl", "numpy", "nvidia-cudnn-cu12", "nvidia-nccl-cu12",
    "nvidia-nccl-cu13", "openrlhf", "outlines", "peft", "pytorch-triton", "ray", "safetensors", "sgl-kernel",
    "sglang", "tensordict", "tensorrt-llm", "tokenizers", "torch", "torchao", "torchaudio", "torchdata",
    "torchtext", "torchvision", "transformer-engine", "transformers", "triton", "triton-kernels", "trl", "unsloth",
    "unsloth-zoo", "verl", "vllm", "vllm-flash-attn", "xformers", "xgrammar",
})  # fmt: skip
NO_VERSION = re.compile(r"\d{1,3}(?:px|gb|mb|gib|x|b|k)$", re.IGNORECASE)


def parse_tagged(lines: list[Line], kind: str) -> Said:
    """collect_env's list: `[pip3] torch==2.4.0` and `[conda] pytorch   2.1.0   py3.10_cuda12.1_0   pytorch`."""
    said = Said(kind)
    for line in lines:
        found = TAGGED.match(line.text) if line.text[0] == "[" else None
        if not found:
            continue
        said.lines.add(line.number)
        if found[1] == "conda":
            _add_conda(said, found[2].split())
        elif pinned := PINNED.match(found[2]) or SPACED.match(found[2]) or COLUMN.match(found[2]):
            said.add_distribution(pinned[1], pinned[2])
    return said


def _add_conda(said: Said, words: list[str]) -> bool:
    """Name, version, build, channel; what conda got from PyPI is pip's. conda calls torch `pytorch`."""
    if len(words) < 2:
        return False
    from_pip = "pypi" in words[2:]
    said.tell("stack.kind", "conda", "conda lists packages")
    return said.add_distribution(words[0], words[1], "pip" if from_pip else "conda")


def parse_lists(lines: list[Line]) -> list[Said]:
    """Runs of `name==version`, pip's and conda's tables, below their command or header, or long enough alone.

    ```
    $ uv pip list                        $ pip freeze              # packages in environment at /opt/conda:
    Using Python 3.12.3 environment at   accelerate==1.11.0        # Name      Version   Build   Channel
    Package      Version                 flash_attn @ file:///...  torch       2.7.0     pypi_0  pypi
    ------------ -------
    ```
    """
    found: dict[str, Said] = {}
    begun = ""  # the command or header whose list this is
    run: list[tuple[Line, str, str, str]] = []
    for line in [*lines, Line(-1, ".")]:
        started = _list_kind(line.text)
        entry = None if started else _entry(line.text, begun)
        if entry and line.number >= 0:
            run.append((line, *entry))
            continue
        _keep_run(found, run, begun)
        run = []
        if started:
            begun = started
            said = found.setdefault(started, Said(started))
            said.lines.add(line.number)
        elif _is_noise(line.text):
            _tell_environment(found, begun, line)
        else:
            begun = ""
    return [said for said in found.values() if said.distributions]


def _list_kind(text: str) -> str:
    """The kind of list that a command or a header starts; empty where none starts."""
    if HEADER.match(text):
        return "conda list" if "Build" in text or text.startswith("#") else "pip list"
    if not ("pip" in text or "conda list" in text or "mamba list" in text):
        return ""
    command = command_of(text) or text
    if not LIST_COMMAND.match(command) or len(command) > 200:
        return ""
    if "conda list" in command or "mamba list" in command:
        return "conda list"
    uv = "uv " if command.startswith("uv ") else ""
    verb = next((verb for verb in ("freeze", "list") if verb in command.split()), "")
    return f"{uv}pip {verb}" if verb else ""


def _entry(text: str, begun: str) -> tuple[str, str, str] | None:
    """Name, version and what is behind them, of one line of a list."""
    if len(text) > 600:
        return None
    if found := PINNED.match(text):
        return found[1], found[2], "=="
    if found := AT_URL.match(text):
        wheel = find(r"/[A-Za-z0-9_.]{1,80}?-(\d[\w.+!%]{0,60}?)-(?:py|cp)\d[^/]{0,120}\.whl", found[2])
        return found[1], wheel.replace("%2B", "+"), "=="
    # The second is a table whose padding was trimmed.
    if found := COLUMN.match(text) or (SPACED.match(text) if begun.endswith("list") else None):
        return found[1], found[2], found[3] or ""
    return (text.rpartition("#egg=")[2], "", "==") if text.startswith("-e ") and "#egg=" in text else None


def _keep_run(found: dict[str, Said], run: list[tuple[Line, str, str, str]], begun: str) -> None:
    """Take a run of entries over where it is one: below a command, of two pins, of three rows, or of known names."""
    if not run:
        return
    spoken = sum(1 for _, name, version, _ in run if distribution_name(name) in SPOKEN and is_version(version))
    needed = 2 if run[0][3] == "==" else 3
    if not begun and not (len(run) >= needed and spoken) and not (spoken and run[0][3] != "=="):
        return
    kind = begun or ("pip freeze" if run[0][3] == "==" else "conda list" if "py" in run[0][3] else "pip list")
    said = found.setdefault(kind, Said(kind))
    for line, name, version, rest in run:
        if kind == "conda list":
            _add_conda(said, [name, version, *rest.split()])
        else:
            said.add_distribution(name, version)
        said.lines.add(line.number)


def _is_noise(text: str) -> bool:
    """What may stand inside a list: rules, comments, fences, pip's own notices."""
    return (
        not text.strip("-= `~")
        or text[0] == "#"
        or text.startswith(
            ("-e ", "Using Python", "Using CPython", "WARNING:", "[notice]", "DEPRECATION:", "warning:")
        )
    )


def _tell_environment(found: dict[str, Said], begun: str, line: Line) -> None:
    """uv names its environment: `Using Python 3.11.13 environment at: /home/user/envs/nano`."""
    if begun and begun in found:
        found[begun].lines.add(line.number)
    if version := find(r"^Using (?:C?Python) (\d\.\d{1,2}\.\d{1,2})", line.text):
        said = found.setdefault(begun or "uv pip list", Said(begun or "uv pip list"))
        said.tell("stack.python_version", version)
        said.tell("stack.python", find(r"environment at:? (\S{1,200})$", line.text))


def parse_show(lines: list[Line]) -> Said | None:
    """`pip show`: blocks that begin with `Name: torch` and `Version: 2.4.0+cu121`."""
    said = Said("pip show")
    name, claimed = "", 0
    for line in lines:
        if line.key == "name" and re.fullmatch(r"[A-Za-z0-9][\w.-]{0,80}", line.value):
            name, claimed = line.value, line.number
        elif name and line.key == "version" and line.number - claimed < 4:
            if said.add_distribution(name, line.value.split(" ")[0]):
                said.lines.update((claimed, line.number))
        elif name and line.key in SHOW_KEYS and line.number - claimed < 20:
            if claimed in said.lines:
                said.lines.add(line.number)
                if line.key == "location":
                    _tell_location(said, line.value)
        elif line.text != "---" and line.key not in SHOW_KEYS:
            name = ""
    return said if said.distributions else None


SHOW_KEYS = frozenset({
    "summary", "home-page", "author", "author-email", "license", "location", "requires", "required-by",
    "editable project location", "license-expression",
})  # fmt: skip


def _tell_location(said: Said, path: str) -> None:
    said.tell("stack.python_version", find(r"/python(3\.\d{1,2})/(?:site|dist)-packages", path), "from a path")


def parse_pairs(lines: list[Line]) -> Said | None:
    """Known names with versions: `torch: 2.3.0`, `- flash-attn 2.5.7`, `vllm 0.6.3, torch 2.4.0`."""
    said = Said("package versions")
    for line in lines:
        text = line.text
        if len(text) > 160 or not any(character.isdigit() for character in text):
            continue
        parts = [part for part in re.split(r"[,;|] ?", text) if part.strip()] if len(text) < 120 else [text]
        pairs = [PAIR.match(part) for part in parts[:12]]
        if not all(pairs):
            continue
        spoken = [(pair[1], pair[2]) for pair in pairs if pair and distribution_name(_plain(pair[1])) in SPOKEN]
        if not spoken or (len(parts) == 1 and "==" in text):
            continue
        for name, version in spoken:
            if not NO_VERSION.match(version) and "." in version and said.add_distribution(_plain(name), version):
                said.lines.add(line.number)
    return said if said.distributions else None


def _plain(name: str) -> str:
    return re.sub(r"\s*(?:version|__version__|\.version)$", "", name.strip(), flags=re.IGNORECASE)
