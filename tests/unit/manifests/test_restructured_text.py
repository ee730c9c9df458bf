"""Guides in reStructuredText: headings, code blocks, literal blocks, tabs and inline code keep their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from envdoctor.commands.audit import AuditRequest, run
from envdoctor.manifests.markdown import parse_blocks
from envdoctor.manifests.restructured_text import to_markdown

GUIDE = """\
.. _install:

=====
Setup
=====

Packages
--------

#. ``pip install vllm==0.10.2``
#. Read :ref:`packages`.

.. note:: The examples need TRL.

   .. code-block:: console
      :linenos:

      $ pip install transformers==5.1.0
      Successfully installed

Then::

    pip install trl==0.23.1

    python train.py

.. A comment
   pip install nothing==1

.. code:: bash

   pip install peft==0.17.1
.. code:: text
   :caption: requirements.txt

   numpy==2.2.6
   datasets==4.0.0
"""


def test_code_has_its_lines_and_language() -> None:
    assert [(block.language, block.lines) for block in parse_blocks(to_markdown(GUIDE))] == [
        ("bash", ((10, "pip install vllm==0.10.2"),)),
        ("console", ((18, "$ pip install transformers==5.1.0"), (19, "Successfully installed"))),
        ("", ((23, "pip install trl==0.23.1"), (24, ""), (25, "python train.py"))),
        ("bash", ((32, "pip install peft==0.17.1"),)),
        ("text", ((36, "numpy==2.2.6"), (37, "datasets==4.0.0"))),
    ]


def test_the_number_of_lines_and_the_levels_of_headings_stay() -> None:
    markdown = to_markdown(GUIDE)
    assert markdown.count("\n") == GUIDE.count("\n")
    assert [line for line in markdown.split("\n") if line.startswith("#")] == ["# Setup", "## Packages"]


@pytest.mark.parametrize("name", ["SETUP.rst", "README"])
def test_findings_name_the_line_and_the_tab(name: str, tmp_path: Path) -> None:
    install = (
        "   .. tab-item:: {}\n\n      .. code-block:: bash\n\n         pip install vllm==0.10.2 transformers=={}\n\n"
    )
    text = f"Setup\n=====\n\n.. tab-set::\n\n{install.format('New', '5.1.0')}{install.format('Old', '4.57.1')}"
    (tmp_path / name).write_text(text)
    result = run(AuditRequest(targets=(str(tmp_path / name),))).data
    assert (result.kind, [(f.line, f.message.partition(":")[0]) for f in result.findings]) == ("guide", [(10, "New")])


@pytest.mark.parametrize(
    "end", ["", "\n", "\n\n", "::", "::\n\n", ".. code::", ".. code::\n\n   x", "=\n=\n=", "..\n x"]
)
def test_each_end_of_a_text_is_read(end: str) -> None:
    assert to_markdown(f"A::\n\n  b\n{end}").startswith("A:\n````\nb\n")
