"""Every encoding of ENCODINGS, made for any sizes: what tests and benchmarks run over."""
from mmposenc.encodings import RelativeEncoding, TokenEncoding, build_encoding
from mmposenc.encodings.context_pool import LOCALITIES, WEIGHTS
from mmposenc.functional import as_grid

#: Configs of relative encodings, several of a class where its options lead to other terms.
RELATIVE: dict[str, dict] = {
    **{f'IRPE {method} {on}': dict(type='IRPE', method=method, rpe_on=on)
       for method in ('product', 'cross', 'euclidean', 'quantization')
       for on in ('k', 'q', 'v', 'qkv')},
    'IRPE product qk per head': dict(type='IRPE', rpe_on='qk', shared_heads=False),
    'IRPE cross k per head': dict(type='IRPE', method='cross', shared_heads=False),
    **{f'IRPE {method} bias': dict(type='IRPE', method=method, mode='bias', rpe_on='qk',
                                   shared_heads=method == 'cross')
       for method in ('product', 'cross', 'euclidean')},
    'ShawRPE': dict(type='ShawRPE'),
    'ShawRPE with values': dict(type='ShawRPE', on_values=True),
    'ShawRPE sequence': dict(type='ShawRPE', method='sequence', on_values=True),
    'HuangRPE': dict(type='HuangRPE'),
    'HuangRPE per head': dict(type='HuangRPE', shared_heads=False),
    'HuangRPE sequence': dict(type='HuangRPE', method='sequence'),
    'TransformerXLRPE': dict(type='TransformerXLRPE'),
    'TransformerXLRPE sequence': dict(type='TransformerXLRPE', method='sequence'),
    'SASARPE': dict(type='SASARPE'),
    'SASARPE per head': dict(type='SASARPE', shared_heads=False),
    'RelativePositionBias': dict(type='RelativePositionBias'),
    'RelativePositionBias of cells': dict(type='RelativePositionBias', prefix_bias=False),
    'RelativePositionBias geometric': dict(type='RelativePositionBias', window_size=(3, 4),
                                           resize='geometric'),
    'LogSpacedCPB': dict(type='LogSpacedCPB'),
    'FIRE': dict(type='FIRE'),
    'ALiBi2D': dict(type='ALiBi2D'),
    **{f'KERPLE {method}': dict(type='KERPLE', method=method) for method in ('log', 'power')},
    **{f'LookHere {angle}': dict(type='LookHere', field_of_view=angle, layer_slopes=(1.0, 1.0))
       for angle in (180, 90, 45)},  # alike in all layers, to be shared by them
    'UndirectedPositionBias': dict(type='UndirectedPositionBias'),
    'UndirectedPositionBias resized': dict(type='UndirectedPositionBias', window_size=(3, 4),
                                           resize='bicubic'),
    'DynamicPositionBias': dict(type='DynamicPositionBias'),
    'QueryAbsolute1D': dict(type='QueryAbsolute1D'),
    'QueryRelative1D': dict(type='QueryRelative1D'),
    'QueryRelative1D per head': dict(type='QueryRelative1D', shared_heads=False),
    'QueryRelative2D': dict(type='QueryRelative2D'),
    'DecomposedRPE': dict(type='DecomposedRPE'),
    'DecomposedRPE resized': dict(type='DecomposedRPE', grid_shape=(3, 4), shared_heads=False),
    'RotaryEmbedding': dict(type='RotaryEmbedding'),
    'RotaryEmbedding mixed': dict(type='RotaryEmbedding', directions='learned'),
    'RotaryEmbedding golden': dict(type='RotaryEmbedding', directions='golden'),
    'RotaryEmbedding alternating': dict(type='RotaryEmbedding', axes='alternate',
                                        shared_freqs=False),
    'RotaryEmbedding of DINOv3': dict(type='RotaryEmbedding', axes='yx', planes='halves',
                                      normalize='separate'),
    'RotaryEmbedding of EVA-02': dict(type='RotaryEmbedding', axes='yx', theta=10000.0,
                                      reference_grid=(16, 16)),
    'LePE': dict(type='LePE'),
    'CRPE': dict(type='CRPE'),
    'RotaryEmbedding stretched': dict(type='RotaryEmbedding', scaling='yarn', grid_shape=(2, 2),
                                      temperature='entropy', turns=(0.01, 0.3)),
    'LieRE': dict(type='LieRE'),
    'LieRE shared': dict(type='LieRE', shared_heads=True),
    'ComRoPE linear': dict(type='ComRoPE'),
    'ComRoPE partition': dict(type='ComRoPE', method='ap', block_size=2),
    'GTA': dict(type='GTA'),
    'PaPE': dict(type='PaPE'),
    'PaPE rotation invariant': dict(type='PaPE', rotation_invariant=True),
    'CoPE': dict(type='CoPE'),
    'CoPE per head': dict(type='CoPE', shared_heads=False),
    'CombinedRPE': dict(type='CombinedRPE', encodings=[
        dict(type='IRPE', rpe_on='qkv'), dict(type='RelativePositionBias'),
        dict(type='QueryRelative1D'), dict(type='QueryAbsolute1D'), dict(type='SASARPE')]),
    'CombinedRPE of masks': dict(type='CombinedRPE', encodings=[
        dict(type='RotaryEmbedding'), dict(type='RelativePositionBias'),
        dict(type='LogSpacedCPB')]),
    'CombinedRPE of convolutions': dict(type='CombinedRPE', encodings=[
        dict(type='LePE'), dict(type='CRPE', windows=5),
        dict(type='RotaryEmbedding', directions='learned'),
        dict(type='ShawRPE', on_values=True)]),
    'CombinedRPE of tokens': dict(type='CombinedRPE', encodings=[
        dict(type='PaPE'), dict(type='QueryRelative1D'), dict(type='ShawRPE', on_values=True)]),
    'CombinedRPE of channels': dict(type='CombinedRPE', encodings=[
        dict(type='PaPE'), dict(type='RelativePositionBias')]),
    'CombinedRPE of two': dict(type='CombinedRPE', encodings=[
        dict(type='IRPE', rpe_on='k'), dict(type='RelativePositionBias')]),
}

