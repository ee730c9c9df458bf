"""Tables of quota tools. Sources: nesi/support-docs ood_troubleshooting.md, man pages of quota, lfs and mmlsquota."""

from __future__ import annotations

from support.cases import each_case
from support.report_samples import blamed_causes

NESI = """ada@login03:~$ storage_quota
Quota_Location                          AvailableGiB           UsedGiB Use%
home_ada                                          20                {used}  {share}
"""
QUOTA = """Disk quotas for user ada (uid 1000):
     Filesystem   space   quota   limit   grace   files   quota   limit   grace
     nas:/home   {used}  20480M  22480M   6days    110k       0       0
"""
LUSTRE = """Disk quotas for usr ada (uid 1000):
      Filesystem    used   quota   limit   grace   files   quota   limit   grace
        /scratch   {used}     18T     20T       -  310453       0       0       -
"""
SPECTRUM = """                         Block Limits                                    |     File Limits
Filesystem type         KB      quota      limit   in_doubt    grace |    files   quota    limit in_doubt    grace
home       USR    {used}   20971520   20971520          0     none |      212       0        0        0     none
"""


@each_case(
    ("text", "causes"),
    [
        (NESI.format(used=20, share=100), {"disk-full"}),
        (NESI.format(used=11, share=55), set()),
        (QUOTA.format(used="20510M*"), {"disk-full"}),
        (QUOTA.format(used="10510M"), set()),
        (LUSTRE.format(used="20T"), {"disk-full"}),
        (LUSTRE.format(used="2.1T"), set()),
        (SPECTRUM.format(used="20971520"), {"disk-full"}),
        (SPECTRUM.format(used="20971"), set()),
    ],
)
def test_a_full_quota(text: str, causes: set[str]) -> None:
    assert blamed_causes(text) == causes


@each_case(
    "text",
    [
        "Filesystem Size Used Avail Use% Mounted on\n/dev/loop3 64M 64M 0 100% /snap/core20/2318\n",
        "NAME  CPU %  MEM USAGE / LIMIT  MEM %\nvllm  100.00%  62GiB / 62GiB  100.00%\n",
        "Project   Used   Limit   Percent\nlab123   5000   5000   100\n",
    ],
)
def test_a_table_of_something_else_is_no_quota(text: str) -> None:
    assert blamed_causes(text) == set()
