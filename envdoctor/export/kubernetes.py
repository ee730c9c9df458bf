"""A Kubernetes Job that checks a node and the stack in an image: its exit code is that of the checks."""

from __future__ import annotations

import re

from envdoctor.core.errors import BadInput
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.export.images import PYTHON
from envdoctor.export.stack import ExportedFile, LockedStack, comment_lines, heading
from envdoctor.export.text import quote

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
TEMPLATE = """\
@@HEADING@@apiVersion: batch/v1
kind: Job
metadata:
  name: @@NAME@@
  labels:
    app.kubernetes.io/name: envdoctor
    app.kubernetes.io/component: node-check
spec:
  backoffLimit: 0
  activeDeadlineSeconds: 1800
  ttlSecondsAfterFinished: 86400
  template:
    metadata:
      labels:
        app.kubernetes.io/name: envdoctor
        app.kubernetes.io/component: node-check
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      nodeSelector:
        kubernetes.io/arch: @@ARCH@@
      initContainers:
        # Exit code 1: an error in driver, GPUs or packages. The Job then fails, and `verify` does not start.
        - name: check
          image: @@IMAGE@@
          command: ["envdoctor", "check", "--python", @@PYTHON@@]
@@CONTAINER@@      containers:
        - name: verify
          image: @@IMAGE@@
          command: ["envdoctor", "verify", "--python", @@PYTHON@@]
@@CONTAINER@@      volumes:
        - name: shm
          emptyDir:
            medium: Memory
            sizeLimit: 8Gi
        - name: home
          emptyDir: {}
"""
# `verify` stores its result next to the environment if it can; the home directory takes caches and logs.
CONTAINER = """\
          env:
            - name: HOME
              value: /home/check
          terminationMessagePolicy: FallbackToLogsOnError
          securityContext:
            allowPrivilegeEscalation: false
            capabilities:
              drop: ["ALL"]
@@LIMITS@@          volumeMounts:
            - name: shm
              mountPath: /dev/shm
            - name: home
              mountPath: /home/check
"""
LIMITS = """\
          resources:
            limits:
              nvidia.com/gpu: "@@GPUS@@"
"""
IMAGE = lazy_pattern(r"[\w][\w.:/@-]{0,255}")


def kubernetes(stack: LockedStack, image: str, gpus: int) -> ExportedFile:
    """A Job for an image with envdoctor and the stack. Without `gpus` it requests one, or none for a CPU stack."""
    if not IMAGE.fullmatch(image):
        raise BadInput(
            f"image {image[:100]!r}" if image else "no image is given for the Job",
            expected="--image with an image that contains envdoctor and the stack",
            hint=shell_command(
                "envdoctor export {} --as kubernetes --image registry.example.org/stack:1", stack.profile.id
            ),
        )
    number = gpus or (0 if stack.build == "cpu" else max(1, stack.profile.when.gpus))
    limits = LIMITS.replace("@@GPUS@@", str(number)) if number else ""
    name = re.sub(r"[^a-z0-9-]+", "-", f"envdoctor-check-{stack.profile.id}".lower())[:52].strip("-")
    usage = [
        *heading(stack),
        "",
        "The image has envdoctor on its PATH, and the stack where `envdoctor export --as dockerfile` installs it.",
        "  kubectl create --filename job.yaml",
        f"  kubectl wait --for=condition=complete --timeout=30m job/{name}",
        f"  kubectl logs job/{name} --all-containers",
        "For a check before your own pods, copy the entry of initContainers and the volumes into their template.",
    ]
    values = {
        "HEADING": comment_lines(usage),
        "CONTAINER": CONTAINER.replace("@@LIMITS@@", limits),
        "NAME": name,
        "ARCH": ARCHITECTURES[stack.architecture],
        "IMAGE": quote(image),
        "PYTHON": quote(PYTHON),
    }
    text = TEMPLATE
    for key, value in values.items():
        text = text.replace(f"@@{key}@@", value)
    notes = ("not run here: a cluster pulls the image and starts the Job",)
    return ExportedFile(stack.profile.id, "kubernetes", "job.yaml", text, notes)
