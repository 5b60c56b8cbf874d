"""Every drawing of the course: a call says what is drawn, and gives an SVG with its words.

>>> from attnlib import figures
>>> figures.heatmap([[1.0]], name="weights", rows=["a"], columns=["a"])
Drawing: weights, 1 by 1; rows: query i asks, columns: key j answers (a). row a: 1.00.
"""

from attnlib.figures.charts import bars, lines
from attnlib.figures.diagrams import attention_steps, ladder
from attnlib.figures.drawing import Drawing
from attnlib.figures.matrices import heatmap, matrix_equation
from attnlib.figures.moving import Control, MovingDrawing
from attnlib.figures.plane import plane
from attnlib.figures.scaling import (
    rule_curves,
    scaling_explorer,
    score_growth,
    score_histograms,
)

__all__ = [
    "Control",
    "Drawing",
    "MovingDrawing",
    "attention_steps",
    "bars",
    "heatmap",
    "ladder",
    "lines",
    "matrix_equation",
    "plane",
    "rule_curves",
    "scaling_explorer",
    "score_growth",
    "score_histograms",
]
