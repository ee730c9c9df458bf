"""Readers of GitHub workflows, composite actions and devcontainer.json."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import SelectEnvironment, SetVariables, UseImage, UseRunner, UseWorkflowAction
from envdoctor.manifests.command_parsers import split_image
from envdoctor.manifests.files import NOT_FOUND, Files
from envdoctor.manifests.inputs.matrix import matrix_combinations
from envdoctor.manifests.inputs.pieces import Piece, guides_of_code, numbered, unread_parts
from envdoctor.manifests.inputs.records import Document
from envdoctor.manifests.inputs.yaml_nodes import YamlNode, parse_yaml
from envdoctor.manifests.markdown import Block
from envdoctor.manifests.shell_records import is_known

_EXPRESSION = lazy_pattern(r"\$\{\{\s*([\w.\-]+)\s*\}\}")
_MATRIX_VALUE = lazy_pattern(r"\$\{\{\s*matrix\.([\w-]+)\s*\}\}")
_OTHER_EXPRESSION = lazy_pattern(r"\$\{\{.*?\}\}")
_MAX_JOBS, _MAX_DEPTH = 50, 3
_SETUP = lazy_pattern(r"(?:actions/setup-python|astral-sh/setup-uv|conda-incubator/setup-miniconda)@")
_COMMENT = lazy_pattern(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = lazy_pattern(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')
_LIFECYCLE = (
    "initializeCommand", "onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand",
    "postAttachCommand",
)  # fmt: skip


def read_workflow(text: str, name: str, files: Files) -> Document:
    """A workflow of GitHub Actions: each job, with each combination of its matrix, is an environment."""
    root = parse_yaml(text)
    if root is None:
        return Document("workflow")
    jobs = root.get("jobs")
    steps = root.get("runs").get("steps")
    runs = dict(jobs.items()) or ({"": root.get("runs")} if steps.values() else {})
    guides = []
    inputs = _default_inputs(root)
    for key, job in list(runs.items())[:_MAX_JOBS]:
        combinations = matrix_combinations(job)
        for values in combinations:
            known = inputs | {f"matrix.{name}": value for name, value in values.items()}
            pieces = [*_variables(root.get("env"), known), *_job_pieces(job, known, files)]
            shown = [f"job {key}"] * (len(runs) > 1) + [", ".join(values.values())] * (len(combinations) > 1)
            guides += guides_of_code(pieces, text, name, files, branch=" ".join(shown))
    called = [job.get("uses") for job in runs.values() if job.get("uses").text]
    separate = [f"{uses.text} (line {uses.line}): a workflow that is called: audit it by itself" for uses in called]
    more = (f"{len(runs) - _MAX_JOBS} further jobs: more than {_MAX_JOBS}",) if len(runs) > _MAX_JOBS else ()
    return Document("workflow", tuple(guides), unread=(*unread_parts(guides, files), *separate, *more))


def _default_inputs(root: YamlNode) -> dict[str, str]:
    """The defaults of the inputs of an action, or of a workflow that is called or dispatched."""
    events = root.get("on")
    places = (root, events.get("workflow_call"), events.get("workflow_dispatch"))
    return {
        f"inputs.{key}": value.get("default").text
        for place in places
        for key, value in place.get("inputs").items()
        if value.get("default").text
    }


def _job_pieces(job: YamlNode, known: Mapping[str, str], files: Files, depth: int = 0) -> Iterator[Piece]:
    yield from _runners(job)
    container = job.get("container")
    image = container if container.text else container.get("image")
    if image.text:
        text = _without_expressions(image.text, known)
        yield UseImage(image.line, f"container: {text}", *split_image(text))
    yield from _variables(job.get("env"), known)
    for step in job.get("steps").values():
        yield from _variables(step.get("env"), known)
        uses, script = step.get("uses"), step.get("run")
        name, at, reference = uses.text.partition("@")
        if at and "/" in name:
            yield UseWorkflowAction(uses.line, f"uses: {uses.text}"[:200], name, reference)
        python = step.get("with").get("python-version")
        if python.text and _SETUP.match(uses.text):
            version = _without_expressions(python.text, known)
            minor = re.match(r"3\.\d+", version)
            yield SelectEnvironment(
                python.line,
                f"{uses.text.partition('@')[0]} {version}",
                "venv",
                "",
                minor[0] if minor else "",
                seeded=True,
            )
        if uses.text.startswith("./") and depth < _MAX_DEPTH:
            yield from _action_pieces(step, known, files, depth)
        if script.text:
            language = "python" if step.get("shell").text.startswith("python") else "bash"
            yield Block(language, "", numbered(_without_expressions(script.text, known), script.first_line))


def _runners(job: YamlNode) -> Iterator[Piece]:
    """The labels of `runs-on`, also those of an axis of the matrix; none for self-hosted runners."""
    stated = job.get("runs-on")
    labels = stated.values() or [stated]
    if any(each.text == "self-hosted" for each in labels):
        return
    for each in labels:
        axis = _MATRIX_VALUE.fullmatch(each.text.strip())
        for label in _axis_values(job, axis[1]) if axis else [each]:
            if label.text and "$" not in label.text:
                yield UseRunner(label.line, f"runs-on: {label.text}"[:200], label.text)


def _axis_values(job: YamlNode, name: str) -> list[YamlNode]:
    """The values of an axis of the matrix, of `include` as well."""
    matrix = job.get("strategy").get("matrix")
    return [*matrix.get(name).values(), *(row.get(name) for row in matrix.get("include").values())]


def _action_pieces(step: YamlNode, known: Mapping[str, str], files: Files, depth: int) -> Iterator[Piece]:
    """The steps of an action of the same repository, with the line of the step that uses it."""
    uses = step.get("uses")
    folder = uses.text.rstrip("/")
    texts = (files.of_project(f"{folder}/{name}", uses.line) for name in ("action.yml", "action.yaml"))
    lines = next(filter(None, texts), ())
    root = parse_yaml("\n".join(text for _, text in lines))
    if not lines or root is None:
        files.add_missing(f"{uses.text}/action.yml", uses.line, NOT_FOUND)
        return
    given = {f"inputs.{key}": _without_expressions(value.text, known) for key, value in step.get("with").items()}
    for piece in _job_pieces(root.get("runs"), _default_inputs(root) | given, files, depth + 1):
        if isinstance(piece, Block):
            yield piece._replace(lines=tuple((uses.line, text) for _, text in piece.lines))
        else:
            yield piece._replace(line=uses.line)


def _variables(node: YamlNode, known: Mapping[str, str]) -> Iterator[Piece]:
    lines = tuple(
        (value.line, f"export {key}={_shell_value(value.text, known)}")
        for key, value in node.items()
        if re.fullmatch(r"[A-Za-z_]\w*", key)
    )
    if lines:
        yield Block("bash", "", lines)


def _shell_value(text: str, known: Mapping[str, str]) -> str:
    text = _without_expressions(text, known)
    return shlex.quote(text) if is_known(text) else f'"{text}"'


def _without_expressions(text: str, known: Mapping[str, str]) -> str:
    """`${{ env.X }}` as the variable X, and known values; other expressions as variables of unknown value."""
    text = _EXPRESSION.sub(lambda match: known.get(match[1]) or _as_variable(match[1]), text)
    return _OTHER_EXPRESSION.sub("${expression}", text)


def _as_variable(name: str) -> str:
    return "${" + re.sub(r"\W", "_", name.removeprefix("env.")) + "}"


def read_devcontainer(text: str, name: str, files: Files) -> Document:
    """A devcontainer.json, with comments: image, features, variables and the commands of its life cycle."""
    data = parse_json_with_comments(text)
    if not isinstance(data, dict):
        return Document("devcontainer")
    pieces = list(_devcontainer_pieces(data, text))
    guides = guides_of_code(pieces, text, name, files)
    build = data.get("build")
    dockerfile = data.get("dockerFile") or (build.get("dockerfile") if isinstance(build, dict) else "")
    separate = (f"{dockerfile}: audit it by itself",) if dockerfile else ()
    return Document("devcontainer", tuple(guides), unread=(*unread_parts(guides, files), *separate))


def parse_json_with_comments(text: str) -> Any:
    """The value of a JSON text with comments and trailing commas; None if it is something else."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    without = _COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
    try:
        return json.loads(_TRAILING_COMMA.sub(lambda match: match[1] or " ", without))
    except (ValueError, RecursionError):
        return None


