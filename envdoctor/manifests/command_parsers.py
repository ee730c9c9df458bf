"""Converts commands to actions, with one parser for each program."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import (
    Action,
    Clone,
    Download,
    Install,
    InstallSystemPackages,
    LoadModules,
    Run,
    SelectEnvironment,
    SetVariables,
    Uninstall,
    UseImage,
)
from envdoctor.manifests.command_wrappers import container_of, inner_script, unwrap
from envdoctor.manifests.conda_environment import parse_environment_yml, stated_pip
from envdoctor.manifests.environment_commands import pyenv, python_version, source, virtualenv
from envdoctor.manifests.files import Files
from envdoctor.manifests.options import Options, parse_options
from envdoctor.manifests.requirement_files import editable_path, parse_requirement_lines, requirements_of_file
from envdoctor.manifests.shell import parse_commands
from envdoctor.manifests.shell_records import Command, ShellState, is_known
from envdoctor.resolution.requirement import InstallRequirement, parse_conda_spec, parse_install_requirement

_PYTHON = lazy_pattern(r"python(?:3(?:\.\d+)?)?|py")
_PIP = lazy_pattern(r"pip(?:3(?:\.\d+)?)?")
_DOCKER_WITH_VALUE = frozenset({
    "-v", "--volume", "--name", "--shm-size", "--ipc", "-w", "--workdir", "--gpus", "--mount", "--entrypoint",
    "--ulimit", "--network", "--net", "-u", "--user", "--platform", "--cpus", "-m", "--memory", "--env", "--runtime",
    "--device", "--security-opt", "--cap-add", "-h", "--hostname", "--restart", "--pid", "--publish", "--add-host",
    "-e", "-p",
})  # fmt: skip
_DOCKER_WITHOUT_VALUE = frozenset({"-t", "-i", "-d", "-P", "-n", "-c", "-f", "-r", "-C", "-b", "-O", "-o"})
_UNKNOWN_BUILD = lazy_pattern(r"^([\w.-]+==\d[\w.]*)\+(?:[a-z]+)?(?:\$\{?\w+\}?|\{\w+\}|<\w+>)$")
_PRINTED_FILE = lazy_pattern(r"\$\((?:cat\s+|<\s*)([\w./-]+)\)")
_MMCV_WHEELS = "https://download.openmmlab.com/mmcv/dist/"  # openmim 0.3.9, mim/commands/install.py
_MAX_REQUIREMENTS = 2000
_MAX_DEPTH = 3  # of nested commands, such as `bash -c` inside `docker run`


def parse_actions(command: Command, files: Files, depth: int = 0) -> Iterator[Action]:
    """The actions of a command; none for commands that do not affect an environment."""
    if image := container_of(command):
        name, tag = split_image(image)
        yield UseImage(command.line, f"srun --container-image={image}"[:200], name, tag)
        yield from parse_actions(command._replace(words=("srun", *unwrap(command).words)), files, depth)
        yield SelectEnvironment(command.line, "", "leave", "", new=False)
        return
    arguments = ("$arguments",) if command.name == "xargs" else ()  # they come from another command
    command = unwrap(command)
    if not command.words:
        return
    command = command._replace(words=(*command.words, *arguments))
    inner = inner_script(command)
    if inner and depth < _MAX_DEPTH:
        for inner_command in parse_commands(((command.line, inner),), ShellState()):
            yield from parse_actions(inner_command, files, depth + 1)
        return
    name = command.words[0]
    parser = PARSERS.get(name) or (_pip if _PIP.fullmatch(name) else _python if _PYTHON.fullmatch(name) else None)
    if parser:
        yield from parser(command, files)


def _parse_names(names: Iterable[str], line: int) -> list[InstallRequirement]:
    """The requirements in the arguments of a command. One with an unknown or an invalid name has an empty name.

    A further `pip install` among the arguments is a command of its own that lacks `&&`: RUN156 reports it.
    """
    words = [name for name in names if name.strip()]
    seconds = {n for n in range(1, len(words)) if words[n - 1] in ("pip", "pip3") and words[n] == "install"}
    return [
        parse_install_requirement(name, line) or InstallRequirement("", text=name, line=line)
        for number, name in enumerate(words)
        if number not in seconds and number + 1 not in seconds
    ]


def _pip(command: Command, files: Files) -> Iterator[Action]:
    options = parse_options(command.words[1:])
    verb, *names = options.arguments or [""]
    if verb in ("install", "download", "sync"):
        yield _install(command, options, names, "pip", files)
    elif verb in ("uninstall", "remove"):
        yield _uninstall(command, names)


def _mim(command: Command, files: Files) -> Iterator[Action]:
    """OpenMIM installs with pip; for mmcv it adds the page of OpenMMLab's wheels."""
    for action in _pip(command, files):
        if isinstance(action, Install) and any(each.name.startswith("mmcv") for each in action.requirements):
            yield action._replace(find_links=(*action.find_links, _MMCV_WHEELS))
        else:
            yield action


