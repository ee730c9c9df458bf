"""Attributes of modules and classes that the programs of a checkout read, and that the installed release lacks."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.manifests.absent_names import absent_by_tables
from envdoctor.resolution.index_facts import CodeImport, IndexedRelease
from envdoctor.resolution.resolver import ResolvedPackage

CHAIN = IndexedRelease("chain", "1.0", "2026-10-01")
VERSIONS = {
    "torch": "2.8.0", "torchaudio": "2.9.0", "chain": "1.0", "numpy": "1.26.4", "pandas": "2.2.3", "pillow": "11.3.0",
    "scipy": "1.16.0", "networkx": "3.4", "scikit-image": "0.25.2",
    "scikit-learn": "1.6.1", "gradio": "5.49.1", "matplotlib": "3.10.0",
}  # fmt: skip
PANDAS = "import pandas as pd\n"
DRAW = "from PIL import Image, ImageDraw\ndraw = ImageDraw.Draw(Image.new('L', (9, 9)))\n"
# The code of a program, and the start of the message after the file; empty: no finding.
CASES = {
    "an alias": ("import chain as c\nc.old()", "2 uses chain.old, which chain 1.0"),
    "the module": ("import chain\nx = chain.parts.old_part(1)", "2 uses chain.parts.old_part"),
    "the result of a call": ("import chain\nchain.old().values.mean()", "2 uses chain.old, which chain 1.0"),
    "an argument of a method": ("import chain\nx = chain.new(chain.old).shape", "2 uses chain.old, which chain 1.0"),
    "a part of the result": ("import chain\nchain.new().old.run()", ""),
    "a submodule": ("from chain import parts\nparts.old_part(1)", "2 uses chain.parts.old_part"),
    "the program alone": ("import chain\nif __name__ == '__main__':\n    chain.old()", "3 uses chain.old"),
    "in a function that runs": ("import chain\ndef main():\n    chain.old()\nmain()", "3 uses chain.old"),
    "in a function that nothing calls": ("import chain\ndef unused():\n    chain.old()", ""),
    "in a method": (
        "import chain\nclass Model:\n    def run(self):\n        chain.old()\nModel().run()", "4 uses chain.old"
    ),
    "an import in a function": ("import chain\ndef a():\n    from chain import old\na()", "3 imports chain.old"),
    "a handler": ("import chain\ntry:\n    chain.old()\nexcept AttributeError:\n    chain.new()", ""),
    "a check": ("import chain\nif hasattr(chain, 'old'):\n    chain.old()", ""),
    "a version": ("import chain\nif chain.__version__ < '1.0':\n    chain.old()", ""),
    "parts of a version": (
        "import torch\nMAJOR = int(torch.__version__[0])\nif MAJOR == 1:\n    from torch._six import inf\n", ""
    ),
    "the same name in both branches": (
        "import own\nif own.old():\n    from torch._six import inf\nelse:\n    from torch import inf", ""
    ),
    "another name in the other branch": (
        "import own\nif own.old():\n    from torch._six import inf\nelse:\n    from torch import nan",
        "3 imports torch._six",
    ),
    "a type": ("import chain\nx = 1\nis_new = isinstance(x, int)\ny = x if is_new else chain.old()", ""),
    "a type in place": ("import chain\nx = 1\ny = chain.old() if isinstance(x, int) else x", ""),
    "a value": ("import chain\nx = 1\ny = x if x > 2 else chain.old()", "3 uses chain.old"),
    "a name of its own": ("import chain\nchain = build()\nchain.old()", ""),
    "an argument": ("import chain\ndef run(chain):\n    chain.old()\nrun(1)", ""),
    "a value that the program assigns": ("import chain\nchain.old = 1\nprint(chain.old)", ""),
    "a value that setattr assigns": ("import chain\nsetattr(chain, 'old', 1)\nprint(chain.old)", ""),
    "a name that exists": ("import chain\nchain.new()", ""),
    "a module of the checkout": ("import own\nown.old()", ""),
    # By the tables.
    "a constant": ("from PIL import Image\nImage.ANTIALIAS", "2 uses PIL.Image.ANTIALIAS, which pillow 11.3.0"),
    "a function": ("import networkx as nx\nnx.info(1)", "2 uses networkx.info, which networkx 3.4"),
    "of torchaudio": ("import torchaudio\ntorchaudio.info('a')", "2 uses torchaudio.info, which torchaudio 2.9.0"),
    "a module of torchaudio": (
        "import torchaudio\ntorchaudio.backend.sox_io_backend.load()", "2 uses torchaudio.backend, which"
    ),
    "of numpy": ("import numpy as np\nnp.float(1)", "2 uses numpy.float, which numpy 1.26.4"),
    "of numpy that is there again": ("import numpy as np\nnp.bool(1)", "2 uses numpy.bool, which numpy 1.26.4"),
    "of numpy that exists": ("import numpy as np\nnp.float_(1)\nnp.trapz([1])", ""),
    "an import of skimage": ("from skimage.measure import compare_ssim", "1 imports skimage.measure.compare_ssim"),
    "through another module": (
        "import matplotlib.pyplot as plt\nplt.cm.get_cmap('jet')", "2 uses matplotlib.pyplot.cm.get_cmap"
    ),
    "of the other module itself": ("import matplotlib.pyplot as plt\nplt.get_cmap('jet')\nplt.cm.jet(1)", ""),
    "of torch": ("import torch\ntorch.rfft(1)", "2 uses torch.rfft, which torch 2.8.0"),
    "a version in a function": (
        "import chain\ndef main():\n    if chain.__version__ >= '1':\n        return\n    chain.old()\nmain()", ""
    ),
    "a function of the checkout with the name": ("import chain\ndef chain(): ...\nchain.old()", ""),
    "a guarded operand": ("import chain\nx = hasattr(chain, 'old') and chain.old", ""),
    "of torch that exists": ("import torch\ntorch.cuda.amp.autocast()", ""),
    "of scipy": ("import scipy.integrate\nscipy.integrate.trapz([1])", "2 uses scipy.integrate.trapz, which scipy"),
    "of pandas": (PANDAS + "pd.np.nan", "2 uses pandas.np, which pandas 2.2.3"),
    "a method of a table": (
        PANDAS + "table = pd.DataFrame()\ntable = table.append({})", "3 uses DataFrame.append, which pandas 2.2.3"
    ),
    "a method of a table that is read": (
        PANDAS + "def load(path):\n    rows = pd.read_csv(path)\n    for _ in rows.iteritems(): pass\nload('a')",
        "4 uses DataFrame.iteritems",
    ),
    "a method of something else": (PANDAS + "table = pd.DataFrame()\ntable = []\ntable.append(1)", ""),
    "a method of a list of tables": (PANDAS + "table = [pd.DataFrame()]\ntable.append(1)", ""),
    "a table of another function": (
        PANDAS + "def a():\n    rows = pd.DataFrame()\ndef b(rows):\n    rows.append(1)\na()\nb([])", ""
    ),
    "a method of a drawing": (DRAW + "draw.textsize('a')", "3 uses ImageDraw.textsize, which pillow 11.3.0"),
    "a method of a drawing that exists": (DRAW + "draw.textbbox((0, 0), 'a')", ""),
    "a method of a class": (
        "from sklearn.feature_extraction.text import TfidfVectorizer as V\nv = V(min_df=2)\nv.get_feature_names()",
        "3 uses TfidfVectorizer.get_feature_names, which scikit-learn 1.6.1",
    ),
    "an attribute of a class": ("import gradio as gr\ngr.Dropdown.update(choices=[])", "2 uses Dropdown.update"),
    "an attribute of a class that exists": ("import gradio as gr\ngr.Row.update(visible=True)", ""),
    "a method of an own class": ("class TfidfVectorizer: ...\nv = TfidfVectorizer()\nv.get_feature_names()", ""),
    "a guarded method": (DRAW + "if hasattr(draw, 'textsize'):\n    draw.textsize('a')", ""),
}  # fmt: skip


def _audit(folder: Path, code: str, *, own: str = "", numpy: str = "1.26.4", python: str = "3.12") -> list[Finding]:
    (folder / ".git").mkdir(exist_ok=True)
    for name, text in {"train": code, "own": own}.items():
        (folder / f"{name}.py").write_text(f"{text}\n")
    versions = VERSIONS | {"numpy": numpy}
    pins = " ".join(f"{name}=={version}" for name, version in versions.items())
    text = sh(f"pip install {pins}", "python train.py")
    solver = FixedSolver(FixedIndex(CHAIN), versions)
    found = audit_text(text, str(folder / "README.md"), None, solver, python=python).result.findings
    return [each for each in found if each.id == "RUN078"]


@each_case("name", [*CASES])
def test_a_program_reads_an_attribute(name: str, tmp_path: Path) -> None:
    code, message = CASES[name]
    found = _audit(tmp_path, code, own="def old(): ...")
    assert [each.message[: len(message) + 9] for each in found] == ([f"train.py:{message}"] if message else [])


def test_a_condition_and_a_module_of_the_program_are_no_certain_use(tmp_path: Path) -> None:
    assert [each.status for each in _audit(tmp_path, "import chain\nchain.old()")] == ["error"]
    assert [each.status for each in _audit(tmp_path, "import chain\nif chain.size:\n    chain.old()")] == ["warning"]
    run = (
        "import chain\ndef run():\n    from chain import old\ndef main():\n    {}\nif __name__ == '__main__':\n    {}"
    )
    for of_main, of_program, status in (
        ("run()", "main()", "error"),
        ("run()", "if chain.size:\n        main()", "warning"),
        ("if chain.size:\n        run()", "main()", "warning"),
        ("chain.new(run)", "main()", "error"),
    ):
        assert [each.status for each in _audit(tmp_path, run.format(of_main, of_program))] == [status]
    part = "import chain\ndef run():\n    chain.old()"
    (found,) = _audit(tmp_path, "import own\nown.run()", own=part)
    assert (found.status, found.message[:27]) == ("warning", "own.py:3 uses chain.old, wh")
    assert not _audit(tmp_path, "import chain\nimport own\nchain.old = 1\nown.run()", own=part)


def test_a_release_has_a_name_again(tmp_path: Path) -> None:
    assert not _audit(tmp_path, "import numpy as np\nnp.bool(1)", numpy="2.1.0")
    (found,) = _audit(tmp_path, "import numpy as np\nnp.bool(np.int(1))")
    assert "numpy==1.23.5" not in str(found.remedies)  # it has no wheel for Python 3.12
    (found,) = _audit(tmp_path, "import numpy as np\nnp.bool(np.int(1))", python="3.10")
    assert found.remedies[0].commands[0].endswith("numpy==1.23.5")


def test_names_that_another_module_sets_are_in_older_releases() -> None:
    """torchaudio.load and info are set by torchaudio.backend before 2.2; 2.9 removed info. torchaudio.io is newer."""
    names = ("load", "info", "io.StreamReader")
    uses = [CodeImport(1, "torchaudio", name, "a.py:1", is_attribute=True) for name in names]
    absent = {}
    for version in ("0.10.0", "2.1.0", "2.11.0"):
        package = ResolvedPackage("torchaudio", version, 1, "torchaudio", pinned=True)
        absent[version] = [each.name for each in absent_by_tables({"torchaudio": package}, uses)]
    assert absent == {
        "0.10.0": ["torchaudio.io"], "2.1.0": [], "2.11.0": ["torchaudio.info", "torchaudio.io"],
    }  # fmt: skip


def test_old_names_that_a_library_sets_after_their_removal() -> None:
    """Since 2.1, lightning.pytorch._graveyard sets the classes for TPU and HPU; those for IPU are gone."""
    module = "lightning.pytorch.accelerators"
    uses = [CodeImport(1, module, name, "a.py:1") for name in ("TPUAccelerator", "IPUAccelerator")]
    package = ResolvedPackage("lightning", "2.6.6", 1, "lightning", pinned=True)
    absent = absent_by_tables({"lightning": package}, uses)
    assert [each.name for each in absent] == ["lightning.pytorch.accelerators.IPUAccelerator"]


def test_a_name_that_a_later_release_states_is_not_absent_before() -> None:
    """A module can set it without a statement, as torchaudio did with `load`."""
    package = ResolvedPackage("torchaudio", "2.7.1", 1, "torchaudio==2.7.1", pinned=True)
    use = CodeImport(1, "torchaudio", "load_with_torchcodec", "a.py:1", is_attribute=True)
    assert list(absent_by_tables({"torchaudio": package}, [use])) == []


def test_modules_that_torch_and_torchvision_removed() -> None:
    absent = {}
    uses = [CodeImport(1, "torch._six", "inf", "a.py:1"), CodeImport(2, "torchvision.models.utils", "load", "a.py:2")]
    for name, version in (("torch", "1.13.1"), ("torch", "2.0.0+cu118"), ("torchvision", "0.25.0")):
        package = ResolvedPackage(name, version, 1, name, pinned=True)
        absent[version] = [each.name for each in absent_by_tables({name: package}, uses)]
    assert absent == {"1.13.1": [], "2.0.0+cu118": ["torch._six"], "0.25.0": ["torchvision.models.utils"]}