def _devcontainer_pieces(data: dict[str, Any], text: str) -> Iterator[Piece]:
    image = data.get("image")
    if isinstance(image, str):
        yield UseImage(_line_of(text, image), f"image: {image}", *split_image(image))
    features = data.get("features")
    for feature, options in (features if isinstance(features, dict) else {}).items():
        version = str(options.get("version", "")) if isinstance(options, dict) else str(options)
        if "/python" in feature and (match := re.match(r"3\.\d+", version)):
            yield SelectEnvironment(_line_of(text, feature), f"feature python {version}", "venv", "", match[0])
    for key in ("containerEnv", "remoteEnv"):
        variables = data.get(key)
        for variable, value in (variables if isinstance(variables, dict) else {}).items():
            line = _line_of(text, f'"{variable}"')
            yield SetVariables(line, f"{variable}={value}", ((variable, str(value)),))
    for key in _LIFECYCLE:
        for command in _lifecycle_commands(data.get(key)):
            yield Block("bash", "", numbered(command, _line_of(text, f'"{key}"')))


def _lifecycle_commands(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(word, str) for word in value):
        yield shlex.join(value)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _lifecycle_commands(each)


def _line_of(text: str, part: str) -> int:
    return next((number for number, line in numbered(text) if part in line), 1)