def _uninstall(command: Command, names: list[str]) -> Uninstall:
    requirements = _parse_names(names, command.line)
    return Uninstall(command.line, str(command), tuple(each.name for each in requirements if each.name))


def _uv(command: Command, files: Files) -> Iterator[Action]:
    words = command.words[1:]
    if not words:
        return
    if words[0] == "pip":
        yield from _uv_pip(command, files)
        return
    options = parse_options(words[1:], with_value=frozenset({"--with"}), without_value=frozenset({"-o", "-d", "-e"}))
    if words[0] == "venv":
        name = options.arguments[0] if options.arguments else ".venv"
        python = python_version(options.last("-p", "--python"))
        yield SelectEnvironment(command.line, str(command), "uv", name, python, seeded=options.has("--seed"))
    elif words[0] == "add":
        yield _install(command, options, options.arguments, "uv", files)
    elif words[0] == "run":
        names = [name for value in options.all("--with") for name in value.split(",")]
        if names:
            yield _install(command, options, names, "uv", files)
        yield from parse_actions(command._replace(words=tuple(options.arguments) or ("true",)), files, _MAX_DEPTH)
    elif words[0] == "python" and len(words) > 2:
        if words[1] == "pin":
            yield SelectEnvironment(command.line, str(command), "", "", python_version(words[2]), new=False)
        yield Run(command.line, str(command), command.words)


def _uv_pip(command: Command, files: Files) -> Iterator[Action]:
    options = parse_options(command.words[2:])
    verb, *names = options.arguments or [""]
    listed = options.all("-r", "--requirement")
    if verb == "install":
        yield _install(command, options, names, "uv", files, requirement_files=listed)
    elif verb == "sync":
        yield _install(command, options, [], "uv", files, requirement_files=(*listed, *names))
    elif verb == "uninstall":
        yield _uninstall(command, names)


