"""hatchling's hook for the README on PyPI: links to files become addresses in the repository at the release's tag."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ReadmeHook(MetadataHookInterface):
    """Sets the field `readme`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict) -> None:
        """Add the README with absolute links."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        address = f"{metadata['urls']['Repository']}/blob/v{metadata['version']}/"
        text = re.sub(r"(\]\()(?!https?:|#)", rf"\g<1>{address}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
