"""Model folders from the Hugging Face Hub: what was fetched before without asking, the rest if it can be reached."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rightlung.core import InputError
from rightlung.models.folder import PICKLES

SECONDS = 10.0
"""To wait for the Hub's answer before giving up."""

HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")
_OFF = ("", "0", "no", "off", "false")


def fetch(model_id: str) -> Path:
    """Return the folder with a Hub model's files, fetched if needed; pickles are left there.

    The folder's files are links to others in the Hub's cache, two folders above.
    """
    try:
        from huggingface_hub import HfApi, snapshot_download
    except ImportError:
        raise InputError(
            f"there is no folder {model_id!r}, and to fetch it from the Hugging Face Hub the package huggingface_hub "
            "is needed, which is not installed"
        ) from None
    left_out = [f"*{suffix}" for suffix in PICKLES]
    try:
        return Path(snapshot_download(model_id, local_files_only=True, ignore_patterns=left_out))
    except (OSError, ValueError):  # not fetched before
        pass
    if any(os.environ.get(name, "").lower() not in _OFF for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")):
        raise InputError(
            f"there is no folder {model_id!r}, and it was not fetched from the Hugging Face Hub before; nothing is "
            "fetched now, as HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set"
        )
    try:
        revision = HfApi().model_info(model_id, timeout=SECONDS).sha
        return Path(snapshot_download(model_id, revision=revision, ignore_patterns=left_out, etag_timeout=SECONDS))
    except Exception as error:  # which classes these are has changed with the versions of huggingface_hub
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise InputError(
            f"there is no folder {model_id!r}, and it cannot be fetched from the Hugging Face Hub: {reason[0]}"
        ) from error
