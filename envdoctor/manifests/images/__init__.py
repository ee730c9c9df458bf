"""Judges a container image before it is pulled: from its name, a Dockerfile or its configuration."""

from __future__ import annotations

from envdoctor.manifests.images import compat_checks  # noqa: F401  importing it registers its rules
from envdoctor.manifests.images.checks import judge_image
from envdoctor.manifests.images.records import Image
from envdoctor.manifests.images.sources import read_image

__all__ = ["Image", "judge_image", "read_image"]
