"""All rules of `envdoctor audit`."""

from __future__ import annotations

from envdoctor.manifests.checks import GUIDE_RULES
from envdoctor.manifests.inputs import comparison  # noqa: F401  importing it registers its rule
from envdoctor.rules.registry import DIRECTORY_RULES, Rule


def audit_rules() -> dict[str, Rule]:
    """The rules on guides and manifests, and those on the files of a directory, by id."""
    return dict(sorted((GUIDE_RULES | DIRECTORY_RULES).items()))
