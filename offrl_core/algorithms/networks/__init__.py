"""Small networks for many seeds at once: nouns and maths, no training loop.

Every tensor has the seeds in its first dimension, K. A layer is one batched matrix product over all of them, so eight
seeds cost less than eight times one. Nothing here adds up across seeds, and nothing may: each seed's numbers are the same
bits in whatever company it trains. Three rules keep that so. Layers have widths that are multiples of 16: what is left over
at the edge of a matrix is computed by other instructions, and by which depends on how many matrices there are. Each seed
draws from a generator of its own. And one thread computes; two are five to ten times slower on nets this small, anyway.

Importing this package imports torch, so learners do it when they train.
"""

import torch

from .experience import Batch as Batch
from .experience import Experience as Experience
from .experience import choosable_pairs as choosable_pairs
from .experience import log_mask as log_mask
from .experience import rows_of as rows_of
from .layers import Network as Network
from .layers import Weights as Weights
from .losses import Loss as Loss
from .losses import cross_entropy as cross_entropy
from .losses import squared_error as squared_error
from .seeds import Look as Look
from .seeds import Seeds as Seeds
from .seeds import Tables as Tables
from .seeds import greedy_tables as greedy_tables
from .seeds import one_hot as one_hot
from .seeds import softmax as softmax

torch.set_num_threads(1)
