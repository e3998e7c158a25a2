"""Every threshold by which attention chooses an implementation, with the measurement that set it.

Sizes are in bytes in all, or in pairs of a query and a key of one head. Rows are those of
docs/results.md ("What an encoding costs" where nothing else is named), measured on one core with
1 MiB of second-level cache. What is "not measured on a GPU" was not tried with other values there.
"""
from __future__ import annotations

#: Bytes of the buffer of logits of a chunk: of several heads, and of some queries of one head.
#: Larger ones leave the cache, smaller ones cost more calls (rows 197 and 1050).
CHUNK_BYTES = 1024 * 1024
ROWS_BYTES = 1536 * 1024
#: Pairs below which tokens are most of the memory, so chunks of a training are half as large
#: (windows of 7 x 7 and 8 x 8).
WINDOW_PAIRS = 128 * 128
#: The buffer of a chunk on an accelerator, where a call costs more than its arithmetic (not
#: measured on a GPU).
ACCELERATOR_CHUNK_BYTES = 16 * 1024 * 1024

#: Bytes of attention weights in all that training keeps; more of them are computed again
#: (row 577: 16 MiB; Swin's windows at 800x1344).
KEPT_BYTES = 16 * 1024 * 1024

#: Pairs, and keys, from which plain attention in chunks is faster than SDPA on a CPU where oneDNN
#: takes half of the time of MKL, whose products SDPA's are. In bfloat16 chunks of so many keys, and
#: of windows, are faster without a backward pass.
PLAIN_CHUNKS_FROM, PLAIN_CHUNKS_KEYS = 512 * 512, 128
#: Bytes of all logits up to which SDPA trains as fast in bfloat16 as chunks. Of more, also of 49
#: keys, it takes two to six times as long, on all CPUs that we tried.
PLAIN_TRAINED_BYTES = 16 * 1024

#: The number of images up to which gradients are added one by one.
FEW_TO_SUM = 8

#: Bytes of all logits up to which the reference is no slower than chunks on a CPU.
REFERENCE_BYTES = 1024 * 1024
#: The same on an accelerator: a share of the memory of a GPU, and bytes where torch does not tell
#: its memory. At 197, 1,050 and 4,200 tokens on an H200 the reference was 1.3 to 20 times as fast
#: as chunks in inference and 1.0 to 15 times in training, in 1.6 to 7.1 times the memory of the
#: logits (docs/performance.md, "On a GPU").
ACCELERATOR_REFERENCE_SHARE = 1 / 128
ACCELERATOR_REFERENCE_BYTES = 11 * 1024 * 1024

#: Pairs from which look-ups are read a row of keys at a time instead of by an index of all pairs:
#: of the logits only, and with a term on values (rows 577 and 1050).
RUNS_FROM = 600 * 600
RUNS_WITH_VALUES_FROM = 400 * 400
#: Pairs from which a bias by offset is written a row of keys at a time.
SHIFTS_FROM = 400 * 400
#: Pairs below which inference in float32 adds a bias of all pairs as the mask of fused attention
#: (0.9 of the time of chunks in row 577, more in row 1050), and where oneDNN takes half of MKL's
#: time. In bfloat16 it is not faster even of windows of 7 x 7.
MASK_BELOW, MASK_BELOW_ONEDNN = 600 * 600, 300 * 300

#: Bytes of indices and plans that one call keeps for its next heads.
INDEX_BYTES = 64 * 1024 * 1024
