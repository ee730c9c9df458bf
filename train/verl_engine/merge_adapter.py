"""Merge the LoRA adapter of a run into the base weights, which verl's merger does not do.

    PYTHON -B train/verl_engine/merge_adapter.py MODEL_DIR RANK ALPHA [--trust-remote-code]

verl.model_merger (0.4.1 to 0.9.1, base_model_merger.py, save_lora_adapter) writes the weights without the adapter
into MODEL_DIR and the adapter into MODEL_DIR/lora_adapter, up to 0.7.0 with lora_alpha = 0, which disables it. The
program needs torch, transformers and peft.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

LORA_META = "lora_train_meta.json"


def readable_shards(shards: Path, link_folder: Path) -> Path:
    """Return a directory that verl's merger can read: `shards`, or symlinks to them with a changed metadata file.

    The merger of 0.7.1 fails on the field task_type of that file ('str' object has no attribute 'value').
    """
    file = shards / LORA_META
    metadata = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if "task_type" not in metadata:
        return shards
    shutil.rmtree(link_folder, ignore_errors=True)
    link_folder.mkdir(parents=True)
    for path in shards.iterdir():
        if path != file:
            (link_folder / path.name).symlink_to(path)
    metadata.pop("task_type")
    (link_folder / LORA_META).write_text(json.dumps(metadata))
    return link_folder


def merge_adapter(folder: Path, rank: int, alpha: float, *, trust: bool) -> None:
    """Merge the adapter into the weights of `folder`, and correct rank and alpha of the adapter, which is kept."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    adapter, temporary = folder / "lora_adapter", folder / "with_adapter"
    file = adapter / "adapter_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(config | {"r": rank, "lora_alpha": alpha}, indent=1) + "\n", encoding="utf-8")
    # Computed in float32 and saved in bfloat16, to which verl's merger has rounded base and adapter.
    base = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, trust_remote_code=trust)
    merged = PeftModel.from_pretrained(base, adapter).merge_and_unload().to(torch.bfloat16)
    merged.save_pretrained(temporary)  # another directory, since the loaded weights are still mapped from the files
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    for path in temporary.glob("*.safetensors*"):
        path.rename(folder / path.name)
    shutil.rmtree(temporary)


def main() -> int:
    """Parse the command line and merge."""
    parser = argparse.ArgumentParser(prog="merge_adapter.py", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="MODEL_DIR")
    parser.add_argument("rank", type=int)
    parser.add_argument("alpha", type=float)
    parser.add_argument("--trust-remote-code", action="store_true")
    arguments = parser.parse_args()
    merge_adapter(arguments.folder, arguments.rank, arguments.alpha, trust=arguments.trust_remote_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
