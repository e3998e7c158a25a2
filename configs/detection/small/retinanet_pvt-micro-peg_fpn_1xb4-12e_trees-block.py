# The same model, tested on the held-out block of the plots it was trained on.
_base_ = 'retinanet_pvt-micro-peg_fpn_1xb4-12e_trees.py'
val_dataloader = dict(
    dataset=dict(ann_file='annotations/val_block.json', data_prefix=dict(img='images/val_block/')))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file='data/trees/annotations/val_block.json')
test_evaluator = val_evaluator
