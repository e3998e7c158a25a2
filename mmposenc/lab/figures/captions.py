"""What each figure shows, in words: for captions, and for those who do not see it."""
from __future__ import annotations

#: By figure: a title, and what is seen.
CAPTIONS: dict[str, tuple[str, str]] = {
    'matrix': ('Attention of all tokens',
               'The attention weight of every query (rows) for every key (columns) of one layer; '
               'beside it the same weights with the encodings left out, where they can be.'),
    'attention': ('Attention of reference cells',
                  'The attention of evenly spread cells in one layer, a tile on the grid of the '
                  'keys for each of them.'),
    'kernels': ('Kernels of the PEG', 'The weights of the convolution, one small square a channel, '
                'in colours in both directions from 0.'),
    'index': ('Index function', "iRPE's piecewise index by the offset of two cells, beside the "
              'clipped one.'),
    'buckets': ('Buckets', 'The bucket of every key for a query (star), for the four methods of '
                'iRPE; buckets that touch differ in colour.'),
    'references': ('Added to the logits of reference cells',
                   'What the encoding adds to the logits of evenly spread cells, a tile on the '
                   'grid of the keys for each of them.'),
    'similarity': ('Similarity of positions', 'The cosine similarity between what the encoding '
                   'gives one cell and all others, a tile for each of evenly spread cells.'),
    'cost': ('Cost', 'Multiply-accumulates that iRPE adds, by the size of the image.'),
    'sizes': ('Sizes by layer', 'Quartiles and ends of the sizes that each ContextPool predicts.'),
    'bias': ('Added to the logits by offset', 'What is added to the logit of a key, by its offset '
             "from the query (star), a map a head, less the head's mean, which a softmax over "
             'cells does not see.'),
    'rotary': ('Rotary similarity by offset', 'What turning leaves of the product of a query with '
               'a key like it, by the offset of the key from the query (star): the mean over '
               'planes of the cosine of the angle between them.'),
    'added': ('Added to the tokens', 'What the encoding adds to the tokens of the photo: its norm '
              'over channels on the photo, and the channels that vary most from cell to cell.'),
    'pools': ('What ContextPool predicts', 'The weight of each token, and the size that it pools '
              'over, on the photo, layer by layer.'),
    'overlay': ('Attention on the photo', 'The attention weights of one layer on the photo, for '
                'each point (star, its cell framed) and the first prefix token, where there is '
                'one. In windows the one that holds the point is outlined.'),
    'rollout': ('Attention rollout on the photo', 'The share of each cell of the input in the '
                'output: attention of all layers multiplied, with half of each layer passing it '
                'by (Abnar and Zuidema, 2020), for the first prefix token, or the mean of all '
                'cells, and for each point.'),
}
