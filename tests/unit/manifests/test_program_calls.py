"""Calls of programs of a checkout that the installed release of another package refuses."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.index_facts import IndexedRelease
from envdoctor.resolution.step import NoSolver, StepProblem, StepSolution

VERSIONS = {
    "torch": "2.8.0", "transformers": "4.51.3", "trl": "0.16.0", "librosa": "0.10.0", "flash-attn": "2.8.3",
    "pytorch-lightning": "2.0.0", "lightning": "2.5.0", "scikit-learn": "1.6.1", "gradio": "6.0.2",
}  # fmt: skip
ARGUMENTS = "from transformers import TrainingArguments\n"
READ = "import json, yaml\nimport transformers\n"
MEL = "from librosa.filters import mel as mel_of\n"
UNPAD = "from flash_attn.bert_padding import unpad_input\n"
MODULE = "import pytorch_lightning as pl\n"
TRAINER = (
    "from transformers import Trainer\nclass A(Trainer):\n    def compute_loss(self, model, inputs, {}): pass\nA()"
)
MASK = "import gradio as gr\nfrom own import Own\nclass Mask({}):\n    def __init__(self, **kwargs):\n"
# The code of a program, and a part of the message; empty: no finding.
CASES = {
    "an argument": (ARGUMENTS + "TrainingArguments('out', evaluation_strategy='no')", "passes evaluation_strategy"),
    "an argument of a base class": (
        "from trl import GRPOConfig\nGRPOConfig(per_device_train_batch_size=2, logging_steps=1)", ""
    ),
    "an argument that the base class of another package lost": (
        "from trl import SFTConfig\nSFTConfig('out', evaluation_strategy='no')",
        "passes evaluation_strategy to SFTConfig",
    ),
    "the trainer of another module": (
        "from trl.experimental.sft import SFTTrainer\nSFTTrainer('m', max_seq_length=512)", ""
    ),
    "its new name": (ARGUMENTS + "TrainingArguments('out', eval_strategy='no')", ""),
    "another class": ("from own import TrainingArguments\nTrainingArguments(evaluation_strategy='no')", ""),
    "a class of that name": (
        "import transformers\nclass TrainingArguments: pass\nTrainingArguments(evaluation_strategy='no')", ""
    ),
    "guarded": (
        ARGUMENTS + "try:\n    TrainingArguments(evaluation_strategy='no')\nexcept TypeError:\n    pass", ""
    ),
    "by the release": (
        ARGUMENTS + "import transformers\nif transformers.__version__ < '4.46':\n"
        "    TrainingArguments(evaluation_strategy='no')", ""
    ),
    "on a hosted service": (
        ARGUMENTS + "import os\nSPACE = os.environ.get('SPACE_ID', '')\nIS_OURS = 'a/b' in SPACE\n"
        "def ours():\n    TrainingArguments(evaluation_strategy='no')\ndef main():\n    if IS_OURS:\n        ours()\n"
        "    else:\n        pass\nmain()", ""
    ),
    "on any other machine": (
        ARGUMENTS + "import os\nif not os.getenv('SPACE_ID'):\n    TrainingArguments(evaluation_strategy='no')",
        "passes evaluation_strategy",
    ),
    "by another variable": (
        ARGUMENTS + "import os\nif os.getenv('SIZE'):\n    TrainingArguments(evaluation_strategy='no')",
        "passes evaluation_strategy",
    ),
    "in a function that runs": (
        ARGUMENTS + "def main():\n    TrainingArguments(evaluation_strategy='no')\nmain()", "train.py:3 passes"
    ),
    "in a function that nothing calls": (
        ARGUMENTS + "def unused():\n    TrainingArguments(evaluation_strategy='no')", ""
    ),
    "a dictionary": (
        ARGUMENTS + "options = dict(evaluation_strategy='no')\nTrainingArguments(**options)",
        "passes evaluation_strategy",
    ),
    "a dictionary without the key": (
        ARGUMENTS + "options = {'evaluation_strategy': 'no'}\noptions.pop('evaluation_strategy')\n"
        "TrainingArguments(**options)", ""
    ),
    "a dictionary with another key removed": (
        ARGUMENTS + "options = {'evaluation_strategy': 'no', 'lr': 1}\noptions.pop('lr')\n"
        "TrainingArguments(**options)", "passes evaluation_strategy"
    ),
    "a filtered dictionary": (
        ARGUMENTS + "options = {'evaluation_strategy': 'no'}\n"
        "options = {key: value for key, value in options.items() if key in KNOWN}\nTrainingArguments(**options)", ""
    ),
    "a file": (
        READ + "with open('config.json') as file:\n    config = json.load(file)\n"
        "transformers.TrainingArguments(**config)", "config.json passes evaluation_strategy"
    ),
    "a part of a file": (
        READ + "config = yaml.safe_load(open('config.yaml'))\ntransformers.TrainingArguments(**config['train'])",
        "config.yaml passes evaluation_strategy",
    ),
    "another part of a file": (
        READ + "config = yaml.safe_load(open('config.yaml'))\ntransformers.TrainingArguments(**config['data'])", ""
    ),
    "a file that a function reads": (
        READ + "def load(path):\n    with open(path) as file:\n        return json.load(file)\n"
        "transformers.TrainingArguments(**load('config.json'))", "config.json passes evaluation_strategy"
    ),
    "a file that is not there": (
        READ + "transformers.TrainingArguments(**json.load(open('other.json')))", ""
    ),
    "by position": (MEL + "mel_of(22050, 1024)", "passes 2 arguments to librosa.filters.mel by position"),
    "by name": (MEL + "mel_of(sr=22050, n_fft=1024)", ""),
    "of an unknown number": (MEL + "mel_of(*options)", ""),
    "one by position": ("import librosa\nlibrosa.load('a.wav', sr=None)", ""),
    "two by position": ("import librosa\nlibrosa.load('a.wav', 22050)", "passes 2 arguments to librosa.load"),
    "the values of before": (UNPAD + "a, b, c, d = unpad_input(x, mask)", "expects 4 values"),
    "the values of today": (UNPAD + "a, b, c, d, _ = unpad_input(x, mask)", ""),
    "all further values": (UNPAD + "a, b, c, *d = unpad_input(x, mask)", ""),
    "a part of the values": (UNPAD + "a, b, c, d = unpad_input(x, mask)[:4]", ""),
    "a refused method": (
        MODULE + "class A(pl.LightningModule):\n    def validation_epoch_end(self, outputs): pass\nA()",
        "defines validation_epoch_end",
    ),
    "a method of today": (
        MODULE + "class A(pl.LightningModule):\n    def on_validation_epoch_end(self): pass\nA()", ""
    ),
    "a method that gets a further argument": (
        TRAINER.format("return_outputs=False"), "defines compute_loss without num_items_in_batch"
    ),
    "a method that accepts it": (TRAINER.format("return_outputs=False, num_items_in_batch=None"), ""),
    "a method that accepts all": (TRAINER.format("**kwargs"), ""),
    "a method that nothing calls": (
        TRAINER.format("return_outputs=False").replace(
            "    def", "    def training_step(self, model, inputs): pass\n    def", 1
        ), "",
    ),
    "a method of another class": (MODULE + "class A:\n    def validation_epoch_end(self, outputs): pass\nA()", ""),
    "an argument of Lightning": (MODULE + "pl.Trainer(gpus=1)", "passes gpus"),
    "its replacement": (MODULE + "pl.Trainer(devices=1)", ""),
    "an argument of torch": (
        "from torch.optim import lr_scheduler\nlr_scheduler.ReduceLROnPlateau(o, 'min', verbose=True)",
        "passes verbose",
    ),
    "a required argument": ("import torch\ntorch.stft(x, 512, hop_length=9)", "without return_complex"),
    "a required argument that is there": ("import torch\ntorch.stft(x, 512, return_complex=False)", ""),
    "a required argument by position": ("import torch\ntorch.stft(x, 9, 9, 9, w, True, 'a', False, True, True)", ""),
    "a required argument that can be there": ("import torch\ntorch.stft(x, 9, **options)", ""),
    "a function that raises": ("import torch\ntorch.symeig(x)", "calls torch.symeig"),
    "a function of another module": ("import torch\ntorch.linalg.eig(x)", ""),
    "an argument of a function": (
        "from sklearn.metrics import mean_squared_error as mse\nmse(a, b, squared=False)", "passes squared"
    ),
    "an argument that exists": ("import sklearn.metrics\nsklearn.metrics.mean_squared_error(a, b)", ""),
    "an argument of the launch": (
        "import gradio as gr\nwith gr.Blocks() as demo:\n    pass\ndemo.launch(share=True, enable_queue=True)",
        "passes enable_queue to launch",
    ),
    "an argument of a component": ("import gradio as gr\ngr.Chatbot(type='messages')", "passes type to Chatbot"),
    "an argument of the base of a component": (
        f"{MASK.format('gr.components.Image')}        super().__init__(source='upload', **kwargs)\nMask()",
        "passes source to Image",
    ),
    "an argument of a base among others": (
        f"{MASK.format('Own, gr.Image')}        super().__init__(source='upload')\nMask()", ""
    ),
    "an argument of a component that exists": ("import gradio as gr\ngr.Image(type='pil')", ""),
    "an argument of an object": (
        "import gradio as gr\nwith gr.Blocks() as demo:\n    pass\ndemo.queue(concurrency_count=2).launch()",
        "passes concurrency_count to queue",
    ),
    "an argument of what a method returns": (
        "import gradio as gr\nwith gr.Blocks() as demo:\n    pass\ndemo.queue().launch(show_api=False)",
        "passes show_api to launch",
    ),
    "an argument of an object of two classes": (
        "import gradio as gr\ndemo = gr.Blocks()\ndemo = build(demo)\ndemo.queue(concurrency_count=2)", ""
    ),
    "an argument of another object": ("demo = build()\ndemo.queue(concurrency_count=2)", ""),
    "a function of that name": ("from own import mean_squared_error as mse\nmse(a, b, squared=False)", ""),
    "a package that is not installed": ("import lightning as L\nL.Trainer(gpus=1)", ""),
    "an expression with many levels": (ARGUMENTS + "x = y" + ".f(1)" * 900, ""),
}  # fmt: skip
INSTALL = "pip install torch==2.8.0 trl transformers librosa flash-attn pytorch-lightning scikit-learn gradio"
CONFIG = '{"evaluation_strategy": "no", "output_dir": "out"}'


def audit(
    folder: Path, code: str, install: str = INSTALL, *, releases: dict[str, str] | None = None
) -> list[Finding]:  # fmt: skip
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "train.py").write_text(f"{code}\n")
    (folder / "config.json").write_text(CONFIG)
    (folder / "config.yaml").write_text(f"train: {CONFIG}\ndata: {{path: a}}\n")
    index = FixedIndex(IndexedRelease("pytorch-lightning", "2.6.6", "2026-10-01"))
    solver = FixedSolver(index, VERSIONS | (releases or {}))
    result = audit_text(sh(install, "python train.py"), str(folder / "README.md"), None, solver).result
    assert not [each for each in result.findings if each.status == "crashed"]
    return [each for each in result.findings if each.id == "RUN222"]


@each_case("name", [*CASES])
def test_a_call_that_the_installed_release_refuses(name: str, tmp_path: Path) -> None:
    code, message = CASES[name]
    found = audit(tmp_path, code)
    assert [message in each.message for each in found] == ([True] if message else []), found


OLD = {
    "torch": "1.12.0", "scikit-learn": "1.5.0", "transformers": "4.45.2", "librosa": "0.9.2", "flash-attn": "2.6.3",
    "pytorch-lightning": "1.9.5", "gradio": "3.50.2",
}  # fmt: skip


@each_case("name", [name for name, (_, message) in CASES.items() if message])
def test_an_older_release_accepts_the_call(name: str, tmp_path: Path) -> None:
    assert not audit(tmp_path, CASES[name][0], releases=OLD)


def test_a_call_after_a_condition_is_a_warning_with_the_last_release_that_accepts_all(tmp_path: Path) -> None:
    call = "TrainingArguments('out', evaluation_strategy='no', no_cuda=True)"
    (error,) = audit(tmp_path, ARGUMENTS + call, releases={"transformers": "5.5.4"})
    (warning,) = audit(tmp_path, f"{ARGUMENTS}if flag:\n    {call}", releases={"transformers": "5.5.4"})
    assert (error.status, warning.status) == ("error", "warning")
    assert "also no_cuda" in error.message
    assert error.fix.startswith("Use transformers 4.50.3,")


@each_case(
    "code, fix",
    [
        ("import torch\ntorch.symeig(x)", "Call torch.linalg.eigh, or torch.linalg.eigvalsh without eigenvectors."),
        ("import torch\ntorch.stft(x)\ntorch.eig(x)", ("Pass return_complex=True and apply torch.view_as_real to the "
         "result and call the function of the same name in torch.linalg.")),
        (MEL + "mel_of(1, 2)", "Use librosa 0.9.2, for which the code is written, or pass the arguments by name."),
        ("import gradio as gr\ngr.Audio(source='upload')", ("Use gradio 3.50.2, for which the code is written, or "
         "change the code.")),
        ("import gradio as gr\ngr.Audio(source='upload')\ngr.Audio(sources=['upload'])", ("Other calls of the "
         "programs need a release after gradio 3.50.2: change the code.")),
    ],
)  # fmt: skip
def test_the_fix_states_what_to_change(code: str, fix: str, tmp_path: Path) -> None:
    (found,) = audit(tmp_path, code)
    assert found.fix == fix
    assert bool(found.remedies) is fix.startswith("Use")


@each_case("torch, start", [("2.8.0", "Use transformers 4.57.6"), ("1.10.1", "torch 1.10.1 excludes transformers")])
def test_the_release_of_the_code_works_with_the_pinned_torch(torch: str, start: str, tmp_path: Path) -> None:
    code = "from transformers import AutoModel\nAutoModel.from_pretrained('m', load_in_8bit=True)"
    step = f"pip install torch=={torch} transformers"
    (found,) = audit(tmp_path, code, step, releases={"torch": torch, "transformers": "5.24.0"})
    assert found.fix.startswith(start)
    assert found.fix.endswith("pass quantization_config=BitsAndBytesConfig(load_in_8bit=True).")
    assert bool(found.remedies) is start.startswith("Use")


def test_conda_selects_about_the_newest_release_unless_a_step_names_one(tmp_path: Path) -> None:
    code = CASES["a refused method"][0]
    (found,) = audit(tmp_path, code, "conda install -c conda-forge wandb pytorch-lightning")
    assert found.status == "warning"
    assert "2.6.6 (if conda selects it)" in found.message
    assert not audit(tmp_path, code, "conda install -c conda-forge wandb pytorch-lightning=1.7.4")


def test_a_dockerfile_copies_the_files_of_a_folder_with_the_program(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(CASES["an argument"][0])
    (tmp_path / ".git").mkdir()
    start = 'CMD ["python", "train.py"]'
    lines = ("FROM nvidia/cuda:12.6.2-runtime-ubuntu22.04", f"RUN {INSTALL}", "COPY src/* .", start)
    solver = FixedSolver(FixedIndex(), VERSIONS)
    result = audit_text("\n".join(lines), str(tmp_path / "Dockerfile"), None, solver).result
    assert [each.line for each in result.findings if each.id == "RUN222"] == [4]


class OldTokenizers(FixedSolver):
    """An older transformers requires a tokenizers without a wheel for the Python of the guide."""

    def __call__(self, problem: StepProblem) -> StepSolution:
        """The packages, with tokenizers 0.12.1."""
        is_old = any(each.name == "transformers" and each.pin for each in problem.requirements)
        self.required, self.requiring = ["tokenizers"], ("transformers",)
        self.built = frozenset({"tokenizers"} if is_old else ())
        return super().__call__(problem)


@each_case("python", ["3.12", ""])
def test_the_names_and_calls_of_a_package_lead_to_one_release(python: str, tmp_path: Path) -> None:
    """transformers.deepspeed is in releases up to 4.45.2, and no_cuda up to 4.57.6."""
    (tmp_path / ".git").mkdir(exist_ok=True)
    code = f"{ARGUMENTS}import transformers.deepspeed\nTrainingArguments('out', no_cuda=True)\n"
    (tmp_path / "train.py").write_text(code)
    text = sh(*([f"uv venv --python {python}"] if python else []), INSTALL, "python train.py")
    versions = VERSIONS | {"transformers": "5.5.4", "tokenizers": "0.12.1"}
    for solver in (FixedSolver(FixedIndex(), versions), OldTokenizers(FixedIndex(), versions)):
        result = audit_text(text, str(tmp_path / "README.md"), None, solver).result
        found = [each for each in result.findings if each.id in ("RUN078", "RUN222")]
        assert [each.id for each in found] == ["RUN078", "RUN222"]
        assert found[0].evidence[-1].source == "the built-in tables of names"
        assert all("transformers==4.45.2" in each.fix.replace(" 4.45.2", "==4.45.2") for each in found)
        has_wheels = type(solver) is FixedSolver
        assert all(("tokenizers 0.12.1 has no wheel" in each.fix) is not has_wheels for each in found)
        commands = {command for each in found for remedy in each.remedies for command in remedy.commands}
        kept = "" if has_wheels else " torch==2.8.0"  # the command for tokenizers keeps the torch of the guide
        assert commands == ({f"uv pip install transformers==4.45.2{kept}"} if has_wheels or not python else set())


def statuses(folder: Path, install: str, code: str, message: str) -> list[str]:
    """The status of each finding with a text in its message, without a solver."""
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "train.py").write_text(f"{code}\n")
    result = audit_text(sh(install, "python train.py"), str(folder / "README.md"), None, NoSolver()).result
    return [each.status for each in result.findings if message in each.message]


@each_case(
    "code, status",
    [
        ("AutoModel.from_pretrained('a', load_in_8bit=True)", "error"),
        ("optimizer = bnb.optim.AdamW8bit(model.parameters())", "info"),
    ],
)
def test_a_release_for_quantized_models_without_one(code: str, status: str, tmp_path: Path) -> None:
    install = "pip install torch==2.8.0 transformers==5.5.4 bitsandbytes==0.43.0"
    found = statuses(tmp_path, install, f"import bitsandbytes as bnb\n{code}", "for quantized models")
    assert found == [status]


@each_case(
    "code, status",
    [
        ("GRPOConfig(use_vllm=True)", "warning"),
        ("GRPOConfig(use_vllm=flag)", "warning"),
        ("use_vllm = False\nGRPOConfig(use_vllm=use_vllm)", "info"),
        ("use_vllm = False\nparser.add_argument('--use_vllm', action='store_true')", "warning"),
    ],
)
def test_a_vllm_for_trl_that_the_programs_do_not_use(code: str, status: str, tmp_path: Path) -> None:
    found = statuses(
        tmp_path, "pip install trl==0.15.2 vllm==0.8.5", f"from trl import GRPOConfig\n{code}", "supports vLLM"
    )
    assert found == [status]


@each_case(
    ("argument", "fix"),
    [
        ("bf16=True, logging_steps=1", "Use trl 0.17.0, for which the code is written"),  # of TrainingArguments
        ("steps_per_generation=4", "Other calls of the programs need a release after trl 0.17.0"),
    ],
)
def test_an_argument_of_a_base_class_needs_no_newer_release(argument: str, fix: str, tmp_path: Path) -> None:
    code = f"from trl import GRPOConfig\nGRPOConfig('a', vllm_dtype='bfloat16', {argument})\n"
    (tmp_path / "train.py").write_text(code)
    solver = FixedSolver(FixedIndex(), {"torch": "2.13.0", "trl": "1.14.2", "transformers": "5.14.1"})
    text = sh("pip install torch trl transformers", "python train.py")
    result = audit_text(text, str(tmp_path / "README.md"), None, solver).result
    (found,) = [each for each in result.findings if each.id == "RUN222"]
    assert found.fix.startswith(fix)
