"""The CPU architecture that the comments and the code of a guide state."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.manifests.guide import parse_guide

INSTALL = "pip install vllm==0.7.3"
SCRIPTS = {
    "a commented command for another machine": (f"{INSTALL}\n\n# for GH200,\n#pip uninstall -y vllm\n", "x86_64"),
    "with a variable": (f"{INSTALL}\n# on aarch64:\n# MAX_JOBS=4 pip install flash-attn\n", "x86_64"),
    "with the clone of a build": (f"{INSTALL}\n# GB200 only\n# git clone https://host.example/x\n", "x86_64"),
    "a commented command for this machine": (f"# GH200\n{INSTALL}\n\n# on H100\n# pip install trl\n", "aarch64"),
    "a comment on the steps": (f"set -e\n# the nodes are GH200\n{INSTALL}\n", "aarch64"),
    "a header with the use": (f"# Setup of a GH200\n# bash setup.sh\n# pip is needed\n{INSTALL}\n", "aarch64"),
    "a command": (f"{INSTALL}\nwget https://host.example/x-aarch64.sh\n", "aarch64"),
}


@each_case("name", list(SCRIPTS))
def test_the_machine_of_commented_commands_is_another(name: str) -> None:
    script, architecture = SCRIPTS[name]
    assert parse_guide(f"```bash\n{script}```\n", "guide.md").stated_machine.architecture == architecture
