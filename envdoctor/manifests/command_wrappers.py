"""Programs that run another command: sudo, srun, timeout, `bash -c`, eval."""

from __future__ import annotations

import re
from itertools import pairwise

from envdoctor.manifests.shell_records import Command

# Wrapper -> its options that take a value as the next word.
_WRAPPERS: dict[str, str] = {
    "sudo": "-u -g -h -p --user --group",
    "env": "-u -C --unset --chdir",
    "nohup": "",
    "exec": "-a",
    "command": "",
    "time": "-f -o",
    "nice": "-n",
    "ionice": "-c -n -p",
    "xargs": "-n -P -I -L -d -a -s",
    "stdbuf": "-i -o -e",
    "proxychains4": "-f",
    "numactl": "-m -N -C -i -l -p",
    "taskset": "",
    "timeout": "-k -s",
    "srun": (
        "-A -C -D -G -J -L -M -N -S -T -a -b -c -d -e -g -i -m -n -o -p -q -r -t -w -x --account --nodes --ntasks "
        "--partition --time --gpus --cpus-per-task --mem --constraint --nodelist --job-name --output --error --gres "
        "--container-image --container-mounts --container-workdir --container-name"
    ),
    "mpirun": "-n -np -H -x --host --hostfile --map-by --bind-to",
    "poetry": "",
    "pdm": "",
    "pixi": "-e --environment --manifest-path",
    "pipenv": "",
    "hatch": "-e --env",
    "rye": "",
}
_POSITIONAL = {"timeout": 1, "taskset": 1}  # arguments before the command: a duration, a mask
# Package managers that run a command with `run`; their other subcommands are not wrappers.
_RUN_SUBCOMMAND = frozenset({"poetry", "pdm", "pixi", "pipenv", "hatch", "rye"})
_SHELLS = frozenset({"bash", "sh", "zsh", "ksh", "dash"})


def unwrap(command: Command) -> Command:
    """The command that a wrapper runs, with the program's name instead of its path."""
    words = command.words
    assignments = command.assignments
    while words:
        name = words[0].rpartition("/")[2]
        if name not in _WRAPPERS or (name in _RUN_SUBCOMMAND and words[1:2] != ("run",)):
            return command._replace(words=(name, *words[1:]), assignments=assignments)
        words = words[2:] if name in _RUN_SUBCOMMAND else words[1:]
        words, variables = _skip_options(words, frozenset(_WRAPPERS[name].split()))
        words = words[_POSITIONAL.get(name, 0) :]
        assignments = (*assignments, *variables)
    return command._replace(words=())


def _skip_options(
    words: tuple[str, ...], with_value: frozenset[str]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The words after the options and assignments of a wrapper, and those assignments."""
    variables: list[tuple[str, str]] = []
    while words:
        if words[0].startswith("-"):
            words = words[2:] if words[0] in with_value else words[1:]
        elif match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", words[0], re.DOTALL):
            variables.append((match[1], match[2]))
            words = words[1:]
        else:
            break
    return words, tuple(variables)


def container_of(command: Command) -> str:
    """The image of `srun --container-image=nvcr.io#nvidia/pytorch:25.08-py3`; empty for a file, or without one."""
    words = command.words if command.name == "srun" else ()
    for word, following in pairwise((*words, "")):
        name, _, value = word.partition("=")
        if name == "--container-image":
            image = (value or following).removeprefix("docker://").replace("#", "/")
            return "" if image.startswith((".", "/")) or image.endswith((".sqsh", ".sif")) else image
    return ""


def inner_script(command: Command) -> str:
    """The script of `bash -lc "..."` and of `eval "..."`; empty for other commands."""
    if command.name == "eval":
        return " ".join(command.words[1:])
    if command.name not in _SHELLS:
        return ""
    flag = next((index for index, word in enumerate(command.words) if re.fullmatch(r"-\w*c", word)), 0)
    return command.words[flag + 1] if flag and flag + 1 < len(command.words) else ""
