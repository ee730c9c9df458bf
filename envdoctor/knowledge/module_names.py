"""Top-level modules and the packages that contain them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern

# Modules whose distribution has another name.
DISTRIBUTIONS = {
    "PIL": "pillow", "cv2": "opencv-python", "sklearn": "scikit-learn", "skimage": "scikit-image", "yaml": "pyyaml",
    "google": "protobuf", "attr": "attrs", "dateutil": "python-dateutil", "jwt": "pyjwt", "bs4": "beautifulsoup4",
    "pl_bolts": "lightning-bolts", "OpenSSL": "pyopenssl", "fitz": "pymupdf", "docx": "python-docx",
    "Bio": "biopython", "pkg_resources": "setuptools", "mpl_toolkits": "matplotlib", "zmq": "pyzmq", "usb": "pyusb",
    "git": "gitpython",
}  # fmt: skip

# Modules of the package with the same name, and of no other one. Read in the wheels on PyPI on 2026-11-27.
OF_ONE_PACKAGE = frozenset({
    "accelerate", "albumentations", "anthropic", "backoff", "datasets", "diffusers", "einops", "evaluate", "fire",
    "imageio", "jsonlines", "langdetect", "loralib", "lpips", "natsort", "nltk", "omegaconf", "openai", "pandas",
    "peft", "sacrebleu", "seaborn", "tiktoken", "timm", "torchmetrics", "transformers", "trl", "tyro",
})  # fmt: skip

# Further packages whose module has their name, read in their wheels on 2026-11-27.
_SAME_NAME = """
addict aiohttp ase av boto3 catboost cftime chromadb cityscapesscripts cloudpickle colorama colorlog cython
decord deepchem deepdiff dgl easydict editdistance einops-exts fastparquet flask ftfy g2p-en gdown gensim httpx
inflect iopath ipdb joblib lmdb loguru lvis lz4 mir-eval monai msgpack mujoco munch music21 netcdf4 networkx
nibabel num2words nvitop ogb openpyxl orjson pettingzoo phonemizer plotly plyfile pretty-midi prettytable
ptflops py3dmol pybullet pydicom pydub pymongo pyperclip pypinyin pystoi pytorch-msssim rapidfuzz rasterio redis
retrying rouge-score sacremoses simpleitk smart-open soundfile sqlalchemy supervision sympy tables tabulate
tenacity termcolor textstat thop toml tomli torch-geometric torchinfo torchio trimesh typer ujson unidecode
urllib3 webdataset wordcloud xgboost xlsxwriter xmltodict yacs zstandard
"""
# Names of folders in many projects: a package of the index with one is by somebody else.
_GENERIC = lazy_pattern(
    r"utils?|models?|data|datasets?_?\w*|configs?|common|lib|libs|library|tools?|src|core|modules?|layers?|losses|loss|ops|"
    r"options?|train\w*|test\w*|eval\w*|metrics?|nets?|networks?|helpers?|constants?|logger|main|\w*_?utils|scripts?"
)
SAME_NAME = OF_ONE_PACKAGE | frozenset(_SAME_NAME.split())

# Modules with several packages, or with a package of another name: what installs the module, and all packages that
# have it. `-` is for modules that no package on PyPI installs for each machine. Read in the wheels on PyPI and in the
# repositories on 2026-11-27.
_INSTALLED_BY = """
absl absl-py
apex git+https://github.com/NVIDIA/apex.git apex
clip git+https://github.com/openai/CLIP.git clip openai-clip clip-anytorch
Crypto pycryptodome pycrypto
cupy - cupy cupy-cuda11x cupy-cuda12x cupy-cuda13x
cv2 opencv-python opencv-python-headless opencv-contrib-python opencv-contrib-python-headless
detectron2 git+https://github.com/facebookresearch/detectron2.git detectron2
dotenv python-dotenv
faiss faiss-cpu faiss-gpu faiss-gpu-cu11 faiss-gpu-cu12 faiss
fastchat fschat
google.cloud.storage google-cloud-storage
google.genai google-genai
google.generativeai google-generativeai
groundingdino - groundingdino-py
hydra hydra-core
Levenshtein levenshtein python-levenshtein
llava -
mmcv - mmcv mmcv-full mmcv-lite
nvdiffrast git+https://github.com/NVlabs/nvdiffrast.git nvdiffrast
onnxruntime onnxruntime onnxruntime-gpu onnxruntime-openvino onnxruntime-directml
open_clip open-clip-torch
osgeo - gdal
pptx python-pptx
psycopg2 psycopg2-binary psycopg2
pytorch3d git+https://github.com/facebookresearch/pytorch3d.git pytorch3d
ruamel_yaml - ruamel-yaml-conda
segment_anything git+https://github.com/facebookresearch/segment-anything.git segment-anything segment-anything-py
serial pyserial
skvideo scikit-video
taming taming-transformers taming-transformers-rom1504
tensorboard tensorboard tb-nightly
tensorflow tensorflow tensorflow-cpu tensorflow-gpu tf-nightly
umap umap-learn
whisper openai-whisper
"""


class ModulePackages(NamedTuple):
    """What installs a module, empty if there is no package for it, and the packages that have it."""

    install: str
    packages: frozenset[str]


@cache
def _in_shared_modules() -> frozenset[str]:
    return frozenset(top for top in _installed_by() if "." in top)


def shared_part(module: str, name: str) -> str:
    """The part of a module that one package has, where several share its top: google.genai; empty for others."""
    parts = f"{module}.{name}.".split(".")
    prefixes = (".".join(parts[:end]) for end in range(2, 5))
    return next((each for each in prefixes if each in _in_shared_modules()), "")


@cache
def _installed_by() -> dict[str, ModulePackages]:
    rows = [line.split() for line in _INSTALLED_BY.strip().splitlines()]
    found = {top: ModulePackages(name, frozenset((name,))) for top, name in DISTRIBUTIONS.items()}
    return found | {
        top: ModulePackages(install.removeprefix("-"), frozenset((install, *others)) - {"-"})
        for top, install, *others in rows
    }


def is_generic(top: str) -> bool:
    """Whether many projects have a folder with the name of this module."""
    return _GENERIC.fullmatch(top) is not None


def packages_of_module(top: str) -> ModulePackages | None:
    """The packages with a top-level module whose name is not that of its package; None for others."""
    return _installed_by().get(top)
