"""Invented secrets, names and addresses in realistic formats, which must be redacted, by kind."""

from __future__ import annotations

# Split into two parts each, so that secret scanners do not report this file.
PRIVATE_KEY = (
    "-----BEGIN OPENSSH " + "PRIVATE KEY-----\n"
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n"
    "QyNTUxOQAAACDq0yU6dPqzLr1bDf0Kp7m2Wl3kM8Jm1X9zcVhYy7QxWwAAAJgq2m3jKtpt\n"
    "-----END OPENSSH " + "PRIVATE KEY-----"
)
TOKENS = {
    "huggingface": "hf" + "_QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi",
    "openai": "sk" + "-proj-Ab3dEf6hIj9kLmN0pQrStUvWxYz123456789",
    "anthropic": "sk" + "-ant-api03-Ab3dEf6hIj9kLmN0pQrStUvWxYz-123456789_AA",
    "github": "gh" + "p_16C7e42F292c6912E7710c838347Ae178B4a",
    "github app": "gh" + "s_16C7e42F292c6912E7710c838347Ae178B4a",
    "github fine": "github" + "_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789abcdefghij",
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "slack": "xox" + "b-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
    "gitlab": "gl" + "pat-AbCdEfGhIjKlMnOpQrSt",
    "google": "AIza" + "SyA1234567890abcdefghijklmnopqrstuvw",
    "nvidia": "nvapi" + "-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789_-AbCdEfGhIjKlMnOpQrStUvWx",
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "npm": "npm" + "_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "stripe": "sk" + "_live_AbCdEfGhIjKlMnOpQrStUvWx",
}
PASSWORD = "hunter2!Zq9"
WANDB_KEY = "0123456789abcdef0123456789abcdef01234567"
# Contexts of a secret without a format of its own; {} is the secret.
NAMED = (
    "WANDB_API_KEY={}", "export WANDB_API_KEY={}", "export WANDB_API_KEY='{}'", '"WANDB_API_KEY": "{}"',
    "MY_TOKEN={}", "wandb_api_key: {}", "api_key = '{}'", 'os.environ["HF_TOKEN"] = "{}"', "PASSWORD={}",
    "password: {}", "DB_PASS={}", "--api-key {}", "--api-key={}", "--hf_token {}", "AWS_SECRET_ACCESS_KEY={}",
    "aws_secret_access_key = {}", "Authorization: Bearer {}", "authorization: token {}", "Authorization: Basic {}",
    "X-Api-Key: {}", "SIGNING_KEY={}", "https://alice:{}@mirror.acme.com/simple", "postgresql://svc:{}@db/x",
    "http_proxy=alice:{}@proxy:3128", "KEY={}", "curl -u alice:{} https://x", "client_secret={}",
    '\\"hub_token\\": \\"{}\\"', "setenv HF_TOKEN {}", "Cookie: session={}", "hub_token={}", "login(token='{}')",
    "{{'password': '{}'}}", "MYSQL_PWD={}", "credentials: {}", 'passphrase = "{}"',
)  # fmt: skip
USER = "jdoe42"
USERS = (
    "/home/{}/x.py", "/Users/{}/x", "C:\\Users\\{}\\x", "{}@gpu-node-07:~$ ls", "(base) {}@box:~/src$ ls",
    "[{}@login1 src]$ ls", "uid=1000({}) gid=1000(x)", "USER={}", "LOGNAME={}", "ssh {}@gpu-node-07",
    "wandb: Currently logged in as: {} (acme)", 'File "/home/{}/a/b.py", line 3', "PATH=/usr/bin:/home/{}/bin",
    "'user': '{}'",
)  # fmt: skip
HOST = "zeus-node-07"
HOSTS = (
    "root@{}:~# ls",
    "{}:202016:202235 [0] NCCL INFO Bootstrap",
    "MASTER_ADDR={}",
    "HOSTNAME={}",
    "tcp://{}:29500",
    "[{}]:29500",
    "Nov 21 10:00:00 {} kernel: NVRM: Xid",
    "Linux {} 5.15.0-91-generic #101-Ubuntu SMP",
    "host      : {}",
    "SLURM_JOB_NODELIST={}",
    "ssh alice@{}",
    "http://{}:8000/v1",
    "{}.cluster.acme.com failed",
    "srun: error: {}: task 0",
    "SLURMD_NODENAME={}",
    "'hostname': '{}'",
)
ADDRESSES = (
    "10.20.30.40", "192.168.178.23", "172.16.5.4", "8.8.4.4", "131.159.24.35", "100.64.3.2",
    "2001:db8:85a3::8a2e:370:7334", "fe80::1ff:fe23:4567:890a", "fd12:3456:789a:1::1",
    "2a02:8109:9c80:1b2c:d4f5:1:2:3", "02:42:ac:11:00:02", "00-1A-2B-3C-4D-5E",
    "80:00:02:08:fe:80:00:00:00:00:00:00:b8:59:9f:03:00:d4:1b:2e",
)  # fmt: skip
ADDRESSED = (
    "{}", "eth0:{}<0>", "inet {}/24 brd", "MASTER_ADDR={}", "connect to [{}]:29500 failed", "from {} to",
    "ip={}, pid=1", "('{}', 29500)", "node01  {}", "tcp {} ESTABLISHED", '"{}"', "addr: {}", "node:{}",
)  # fmt: skip
EMAILS = ("jane.doe@acme.com", "j+spam@mail.uni-x.de", "ops@corp.internal")
UUIDS = (
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "MIG-41b36f8d-3dd5-5ec9-a7a0-9cd9c1f8b2b0",
    "4c4c4544-0042-3510-8052-b4c04f4a4d32",
)
SERIALS = (
    "Serial Number : {}", "serial={}", '"serial_number": "{}"', "Board Serial: {}",
    "Serial Number                   : {}",
)  # fmt: skip
SERIAL = "1320220012345"
MACHINE_ID = "machine-id: 9f86d081884c7d659a2feaa0c55ad015"
JOBS = (
    "SLURM_JOB_NAME={}", "WANDB_ENTITY={}", "wandb_project: {}", "https://wandb.ai/{}/runs/x", "run_name={}",
    "hub_model_id: {}",
)  # fmt: skip
JOB = "acme-secret-project7"