#: What tests make smaller, so that small grids reach beyond it.
SMALL: dict[str, dict] = {
    'ShawRPE': dict(max_offset=2), 'HuangRPE': dict(max_offset=2), 'SASARPE': dict(max_offset=3),
    'LogSpacedCPB': dict(hidden_dims=8), 'DynamicPositionBias': dict(pos_dims=8),
    # A threshold below the grid's longest distance has no gradient.
    'FIRE': dict(hidden_dims=8, init_length=20.),
    'CoPE': dict(max_positions=4), 'PaPE': dict(num_parabolas=3), 'LieRE': dict(block_size=4),
    'ComRoPE': dict(block_size=2)}

#: Configs of token encodings.
TOKEN: dict[str, dict] = {
    'PEG': dict(type='PEG'),
    'ConvMLP': dict(type='ConvMLP'),
    'LearnedPositionEmbedding': dict(type='LearnedPositionEmbedding'),
    'SinCosPositionEncoding': dict(type='SinCosPositionEncoding'),
    'FactorizedPositionEmbedding': dict(type='FactorizedPositionEmbedding'),
    'WindowedPositionEmbedding': dict(type='WindowedPositionEmbedding', window_shape=(2, 3)),
    'LearnableFourierFeatures': dict(type='LearnableFourierFeatures'),
    'ContextPool': dict(type='ContextPool'),
}


#: Options of ContextPool, by themselves and in pairs.
POOLS: dict[str, dict] = {'-'.join(map(str, options.values())): options for options in (
    *(dict(weights=weights, locality=locality) for weights in WEIGHTS for locality in LOCALITIES
      if (weights, locality) != ('nonlocal', 'random_sparse')),
    dict(predictor='mlp'), dict(predictor='attention'), dict(size_norm='softmax'),
    dict(dims=1), dict(dims=1, causal=True), dict(dims=1, locality='random_sparse'),
    dict(dims=1, causal=True, locality='fixed_window', window_size=3),
    dict(dims=1, causal=True, locality='none'), dict(dims=1, causal=True, predictor='attention'),
    dict(dims=1, causal=True, weights='nonlocal'), dict(implementation='reference'),
    dict(weights='nonlocal', nonlocal_dims=3, hidden_dims=1))}
#: Token encodings with options that change what they compute.
TOKEN_OPTIONS: dict[str, dict] = {
    **TOKEN, **{f'ContextPool {name}': dict(type='ContextPool', ratio=1.0, **options)
                for name, options in POOLS.items()},
    **{f'PEG {name}': dict(type='PEG', **options) for name, options in {
        'separable': dict(conv='separable'), 'dense': dict(conv='dense'),
        'of two': dict(num_layers=2), 'normed': dict(norm_act=True)}.items()},
    'LearnedPositionEmbedding of a row': dict(type='LearnedPositionEmbedding', grid_shape=(1, 24)),
    'LearnedPositionEmbedding cut': dict(type='LearnedPositionEmbedding', grid_shape=(6, 6),
                                         interpolation='cut'),
    'LearnedPositionEmbedding tiled': dict(type='LearnedPositionEmbedding', grid_shape=(2, 3),
                                           interpolation='tile'),
    'LearnedPositionEmbedding of any aspect': dict(
        type='LearnedPositionEmbedding', grid_shape=(2, 7), keep_aspect=True),
    **{f'FactorizedPositionEmbedding {way}': dict(
        type='FactorizedPositionEmbedding', grid_shape=(8, 9), coordinates=way)
       for way in ('aspect', 'absolute')},
    'SinCosPositionEncoding of shares': dict(
        type='SinCosPositionEncoding', normalize=True, layout='interleaved')}


def small(name: str) -> dict:
    """The config of a relative encoding, smaller than in its paper."""
    cfg = {**SMALL.get(RELATIVE[name]['type'], {}), **RELATIVE[name]}
    if 'encodings' in cfg:
        cfg['encodings'] = [{**SMALL.get(each['type'], {}), **each} for each in cfg['encodings']]
    return cfg


def relative(name: str, q_grid, *, head_dims: int = 4, num_heads: int = 2,
             num_prefix_tokens: int = 0, full_size: bool = False) -> RelativeEncoding:
    """A relative encoding for queries on ``q_grid``; ``full_size`` with its papers' sizes."""
    grid = as_grid(q_grid)
    return build_encoding(
        dict(RELATIVE[name]) if full_size else small(name), RelativeEncoding, name,
        head_dims=head_dims, num_heads=num_heads, num_prefix_tokens=num_prefix_tokens,
        window_size=grid.hw, max_size=grid.hw, grid_shape=grid.hw,
        max_tokens=num_prefix_tokens + grid.num_cells)


def token(name: str, grid, *, embed_dims: int = 8) -> TokenEncoding:
    """A token encoding for a grid."""
    return build_encoding(dict(TOKEN_OPTIONS[name]), TokenEncoding, name, embed_dims=embed_dims,
                          grid_shape=as_grid(grid).hw)


#: The first example of each class of relative encodings.
FIRST = list({cfg['type']: name for name, cfg in reversed(RELATIVE.items())}.values())[::-1]