def _install(
    command: Command,
    options: Options,
    names: list[str],
    tool: str,
    files: Files,
    *,
    requirement_files: tuple[str, ...] = (),
) -> Install:
    printed = [match[1] for name in names if (match := _PRINTED_FILE.fullmatch(name))]  # `$(cat requirements.txt)`
    named = [_of_any_build(name) for name in names if not _PRINTED_FILE.fullmatch(name)]
    requirements = _parse_names(named, command.line)
    file_options: list[str] = []
    for path in (*printed, *(requirement_files or options.all("-r", "--requirement", "--requirements"))):
        lines = files.lines(path, command.line)
        listed, listed_options = parse_requirement_lines(lines, files.within(path), folder=posixpath.dirname(path))
        requirements, file_options = requirements + listed, file_options + listed_options
    in_file = parse_options(tuple(file_options))
    requirements += _parse_names(map(editable_path, options.all("-e", "--editable")), command.line)
    constraints: list[InstallRequirement] = []
    names_of_constraints = ("-c", "--constraint", "--constraints", "--override", "--overrides")
    for path in (*options.all(*names_of_constraints), *in_file.all(*names_of_constraints)):
        constraints += requirements_of_file(path, command.line, files)
    index = options.last("-i", "--index-url") or options.last("--default-index")
    extra_indexes = (*options.all("--index", "--extra-index-url"), *in_file.all("--extra-index-url"))
    variables = dict(command.assignments)
    unknown = [requirement for requirement in requirements if not is_known(requirement.text)]
    invalid = [each for each in requirements if not each.name and not each.url and each not in unknown]
    return Install(
        command.line,
        str(command),
        tool,
        _deduplicate([each for each in requirements if each not in unknown and each not in invalid]),
        _deduplicate(constraints),
        index_url=index or in_file.last("-i", "--index-url"),
        extra_indexes=tuple(re.sub(r"^[\w-]+=(?=http)", "", url) for url in extra_indexes),  # uv: --index NAME=URL
        find_links=options.all("-f", "--find-links") + in_file.all("-f", "--find-links"),
        torch_backend=options.last("--torch-backend") or variables.get("UV_TORCH_BACKEND", ""),
        upgrade=options.has("-U", "--upgrade") or "--upgrade-package" in options.values,
        reinstall=options.has("--force-reinstall", "--reinstall"),
        no_deps=options.has("--no-deps", "--no-dependencies"),
        no_build_isolation=options.has("--no-build-isolation") or "--no-build-isolation-package" in options.values,
        no_index=options.has("--no-index") or in_file.has("--no-index"),
        only_binary=bool(options.last("--only-binary")) or options.has("--no-build"),
        pre=options.has("--pre") or options.last("--prerelease") in ("allow", "if-necessary-or-explicit"),
        exclude_newer=options.last("--exclude-newer")[:10] or variables.get("UV_EXCLUDE_NEWER", "")[:10],
        target=options.last("-p", "--python") if tool == "uv" else "",
        variables=command.assignments,
        config_settings=options.all("--config-settings", "-C"),
        unquoted_bounds=command.unquoted_bounds,
        invalid=tuple(invalid[:_MAX_REQUIREMENTS]),
        unknown=tuple(unknown[:_MAX_REQUIREMENTS]),
    )


def _of_any_build(text: str) -> str:
    """A pin without a build that only a shell determines: `torch==1.8.1` for `torch==1.8.1+${CUDA}`."""
    return _UNKNOWN_BUILD.sub(r"\1", text)


def _deduplicate(requirements: list[InstallRequirement]) -> tuple[InstallRequirement, ...]:
    """The requirements without duplicates, up to a maximum. Of duplicates the first remains."""
    by_text = {requirement.text: requirement for requirement in reversed(requirements[:_MAX_REQUIREMENTS])}
    return tuple(by_text.values())[::-1]


def _python(command: Command, files: Files) -> Iterator[Action]:
    words = command.words[1:]
    if words[:1] == ("-m",) and len(words) > 1:
        module, arguments = words[1], words[2:]
        if module == "pip":
            yield from _pip(command._replace(words=("pip", *arguments)), files)
        elif module in ("venv", "virtualenv"):
            options = parse_options(arguments)
            version = python_version(command.words[0])
            name = options.arguments[0] if options.arguments else ".venv"
            yield SelectEnvironment(command.line, str(command), "venv", name, version, seeded=True)
        else:
            yield Run(command.line, str(command), words, module=module)
    elif words[:1] == ("-c",) and len(words) > 1:
        yield Run(command.line, str(command), words, code=words[1])
    elif words[:1] == ("setup.py",):
        project = InstallRequirement(".", url=".", text=".", line=command.line)
        yield Install(
            command.line, str(command), "pip", (project,), no_build_isolation=True, variables=command.assignments
        )
    elif words:
        yield Run(command.line, str(command), words)


