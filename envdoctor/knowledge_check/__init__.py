"""The knowledge tables held against the package index: what wheels' metadata can tell is derived again."""

from __future__ import annotations

from envdoctor.knowledge_check.check import check_facts as check_facts
from envdoctor.knowledge_check.records import FactsChecked as FactsChecked
