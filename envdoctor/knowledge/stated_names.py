"""The names under which texts state packages of PyPI: `PyTorch`, `Hugging Face Transformers`, `sklearn`."""

from __future__ import annotations

from envdoctor.knowledge.module_names import DISTRIBUTIONS
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import normalize_name

# Other names of packages, normalized.
_OTHER_NAMES = {
    "pytorch": "torch", "py-torch": "torch", "torch-vision": "torchvision", "torch-audio": "torchaudio",
    "huggingface-transformers": "transformers", "hugging-face-transformers": "transformers",
    "transformer": "", "lightning": "lightning", "pytorch-geometric": "torch-geometric", "pyg": "torch-geometric",
    "sklearn": "scikit-learn", "scikit-learn": "scikit-learn", "skimage": "scikit-image", "opencv": "opencv-python",
    "cv2": "opencv-python", "pil": "pillow", "yaml": "pyyaml", "flash-attention": "flash-attn",
    "flashattention": "flash-attn", "flash-attention-2": "flash-attn", "hydra": "hydra-core",
    "huggingface-datasets": "datasets", "huggingface-accelerate": "accelerate", "bs4": "beautifulsoup4",
    "weights-and-biases": "wandb", "open-clip": "open-clip-torch", "umap": "umap-learn",
}  # fmt: skip
# Packages of PyPI that lists of requirements name, besides those of the tables: read in lists of requirements of
# repositories and on PyPI, 2026-11-27.
_NAMED = """
absl-py addict aiohttp albumentations anthropic av beautifulsoup4 biopython blobfile captum chardet clean-fid
cupy cython decord dgl diffusers easydict editdistance evaluate fairscale fairseq fastdtw ffmpeg-python fire
flask ftfy fvcore gdown gensim gpytorch gradio graphviz gym gymnasium h5py hnswlib imageio imageio-ffmpeg imgaug
iopath ipdb ipykernel ipython jax jaxlib jieba joblib jsonlines jsonschema jupyter kornia langchain librosa
lightning lmdb loguru loralib lpips mamba-ssm mecab ml-collections mlflow monai mujoco natsort networkx nibabel
nltk numexpr nuscenes-devkit ogb onnx onnxruntime open-clip-torch open3d openai-whisper opencv-python optuna
pesq plotly plyfile prettytable progressbar2 protobuf pycocotools pydub pyrender pytorch-lightning
pytorch-metric-learning pyyaml rdkit regex rouge rouge-score sacrebleu sacremoses scikit-image scikit-learn
seaborn sentence-transformers seqeval shapely simpleitk six soundfile spacy statsmodels sympy tabulate
tensorboardx tensorflow termcolor tifffile timm torch-geometric torchdiffeq torchmetrics torchtext trimesh
typing-extensions tyro umap-learn webdataset wget xgboost yacs zarr
"""
# Packages whose names are words of a sentence as well.
_ORDINARY = """
accelerate addict captum chardet click datasets dill evaluate fire flask gym jupyter kernels kornia lightning
outlines packaging pip plotly ray regex requests rich rouge setuptools six tabulate tensordict tokenizers triton
wget wheel
"""


_PACKAGES = frozenset(_NAMED.split())
ORDINARY_WORDS = frozenset(_ORDINARY.split())


def package_of_text(text: str) -> str:
    """The package that a text names; empty if it is no name of a known one."""
    name = normalize_name("-".join(text.split()))
    name = _OTHER_NAMES.get(name, name)
    is_known = name in _PACKAGES or name in DISTRIBUTIONS.values() or bool(name and published_releases(name))
    return name if is_known else ""