def _conda(command: Command, files: Files) -> Iterator[Action]:
    options = parse_options(
        command.words[1:],
        with_value=frozenset({"-c", "--channel", "-n", "--name", "-f", "--file", "--solver", "--clone"}),
        without_value=frozenset({"-d", "-C", "-P", "-O"}),
    )
    arguments, name = options.arguments, options.last("-n", "--name", "-p", "--prefix")
    if arguments[:1] == ["env"]:
        arguments = arguments[1:]
    if not arguments:
        return
    line, text = command.line, str(command)
    verb, *specs = arguments
    if verb == "activate":
        yield SelectEnvironment(line, text, "conda", specs[0] if specs else "base", new=False)
    elif verb == "run":
        words = command.words[command.words.index("run") + 1 :]
        yield from parse_actions(command._replace(words=_after_conda_options(words)), files, _MAX_DEPTH)
    elif verb in ("create", "install", "update"):
        requirements = [requirement for spec in specs if (requirement := parse_conda_spec(spec, line))]
        channels = options.all("-c", "--channel")
        path = options.last("-f", "--file")
        file = parse_environment_yml(files.lines(path, line)) if path else None
        if file:
            requirements, channels = file.packages, tuple(file.channels)
            name = name or file.name
        pythons = (requirement.specifier for requirement in requirements if requirement.name == "python")
        python = python_version(next(pythons, ""))
        pip = stated_pip(requirements)
        if verb == "create" or python:
            is_new, clone = verb == "create", options.last("--clone")
            yield SelectEnvironment(line, text, "conda", name, python, new=is_new, seeded=True, clone=clone, pip=pip)
        packages = tuple(requirement for requirement in requirements if requirement.name not in ("python", "pip"))
        rows = files.lines(path, line) if path and not requirements else ()
        built = tuple(InstallRequirement("", text=row, line=line) for _, row in rows if row.endswith("=pypi_0"))
        if packages or built:
            yield Install(line, text, "conda", packages, channels=channels, target=name, invalid=built)
        if file and (file.pip_packages or file.pip_options):
            pip_options = parse_options(tuple(file.pip_options))
            install = _install(command._replace(words=("pip",)), pip_options, [], "pip", files)
            yield install._replace(requirements=(*file.pip_packages, *install.requirements))


def _after_conda_options(words: tuple[str, ...]) -> tuple[str, ...]:
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in ("-n", "--name", "-p", "--prefix") else 1
    return words[index:]


def _docker(command: Command, files: Files) -> Iterator[Action]:
    verb = command.words[1] if len(command.words) > 1 else ""
    options = parse_options(command.words[2:], with_value=_DOCKER_WITH_VALUE, without_value=_DOCKER_WITHOUT_VALUE)
    if verb not in ("run", "pull", "create") or not options.arguments:
        return
    name, tag = split_image(options.arguments[0])
    yield UseImage(command.line, str(command), name, tag, is_entered=verb != "pull")
    program = options.arguments[1:]
    if verb == "run" and program:
        start = command.words.index(program[0])
        inner = command._replace(words=command.words[start:])
        yield from parse_actions(inner, files, 1)
        if len(program) > 1:  # the program ends, unlike an interactive shell, and the script continues outside
            yield SelectEnvironment(command.line, "", "leave", "", new=False)


def _apptainer(command: Command, files: Files) -> Iterator[Action]:
    """`apptainer pull docker://IMAGE`, and `apptainer exec docker://IMAGE PROGRAM`."""
    for index, word in enumerate(command.words):
        if word.startswith("docker://"):
            text = word.removeprefix("docker://").replace("#", "/")
            name, tag = split_image(re.sub(r"^[^/@]*@(?=[^/]+/)", "", text))  # without `$oauthtoken@`, the user
            is_entered = "pull" not in command.words and "build" not in command.words
            yield UseImage(command.line, str(command), name, tag, is_entered=is_entered)
            program = command.words[index + 1 :]
            if "exec" in command.words[:index] and len(program) > 1:  # unlike an interactive shell, it ends
                yield from parse_actions(command._replace(words=program), files, 1)
                yield SelectEnvironment(command.line, "", "leave", "", new=False)
            return


