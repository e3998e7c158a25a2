"""Weights by name, ``hf://owner/name`` and ``timm://model``, through huggingface_hub.

Its cache, tokens (``HF_TOKEN``, ``hf auth login``), mirrors (``HF_ENDPOINT``), resumed downloads
and offline mode (``HF_HUB_OFFLINE=1``) hold. Only safetensors are read, which hold no code.
"""
from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from urllib.parse import unquote

from ..config_types import ConfigType
from ..terminal.messages import error_text

_NAME = re.compile(r'(?:hf://(?P<repo>[^/@]+/[^/@]+)|timm://(?P<model>[^/@]+))'
                   r'(?:@(?P<revision>[^/]+))?(?:/(?P<file>.+))?')
#: The names under which repositories store weights, in the order in which we try them.
WEIGHTS = ('model.safetensors', 'model.safetensors.index.json', 'open_clip_model.safetensors')
_LOG_IN = 'set HF_TOKEN or run `hf auth login`'


class Name(NamedTuple):
    """The parts of a name: a repository, its revision (None: main), and a file in it (None: its
    weights)."""

    repo: str
    revision: str | None
    file: str | None


class NotReached(OSError):
    """There is no connection, and no copy in the cache."""


class NoSuchFile(OSError):
    """The repository has no file with this name."""


def is_hub_name(name: object) -> bool:
    """Whether weights are given by a name, such as ``'hf://...'``, and not by a file."""
    return str(name).startswith(('hf://', 'timm://'))


def read_name(name: str) -> Name:
    """Split ``hf://owner/name@revision/folder/file.safetensors`` into its parts. What follows
    owner/name may be left out, and ``timm://model.tag`` stands for ``hf://timm/model.tag``.

    Raises:
        ValueError: it is no such name, or its file is no .safetensors.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f'{name!r} must be hf://OWNER/NAME or timm://MODEL, with @REVISION and '
                         f'/FILE.safetensors behind it if need be')
    file = match['file']
    if file is not None and not file.endswith('.safetensors'):
        raise ValueError(f'{name!r}: only .safetensors are read by name; other files may hold code')
    revision = match['revision'] and unquote(match['revision'])
    return Name(match['repo'] or f'timm/{match["model"]}', revision, file)


def weight_files(name: str) -> list[Path]:
    """The files of the weights, in the cache; several of a model that is cut into pieces.

    Raises:
        ImportError: huggingface_hub is not installed.
        ValueError: no such name, or a repository without safetensors.
        OSError: no such repository, revision or file, no right to read it, or no connection and no
            copy in the cache.
    """
    wanted = read_name(name)
    unreached: NotReached | None = None
    for file in (wanted.file,) if wanted.file else WEIGHTS:
        # Without a network, huggingface_hub waits half a minute: this may happen once, and then
        # only the cache is used.
        try:
            path = fetch(name, file, cached=unreached is not None)
        except NotReached as error:
            unreached = unreached or error
            continue
        except NoSuchFile:
            continue
        if file.endswith('.json'):
            pieces = sorted(set(json.loads(path.read_text())['weight_map'].values()))
            for piece in pieces:
                if not piece.endswith('.safetensors'):
                    raise ValueError(f'{name}: its index names {piece!r}, which is no .safetensors')
            return [fetch(name, piece) for piece in pieces]
        return [path]
    if unreached is not None:
        raise unreached
    raise ValueError(f'{name}: {wanted.repo} has no file {wanted.file or " or ".join(WEIGHTS)}; '
                     'write hf://OWNER/NAME/FILE.safetensors for one that it has. Other kinds of '
                     'files may hold code and are not read by name: if you trust one, download it '
                     'and name the file')


def read_config(name: str) -> ConfigType:
    """Read ``config.json`` of a repository; errors are those of :func:`weight_files`."""
    content = json.loads(fetch(name, 'config.json').read_text())
    if not isinstance(content, dict):
        raise ValueError(f'{name}: config.json holds no dict')
    return content


def fetch(name: str, file: str, *, cached: bool = False) -> Path:
    """The path of a file of a repository in the cache; with ``cached`` the network is not used.

    Raises:
        NotReached: no connection, and no copy in the cache.
        NoSuchFile: the repository has no such file.
        OSError: no such repository or revision, or no right to read it.
    """
    hub, errors = import_library(name)
    wanted = read_name(name)
    try:
        return Path(hub.hf_hub_download(wanted.repo, file, revision=wanted.revision,
                                        local_files_only=cached))
    except errors.LocalEntryNotFoundError as error:
        raise NotReached(_not_reached_text(name, hub)) from error
    except errors.EntryNotFoundError as error:
        raise NoSuchFile(f'{name}: {wanted.repo} has no file {file!r}') from error
    except Exception as error:  # The HTTP library of huggingface_hub raises errors of its own.
        raise OSError(_refused_text(name, wanted, hub, errors, error)) from error


def import_library(name: str) -> tuple[ModuleType, ModuleType]:
    """Import huggingface_hub; returns the package and its errors.

    Raises:
        ImportError: with what to install.
    """
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise ImportError(f"{name} needs huggingface_hub: `pip install 'mmposenc[hub]'`, or "
                          f'download the file and name it') from error
    return huggingface_hub, errors


def _not_reached_text(name: str, hub: ModuleType) -> str:
    cache = hub.constants.HF_HUB_CACHE
    if hub.constants.HF_HUB_OFFLINE:
        return f'{name} is not in the cache ({cache}), and HF_HUB_OFFLINE forbids to download it'
    return f'{name} is not in the cache ({cache}), and {hub.constants.ENDPOINT} is not reached'


def _refused_text(name: str, wanted: Name, hub: ModuleType, errors: ModuleType,
                  error: Exception) -> str:
    """What a user can do about an error of the server."""
    if isinstance(error, errors.GatedRepoError):
        return (f'{name} is given to those who agreed to its licence: do so at '
                f'{hub.constants.ENDPOINT}/{wanted.repo}, then {_LOG_IN}')
    if isinstance(error, errors.RevisionNotFoundError):
        return f'{name}: {wanted.repo} has no revision {wanted.revision!r}'
    status = getattr(getattr(error, 'response', None), 'status_code', None)
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 403):
        return (f'{name}: there is no repository {wanted.repo}, or you may not read it; if it is '
                f'private, {_LOG_IN}')
    return (f'{name} could not be downloaded: {error_text(error)}. Try again, or '
            f'download it yourself and name the file')
