"""Configs with the encodings of a word of ``--encodings``."""
from mmengine.config import Config

from mmposenc import engine
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.variants.applying import with_entry, with_entry_checked
from mmposenc.engine.variants.encodings import Entry, read_entries
from mmposenc.engine.variants.sizes import image_sizes


def entry(word: str) -> Entry:
    """The one entry that a word means."""
    only, = read_entries([word])
    return only


def applied(cfg: Config | str, word: str | Entry) -> Config:
    """A config, or the one of a name, with the encodings of a word."""
    cfg = engine.load_config(cfg) if isinstance(cfg, str) else cfg
    return with_entry(ParsedConfig(cfg), entry(word) if isinstance(word, str) else word)


def check_fits(cfg: Config, word: str | Entry, sizes=(1.0,), size=None) -> Config:
    """The same after the look whether they fit."""
    parsed = ParsedConfig(cfg)
    return with_entry_checked(parsed, entry(word) if isinstance(word, str) else word,
                              image_sizes(parsed, sizes, size))
