"""Every drawing of the course: a call says what is drawn, and gives an SVG with its words.

>>> from attnlib import figures
>>> figures.heatmap([[1.0]], name="weights", rows=["a"], columns=["a"])
Drawing: weights, 1 by 1; rows: query i asks, columns: key j answers (a). row a: 1.00.
"""

from attnlib.figures.charts import bars, lines
from attnlib.figures.comparison import compared
from attnlib.figures.diagrams import attention_steps
from attnlib.figures.drawing import Drawing
from attnlib.figures.gpu import H200, memory_levels, roofline
from attnlib.figures.gradient_tiles import gradient_tiles
from attnlib.figures.heads import head_weights, heads_diagram, shared_heads
from attnlib.figures.mask_explorer import mask_explorer
from attnlib.figures.matrices import heatmap, matrix_equation
from attnlib.figures.moving import Control, MovingDrawing
from attnlib.figures.order import squares
from attnlib.figures.plane import hull, plane
from attnlib.figures.scaling import (
    rule_curves,
    scaling_explorer,
    score_growth,
    score_histograms,
)
from attnlib.figures.stepper import attention_stepper
from attnlib.figures.tile_walk import tile_walk

__all__ = [
    "H200",
    "Control",
    "Drawing",
    "MovingDrawing",
    "attention_stepper",
    "attention_steps",
    "bars",
    "compared",
    "gradient_tiles",
    "head_weights",
    "heads_diagram",
    "heatmap",
    "hull",
    "lines",
    "mask_explorer",
    "matrix_equation",
    "memory_levels",
    "plane",
    "roofline",
    "rule_curves",
    "scaling_explorer",
    "score_growth",
    "score_histograms",
    "shared_heads",
    "squares",
    "tile_walk",
]
