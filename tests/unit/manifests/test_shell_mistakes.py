"""Mistakes in the shell code of a guide."""

from __future__ import annotations

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.manifests import audit_guide
from envdoctor.resolution.step import NoSolver

SHELL: dict[str, tuple[tuple[str, ...], str, list[int]]] = {
    "a comment in a command": (("pip install a \\", "  # old", "  torch==2.6.0"), "RUN081", [4]),
    "a comment before an option": (("pip install a \\", "# old", "--upgrade"), "RUN081", [4]),
    "a comment before a command": (("pip install a \\", "# next", "pip install b"), "RUN081", []),
    "a continued comment": (("# pip install a \\", "# b", "torch==2.6.0"), "RUN081", []),
    "a comment before an image": (("docker run --gpus all \\ # a GPU", "  --rm \\ # b", "  a/b"), "RUN104", []),
    "a blank before an image": (("docker run \\", "  --gpus all \\ ", "  a/b"), "RUN104", []),
    "an image in the next line": (("docker run --gpus=all --ipc=host", "  a/b"), "RUN104", [3]),
    "a blank after a backslash": (("python a.py \\ ", "  --lr 1 \\  ", "  --bs 2 \\", "  --n 3"), "RUN081", [3, 4]),
    "a blank before a requirement": (("pip install a \\ ", "  torch==2.6.0"), "RUN081", [3]),
    "blanks before settings": (("python -m a \\ ", "  b=c \\", "  d.e=1 \\ ", "  f=g"), "RUN081", [3, 5]),
    "a backslash before an option": (("python a.py ", "\\ --lr 1", "\\ --bs 2"), "RUN081", [4]),
    "a backslash before an option of a continued line": (("python a.py \\", "\\ --lr 1"), "RUN081", []),
    "a backslash before an option in a file": (("cat > a.sh <<EOF", "python a.py", "\\ --lr 1", "EOF"), "RUN081", []),
    "a blank before a variable": (("python a.py \\ ", "lr=1 bash b.sh"), "RUN081", []),
    "a blank in a text": (("python a.py --text 'a \\ ", "  --lr 1'"), "RUN081", []),
    "a blank before another command": (("python a.py \\ ", "python b.py --lr 1"), "RUN081", []),
    "a blank in a file": (("cat > a.sh <<EOF", "python a.py \\ ", "  --lr 1", "EOF"), "RUN081", []),
    "no backslash before a requirement": (("pip install a \\", "  b", "  torch==2.6.0 \\", "  c"), "RUN177", [4]),
    "no backslash in the first line": (("pip install a", "  torch==2.6.0"), "RUN177", [3]),
    "no backslash before a wheel and an option": (
        ("pip install \\", " a", " https://example.org/b-1-py3-none-any.whl", " --no-deps"), "RUN177", [4],
    ),
    "a command after a command": (("pip install a \\", "  b", "python train.py \\", "  --lr 1"), "RUN177", []),
    "output of a command": (("pip install a", "a==2.0", "torch==2.6.0"), "RUN177", []),
    "options of a program": (("python x.py", "--lr 1  # it's \"high\"", "-n 2", "  --out a/b c/d"), "RUN177", [3]),
    "an option after a continued line": (
        ("A=1 torchrun --nproc_per_node 8 \\", "  train.py \\", "  --lr 1", "  --bs 2"), "RUN177", [5],
    ),
    "the script of a launcher": (("accelerate launch --num_processes 8", "train.py --lr 1"), "RUN177", [3]),
    "two scripts": (("torchrun train.py", "./eval.py --lr 1"), "RUN177", []),
    "a setting of a program": (("python -m verl.trainer.main_ppo", "data.train_files=a.parquet"), "RUN177", [3]),
    "a key of YACS": (("python a.py --cfg b \\", "  MODEL.A 'c'", "  DATA.B 'd' \\", "  GPUS 2"), "RUN177", [4]),
    "a key of YACS in the last line": (("python a/b.py --cfg b.yaml", "    TEST.MODEL_FILE c.pth"), "RUN177", [3]),
    "keys of YACS": (("torchrun a.py --cfg b.yaml \\", "  DATA.ROOT d \\", "  TEST.FLIP False"), "RUN177", []),
    "a sentence on a key": (("python a.py --cfg b.yaml", "  DATA.ROOT is the folder of the images"), "RUN177", []),
    "a key without indentation": (("python a.py --cfg b.yaml", "DATA.ROOT d"), "RUN177", []),
    "options of two programs": (("python a.py", "--x 1", "python b.py", "--y 1"), "RUN177", [3, 5]),
    "a table of options": (("python x.py", "--lr   the rate of learning", "--bs   size"), "RUN177", []),
    "a list of options": (("python x.py", "--lr: rate", "- --bs"), "RUN177", []),
    "values that a reader adds": (("python x.py", "--ckpts a.pt b.pt [...]", "--out c.pt"), "RUN177", [3]),
    "the output of --help": (("python x.py --help", "--lr LR", "--bs BS"), "RUN177", []),
    "a synopsis": (("python x.py [options]", "--lr LR"), "RUN177", []),
    "a session": (("$ python x.py", "--lr 1"), "RUN177", []),
    "a line of Windows": (("python x.py ^", "--lr 1"), "RUN177", []),
    "a line of PowerShell": (("python x.py `", "--lr 1"), "RUN177", []),
    "an array": (("ARGS=(python x.py", "--lr 1", ")", 'python y.py "${ARGS[@]}"'), "RUN177", []),
    "a file of options": (("cat > a.txt <<EOF", "python x.py", "--lr 1", "EOF"), "RUN177", []),
    "a text in quotes": (("CMD='python x.py", "--lr 1'"), "RUN177", []),
    "an empty line": (("python x.py", "", "--lr 1"), "RUN177", []),
    "a comment of SQL": (("python x.py", "-- next", "python y.py"), "RUN177", []),
    "a list of commands": (("pip install a &&", "  b==1"), "RUN177", []),
    "one ampersand after cd": (("cd ckpts & wget https://example.org/a",), "RUN082", [3]),
    "one ampersand after an installation": (("pip install a & pip install b",), "RUN082", [3]),
    "one ampersand after a build step": (
        ("cmake .. & make", "./configure --a & make -j8", "tar xf a.tar & cd a", "unzip a.zip & ls"),
        "RUN082", [3, 4, 5, 6],
    ),
    "a build in the background": (
        ("make -j8 &", "cmake .. &", "tar xf a.tar && cd a", "cmake --build . 2>&1"), "RUN082", [],
    ),
    "a requirements file in a folder without -r": (
        ("pip install requirements/dev.txt", "pip3 install ./requirements.txt", "uv pip install a/b.txt"),
        "RUN166", [3, 4, 5],
    ),
    "folders and files of requirements": (
        ("pip install -r requirements/dev.txt", "pip install ./a.txt.zip", "pip install sub/folder",
         "pip install -e a/txt"),
        "RUN166", [],
    ),
    "two ampersands": (("cd ckpts && wget https://example.org/a",), "RUN082", []),
    "a server in the background": (("python serve.py & python run.py",), "RUN082", []),
    "a redirection": (("pip install a > log 2>&1",), "RUN082", []),
    "another case": (("git clone https://github.com/a/BigModel.git", "cd bigmodel"), "RUN083", [4]),
    "the same case": (("git clone https://github.com/a/BigModel.git", "cd BigModel"), "RUN083", []),
    "another name for the clone": (
        ("git clone https://github.com/a/BigModel.git bigmodel", "cd bigmodel"), "RUN083", [],
    ),
    "a folder in the clone": (("git clone https://github.com/a/BigModel", "cd BigModel/bigmodel"), "RUN083", []),
    "a folder after the clone": (
        ("git clone https://github.com/a/BigModel", "cd BigModel", "cd bigmodel"), "RUN083", [],
    ),
    "a variable of Windows": (("S=a.py", "python %S% --out %X%", "# %S%"), "RUN185", [4]),
    "a variable of Windows before its value": (("python %S%", "S=a.py"), "RUN185", []),
    "a format of a date": (("Y=2", "m=3", "date +%Y-%m-%d"), "RUN185", []),
    "a variable of bash": (("S=a.py", 'python "$S" --rate 10%'), "RUN185", []),
    "an option in quotes": (("python a.py --version='org/model --load_in_4bit'",), "RUN186", [3]),
    "an option with a value in quotes": (("python a.py --model-path 'org/model --bits 4'",), "RUN186", [3]),
    "options that are passed on": (("python a.py --args '--lr 1 --bs 2' --extra='a/b --c'",), "RUN186", []),
    "a command in quotes": (("accelerate launch --cmd 'python a/b.py --c' --name 'a/b.py --c'",), "RUN186", []),
    "a quote without an end": (("python a.py --out b/{c}.ply\"", "ls"), "RUN186", [3]),
    "a text of two lines": (("python a.py --text \"b", "c\" --lr 1"), "RUN186", []),
    "a quote in a comment or in quotes": (("python a.py  # 5\" wide", "python a.py '5\"' \\\""), "RUN186", []),
    "a quote in a text of two lines": (("python a.py --text 'b\"", "c'"), "RUN186", []),
    "a quote of another kind at the end": (("python a.py --text \"b.' --music 'c d' --out 'e'",), "RUN186", [3]),
    "an apostrophe": (("python a.py --text what's",), "RUN186", [3]),
    "quotes in quotes": (("python a.py --text \"it's\" --out 'b \"c' --c d\\'",), "RUN186", []),
    "options before docker run": (("docker --gpus all run -d <image>", "docker -it run a/b:1"), "RUN104", [3, 4]),
    "an option with a value before docker run": (("sudo docker --ipc=host run --gpus all a/b:1",), "RUN104", [3]),
    "options of docker": (
        ("docker --context b run a/c:1", "docker -H tcp://a:1 run c", "docker compose run a --rm"), "RUN104", [],
    ),
    "options below docker run": (("docker --gpus all run <image>", "  --a=<b>", "  --c"), "RUN177", [3]),
    "options below docker run -it": (("docker run -it --rm a/b:1", "  --model c"), "RUN177", [3]),
    "another command below docker run": (("docker run -it a/b:1", "python a.py --c"), "RUN177", []),
    "a model as a variable": (("export CKPT=$Qwen2-VL-7B-Instruct", "python a.py --m $Llama-3-8B"), "RUN235", [3, 4]),
    "a model as a variable in quotes": (
        ('python a.py --model "$Qwen2.5-7B"', "python a.py --base $DeepSeek-R1-7B"), "RUN235", [3, 4],
    ),
    "a model after a variable": (
        ("Base=/a", "python a.py --m $Base-7B", "python b.py $NAME-7B $DIR/Qwen2-7B ${Model}-7B"), "RUN235", [],
    ),
    "a variable of a loop or of a file": (("for Name in a b; do", "python a.py $Name-7B", "done"), "RUN235", []),
    "a variable of another file": (("source env.sh", "python a.py $Name-7B"), "RUN235", []),
    "a path with a blank": (("python a.py --model-path 'My Models/a b' --c",), "RUN186", []),
    "pip install -y": (("pip install -y torch==2.6.0", "python -m pip install a --yes"), "RUN179", [3, 4]),
    "uv pip install -y": (("uv pip install -y torch==2.6.0",), "RUN179", [3]),
    "an option that pip lacks": (("pip install --no-such a", "pip3 install --upgrad a", "uv pip install --no-such a"),
                                 "RUN179", [3]),
    "an option of pip that lacks its value": (("pip install -e", "python -m pip install -r"), "RUN179", [3, 4]),
    "a release after -e": (("pip install -e einops>=0.6", 'uv pip install -e "a[b]==1"'), "RUN179", [3, 4]),
    "a directory after -e": (("pip install -e a", "pip install -e git+https://a.b/c@v1"), "RUN179", []),
    "options of pip": (
        ("pip install --no-cache --extra-index https://a.b/c torch==2.6.0", "pip install -e . --use-pep517",
         "pip install --quiet --root-user-action=ignore -r a.txt", "pip install a -- b", "pip install -v -e ."),
        "RUN179", [],
    ),
    "an option that pip no longer has": (
        ("conda create -n a python=3.10 && conda activate a", "pip install torch==2.6.0",
         "pip install -v --no-cache-dir --global-option=\"--cpp_ext\" ./", "pip install --install-option='-x' b"),
        "RUN236", [5, 6],
    ),
    "an option of a new pip": (("pip install -U pip", "pip install --global-option=x a torch==2.6.0"), "RUN236", [4]),
    "an option of an old pip": (
        ("conda create -n a python=3.8", "conda activate a", "pip install --global-option=--cpp_ext ./",
         "pip install torch==1.8.0"), "RUN236", [],
    ),
    "an option of a stated pip": (
        ("pip install 'pip<25.3'", "pip install -C --build-option=--cpp_ext --config-settings --global-option=a b",
         "pip install --global-option=--cpp_ext ./", "pip install torch==2.6.0"),
        "RUN236", [],
    ),
    "an option of an unknown pip": (("pip install --global-option=--cpp_ext ./ torch==2.6.0",), "RUN236", []),
    "an option of CMake that stops the build": (
        ('CMAKE_ARGS="-DLLAMA_CUBLAS=on" FORCE_CMAKE=1 pip install llama-cpp-python',), "RUN249", [3],
    ),
    "an exported option of CMake": (
        ('export CMAKE_ARGS="-DLLAMA_CUBLAS=ON"', "pip install llama-cpp-python==0.3.4"), "RUN249", [4],
    ),
    "an option of CMake for an old release": (
        ("CMAKE_ARGS=-DLLAMA_CUBLAS=on pip install llama-cpp-python==0.2.20", "pip install torch==2.6.0"),
        "RUN249", [],
    ),
    "an option of CMake for wheels": (
        ("CMAKE_ARGS=-DLLAMA_CUBLAS=on pip install llama-cpp-python --extra-index-url https://a.b/whl/cu121",),
        "RUN249", [],
    ),
    "another option of CMake": (
        ("CMAKE_ARGS=-DGGML_CUDA=on pip install llama-cpp-python torch==2.6.0",
         "CMAKE_ARGS=-DLLAMA_CUBLAS=off pip install llama-cpp-python"), "RUN249", [],
    ),
    "-y of other programs": (
        ("pip uninstall -y a", "conda install -y pip", "apt-get install -y b && pip install c"), "RUN179", [],
    ),
    "an option that a release removed": (
        ("pip install gdown", "gdown --id 1a -O b", "sudo gdown --fuzzy c"), "RUN236", [4, 5],
    ),
    "an option of the release that has it": (
        ("pip install 'gdown<6'", "gdown --id 1a", "gdown --fuzzy c"), "RUN236", [],
    ),
    "an option of an unknown release": (("gdown --id 1a", "pip install torch==2.6.0"), "RUN236", []),
    "an option that stays": (("pip install gdown", "gdown 1a -O --id.zip", "gdown --folder b"), "RUN236", []),
    "an address before cd": (("https://github.com/a/Model.git", "cd Model", "pip install -e ."), "RUN180", [3]),
    "a link": (("https://github.com/a/Model", "pip install torch==2.6.0"), "RUN180", []),
    "a mixed address": (("git clone https://github.com:a/Model.git --depth 1", "cd Model"), "RUN180", [3]),
    "an address with a port": (("git clone https://git.example.org:8443/a/Model.git", "cd Model"), "RUN180", []),
    "an address with a user": (("git clone https://a:b@github.com/a/Model.git", "cd Model"), "RUN180", []),
    "a clone": (("git clone https://github.com/a/Model.git", "cd Model"), "RUN180", []),
    "a clone of a link": (
        ("git clone [https://github.com/a/Model.git](https://github.com/a/Model.git)", "cd Model"), "RUN180", [],
    ),
    "a folder that a step makes": (
        ("git clone https://github.com/a/BigModel", "mkdir bigmodel", "cd bigmodel"), "RUN083", [],
    ),
}  # fmt: skip


