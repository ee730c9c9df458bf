"""Commands of a guide as actions: one small parser for each program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from envdoctor.manifests.actions import (
    Action,
    Clone,
    Download,
    Environment,
    Image,
    Install,
    Modules,
    Run,
    System,
    Uninstall,
    Variables,
)
from envdoctor.manifests.documents import described_environment
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.options import Options, parse_options
from envdoctor.manifests.requirement import Wanted, parse_conda, parse_wanted
from envdoctor.manifests.shell import Command, parse_commands

Files = dict[str, tuple[Line, ...]]
_WRAPPERS = frozenset(
    {"sudo", "env", "nohup", "srun", "exec", "command", "time", "nice", "xargs", "stdbuf", "proxychains4"}
)
_SHELLS = frozenset({"bash", "sh", "zsh"})
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?|py")
_PIP = re.compile(r"pip(?:3(?:\.\d+)?)?")
_DOCKER_VALUED = frozenset({
    "-v", "--volume", "--name", "--shm-size", "--ipc", "-w", "--workdir", "--gpus", "--mount", "--entrypoint",
    "--ulimit",
    "--network", "--net", "-u", "--user", "--platform", "--cpus", "-m", "--memory", "--env", "--runtime", "--device",
    "--security-opt", "--cap-add", "-h", "--hostname", "--restart", "--pid", "--publish", "--add-host", "-e", "-p",
})  # fmt: skip
_DOCKER_PLAIN = frozenset({"-t", "-i", "-d", "-P", "-n", "-c", "-f", "-r", "-C", "-b", "-O", "-o"})
_MOST_REQUIREMENTS = 2000
_DEEPEST = 3  # of `bash -c` inside `docker run`


def actions_of(command: Command, files: Files, depth: int = 0) -> Iterator[Action]:
    """What one command does; nothing for commands that change nothing here."""
    words = command.words
    while words and words[0].rpartition("/")[2] in _WRAPPERS:
        words = _after_wrapper(words)
    if not words:
        return
    name = words[0].rpartition("/")[2]
    command = command._replace(words=(name, *words[1:]))
    inner = _inner_script(command)
    if inner and depth < _DEEPEST:
        for each in parse_commands(((command.line, inner),), {}):
            yield from actions_of(each, files, depth + 1)
        return
    parser = PARSERS.get(name) or (_pip if _PIP.fullmatch(name) else _python if _PYTHON.fullmatch(name) else None)
    if parser:
        yield from parser(command, files)


def _after_wrapper(words: tuple[str, ...]) -> tuple[str, ...]:
    rest = words[1:]
    while rest and (rest[0].startswith("-") or re.match(r"[A-Za-z_]\w*=", rest[0])):
        rest = rest[1:]
    return rest


def _inner_script(command: Command) -> str:
    """The script of `bash -lc "..."`."""
    if command.name not in _SHELLS:
        return ""
    flag = next((at for at, word in enumerate(command.words) if re.fullmatch(r"-\w*c", word)), 0)
    return command.words[flag + 1] if flag and flag + 1 < len(command.words) else ""


def requirement_lines(lines: tuple[Line, ...], files: Files, depth: int = 0) -> tuple[list[Wanted], list[str]]:
    """Requirements of a file, and its options (`--index-url X`), files that it names included."""
    wanted: list[Wanted] = []
    options: list[str] = []
    for number, raw in lines:
        text = raw.partition(" #")[0].strip().rstrip("\\").strip()
        if text.startswith(("-r ", "--requirement ")) and depth < _DEEPEST:
            more, others = requirement_lines(files.get(_file_name(text.split()[1]), ()), files, depth + 1)
            wanted, options = wanted + more, options + others
        elif text.startswith("-"):
            options += text.split()
        elif text and not text.startswith("#") and (found := parse_wanted(text, number)):
            wanted.append(found)
    return wanted, options


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _pip(command: Command, files: Files) -> Iterator[Action]:
    options = parse_options(command.words[1:])
    verb, names = (options.rest[0], options.rest[1:]) if options.rest else ("", [])
    if verb in ("install", "download", "sync"):
        yield _install(command, options, names, "pip", files)
    elif verb in ("uninstall", "remove"):
        found = [each.name for name in names if (each := parse_wanted(name, command.line))]
        yield Uninstall(command.line, str(command), tuple(found))


def _uv(command: Command, files: Files) -> Iterator[Action]:
    words = command.words[1:]
    if not words:
        return
    if words[0] == "pip":
        options = parse_options(words[1:])
        verb, names = (options.rest[0], options.rest[1:]) if options.rest else ("", [])
        if verb in ("install", "sync"):
            sources = [*names] if verb == "install" else []
            files_named = options.all("-r", "--requirement") + (() if verb == "install" else tuple(names))
            yield _install(command, options, sources, "uv", files, listed=files_named)
        elif verb == "uninstall":
            found = [each.name for name in names if (each := parse_wanted(name, command.line))]
            yield Uninstall(command.line, str(command), tuple(found))
        return
    options = parse_options(words[1:], valued=frozenset({"--with"}), plain=frozenset({"-o", "-d", "-e"}))
    if words[0] == "venv":
        name = options.rest[0] if options.rest else ".venv"
        python = _version_of(options.last("-p", "--python"))
        yield Environment(command.line, str(command), "uv", name, python, seeded=options.has("--seed"))
    elif words[0] == "add":
        yield _install(command, options, options.rest, "uv", files)
    elif words[0] == "run":
        with_names = [name for each in options.all("--with") for name in each.split(",")]
        if with_names:
            yield _install(command, options, with_names, "uv", files)
        yield from actions_of(command._replace(words=tuple(options.rest) or ("true",)), files, _DEEPEST)
    elif words[0] == "python" and len(words) > 2:
        yield Run(command.line, str(command), command.words)


def _install(
    command: Command, options: Options, names: list[str], tool: str, files: Files, *, listed: tuple[str, ...] = ()
) -> Install:
    wanted = [each for name in names if (each := parse_wanted(name, command.line))]
    written: list[str] = []
    for file in listed or options.all("-r", "--requirement", "--requirements"):
        more, others = requirement_lines(files.get(_file_name(file), ()), files)
        wanted, written = wanted + more, written + others
    for folder in options.all("-e", "--editable"):
        wanted += [each] if (each := parse_wanted(folder, command.line)) else []
    held: list[Wanted] = []
    for file in options.all("-c", "--constraint", "--constraints", "--override", "--overrides"):
        held += requirement_lines(files.get(_file_name(file), ()), files)[0]
    inside = parse_options(tuple(written))
    default = options.last("--default-index")
    index = options.last("-i", "--index-url") or default or inside.last("-i", "--index-url")
    named = (*options.all("--index", "--extra-index-url"), *inside.all("--extra-index-url"))
    indexes = tuple(re.sub(r"^[\w-]+=(?=http)", "", each) for each in named)  # uv: --index NAME=ADDRESS
    variables = dict(command.assignments)
    return Install(
        command.line,
        str(command),
        tool,
        _distinct(wanted),
        _distinct(held),
        index,
        indexes,
        options.all("-f", "--find-links") + inside.all("-f", "--find-links"),
        backend=options.last("--torch-backend") or variables.get("UV_TORCH_BACKEND", ""),
        upgrade=options.has("-U", "--upgrade") or "--upgrade-package" in options.values,
        reinstall=options.has("--force-reinstall", "--reinstall"),
        no_deps=options.has("--no-deps", "--no-dependencies"),
        no_isolation=options.has("--no-build-isolation") or "--no-build-isolation-package" in options.values,
        only_binary=bool(options.last("--only-binary")) or options.has("--no-build"),
        pre=options.has("--pre") or options.last("--prerelease") in ("allow", "if-necessary-or-explicit"),
        until=options.last("--exclude-newer")[:10] or variables.get("UV_EXCLUDE_NEWER", "")[:10],
        target=options.last("-p", "--python") if tool == "uv" else "",
        variables=command.assignments,
        options=tuple(options.all("--config-settings", "-C")),
        bare_bounds=command.bare_bounds,
    )


def _distinct(wanted: list[Wanted]) -> tuple[Wanted, ...]:
    """Each requirement once, and not more of them than any guide has."""
    return tuple({each.text: each for each in reversed(wanted[:_MOST_REQUIREMENTS])}.values())[::-1]


def _python(command: Command, files: Files) -> Iterator[Action]:
    words = command.words[1:]
    if words[:1] == ("-m",) and len(words) > 1:
        module, rest = words[1], words[2:]
        if module == "pip":
            yield from _pip(command._replace(words=("pip", *rest)), files)
        elif module in ("venv", "virtualenv"):
            options = parse_options(rest)
            version = _version_of(command.words[0])
            name = options.rest[0] if options.rest else ".venv"
            yield Environment(command.line, str(command), "venv", name, version, seeded=True)
        else:
            yield Run(command.line, str(command), words, module=module)
    elif words[:1] == ("-c",) and len(words) > 1:
        yield Run(command.line, str(command), words, code=words[1])
    elif words[:1] == ("setup.py",):
        yield Install(command.line, str(command), "pip", (Wanted(".", address=".", text=".", line=command.line),),
                      no_isolation=True, variables=command.assignments)  # fmt: skip
    elif words:
        yield Run(command.line, str(command), words)


def _conda(command: Command, files: Files) -> Iterator[Action]:
    valued = frozenset({"-c", "--channel", "-n", "--name", "-f", "--file", "--solver"})
    options = parse_options(command.words[1:], valued=valued, plain=frozenset({"-d", "-C", "-P", "-O"}))
    verbs, name = options.rest, options.last("-n", "--name", "-p", "--prefix")
    if verbs[:1] == ["env"]:
        verbs = verbs[1:]
    if not verbs:
        return
    line, text = command.line, str(command)
    if verbs[0] == "activate":
        yield Environment(line, text, "conda", verbs[1] if len(verbs) > 1 else "base", new=False)
    elif verbs[0] == "run":
        rest = command.words[command.words.index("run") + 1 :]
        yield from actions_of(command._replace(words=_after_options(rest)), files, _DEEPEST)
    elif verbs[0] in ("create", "install", "update"):
        wanted = [each for word in verbs[1:] if (each := parse_conda(word, line))]
        file = options.last("-f", "--file")
        described = described_environment(files.get(_file_name(file), ())) if file else None
        channels = options.all("-c", "--channel")
        if described:
            wanted, channels = described.packages, tuple(described.channels)
            name = name or described.name
        python = next((each.specifier.strip("=<>~.*") for each in wanted if each.name == "python"), "")
        if verbs[0] == "create":
            yield Environment(line, text, "conda", name, ".".join(python.split(".")[:2]), seeded=True)
        rest_wanted = tuple(each for each in wanted if each.name not in ("python", "pip"))
        if rest_wanted:
            yield Install(line, text, "conda", rest_wanted, channels=channels, target=name)
        if described and described.pip:
            yield _install(command._replace(words=("pip",)), parse_options(tuple(described.options)), [], "pip", files
                           )._replace(wanted=tuple(described.pip))  # fmt: skip


def _after_options(words: tuple[str, ...]) -> tuple[str, ...]:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("-n", "--name", "-p", "--prefix") else 1
    return words[at:]


def _docker(command: Command, files: Files) -> Iterator[Action]:
    verb = command.words[1] if len(command.words) > 1 else ""
    options = parse_options(command.words[2:], valued=_DOCKER_VALUED, plain=_DOCKER_PLAIN)
    if verb not in ("run", "pull", "create") or not options.rest:
        return
    name, tag = split_image(options.rest[0])
    yield Image(command.line, str(command), name, tag, entered=verb != "pull")
    rest = tuple(options.rest[1:])
    if verb == "run" and rest:
        at = command.words.index(rest[0])
        yield from actions_of(command._replace(words=command.words[at:]), files, 1)


def _apptainer(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    for word in command.words[1:]:
        if word.startswith("docker://"):
            name, tag = split_image(word.removeprefix("docker://").replace("#", "/"))
            yield Image(
                command.line,
                str(command),
                name,
                tag,
                entered="pull" not in command.words and "build" not in command.words,
            )


def split_image(text: str) -> tuple[str, str]:
    """`nvcr.io/nvidia/pytorch:24.10-py3` as name and tag."""
    name, _, tag = text.partition("@")[0].rpartition(":")
    return (name, tag) if name and "/" not in tag else (text.partition("@")[0], "")


def _apt(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    words = [word for word in command.words[1:] if not word.startswith("-")]
    if words[:1] == ["install"]:
        yield System(command.line, str(command), tuple(words[1:]))


def _download(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    wget = command.name == "wget"
    plain = (
        frozenset({"-o", "-c", "-n", "-p", "-r", "-P", "-d"})
        if wget
        else frozenset({"-O", "-f", "-i", "-p", "-n", "-r", "-P"})
    )
    options = parse_options(
        command.words[1:], valued=frozenset({"-P", "-O"} if wget else {"-o"}), plain=plain - {"-P"}
    )
    output = options.last("-O", "--output-document") if wget else options.last("-o", "--output")
    for address in (word for word in options.rest if "://" in word or word.endswith(".whl")):
        tail = address.partition("?")[0].rpartition("/")[2]
        yield Download(command.line, str(command), address, output or tail)


def _module(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    words = command.words[1:]
    if command.name == "module" and words[:1] not in (("load",), ("add",), ("swap",)):
        return
    names = words[1:] if command.name == "module" or words[:1] == ("load",) else words
    yield Modules(command.line, str(command), tuple(names))


def _export(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    pairs = [word.partition("=") for word in command.words[1:] if "=" in word]
    values = (*command.assignments, *((name, value) for name, _, value in pairs))
    if command.name == "setenv" and len(command.words) > 2:
        values = ((command.words[1], command.words[2]),)
    if values:
        yield Variables(command.line, str(command), values)


def _git(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    options = parse_options(command.words[1:], plain=frozenset({"-c", "-C", "-n", "-f", "-e", "-p"}))
    if options.rest[:1] == ["clone"] and len(options.rest) > 1:
        yield Clone(command.line, str(command), options.rest[1], options.last("-b", "--branch"))
    elif options.rest[:1] in (["checkout"], ["switch"]) and len(options.rest) > 1:
        yield Clone(command.line, str(command), "", options.rest[1])


def _source(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    path = command.words[1] if len(command.words) > 1 else ""
    if path.endswith("/bin/activate"):
        yield Environment(command.line, str(command), "venv", path.removesuffix("/bin/activate"), new=False)
    elif path == "activate":
        yield Environment(
            command.line, str(command), "conda", command.words[2] if len(command.words) > 2 else "", new=False
        )


def _virtualenv(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    options = parse_options(command.words[1:])
    name = options.rest[0] if options.rest else ".venv"
    yield Environment(
        command.line, str(command), "venv", name, _version_of(options.last("-p", "--python")), seeded=True
    )


def _run(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    words = command.words
    module = next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "-m"), "")
    yield Run(command.line, str(command), words, module=module)


def _version_of(text: str) -> str:
    found = re.search(r"(\d\.\d+)", text)
    return found[1] if found else ""


PARSERS: dict[str, Callable[[Command, Files], Iterator[Action]]] = {
    "uv": _uv, "conda": _conda, "mamba": _conda, "micromamba": _conda, "docker": _docker, "podman": _docker,
    "apptainer": _apptainer, "singularity": _apptainer, "enroot": _apptainer, "apt": _apt, "apt-get": _apt,
    "wget": _download,
    "curl": _download, "module": _module, "ml": _module, "export": _export, "setenv": _export, "ENV": _export,
    "ARG": _export,
    "git": _git, "source": _source, ".": _source, "virtualenv": _virtualenv, "huggingface-cli": _run, "hf": _run,
    "torchrun": _run, "accelerate": _run, "vllm": _run, "trl": _run, "./configure": _run, "sh": _run, "bash": _run,
    "ninja": _run, "make": _run, "cmake": _run, "nvidia-smi": _run, "deepspeed": _run, "ray": _run,
}  # fmt: skip
