"""The development packages of Debian and Ubuntu with the headers of libraries that Python packages use."""

from __future__ import annotations

# By the header, or by its directory. Read in the package lists of Debian 12 on 2026-11-27.
_PACKAGES = {
    "EGL/": "libegl-dev", "GL/": "libgl-dev", "GLES": "libgles-dev", "X11/": "libx11-dev",
    "alsa/": "libasound2-dev", "boost/": "libboost-dev", "bzlib.h": "libbz2-dev", "cblas.h": "libopenblas-dev",
    "crypt.h": "libcrypt-dev", "curl/": "libcurl4-openssl-dev", "ffi.h": "libffi-dev", "fftw3.h": "libfftw3-dev",
    "ft2build.h": "libfreetype-dev", "gflags/": "libgflags-dev", "glib.h": "libglib2.0-dev",
    "glog/": "libgoogle-glog-dev", "gmp.h": "libgmp-dev",
    "infiniband/": "libibverbs-dev", "jpeglib.h": "libjpeg-dev", "lapacke.h": "liblapacke-dev",
    "leveldb/": "libleveldb-dev", "libavcodec/": "libavcodec-dev", "libavformat/": "libavformat-dev",
    "libavutil/": "libavutil-dev", "libudev.h": "libudev-dev", "libusb": "libusb-1.0-0-dev",
    "libxml/": "libxml2-dev", "lmdb.h": "liblmdb-dev", "lz4.h": "liblz4-dev", "lzma.h": "liblzma-dev",
    "mpfr.h": "libmpfr-dev", "numa.h": "libnuma-dev", "omp.h": "libomp-dev",
    "openssl/": "libssl-dev", "png.h": "libpng-dev", "portaudio.h": "portaudio19-dev", "pulse/": "libpulse-dev",
    "rdma/": "librdmacm-dev", "snappy": "libsnappy-dev", "sndfile.h": "libsndfile1-dev", "sox.h": "libsox-dev",
    "sqlite3.h": "libsqlite3-dev", "tbb/": "libtbb-dev", "tiffio.h": "libtiff-dev", "uuid/": "uuid-dev",
    "yaml.h": "libyaml-dev", "zlib.h": "zlib1g-dev", "zstd.h": "libzstd-dev",
}  # fmt: skip


def package_of_header(header: str) -> str:
    """The package that contains a header, `libibverbs-dev` for `infiniband/verbs.h`; empty if it is unknown."""
    return next((package for start, package in _PACKAGES.items() if header.startswith(start)), "")
