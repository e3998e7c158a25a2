"""The names and colours of a model's classes."""
from __future__ import annotations

from ...config_types import ReadOnlyConfig
from ..config.checks import check_trained_classes
from ..config.data import random_colours
from ..config.parsed import ParsedConfig, metainfo_entry, num_classes_of


def names_and_colours(parsed: ParsedConfig, meta: ReadOnlyConfig
                      ) -> tuple[list[str], list[tuple[int, ...]]]:
    """The names and RGB colours of classes: those of the config's test data, else of its type, else
    of the checkpoint.

    Args:
        parsed: the whole config.
        meta: what a checkpoint says of itself; trainings leave the classes of their data in it.

    Returns:
        As many as the model has classes. Those that nothing names are 'class 7'; where not all have
        a colour, all have random ones, which are always the same.

    Raises:
        ValueError: the config has no test data, or its classes in another order than the
            checkpoint's training.
    """
    if not parsed.data_sets('test'):
        raise ValueError('the config has no test_dataloader.dataset, whose pipeline says how '
                         'pictures are read')
    metainfo = {key: [value for node in parsed.data_sets('test').values()
                      if (value := metainfo_entry(node, parsed.library, key))]
                for key in ('classes', 'palette')}
    check_trained_classes(meta, [*metainfo['classes'], ()][0], 'the checkpoint')
    of_checkpoint = (meta.get('dataset_meta') or {}).get('classes') or ()
    names = [str(name) for name in [*metainfo['classes'], of_checkpoint][0]]
    number = max([len(names), *(num_classes_of(head) or 0 for head in parsed.heads.values())])
    names += [f'class {i}' for i in range(len(names), number)]
    random = random_colours(number)
    palette = [*metainfo['palette'], random][0]
    if len(palette) != number:
        palette = random
    return names, [tuple(colour) for colour in palette]