def split_image(text: str) -> tuple[str, str]:
    """Split `nvcr.io/nvidia/pytorch:24.10-py3` into name and tag."""
    name, _, tag = text.partition("@")[0].rpartition(":")
    return (name, tag) if name and "/" not in tag else (text.partition("@")[0], "")


def _apt(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    words = [word for word in command.words[1:] if not word.startswith("-")]
    if words[:1] == ["install"]:
        yield InstallSystemPackages(command.line, str(command), tuple(words[1:]))


def _download(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    if command.name == "wget":
        output_options = ("-O", "--output-document")
        with_value, without_value = {"-P", "-O"}, {"-o", "-c", "-n", "-p", "-r", "-d"}
    else:
        output_options = ("-o", "--output")
        with_value, without_value = {"-o"}, {"-O", "-f", "-i", "-p", "-n", "-r"}
    options = parse_options(
        command.words[1:], with_value=frozenset(with_value), without_value=frozenset(without_value)
    )
    for url in (word for word in options.arguments if "://" in word or word.endswith(".whl")):
        file = options.last(*output_options) or url.partition("?")[0].rpartition("/")[2]
        yield Download(command.line, str(command), url, file)


def _module(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    words = command.words[1:]
    if command.name == "module" and words[:1] not in (("load",), ("add",), ("swap",)):
        return
    names = words[1:] if command.name == "module" or words[:1] == ("load",) else words
    yield LoadModules(command.line, str(command), tuple(names))


def _export(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    pairs = [word.partition("=") for word in command.words[1:] if "=" in word]
    values = (*command.assignments, *((name, value) for name, _, value in pairs))
    if command.name == "setenv" and len(command.words) > 2:
        values = ((command.words[1], command.words[2]),)
    if values:
        yield SetVariables(command.line, str(command), values)


def _git(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    without_value = frozenset({"-c", "-C", "-n", "-f", "-e", "-p", "-q", "--quiet", "--hard", "--soft", "--mixed"})
    options = parse_options(command.words[1:], without_value=without_value)
    if options.arguments[:1] == ["clone"] and len(options.arguments) > 1:
        yield Clone(command.line, str(command), options.arguments[1], options.last("-b", "--branch"))
    elif options.arguments[:1] in (["checkout"], ["switch"], ["reset"]) and len(options.arguments) > 1:
        yield Clone(command.line, str(command), "", options.arguments[1])


def _run(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    words = command.words
    module = next((words[index + 1] for index, word in enumerate(words[:-1]) if word == "-m"), "")
    yield Run(command.line, str(command), words, module=module)


PARSERS: dict[str, Callable[[Command, Files], Iterator[Action]]] = {
    "uv": _uv, "mim": _mim, "conda": _conda, "mamba": _conda, "micromamba": _conda, "docker": _docker,
    "podman": _docker,
    "apptainer": _apptainer, "singularity": _apptainer, "enroot": _apptainer, "apt": _apt, "apt-get": _apt,
    "wget": _download,
    "curl": _download, "module": _module, "ml": _module, "export": _export, "setenv": _export, "ENV": _export,
    "ARG": _export,
    "git": _git, "source": source, ".": source, "virtualenv": virtualenv, "huggingface-cli": _run, "hf": _run,
    "torchrun": _run, "accelerate": _run, "vllm": _run, "trl": _run, "./configure": _run, "sh": _run, "bash": _run,
    "pyenv": pyenv, "ninja": _run, "make": _run, "cmake": _run, "nvidia-smi": _run, "deepspeed": _run, "ray": _run,
}  # fmt: skip
