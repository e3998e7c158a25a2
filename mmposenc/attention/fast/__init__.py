"""Faster implementations of attention than the reference; nothing here adds to what is computed.

A *problem* (:class:`~mmposenc.attention.terms.Problem`) is one attention: queries, keys, values,
masks, and the *terms* that its encoding adds. Its *pairs* are those of a query and a key of one
head, and there is a logit for each. :mod:`.choice` says which implementation is fastest:
:mod:`.sdpa`, which is torch's own, or :mod:`.chunked`. That one never has all logits in memory. It
cuts the problem into *chunks*, some queries of some heads of some images (:mod:`.layout`), and for
each of them asks the *writer* of each term to write its part of the logits and to take the gradient
of that (:mod:`.writers`). The *table* ``WRITERS`` in :mod:`.term_writers` has the writer of each
type of term. Tables of vectors by bucket become *look-ups*, their products with all queries or
keys, before the chunks (:mod:`.bucket_writer`). Long sequences copy whole *runs* out of look-ups,
the numbers of a row of keys (:mod:`.runs`); short ones read each pair (:mod:`.pair_index`). Sizes
at which one way begins to be faster than another are in :mod:`.thresholds`.
"""
