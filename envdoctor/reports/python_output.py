"""Parser for Python expressions and the values that they print, at the prompt and in `python -c`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.collect_env import record_python_version
from envdoctor.reports.section import Line, Section, is_version

# Modules whose version is a fact, and the distribution where its name differs.
MODULES = (
    "accelerate", "bitsandbytes", "compressed_tensors", "ctranslate2", "cupy", "datasets", "deepspeed", "diffusers",
    "faster_whisper", "flash_attn", "flashinfer", "flax", "gradio", "gradio_client", "huggingface_hub", "hydra",
    "jax", "jaxlib", "keras", "kornia", "langchain", "langchain_core", "lightning", "llmcompressor", "llvmlite",
    "lmdeploy", "mmcv", "mmdet", "mmengine", "np", "numba", "numpy", "omegaconf", "onnx", "onnxruntime",
    "open_clip", "optax", "optimum", "pandas", "pd", "peft", "pydantic", "pytorch_lightning", "ray", "safetensors",
    "scipy", "sentence_transformers", "sglang", "sklearn", "spacy", "tensorflow", "tf", "thinc", "timm",
    "tokenizers", "torch", "torch_geometric", "torch_scatter", "torch_tensorrt", "torchao", "torchaudio",
    "torchcodec", "torchmetrics", "torchvision", "transformer_engine", "transformers", "triton", "trl", "unsloth",
    "unsloth_zoo", "verl", "vllm", "xformers", "xgrammar",
)  # fmt: skip
DISTRIBUTIONS = {
    "np": "numpy", "pd": "pandas", "tf": "tensorflow", "sklearn": "scikit-learn", "hydra": "hydra-core",
    "flashinfer": "flashinfer-python", "open_clip": "open-clip-torch",
}  # fmt: skip
# Expressions whose value is a fact, with the form of the value.
VALUES = (
    (r"torch\.version\.cuda", r"\d{1,2}\.\d{1,2}|None"),
    (r"torch\.cuda\.is_available\(\)", r"True|False"),
    (r"torch\.cuda\.device_count\(\)", r"\d{1,2}"),
    (r"torch\.cuda\.get_device_name\([^()]{0,20}\)", r".{4,60}?"),
    (r"torch\.cuda\.get_device_capability\([^()]{0,20}\)", r"\(\d{1,2}, \d\)"),
    (r"torch\.cuda\.get_arch_list\(\)", r"\[[^\]]{0,400}\]"),
    (rf"(?:{'|'.join(MODULES)})\.__version__", r"\d[\w.+-]{2,60}"),
    (r"sys\.version", r"3\.\d.{0,160}"),
)
# `torch.__version__: 2.5.1+cu121`, `torch.version.cuda = '12.1'`, `torch.cuda.is_available() -> False`. An
# operator such as `==` belongs to code.
STATED = tuple(
    lazy_pattern(
        rf"(?<![\w.\"'{{(])`?({expression})`?\)?(?:\s?(?::|=(?!=)|->|=>|\u2192)|\sis(?=\s\d))?\s{{1,4}}"
        rf"[\"'`]?({value})[\"'`]?(?=[,;.]?(?:\s|$))"
    )
    for expression, value in VALUES[:3] + VALUES[6:7]
)
EXPRESSION = lazy_pattern("|".join(f"(?:{expression})" for expression, _ in VALUES))
COMMAND = lazy_pattern(r"print|>>>|\bpython[\d.]{0,4} -c|^In \[")
SHORTEST_FACT = 16  # characters: `, device = RTX 4090`
MAX_PARENTHESES = 40
OUTPUT_NUMBER = lazy_pattern(r"Out\[\d{1,4}\]: ?")  # of IPython
STRING = lazy_pattern(r"([frb]{0,2})([\"'])(.*)\2$", re.DOTALL)
FIELD = lazy_pattern(r"\{([^{}!:]{1,120})[^{}]{0,10}\}")


def parse_python_output(lines: list[Line]) -> Section | None:
    """Parse Python expressions and the values printed below them, and `python --version`.

    ```
    >>> import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())
    2.4.0+cu121 12.1 True
    $ python -c "import torch; print('torch', torch.__version__, torch.cuda.get_device_name(0))"
    torch 2.6.0+cu124 NVIDIA GeForce RTX 5080
    ```
    """
    section = Section("python")
    pending: list[str] = []  # expressions whose value has not been printed; each entry is printed on a line
    for line in lines:
        text = line.text
        stated = [match for pattern in STATED for match in pattern.finditer(text)]
        if text[0] not in "-*" and any(statement.start() <= len(">>> ") for statement in stated):
            for statement in stated:
                _record_value(section, statement[1], statement[2])
            if len(text) - sum(len(statement[0]) for statement in stated) < SHORTEST_FACT:
                section.consumed.add(line.number)
        elif _prints_values(text):
            if pending and ">>>" in text and pending[0].strip() == "torch.version.cuda":
                _record_value(section, "torch.version.cuda", "None")  # the prompt prints nothing for None
            printed = list(_printed_lines(text)) if text.count("(") < MAX_PARENTHESES else []
            pending = printed if ">>>" in text and "print" not in text else pending + printed
            section.consumed.add(line.number)
        elif pending:
            pending = _assign_values(section, pending, line)
        elif match := re.match(r"Python (\d\.\d{1,2}\.\d{1,2})(?: ::.*)?$", text):
            section.set_fact("stack.python_version", match[1])
            section.consumed.add(line.number)
        elif match := re.match(r"Python (\d\.\d{1,2}\.\d{1,2} .{0,4}\(.{4,80}\) ?\[.{3,40}\].*)$", text):
            record_python_version(section, match[1])
            section.consumed.add(line.number)
    return section if section.facts or section.distributions or section.gpus else None


def _prints_values(text: str) -> bool:
    if "Error" in text or not any(marker in text for marker in ("torch.", "__version__", "sys.version")):
        return False
    return bool(EXPRESSION.search(text)) and (bool(COMMAND.search(text)) or len(EXPRESSION.findall(text)) == 1)


def _printed_lines(text: str) -> Iterator[str]:
    """The arguments of each `print` of a command; of a command without `print` each expression."""
    calls = list(re.finditer(r"\bprint\s?\(?", text))
    for call in calls:
        if arguments := _until_closed(text[call.end() :]):
            yield arguments
    if not calls:
        statement = text.rpartition(";")[2].removeprefix(">>>")
        parts = _split_arguments(statement) if text.count("(") < MAX_PARENTHESES else []
        if len(parts) > 1 and all(EXPRESSION.search(part) for part in parts):
            yield statement  # a tuple, which the prompt prints on one line
        else:
            yield from (match[0] for match in EXPRESSION.finditer(text))


def _until_closed(text: str) -> str:
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if depth < 0:
            return text[:position]
    return text


def _split_arguments(text: str) -> list[str]:
    """The arguments of a call: those between commas that are not inside parentheses or quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


