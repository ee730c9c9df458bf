"""The formats of tokens. No pattern is compiled here: every output searches for the literals first."""

from __future__ import annotations

AWS_KEY_TYPES = ("KI", "SI", "RO", "ID", "NP", "GP")
GITLAB_TOKEN_TYPES = ("pat", "dt", "rt", "cbt", "ptt", "ft", "soat", "agent", "oas")
# A literal, which is searched for first, and the pattern. Each pattern starts with its literal. None can backtrack
# over a long match, so that the time is linear in the length of the text.
TOKEN_SHAPES: tuple[tuple[str, str], ...] = (
    ("hf_", r"hf_(?<![A-Za-z0-9]hf_)[A-Za-z0-9]{16,}"),
    ("api_org_", r"api_org_[A-Za-z0-9]{16,}"),
    ("sk-", r"sk-(?<![A-Za-z0-9]sk-)[A-Za-z0-9_-]{16,}"),
    ("github_pat_", r"github_pat_\w{16,}"),
    *((f"gh{kind}_", rf"gh{kind}_(?<![A-Za-z0-9]gh{kind}_)[A-Za-z0-9]{{16,}}") for kind in "opsur"),
    *((f"A{kind}A", rf"A{kind}A(?<![A-Za-z0-9]A{kind}A)[A-Z0-9]{{16}}(?![A-Za-z0-9])") for kind in AWS_KEY_TYPES),
    ("xox", r"xox[a-z]-[A-Za-z0-9-]{10,}"),
    ("xapp-", r"xapp-[A-Za-z0-9-]{10,}"),
    *((f"gl{kind}-", rf"gl{kind}-[\w.-]{{16,}}") for kind in GITLAB_TOKEN_TYPES),
    ("AIza", r"AIza[\w-]{30,}"),
    ("ya29.", r"ya29\.[\w-]{16,}"),
    ("GOCSPX-", r"GOCSPX-[\w-]{16,}"),
    ("npm_", r"npm_[A-Za-z0-9]{30,}"),
    ("pypi-", r"pypi-Ag[\w-]{16,}"),
    ("nvapi-", r"nvapi-[\w-]{16,}"),
    ("wandb_v", r"wandb_v\d_\w{16,}"),
    ("r8_", r"r8_(?<![A-Za-z0-9]r8_)[A-Za-z0-9]{30,}"),
    ("gsk_", r"gsk_[A-Za-z0-9]{20,}"),
    ("rpa_", r"rpa_[A-Za-z0-9]{20,}"),
    ("dckr_", r"dckr_(?:pat|oat)_[\w-]{16,}"),
    ("_live_", r"_live_(?<=[srp]k_live_)\w{16,}"),
    ("_test_", r"_test_(?<=[srp]k_test_)\w{16,}"),
    ("eyJ", r"eyJ(?<![\w-]eyJ)[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)*+"),
    ("SG.", r"SG\.[\w-]{16,}\.[\w-]{16,}"),
    ("hooks.slack.com", r"hooks\.slack\.com/[\w/-]+"),
)
