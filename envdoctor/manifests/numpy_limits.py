"""Whether a package that is not in the tables can limit numpy, so that the release of numpy is not known."""

from __future__ import annotations

from envdoctor.knowledge.images import is_bare_image
from envdoctor.knowledge.published import published_releases
from envdoctor.manifests.environment_state import EnvironmentState

# Packages that do not require numpy, or whose releases permit NumPy 2: resolved with uv and numpy>=2, 2026-11-26.
WITHOUT_LIMIT = frozenset({
    "sentencepiece", "protobuf", "einops", "tqdm", "requests", "pyyaml", "psutil", "packaging", "ninja", "wandb",
    "tensorboardx", "safetensors", "regex", "filelock", "fire", "rich", "tiktoken", "evaluate", "ipython", "jupyter",
    "termcolor", "setuptools", "wheel", "pip", "openai", "anthropic", "python-dotenv", "hf-transfer", "jinja2",
    "pillow", "colorama", "loguru", "pre-commit", "black", "isort", "gdown", "ftfy", "sacrebleu",
    "flash-attn", "blobfile", "aiohttp", "httpx", "modelscope", "nltk", "rouge-score", "pytest", "accelerate",
})  # fmt: skip


def can_limit_numpy(state: EnvironmentState) -> bool:
    """Whether a package of an environment has unknown requirements: of an image, conda, a URL, or another name."""
    torch = state.packages.get("torch")
    if (state.image and not is_bare_image(state.image)) or (torch and torch.origin == "conda"):
        return True
    packages = {**state.packages, **state.requested}.values()
    if any(not package.version or package.wheel for package in packages):
        return True
    if state.resolution == "solved":
        return False
    return not all(package.name in WITHOUT_LIMIT or published_releases(package.name) for package in packages)
