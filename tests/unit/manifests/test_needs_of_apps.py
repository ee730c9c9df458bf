"""Packages that the calls of an app need, also where only its user starts them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.index_facts import IndexedRelease

VERSIONS = {
    "torch": "2.8.0", "langchain": "0.2.17", "langchain-community": "0.2.16", "langchain-huggingface": "0.0.3",
    "streamlit": "1.37.0", "diffusers": "0.35.1",
}  # fmt: skip
INSTALL = f"pip install {' '.join(f'{name}=={version}' for name, version in VERSIONS.items())}"
CHROMA = "from langchain_community.vectorstores import Chroma\n"
LOADER = "from langchain_community.document_loaders import PyPDFLoader\n"
STREAMLIT = f"import streamlit as st\n{LOADER}"
LOAD = "    pages = PyPDFLoader('a.pdf').load()\n"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def _audit(folder: Path, code: str, *commands: str, **versions: str) -> list[Finding]:
    (folder / "app.py").write_text(code)
    solver = FixedSolver(FixedIndex(IndexedRelease("chain", "1.0", "2026-10-01")), {**VERSIONS, **versions})
    text = sh(INSTALL, *commands, "streamlit run app.py")
    (folder / "README.md").write_text(text)
    found = audit_text(text, str(folder / "README.md"), None, solver, python="3.11").result.findings
    return [each for each in found if each.id == "RUN224"]


NEEDED: dict[str, tuple[str, str]] = {  # code, and the package
    "an old path of langchain": ("from langchain.vectorstores import FAISS\nFAISS.from_texts([], 1)\n", "faiss-cpu"),
    "embeddings": ("from langchain_huggingface import HuggingFaceEmbeddings\nHuggingFaceEmbeddings()\n",
                   "sentence-transformers"),
    "a loader": (f"{LOADER}PyPDFLoader('a.pdf')\n", "pypdf"),
    "both branches of a condition": (
        f"{CHROMA}import os\nif os.name == 'a':\n    db = Chroma.from_documents([], 1)\nelse:\n    db = Chroma()\n",
        "chromadb",
    ),
    "a button": (f"{STREAMLIT}if st.button('Run'):\n{LOAD}", "pypdf"),
    "a file of the user": (f"{STREAMLIT}file = st.sidebar.file_uploader('a')\nif file is not None:\n{LOAD}", "pypdf"),
    "a question": (f"{STREAMLIT}if question := st.chat_input('a'):\n{LOAD}", "pypdf"),
    "the first run of a session": (f"{STREAMLIT}if 'pages' not in st.session_state:\n{LOAD}", "pypdf"),
    "a pipeline of images": (
        "from diffusers import StableDiffusionXLPipeline as P\nP.from_pretrained('a')\n", "transformers",
    ),
}  # fmt: skip
SOUND: dict[str, str] = {
    "one of two stores": f"{CHROMA}import sys\nif sys.argv:\n    db = Chroma()\nelse:\n    db = None\n",
    "two classes": f"{CHROMA}{LOADER}import sys\nif sys.argv:\n    Chroma()\nelse:\n    PyPDFLoader('a')\n",
    "a setting of the app": f"{STREAMLIT}use = 1\nif use:\n{LOAD}",
    "a secret": f"{STREAMLIT}if st.secrets.get('a'):\n{LOAD}",
    "a choice of the user": f"{STREAMLIT}kind = st.selectbox('a', ['pdf', 'txt'])\nif kind == 'pdf':\n{LOAD}",
    "a variable with another value too": f"{STREAMLIT}a = st.text_input('a')\na = None\nif a:\n{LOAD}",
    "another framework": f"import gradio as st\n{LOADER}if st.button('a'):\n{LOAD}",
    "the loader of text": "from langchain_community.document_loaders import TextLoader\nTextLoader('a')\n",
    "another package of the class": "from own_store import Chroma\nChroma()\n",
    "an own class": "class StableDiffusionPipeline:\n    pass\nStableDiffusionPipeline()\n",
}


@each_case("name", [*NEEDED])
def test_a_call_of_an_app_needs_a_package(name: str, app: Path) -> None:
    code, package = NEEDED[name]
    (found,) = _audit(app, code)
    assert (found.status, f"needs {package}" in found.message) == ("error", True)


@each_case("name", [*SOUND])
def test_calls_of_an_app_that_need_nothing(name: str, app: Path) -> None:
    assert not _audit(app, SOUND[name])


def test_a_step_brings_one_of_the_packages(app: Path) -> None:
    code = "from langchain_community.vectorstores import FAISS\nFAISS.from_texts([], 1)\n"
    assert not _audit(app, code, "pip install faiss-gpu-cu12", **{"faiss-gpu-cu12": "1.0"})
