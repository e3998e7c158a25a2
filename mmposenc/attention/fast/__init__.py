"""Faster implementations of attention than the reference; nothing here adds to what is computed.

A *problem* (:class:`~mmposenc.attention.terms.Problem`) is one attention: queries, keys, values,
masks, and the *terms* that its encoding adds. A *pair* is a query and a key of one head, and has a
logit. :mod:`.choice` says which implementation is fastest: :mod:`.sdpa`, which is torch's, or
:mod:`.chunked`, which never has all logits in memory. That one cuts the problem into *chunks*, some
queries of some heads of some images (:mod:`.layout`). For each chunk the *writer* of each term
writes its part of the logits, and takes the gradient of that (:mod:`.writers`); ``WRITERS`` in
:mod:`.term_writers` says which writer a type of term has. Many terms are a *table*, with a vector
for each bucket of pairs. Its products with queries or keys are *look-ups*, out of which the numbers
of the pairs are copied (:mod:`.bucket_writer`): on short sequences one by one
(:mod:`.pair_index`), on long ones in *runs*, the numbers of a row of keys (:mod:`.runs`). The sizes
at which one way begins to be faster than another are in :mod:`.thresholds`.
"""
