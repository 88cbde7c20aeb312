"""The environment of measured costs."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch


@lru_cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def environment() -> dict[str, str]:
    """The environment for which measured times hold: devices, threads, PyTorch, and settings that choose
    kernels."""
    cuda: Any = torch.cuda
    found = {
        "torch": torch.__version__,
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "mkldnn": str(torch.backends.mkldnn.enabled),
    }
    if cuda.is_available() and cuda.is_initialized():
        found["cuda"] = f"{torch.version.cuda} {torch.backends.cudnn.version()}"
        found["devices"] = ", ".join(sorted({cuda.get_device_name(i) for i in range(cuda.device_count())}))
        cudnn: Any = torch.backends.cudnn
        for name in ("enabled", "benchmark", "deterministic", "allow_tf32"):
            found[f"cudnn_{name}"] = str(getattr(cudnn, name))
        workspaces = os.environ.get("CUBLAS_WORKSPACE_CONFIG"), os.environ.get("CUBLASLT_WORKSPACE_SIZE")
        found["cublas_workspaces"] = " ".join(str(each) for each in workspaces)
    return found