def test_an_installation_without_a_backslash_is_read_as_it_is_meant() -> None:
    audit = audit_guide(sh("pip install torch==2.6.0 \\", "  numpy==1.26.4", "  deepspeed==0.16.8"), name="SETUP.md")
    assert [(each.id, each.line) for each in audit.findings if each.status == "error"] == [("RUN177", 4)]
    assert "deepspeed==0.16.8" in audit.requirements


@each_case("name", [*SHELL])
def test_a_mistake_in_shell_code(name: str) -> None:
    commands, rule, lines = SHELL[name]
    found = [each for each in audit_guide(sh(*commands), name="SETUP.md").findings if each.id == rule]
    assert [each.line for each in found] == lines


def test_a_comment_in_a_dockerfile_is_removed() -> None:
    text = "FROM ubuntu:22.04\nRUN pip install a \\\n# old\n  torch==2.6.0\n"
    audited = audit_text(text, "Dockerfile", None, NoSolver())
    assert [each for each in audited.result.findings if each.id == "RUN081"] == []


INLINE: dict[str, tuple[str, list[str]]] = {  # a paragraph, and the findings on it
    "a quote without an end": ("`python a.py --text \"b.' --out 'c'`", ["RUN186"]),
    "complete quotes": ("`python a.py --text \"b's\" --out 'c'`", []),
    "a mention": ('Start `python a.py --text "b`', []),
    "no file": ('`python -c "import a`', []),
}


@each_case("name", [*INLINE])
def test_a_paragraph_that_is_a_command(name: str) -> None:
    paragraph, expected = INLINE[name]
    text = sh("pip install torch==2.8.0") + f"\n{paragraph}\n"
    found = audit_guide(text, name="SETUP.md").findings
    assert [each.id for each in found if each.id in ("RUN177", "RUN186")] == expected


def test_a_guide_without_packages_has_mistakes_in_shell_code() -> None:
    audited = audit_text(sh("docker --gpus all run a/b:1", "  --lr=1"), "README.md", None, NoSolver()).result
    assert [each.id for each in audited.findings] == ["RUN104", "RUN177"]
