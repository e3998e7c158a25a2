"""Position encodings as torch modules; this package does not import OpenMMLab.

An encoding that is imported here is known to configs, ``mmposenc compare`` and the tests.
"""
# ruff: noqa: F401
# mypy: implicit-reexport
from inspect import isabstract

from .absolute import (
    FactorizedPositionEmbedding,
    LearnedPositionEmbedding,
    SinCosPositionEncoding,
    WindowedPositionEmbedding,
)
from .alibi import ALiBi2D
from .base import RelativeEncoding, TokenEncoding, relative_tables
from .build import build_encoding
from .combined import CombinedRPE
from .context_pool import ContextPool
from .conv_mlp import ConvMLP
from .cope import CoPE
from .decomposed import DecomposedRPE
from .dynamic_bias import DynamicPositionBias
from .fire import FIRE
from .fourier import LearnableFourierFeatures
from .gta import GTA
from .huang import HuangRPE
from .irpe import IRPE
from .kerple import KERPLE
from .local_values import CRPE, LePE
from .log_cpb import LogSpacedCPB
from .lookhere import LookHere
from .matrix_rotary import ComRoPE, LieRE
from .offset_bias import OffsetBiasEncoding
from .pape import PaPE
from .peg import PEG
from .placement import PlacedEncodings
from .query_absolute import QueryAbsolute1D
from .query_relative import QueryRelative1D, QueryRelative2D
from .relative_bias import RelativePositionBias
from .rotary import RotaryEmbedding
from .sasa import SASARPE
from .sharing import share_encodings
from .shaw import ShawRPE
from .transformer_xl import TransformerXLRPE
from .undirected_bias import UndirectedPositionBias

#: For each name that a config's ``type`` may have, its class: all encodings imported above.
ENCODINGS: dict[str, type[TokenEncoding] | type[RelativeEncoding]] = {
    name: each for name, each in list(globals().items()) if isinstance(each, type)
    and issubclass(each, (TokenEncoding, RelativeEncoding)) and not isabstract(each)}
__all__ = sorted({*ENCODINGS, 'ENCODINGS', 'OffsetBiasEncoding', 'PlacedEncodings',
                  'RelativeEncoding', 'TokenEncoding', 'build_encoding', 'relative_tables',
                  'share_encodings'})
