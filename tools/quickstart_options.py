"""Options that put another plain transformer into the quickstart's configs of a frozen ViT-S/14.

    python tools/quickstart_options.py CONFIG dinov2-base
"""
from __future__ import annotations

import argparse

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc import engine
from mmposenc.backbones.vit_archs import arch_options
from mmposenc.command_line import Parser, reported


def options(config: str, arch: str) -> dict[str, object]:
    """KEY: VALUE for --cfg-options: blocks at the same parts of the depth, and what follows from
    the sizes of blocks and patches."""
    cfg = engine.load_config(config)
    sizes, known = arch_options(arch, {}), arch_options(cfg.model.backbone.arch, {})
    layers, dims, patch = sizes['num_layers'], sizes['embed_dims'], sizes.get('patch_size', 16)
    maps = cfg.model.backbone.out_indices
    found: dict[str, object] = {
        'model.backbone.arch': arch,
        'model.backbone.frozen_stages': layers,
        'model.backbone.out_indices': [(block + 1) * layers // known['num_layers'] - 1
                                       for block in maps],
        'model.neck.in_channels': [dims] * len(maps)}
    if 'decode_head' in cfg.model:
        channels = dims * len(maps)
        return {**found, 'model.decode_head.in_channels': channels,
                'model.decode_head.channels': channels,
                'model.data_preprocessor.size_divisor': patch}
    return {**found, 'model.data_preprocessor.pad_size_divisor': 2 * patch,
            'model.bbox_head.anchor_generator.strides': [patch // 2, patch, 2 * patch]}


def main(argv: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument('config')
    parser.add_argument('arch', help='of mmposenc.ViT, such as dinov2-base')
    args: argparse.Namespace = parser.parse_args(argv)
    with reported(args):
        for key, value in options(args.config, args.arch).items():
            print(f'{key}={",".join(map(str, value)) if isinstance(value, list) else value}')


if __name__ == '__main__':
    main()
