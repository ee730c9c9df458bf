"""The packages that contain a shared library or define a symbol."""

from __future__ import annotations

import re

# Names of NVIDIA's wheels that differ from the library's name: nvidia-cuda-runtime-cu12 contains libcudart.so.12.
NVIDIA_NAMES = {
    "cudart": "cuda-runtime", "nvrtc": "cuda-nvrtc", "nvrtc-builtins": "cuda-nvrtc", "cupti": "cuda-cupti",
    "nvJitLink": "nvjitlink", "cublasLt": "cublas", "nvblas": "cublas", "cusparseLt": "cusparselt",
    "cusolverMg": "cusolver", "cufftw": "cufft", "nvToolsExt": "nvtx", "cufile_rdma": "cufile",
    "nvshmem_host": "nvshmem",
}  # fmt: skip
NVIDIA_LIBRARY = (
    r"lib(cudart|cublas|cublasLt|nvblas|cudnn\w*|cufft|cufftw|curand|cusolver|cusolverMg|cusparse|cusparseLt|nvrtc|"
    r"nvrtc-builtins|nvJitLink|cupti|nccl|nvToolsExt|cufile|cufile_rdma|nvshmem_host)\.so(?:\.([\d.]+))?"
)
# SONAMEs with a version of their own instead of CUDA's major version: libcudnn.so.9 exists for CUDA 12 and 13.
OWN_VERSIONS = ("cudnn", "nccl", "cufft", "curand", "cusolver", "cusparselt", "cufile", "nvshmem", "nvtx")
# CUDA major version by SONAME, for libraries whose version identifies it.
CUDA_OF_SONAME = {
    ("cufft", "10"): "11", ("cufft", "11"): "12", ("cufft", "12"): "13",
    ("cusolver", "11"): "12", ("cusolver", "12"): "13",
}  # fmt: skip
LIBRARY_OWNERS = (
    (r"libtorch(_(cpu|cuda|python|global_deps|nvshmem|hip|xpu)\w*)?\.so|lib(c10|caffe2)\w*\.so|libshm\.so", "torch"),
    (r"libtorchaudio|libctc_prefix", "torchaudio"),
    (r"libtorchcodec", "torchcodec"),
    (r"libcuda\.so|libnvidia-|libnvcuvid|libnvoptix", "the NVIDIA driver"),
    (r"libc\.so|libm\.so|libdl\.so|libpthread\.so|librt\.so|ld-linux", "the system's glibc"),
    (r"libstdc\+\+\.so|libgcc_s\.so|libgomp\.so", "the system's gcc libraries (or conda's libstdcxx-ng, libgcc-ng)"),
    (r"libpython3", "Python"),
    (r"libav(util|codec|format|device|filter)\.so|libsw(scale|resample)\.so", "ffmpeg"),
    (r"libmpi", "MPI"),
    (r"libibverbs|libmlx5|librdmacm", "rdma-core"),
    (r"libtbb", "tbb"),
    (r"libnuma\.so", "numactl"),
)
SYMBOL_OWNERS = (
    (r"_Z(?:T[IVS])?N?K?(?:3c10|2at|5torch|6caffe2)|THP[A-Z]|aoti_torch_", "torch"),
    (r"p?nccl[A-Z]", "nvidia-nccl"),
    (r"cudnn[A-Z]", "nvidia-cudnn"),
    (r"cublas", "nvidia-cublas"),
    (r"cusparse", "nvidia-cusparse"),
    (r"cusolver", "nvidia-cusolver"),
    (r"curand", "nvidia-curand"),
    (r"cufft", "nvidia-cufft"),
    (r"(__)?cuda[A-Z]", "nvidia-cuda-runtime"),
    (r"nvrtc[A-Z]", "nvidia-cuda-nvrtc"),
    (r"_?_?nvJitLink", "nvidia-nvjitlink"),
    (r"cu[A-Z]", "the NVIDIA driver"),
    (r"_?Py[A-Z_]", "Python"),
    (r"_ZN?K?S[st]|_ZSt|_ZTVN10__cxxabiv1|__cxa_", "the system's gcc libraries (or conda's libstdcxx-ng, libgcc-ng)"),
    (r"_ZN8pybind11", "pybind11"),
)


def package_of_library(library: str, cuda: str = "") -> str:
    """The package that contains a library; empty if unknown.

    `libcudart.so.12` is in nvidia-cuda-runtime-cu12, `libcudart.so.13` in nvidia-cuda-runtime. `cuda` (torch's,
    "12.8") selects the package of a library whose SONAME does not identify the CUDA version.
    """
    found = re.fullmatch(NVIDIA_LIBRARY, library)
    if not found:
        return next((owner for pattern, owner in LIBRARY_OWNERS if re.match(pattern, library)), "")
    name = "cudnn" if found[1].startswith("cudnn") else NVIDIA_NAMES.get(found[1], found[1])
    number = (found[2] or "").split(".")[0]
    major = CUDA_OF_SONAME.get((name, number)) or ("" if name in OWN_VERSIONS else number)
    return nvidia_package(name, major or cuda.partition(".")[0] or "12")


def package_of_symbol(symbol: str, cuda: str = "") -> str:
    """The package that should define a symbol; empty if its name does not identify one."""
    owner = next((owner for pattern, owner in SYMBOL_OWNERS if re.match(pattern, symbol)), "")
    name = owner.removeprefix("nvidia-")
    return owner if name == owner else nvidia_package(name, cuda.partition(".")[0])


def nvidia_package(name: str, major: str) -> str:
    """NVIDIA's wheel of a library: with `-cu12` up to CUDA 12; from 13 on only cuDNN, NCCL and two more have one."""
    suffixed = name in ("cudnn", "nccl", "cusparselt", "nvshmem")
    return f"nvidia-{name}" if not major or (int(major) >= 13 and not suffixed) else f"nvidia-{name}-cu{major}"
