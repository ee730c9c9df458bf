"""Run by the fork server of a stack: fills caches that every process of the stack fills with the same content."""

from __future__ import annotations

import contextlib
import io

from matplotlib.figure import Figure

# Fonts, glyphs, and the patterns of matplotlib's text.
figure = Figure()
axes = figure.subplots()
axes.plot([0, 1], [0, 1], label="line")
axes.set_title("title")
axes.legend()
figure.tight_layout()
figure.savefig(io.BytesIO(), format="png")

with contextlib.suppress(ImportError):  # of transformers 5: 700 patterns, which saving or loading a model compiles
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    get_checkpoint_conversion_mapping("qwen2")
