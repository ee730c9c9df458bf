"""Top-level modules and the packages that contain them."""

from __future__ import annotations

# Modules whose distribution has another name.
DISTRIBUTIONS = {
    "PIL": "pillow", "cv2": "opencv-python", "sklearn": "scikit-learn", "skimage": "scikit-image", "yaml": "pyyaml",
    "google": "protobuf", "attr": "attrs", "dateutil": "python-dateutil", "jwt": "pyjwt", "bs4": "beautifulsoup4",
    "pl_bolts": "lightning-bolts", "OpenSSL": "pyopenssl", "fitz": "pymupdf", "docx": "python-docx",
    "pkg_resources": "setuptools", "mpl_toolkits": "matplotlib", "zmq": "pyzmq", "usb": "pyusb", "git": "gitpython",
}  # fmt: skip
