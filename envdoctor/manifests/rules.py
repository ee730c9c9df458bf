"""All rules of `envdoctor audit` and of `envdoctor check --image`."""

from __future__ import annotations

from envdoctor.manifests.checks import (
    GUIDE_RULES,
    trial,  # noqa: F401  importing it registers its rules
)
from envdoctor.manifests.images import checks, compat_checks  # noqa: F401  importing them registers their rules
from envdoctor.manifests.inputs import comparison  # noqa: F401  importing it registers its rule
from envdoctor.rules.registry import DIRECTORY_RULES, IMAGE_RULES, TRIAL_RULES, Rule


def audit_rules() -> dict[str, Rule]:
    """The rules on guides and manifests, on trials, on the files of a directory and on images, by id."""
    return dict(sorted((GUIDE_RULES | DIRECTORY_RULES | IMAGE_RULES | TRIAL_RULES).items()))
