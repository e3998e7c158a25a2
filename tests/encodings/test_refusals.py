"""What encodings refuse when they are built; each error names the argument and its value."""
import math

import pytest

from mmposenc.encodings import ENCODINGS
from mmposenc.signatures import parameters_of

#: For arguments without a default.
SIZES = dict(head_dims=8, num_heads=2, embed_dims=8, window_size=(3, 3), grid_shape=(3, 3),
             max_size=(3, 3), max_tokens=9, window_shape=(3, 3))
#: What may be below zero.
ANY_NUMBER = ('first', 'turns', 'layer_slopes')


def sizes_of(name):
    return {key: SIZES[key] for key, each in parameters_of(ENCODINGS[name]).items()
            if each.default is each.empty and key in SIZES}


@pytest.mark.parametrize('name', [name for name in ENCODINGS if name != 'CombinedRPE'])
def test_every_bad_number_and_unknown_name_is_told(name):
    """Numbers below zero, sides of zero and names that there are not, an argument at a time."""
    good = sizes_of(name)
    for key, each in parameters_of(ENCODINGS[name]).items():
        value, kinds = {**{key: each.default}, **good}[key], str(each.annotation)
        if key in ANY_NUMBER or isinstance(value, bool):
            continue
        values = []
        if isinstance(value, (int, float)):
            values = [-type(value)(1), *([type(value)(0)] if value and key != 'max_offset' else [])]
        elif isinstance(value, str) or value is None and 'str' in kinds:
            values = ['nonsense']
        elif isinstance(value, tuple) or value is None and 'tuple' in kinds:
            values = [(0, 0)]
        for bad in values:
            told = 'no error'
            try:
                ENCODINGS[name](**{**good, key: bad})
            except Exception as error:
                told = f'{type(error).__name__}: {error}'
            assert told.startswith('ValueError') and f'{key}={bad!r}' in told, (
                f'{name}: {key}={bad!r} must be a ValueError that says so, as those of checks.py; '
                f'it was {told}')


@pytest.mark.parametrize('name, options, message', [
    ('ShawRPE', dict(on_keys=False), r'on_keys=False and on_values=False'),
    ('SASARPE', dict(head_dims=5), r'head_dims=5 must be even'),
    ('SASARPE', dict(max_offset=(1, 2, 3)), r'max_offset=\(1, 2, 3\)'),
    ('TransformerXLRPE', dict(head_dims=3), r'head_dims=3 \* num_heads=2 must be a multiple of 4'),
    ('LePE', dict(kernel_size=4), r'kernel_size=4 must be odd'),
    ('CoPE', dict(max_positions=1), r'max_positions=1 must be >= 2'),
    ('CRPE', dict(windows={3: 1}), r'windows=\{3: 1\} must share out num_heads=2'),
    ('LieRE', dict(block_size=3), r'block_size=3 must be at least 2 and divide head_dims=8'),
    ('ComRoPE', dict(block_size=1), r'block_size=1 must be at least 2'),
    ('ComRoPE', dict(method='ap'), r"method='ap' needs an even number of blocks"),
    ('LookHere', dict(undirected_heads=3), r'undirected_heads=3 must be at most num_heads=2'),
    ('LookHere', dict(layer_slopes=(1.5,)), r'layer_slopes=\(1.5,\) must be \(first, last\)'),
    ('RelativePositionBias', dict(resize='geometric-cubic', window_size=(2, 5)), 'sides must not'),
    ('IRPE', dict(rpe_on=''), "rpe_on='' must be"),
    ('IRPE', dict(rpe_on='kk'), "rpe_on='kk' must be.*each once"),
    ('IRPE', dict(mode='bias', rpe_on='kv'), "rpe_on='kv' with mode='bias'.*not to the values"),
    ('PEG', dict(kernel_size=4), 'kernel_size=4 must be odd'),
    ('PEG', dict(apply_to='qk', padding='none'), "apply_to='qk' with padding='none'"),
    ('SinCosPositionEncoding', dict(embed_dims=10), 'embed_dims=10 must be a multiple of 4'),
    ('LearnedPositionEmbedding', dict(drop=1.5), 'drop=1.5 must be'),
    ('LearnedPositionEmbedding', dict(interpolation_offset=1.0), 'offset=1.0 must be'),
    ('LearnableFourierFeatures', dict(fourier_dims=7), 'fourier_dims=7 must be even'),
    *(('ContextPool', options, message) for options, message in (
        (dict(window_size=4), 'window_size=4 must be odd and positive'),
        (dict(stride=2, dims=1), 'stride=2 needs dims=2'),
        (dict(causal=True), 'causal=True needs dims=1, not dims=2'),
        (dict(causal=True, dims=1, size_norm='softmax'), "causal=True with size_norm='softmax'"),
        (dict(locality='random_sparse', weights='nonlocal'), "random_sparse' takes neither"),
        (dict(locality='random_sparse', dims=1, causal=True), "random_sparse' takes neither"))),
    *(('RotaryEmbedding', options, message) for options, message in (
        (dict(head_dims=6), r'head_dims=6 must be a positive multiple of 4'),
        (dict(normalize='max', reference_grid=(4, 4)),
         r"reference_grid=\(4, 4\) and normalize='max'"),
        (dict(scaling='ntk'), r"grid_shape=None and dims=2: scaling='ntk'"),
        (dict(scaling='ntk', grid_shape=(4, 4), directions='learned'),
         r"'ntk' and directions='learned'"),
        (dict(directions=3), r'directions=3 must be one of .* even number'),
        (dict(directions=4), r'directions=4 and head_dims=8: .* multiple of 16'),
        (dict(directions='hexagonal', head_dims=4), r"'hexagonal' and head_dims=4"),
        (dict(directions='golden', axes='alternate'), r"'alternate' and directions='golden'"),
        (dict(shared_freqs=False), r"shared_freqs=False and directions='axes' and axes='xy'"),
        (dict(clamp=True), r"clamp=True and directions='axes'"),
        (dict(scaling='yarn', grid_shape=(4, 4), turns=(2, 1)), r'turns=\(2, 1\) must be'),
        (dict(scaling='yarn', grid_shape=(4, 4), theta=1), r'theta=1 must be > 1'),
        (dict(theta=10, periods=(1, 2)), r'theta=10 and periods=\(1, 2\)'),
        (dict(periods=(2, 1)), r'periods=\(2, 1\) must be \(shortest, longest\)'),
        (dict(jitter=0.5), r'jitter=0.5 must be at least 1'),
        (dict(rescale=math.inf), r'rescale=inf must be at least 1')))])
def test_options_that_do_not_fit(name, options, message):
    with pytest.raises(ValueError, match=message):
        ENCODINGS[name](**{**sizes_of(name), **options})
