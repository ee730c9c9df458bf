"""Profile files of a user."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envdoctor.core.directories import bundled_directory
from envdoctor.core.errors import EXIT_BAD_INPUT, BadInput
from envdoctor.profiles import (
    Profile,
    read_profile,
)

BASE = "x86-cu128-vllm"


SHA = "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274"


WHEEL = f"""
[[wheels]]
name = "flash-attn"
file = "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
url = "https://example.org/v2.8.3/flash_attn-2.8.3%2Bcu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
sha256 = "{SHA}"
"""


class Home:
    """The profile folder of a user."""

    def __init__(self, folder: Path) -> None:
        self.environ = {"XDG_CONFIG_HOME": str(folder / "config")}
        self.profiles = folder / "config/envdoctor/profiles"
        self.profiles.mkdir(parents=True)

    def write(self, name: str, text: str) -> Path:
        path = self.profiles / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, name: str) -> Profile:
        return read_profile(name, self.environ)

    def refusal(self, name: str) -> BadInput:
        with pytest.raises(BadInput) as caught:
            self.read(name)
        assert caught.value.exit_code == EXIT_BAD_INPUT
        assert caught.value.message.isprintable()
        return caught.value


def bundled_text(name: str = BASE) -> str:
    """A bundled profile without its wheels and fallbacks, so that a test can add its own."""
    text = (bundled_directory("profiles") / f"{name}.toml").read_text()
    return re.sub(r"^\[\[?(?:wheels|fallbacks)\]\]?$.*?(?=^\[|\Z)", "", text, flags=re.MULTILINE | re.DOTALL)


def own(name: str) -> str:
    """The text of the bundled profile under another id."""
    return bundled_text().replace(f'"{BASE}"', f'"{name}"')


BUILD = """
[build]
packages = ["flash-attn"]
memory_gb_per_job = 5.0
needs = ["nvcc", "ninja"]
[build.environment]
NVCC_THREADS = "2"
"""


FALLBACKS = '\n[fallbacks]\nflash-attn = "sdpa"\n'


def built(name: str) -> str:
    """A profile that requires the package in [build]."""
    return own(name) + '\n[[requirements]]\nspec = "flash-attn==2.8.3"\n'
