"""Models that are built on the meta device, or were in half precision, have their fixed numbers."""
import copy

import examples
import pytest
import torch
from helpers.tiny_backbones import BUILD, images, randomize


def make(name=None, **options):
    encoding = name and dict(examples.small(name), **(
        dict(layer_slopes=(1.5, 0.5)) if 'LookHere' in name else {}))
    return BUILD['vit'](img_size=(32, 48), rel_pos_encoding=encoding, drop_path_rate=0.3, **options)


def lose(model):
    """What memory of a new process may hold."""
    for buffer in model.buffers():
        buffer.fill_(7)


@pytest.mark.parametrize('name', [None, *examples.RELATIVE])
@pytest.mark.parametrize('way', ['to_empty', 'assign'])
def test_weights_are_all_that_a_model_needs(name, way):
    model = randomize(make(name)).eval()
    with torch.device('meta'):
        other = make(name).eval()
    if way == 'assign':
        other.load_state_dict(model.state_dict(), assign=True)
        other.to('cpu')
    else:
        other.to_empty(device='cpu')
        lose(other)
        other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(images()), model(images()), atol=0, rtol=0)
    torch.testing.assert_close(dict(other.named_buffers()), dict(model.named_buffers()))


@pytest.mark.parametrize('name', ['ALiBi2D', 'LookHere 90', 'RotaryEmbedding golden',
                                  'KERPLE log'])
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_half_precision_leaves_no_trace(name, dtype):
    model = BUILD['vit'](embed_dims=48, num_heads=12, rel_pos_encoding=examples.small(name),
                         drop_path_rate=0.3)
    back = copy.deepcopy(model).to(dtype).float()
    back.load_state_dict(model.state_dict())
    for buffer, other in zip(model.buffers(), back.buffers(), strict=True):
        torch.testing.assert_close(other, buffer, atol=0, rtol=0)
    doubled = copy.deepcopy(model).double()
    slopes = dict(doubled.named_buffers()).get('blocks.0.attn.rel_pos_encoding.slopes')
    if name == 'ALiBi2D':
        assert slopes.tolist() == doubled.blocks[0].attn.rel_pos_encoding.constants()['slopes']
