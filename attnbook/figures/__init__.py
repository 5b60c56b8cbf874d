"""Every drawing of the course: a call says what is drawn, and returns an SVG with its words.

>>> from attnbook import figures
>>> figures.heatmap([[1.0]], name="weights", rows=["a"], columns=["a"])
Drawing: weights, 1 by 1; rows: query i asks, columns: key j answers (a). row a: 1.00.
"""

from attnlib import needs

needs(__name__, "matplotlib")

from attnbook.figures.asked import picture_asked
from attnbook.figures.backward_walk import backward_walk
from attnbook.figures.bits import number_bits
from attnbook.figures.cards import layer_card, layer_marks, leaves_chart
from attnbook.figures.charts import bars, lines
from attnbook.figures.chosen import chosen_entries, chosen_keys
from attnbook.figures.comparison import handout_links
from attnbook.figures.decoding import block_tables, cache_filling, cached_numbers, row_slots
from attnbook.figures.diagrams import attention_steps
from attnbook.figures.directions import cosine_histograms, turned_pair, turned_query
from attnbook.figures.drawing import Drawing, Drawings
from attnbook.figures.eight_bits import eight_bits
from attnbook.figures.first_screen import first_screen
from attnbook.figures.forms import forms_explorer
from attnbook.figures.growth import bytes_explorer
from attnbook.figures.head_explorer import head_explorer
from attnbook.figures.heads import head_weights, heads_diagram, which_head
from attnbook.figures.held import weight_held
from attnbook.figures.layer import block, layer_today
from attnbook.figures.looks import looking_back
from attnbook.figures.mask_explorer import mask_explorer
from attnbook.figures.matching import matching_keys
from attnbook.figures.matrices import heatmap, matrix_equation
from attnbook.figures.memory_levels import H200, Level, memory_levels
from attnbook.figures.moved import numbers_moved
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnbook.figures.online_row import online_row
from attnbook.figures.order import angles_reached, clock_hands, rotary_offset
from attnbook.figures.owned_tiles import owned_tiles
from attnbook.figures.permuted import permuted
from attnbook.figures.plane import hull, plane
from attnbook.figures.ring import ring_timetable
from attnbook.figures.roofline_explorer import roofline_explorer
from attnbook.figures.rulers import rulers
from attnbook.figures.scaling import rule_curves, scaling_explorer, score_growth, three_divisors
from attnbook.figures.sheet import (
    sheet_costs,
    sheet_heads,
    sheet_masks,
    sheet_merge,
    sheet_output,
    sheet_scores,
)
from attnbook.figures.sides import word_in_context
from attnbook.figures.state_layer import state_blocks, state_layer
from attnbook.figures.states import recall_explorer
from attnbook.figures.stepper import attention_stepper
from attnbook.figures.suites import suites
from attnbook.figures.temperature import temperature_explorer
from attnbook.figures.tile_walk import tile_walk
from attnbook.figures.time_computing import time_computing
