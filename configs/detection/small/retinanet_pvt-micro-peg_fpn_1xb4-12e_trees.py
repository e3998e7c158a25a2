# A small PVT with a PEG in every stage, in RetinaNet, on tree crowns; from random weights in eight
# minutes on two CPU cores. The quickstart trains -quick, which draws on the way, and tests by this:
#
#     bash tools/quickstart.sh
_base_ = [
    '../../_base_/models/retinanet_pvt-micro-peg.py',
    '../../_base_/datasets/trees_detection.py',
    '../../_base_/schedules/adamw_quick.py', '../../_base_/default_runtime.py']
# Less where maps are large: a fifth less time a step than (2, 2, 2, 2) and (4, 4, 4, 4), same AP.
model = dict(backbone=dict(num_layers=(1, 2, 3, 2), mlp_ratios=(2, 2, 4, 4)))
