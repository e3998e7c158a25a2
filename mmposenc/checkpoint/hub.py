"""Weights by name, ``hf://owner/name`` and ``timm://model``, through huggingface_hub.

Its cache, tokens (``HF_TOKEN``, ``hf auth login``), mirrors (``HF_ENDPOINT``), resumed downloads
and offline mode (``HF_HUB_OFFLINE=1``) hold. Only safetensors are read, which hold no code.
"""
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from ..terminal.messages import in_a_line

_NAME = re.compile(r'(?:hf://(?P<repo>[^/@]+/[^/@]+)|timm://(?P<model>[^/@]+))'
                   r'(?:@(?P<revision>[^/]+))?(?:/(?P<file>.+))?')
#: The names under which repositories store weights, in the order in which we try them.
WEIGHTS = ('model.safetensors', 'model.safetensors.index.json', 'open_clip_model.safetensors')


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
        except NoSuchFile:
            pass
        else:
            return [fetch(name, piece) for piece in pieces_of(path, name)] or [path]
    if unreached is not None:
        raise unreached
    raise ValueError(f'{name}: {wanted.repo} has no file {wanted.file or " or ".join(WEIGHTS)}; '
                     'write hf://OWNER/NAME/FILE.safetensors for one that it has. Other kinds of '
                     'files may hold code and are not read by name: if you trust one, download it '
                     'and name the file')


def pieces_of(path: Path, name: str) -> list[str]:
    """The names of the files that an index lists; none if the file is not an index.

    Raises:
        ValueError: it is no index, or names another kind of file or one of another folder.
    """
    if path.suffix != '.json':
        return []
    try:
        pieces = sorted(set(json.loads(path.read_bytes())['weight_map'].values()))
        # Two dots, a slash first, colons and backslashes lead out of the folder.
        wrong = [piece for piece in pieces or ['']
                 if not re.fullmatch(r'(?!.*\.\.)[^/:\\\0][^:\\\0]*\.safetensors', piece)]
    except Exception as error:  # Damaged text ends in errors of many kinds.
        raise ValueError(f'{path} cannot be read, it is cut short or no index with a weight_map '
                         f'({in_a_line(error)}): copy or download it again') from error
    if wrong:
        raise ValueError(f'{name}: its index names {wrong[0]!r}, which is no .safetensors of its '
                         'folder')
    return pieces


def files_in_folder(folder: Path) -> list[Path]:
    """The files of the weights in a folder that ``save_pretrained`` or ``hf download`` wrote.

    Raises:
        ValueError: it has no file with a name of :data:`WEIGHTS`, or its index names a link to a
            file of another folder.
    """
    home = folder.resolve()
    # The hub's cache has links to models--OWNER--NAME/blobs in its .../snapshots/REVISION.
    home = home.parent.parent if home.parent.name == 'snapshots' else home
    for path in (folder / file for file in WEIGHTS):
        if path.is_file():
            pieces = [folder / piece for piece in pieces_of(path, str(folder))]
            for piece in pieces:
                if not piece.resolve().is_relative_to(home):
                    raise ValueError(f'{folder}: its index names {piece.name}, a link to '
                                     f'{piece.resolve()}, which is not of its folder')
            return pieces or [path]
    raise ValueError(f'{folder} is a folder without {" or ".join(WEIGHTS)}; name a file')


def fetch(name: str, file: str, *, cached: bool = False) -> Path:
    """The path of a file of a repository in the cache; with ``cached`` the network is not used.

    Raises:
        NotReached: no connection, and no copy in the cache.
        NoSuchFile: the repository has no such file.
        OSError: no such repository or revision, or no right to read it.
    """
    try:
        from huggingface_hub import errors, hf_hub_download
    except ImportError as error:
        raise ImportError(f"{name} needs huggingface_hub: `pip install 'mmposenc[hub]'`, or "
                          f'download the file and name it') from error
    wanted = read_name(name)
    try:
        return Path(hf_hub_download(wanted.repo, file, revision=wanted.revision,
                                    local_files_only=cached))
    except errors.LocalEntryNotFoundError as error:
        raise NotReached(f'{name} is not in the cache, and the hub is not reached: '
                         f'{error.__cause__ or error}') from error
    except errors.EntryNotFoundError as error:
        raise NoSuchFile(f'{name}: {wanted.repo} has no file {file!r}') from error
    # What a reader must do about other errors (log in, agree to a licence, give another revision)
    # is in the message of huggingface_hub; its HTTP library raises errors of its own.
    except Exception as error:
        raise OSError(f'{name} could not be downloaded ({in_a_line(error)}). Try again, or '
                      'download it yourself and name the file') from error
