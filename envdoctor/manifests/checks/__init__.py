"""Rules on setup guides."""

from collections.abc import Collection
from functools import partial
from itertools import chain

from envdoctor.core.records import Finding
from envdoctor.manifests.checks import (  # noqa: F401  importing them registers their rules
    absent_configs,
    absent_files,
    absent_inputs,
    absent_links,
    absent_modules,
    absent_own_names,
    absent_parts,
    absent_programs,
    absent_releases,
    absent_scripts,
    absent_tool_files,
    activations,
    batch_jobs,
    builds,
    called_needs,
    code_imports,
    companion_builds,
    compiled_gpus,
    compiled_releases,
    conda_builds,
    conda_names,
    conda_systems,
    conflicting_bounds,
    copied_programs,
    cxx_standards,
    driver,
    entered_directories,
    failing_builds,
    flags,
    hydra_overrides,
    image_builds,
    image_commands,
    image_instructions,
    image_programs,
    index_facts,
    inherited_members,
    isolated_builds,
    launch_commands,
    lower_bounds,
    machine,
    missing_packages,
    named_files,
    names,
    namespace_attributes,
    needed_pythons,
    newer_pythons,
    notebook_order,
    other_python,
    own_setups,
    pinned_requirements,
    pins,
    platform_wheels,
    prerequisites,
    program_arguments,
    program_calls,
    program_imports,
    python_code,
    python_ranges,
    read_files,
    refused_arguments,
    refused_commands,
    replaced_extensions,
    replacements,
    repository_builds,
    runtime_needs,
    script_directories,
    script_modes,
    script_paths,
    script_shells,
    services,
    shell_mistakes,
    solutions,
    source_at_main,
    source_builds,
    standard_names,
    started_scripts,
    stated_machine,
    stated_options,
    stated_variables,
    stated_versions,
    system_packages,
    system_pythons,
    table_age,
    typed_commands,
    undeclared_imports,
    unentered_clones,
    unnamed_gpus,
    unread_numpy,
    unsearched_modules,
    wheel_contents,
    wheel_pages,
    wheels,
    windows_commands,
)
from envdoctor.manifests.checks.certainty import with_evidence
from envdoctor.manifests.checks.installable_remedies import with_installable_releases
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import GUIDE_RULES, run_rule

__all__ = ["GUIDE_RULES", "evaluate_guide"]


def evaluate_guide(context: GuideContext, rules: Collection[str] = ()) -> list[Finding]:
    """Run all rules, or those of some ids, on a followed guide, in the order of its lines, without repetitions.

    Findings on earlier steps of another file, whose lines are negative, are those of that file.
    """
    chosen = [rule for rule in GUIDE_RULES.values() if not rules or rule.id in rules]
    found = (run_rule(rule, context, judged=partial(with_evidence, context, rule)) for rule in chosen)
    own = (finding for finding in chain.from_iterable(found) if finding.line >= 0)
    findings = [with_installable_releases(finding, context) for finding in own]
    unique = {(finding.line, finding.cause, finding.message): finding for finding in reversed(findings)}
    return sorted(unique.values(), key=lambda finding: (finding.line, finding.id))
