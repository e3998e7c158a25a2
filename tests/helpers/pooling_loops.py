"""Inputs of context pooling, and a loop over pairs of tokens from the paper's formula."""
import math

import torch

GRIDS = [(4, 4), (3, 5), (1, 7), (6, 1), (1, 1)]


def make(hw, batch=2, channels=3, spread=1.0, largest=2.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    length = hw[0] * hw[1]

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    sizes = torch.rand(batch, length, generator=generator, dtype=torch.float64) * largest
    return draw(batch, length, channels), spread * draw(batch, length), sizes


def axis(kernel, distance, sigma):
    if kernel == 'gaussian':
        return math.exp(-distance ** 2 / (2 * sigma ** 2))
    return min(max(sigma + 1 - abs(distance), 0), 1)


def loop(x, logits, sigma, hw, kernel='gaussian', causal=False):
    """y_i = sum_j w_j g_ij x_j / sum_j w_j g_ij, one pair at a time."""
    out = torch.zeros_like(x)
    for b in range(len(x)):
        for i in range(x.shape[1]):
            total, sums = 0.0, torch.zeros_like(x[0, 0])
            for j in range(x.shape[1]):
                row, col = i // hw[1] - j // hw[1], i % hw[1] - j % hw[1]
                size = float(sigma[b, i])
                if causal and j > i:
                    continue
                share = (math.exp(float(logits[b, j])) * axis(kernel, row, size)
                         * axis(kernel, col, size))
                total, sums = total + share, sums + share * x[b, j]
            out[b, i] = sums / total
    return out