# Lists of pip, uv, conda and collect_env, and driver and kernel versions: none of them is an address.
VERSIONS = """\
nvidia-cublas-cu12==12.4.5.8
nvidia-cuda-cupti-cu12==12.8.57
nvidia-cudnn-cu12==9.1.0.70
nvidia-cufft-cu12==11.2.1.3
nvidia-curand-cu12==10.3.5.147
nvidia-cusolver-cu12==11.6.1.9
nvidia-cusparse-cu12==12.3.1.170
opencv-python-headless==4.11.0.86
types-requests>=2.32.0.20240712
torch>=2.8.0,<2.9.0.1
[pip3] nvidia-curand-cu12==10.3.9.55
[conda] nvidia-cudnn-cu12         9.5.1.17                 pypi_0    pypi
[conda] nvidia-curand-cu12        10.3.7.77                pypi_0    pypi
nvidia-cusparse-cu12      12.5.4.2
nvidia-curand             10.3.10.19   h676940d_0   nvidia
ninja                     1.11.1.1
numpy                     2.2.6
zz-private-thing          10.1.2.3
accelerate                1.10.1
 + nvidia-cufile-cu12==1.13.0.11
 - nvidia-curand-cu12==10.3.9.90
Downloading nvidia_cublas_cu12-12.4.5.8-py3-none-manylinux2014_x86_64.whl (363.4 MB)
Using cached ninja-1.11.1.1-py2.py3-none-manylinux1_x86_64.whl
Successfully installed nvidia-curand-cu12-10.3.9.90 opencv-python-4.10.0.84
Found existing installation: opencv-python 4.10.0.84
Uninstalling opencv-python-4.10.0.84:
/venv/lib/python3.12/site-packages/nvidia_curand_cu12-10.3.9.90.dist-info/METADATA
nvidia-curand=10.3.9.90=h1234_0
{"name": "nvidia-curand-cu12", "version": "10.3.9.90"}
"nvidia-cublas-cu12": "12.4.5.8"
| NVIDIA-SMI 570.133.20.1   Driver Version: 570.133.20.1 |
Nvidia driver version: 10.18.13.5582
cuDNN version: 8.9.7.29
VBIOS Version : 96.00.89.00.01
Linux-5.15.167.4-microsoft-standard-WSL2-x86_64-with-glibc2.35
WSL version: 2.3.26.0
xformers==0.0.32.1
Bus-Id 00000000:01:00.0 and 0000:3b:00.0
2026-11-21 10:00:01,123 10:20:30 12:34:56.789
MASTER_ADDR=127.0.0.1 init_method=tcp://localhost:29500 --host 0.0.0.0 netmask 255.255.255.0
c10::add(at::Tensor) std::vector ace::face
"""
# Typical lines of a training log without personal data.
HARMLESS = """\
{'loss': 0.123, 'num_tokens': 40960, 'completions/mean_length': 256.0, 'max_tokens': 1024, 'token': 5}
tokenizer.pad_token = tokenizer.eos_token; pad_token='<|endoftext|>', eos_token: "<|im_end|>", pad_token_id=151643
max_new_tokens=512 tokens_per_second: 1234.5 TOKENIZERS_PARALLELISM=false add_special_tokens=False
KeyError: 'lm_head' key=value sorted(x, key=len) attention_key_value hub_token=None token=True HF_TOKEN=(set)
RuntimeError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, unhandled system error
from huggingface_hub import hf_hub_download; hf_transfer; import flash_attn; model = self.net(x) threading.local()
https://docs.pytorch.org/whl/cu128 https://github.com/vllm-project/vllm/issues/28030 git@github.com:org/repo.git
pip install git+https://github.com/huggingface/trl.git@main  flash-attn @ file:///tmp/x.whl  uses: actions/checkout@v4
out = q @ k.T; y = a@b; @torch.no_grad() @dataclass  docker run nvcr.io/nvidia/pytorch:25.01-py3@sha256:0123abcd
Model name: Intel(R) Xeon(R) Platinum 8480C  machine has no gpu  node: not found  host compiler: gcc 12.2.0
/root/.cache/huggingface /home/ubuntu/venv root@container:/workspace# nvidia-smi  user: root
/root/.local/share/envdoctor  /etc/rc.local  np.linalg.norm  torch.distributed.elastic  configs/train.toml
"""
