"""What users of mmdet, mmseg or mmpretrain run: the library's own train.py and test.py, and its
inferencer in a script, whose prediction must be test.py's.

    mmposenc run upstream_tools.py PACKAGE CONFIG CHECKPOINT IMAGE NUMBER_OF_THE_IMAGE
"""
import pickle
import sys
from pathlib import Path

import numpy as np

from mmposenc.commands.run import main


def run(tool: str, *words: str) -> None:
    """Runs a script of the library's. Its own names keep two runs of a process apart."""
    main([f'{package}::tools/{tool}', *words, '--cfg-options', f'experiment_name={tool}',
          f'visualizer.name={tool}'])


package, config, checkpoint, image, number = sys.argv[1:]
run('train.py', config, '--work-dir', 'work')
run('test.py', config, checkpoint, '--work-dir', 'test', '--out', 'out.pkl',
    *(['--out-item', 'pred'] if package == 'mmpretrain' else []))

if package == 'mmdet':
    from mmdet.apis import DetInferencer
    found = DetInferencer(config, checkpoint, device='cpu')(image, no_save_vis=True)
    expected = pickle.loads(Path('out.pkl').read_bytes())[int(number)]['pred_instances']
    boxes = found['predictions'][0]['bboxes']
    assert len(boxes) == 100
    np.testing.assert_allclose(boxes, expected['bboxes'], rtol=1e-5, atol=1e-4)
elif package == 'mmseg':
    from mmseg.apis import MMSegInferencer
    found = MMSegInferencer(config, checkpoint, device='cpu')(image)['predictions']
    from PIL import Image
    expected = np.asarray(Image.open(Path('out.pkl', f'{Path(image).stem}.png')))
    np.testing.assert_array_equal(found, expected)
else:
    from mmpretrain import ImageClassificationInferencer
    found = ImageClassificationInferencer(config, checkpoint, device='cpu')(image)[0]
    expected = pickle.loads(Path('out.pkl').read_bytes())[int(number)]['pred_score']
    np.testing.assert_allclose(found['pred_scores'], expected, rtol=1e-5)
print('mmposenc is', sys.modules['mmposenc'].__file__)
