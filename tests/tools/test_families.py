"""Families of mmdet and mmseg on the PyTorch forms of the operators, and the count of needs."""
import pytest
from scripts import ROOT, load_script, run_python

import mmposenc  # noqa: F401  (before mmdet)

pytest.importorskip('mmdet')
pytest.importorskip('mmseg')

#: Of every operator that was made for them one; they also cover reading flat memory (DyHead).
NEEDS = {'carafe': 'carafe', 'dcn': 'deform_conv', 'dcn-pool': 'deform_roi_pool',
         'dcnv2-pool': 'deform_roi_pool', 'dyhead': 'modulated_deform_conv',
         'guided-anchoring': 'masked_im2col', 'psanet': 'psamask', 'reppoints': 'deform_conv',
         'vfnet': 'modulated_deform_conv'}


@pytest.mark.slow
@pytest.mark.parametrize('name', NEEDS)
def test_trains_a_step_and_predicts(name):
    done = load_script('tools', 'families').run(name, narrow=True)
    assert NEEDS[name] in done.operators.split(', ')
    assert done.predicted.startswith('maps') or int(done.predicted.split()[0]) > 0


@pytest.mark.slow
def test_no_code_of_mmdet_or_mmseg_lacks_an_operator():
    """In a process of its own, as all of their modules are imported. (mmdet.apis names RoIPool, to
    refuse it on a CPU.)"""
    lines = run_python('-W', 'ignore', ROOT / 'tools/operators.py', '--code').splitlines()
    assert [line[:5] + line.partition('lacking')[2] for line in lines] == [
        'mmdet: roi_pool_backward, roi_pool_forward', 'mmseg: none'], lines


def test_the_count_finds_operators_behind_functions_and_layers(capsys):
    tool = load_script('tools', 'operators')
    import mmcv.ops
    assert tool.operators_of([mmcv.ops.RoIAlignRotated]) == {'roi_align_rotated_forward',
                                                             'roi_align_rotated_backward'}
    assert 'carafe_forward' in tool.operators_of([mmcv.ops.CARAFEPack])
    tool.main(['mmdet', '--only', 'faster-rcnn_r50_fpn-carafe', '--lacking', '--unbuilt'])
    out = capsys.readouterr().out
    assert '1 configs, 1 models that differ' in out and '; 0 could not be built' in out
    assert '; 0 lack an operator' in out
    assert '| carafe | 1 | yes |' in out and '| nms | 1 | yes |' in out
    with pytest.raises(SystemExit):
        tool.main(['mmrotate'])
