"""Comparison of the built-in compatibility tables with the wheels' metadata on a package index."""

from __future__ import annotations

from envdoctor.knowledge_check.check import check_facts as check_facts
from envdoctor.knowledge_check.records import FactsCheckResult as FactsCheckResult