@lru_cache(maxsize=256)
def _output_pattern(arguments: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """The pattern of the line that a `print` writes, and the expression of each of its groups."""
    expressions: list[str] = []
    parts = [
        _argument_pattern(argument.strip("\\"), expressions)
        for argument in _split_arguments(arguments.replace('\\"', '"'))
        if not re.match(r"(?:sep|end|flush)\s?=", argument)
    ]
    return re.compile(r"[\"'(]{0,2}" + r"[\"']?,?\s+[\"']?".join(parts) + r"[\"')]{0,2}$"), tuple(expressions)


def _argument_pattern(argument: str, expressions: list[str]) -> str:
    if string := STRING.match(argument):
        literal = re.sub(r"\\[nt]", " ", string[3])
        if "f" not in string[1]:
            return _literal_pattern(literal)
        pieces = FIELD.split(literal)
        return "".join(
            _value_pattern(piece.removesuffix("="), expressions) if n % 2 else _literal_pattern(piece)
            for n, piece in enumerate(pieces)
        )
    return _value_pattern(argument, expressions)


def _literal_pattern(text: str) -> str:
    return r"\s*".join(re.escape(word) for word in re.split(r"\s+", text))


def _value_pattern(argument: str, expressions: list[str]) -> str:
    for expression, value in VALUES:
        if found := re.search(expression, argument):
            expressions.append(found[0])
            return f"({value})"
    return r".{1,80}?"


def _assign_values(section: Section, pending: list[str], line: Line) -> list[str]:
    """Assign the values on a line to the pending expressions. Returns what remains to be printed."""
    pattern, expressions = _output_pattern(pending[0])
    match = pattern.match(OUTPUT_NUMBER.sub("", line.text, count=1))
    if not match:
        return []
    recorded = [
        _record_value(section, expression, value.strip("'\",()"))
        for expression, value in zip(expressions, match.groups(), strict=True)
    ]
    if any(recorded):
        section.consumed.add(line.number)
    return pending[1:]


def _record_value(section: Section, expression: str, word: str) -> bool:
    name, _, attribute = expression.partition(".")
    if attribute == "__version__" and is_version(word):
        if name == "torch":
            section.set_fact("stack.torch.version", word)
        else:
            section.add_distribution(DISTRIBUTIONS.get(name, name), word)
    elif expression == "sys.version":
        record_python_version(section, word)
    elif "version.cuda" in attribute and word == "None":
        section.set_absent("stack.torch.cuda", "a build without CUDA (torch.version.cuda is None)")
    elif "version.cuda" in attribute:
        section.set_fact("stack.torch.cuda", word)
    else:
        return _record_cuda_value(section, attribute, word)
    return True


def _record_cuda_value(section: Section, attribute: str, word: str) -> bool:
    """Record the value of a function of `torch.cuda`."""
    if "is_available" in attribute:
        section.set_fact("stack.cuda_available", word == "True")
    elif "device_count" in attribute:
        section.set_fact("stack.cuda_available", False if word == "0" else None)
    elif "get_device_name" in attribute:
        section.set_gpu_fact(0, "name", word)
    elif "get_device_capability" in attribute and (match := re.fullmatch(r"(\d{1,2}), (\d)", word)):
        section.set_gpu_fact(0, "compute_capability", f"{match[1]}.{match[2]}")
    elif "get_arch_list" in attribute and (architectures := re.findall(r"(?:sm|compute)_\d{2,3}[af]?", word)):
        section.set_fact("stack.torch.architectures", tuple(architectures))
    else:
        return False
    return True
