"""A run's LoRA adapter added to the base's weights, which verl's merger leaves as they were.

    PYTHON -B train/verl_engine/merge_adapter.py MODEL_DIR RANK ALPHA [--trust-remote-code]

verl.model_merger (0.4.1 to 0.9.1, base_model_merger.py, save_lora_adapter) writes the weights without the adapter
into MODEL_DIR and the adapter into MODEL_DIR/lora_adapter, up to 0.7.0 with lora_alpha = 0, which makes it nothing.
As a program it needs torch, transformers and peft.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

TRAINED = "lora_train_meta.json"


def readable_shards(shards: Path, place: Path) -> Path:
    """The shards as verl's merger can read them: links in `place` where a checkpoint names the adapter's task.

    The merger of 0.7.1 takes that text for an enumeration's member ('str' object has no attribute 'value').
    """
    file = shards / TRAINED
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if "task_type" not in known:
        return shards
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for path in shards.iterdir():
        if path != file:
            (place / path.name).symlink_to(path)
    (place / TRAINED).write_text(json.dumps({key: known[key] for key in known if key != "task_type"}))
    return place


def add_adapter(folder: Path, rank: int, alpha: float, *, trust: bool) -> None:
    """Into the weights of `folder`; the adapter stays beside them, with its true rank and alpha."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    adapter, new = folder / "lora_adapter", folder / "with_adapter"
    file = adapter / "adapter_config.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(known | {"r": rank, "lora_alpha": alpha}, indent=1) + "\n", encoding="utf-8")
    # Added in float32, written in bfloat16 as verl's merger does (which has rounded base and adapter to it already).
    base = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, trust_remote_code=trust)
    merged = PeftModel.from_pretrained(base, adapter).merge_and_unload().to(torch.bfloat16)
    merged.save_pretrained(new)  # elsewhere first: the weights that are read are still the files'
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    for path in new.glob("*.safetensors*"):
        path.rename(folder / path.name)
    shutil.rmtree(new)


def main() -> int:
    """Parse the command line and add."""
    parser = argparse.ArgumentParser(prog="merge_adapter.py", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="MODEL_DIR")
    parser.add_argument("rank", type=int)
    parser.add_argument("alpha", type=float)
    parser.add_argument("--trust-remote-code", action="store_true")
    arguments = parser.parse_args()
    add_adapter(arguments.folder, arguments.rank, arguments.alpha, trust=arguments.trust_remote_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
