"""Load, save and share models as in Hugging Face: `from_pretrained`, `save_pretrained`, `push_to_hub`.

A model that is in the Hub's local cache is loaded from there, without a connection.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any, Self

from rightlung.core import InputError, OutputError
from rightlung.models.folder import PICKLES, save_model

SECONDS = 10.0
"""Timeout of requests to the Hub."""

HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")
_OFF = ("", "0", "no", "off", "false")


def fetch(model_id: str) -> Path:
    """Return the local folder of a Hub model, downloaded if needed, without its pickles.

    The files in it are links into the Hub's cache, two folders above.
    """
    try:
        from huggingface_hub import HfApi, snapshot_download
    except ImportError:
        raise InputError(
            f"there is no folder {model_id!r}; install the package huggingface_hub to download the model of this name "
            "from the Hugging Face Hub"
        ) from None
    ignored = [f"*{suffix}" for suffix in PICKLES]
    try:
        return Path(snapshot_download(model_id, local_files_only=True, ignore_patterns=ignored))
    except (OSError, ValueError):  # not in the cache
        pass
    if _offline():
        raise InputError(
            f"there is no folder {model_id!r}, and no copy in the Hugging Face cache; nothing is downloaded, because "
            "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set"
        )
    try:
        revision = HfApi().model_info(model_id, timeout=SECONDS).sha
        return Path(snapshot_download(model_id, revision=revision, ignore_patterns=ignored, etag_timeout=SECONDS))
    except Exception as error:  # which classes these are has changed with the versions of huggingface_hub
        raise InputError(
            f"there is no folder {model_id!r}, and the Hugging Face Hub did not provide it: {_first_line(error)}"
        ) from error


class Pretrained:
    """Adds Hugging Face's three methods to a model that can be saved (`rightlung.models.folder.Savable`)."""

    card: str = ""
    """The model card that came with the weights."""

    @classmethod
    def from_pretrained(cls, name_or_folder: str | Path, device: Any = "cpu") -> Self:
        """Return a model of this class by name, folder or Hub id; `rightlung.load` does the same for any class."""
        from rightlung.models.registry import load

        model = load(name_or_folder, device)
        if not isinstance(model, cls):
            raise InputError(f"{name_or_folder}: expected a {cls.__name__}; got a {type(model).__name__}")
        return model

    def save_pretrained(self, folder: str | Path, card: str | None = None) -> None:
        """Write the model to a folder with ``card`` as its README.md: by default the card it was loaded with."""
        save_model(self, folder, card or self.card or f"# {type(self).__name__}\n\nTrained with rightlung.")  # type: ignore[arg-type]

    def push_to_hub(self, repo_id: str, *, private: bool = True, card: str | None = None) -> str:
        """Upload what `save_pretrained` writes to ``organisation/name`` on the Hugging Face Hub; return the address.

        A new repository is private by default, because weights trained on credentialed data may not be published; one
        that exists keeps its visibility. Log in first with ``hf auth login``.
        """
        if not HUB_ID.fullmatch(repo_id):
            raise InputError(f"expected a Hub id such as 'organisation/name'; got {repo_id!r}")
        try:
            from huggingface_hub import HfApi
        except ImportError:
            raise OutputError(f"cannot upload to {repo_id}: install the package huggingface_hub") from None
        if _offline():
            raise OutputError(f"cannot upload to {repo_id}: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set")
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "model")
            self.save_pretrained(folder, card)
            try:
                address = str(HfApi().create_repo(repo_id, private=private, exist_ok=True))
                HfApi().upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Upload a rightlung model")
            except Exception as error:  # see fetch
                raise OutputError(f"cannot upload to {repo_id}: {_first_line(error)}") from error
        return address


def _offline() -> bool:
    return any(os.environ.get(name, "").lower() not in _OFF for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
