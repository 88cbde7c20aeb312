"""Functions of the core that are public unchanged, with signatures that Python sees."""

from __future__ import annotations

from remat import _core
from remat.signatures import signed

check = signed(_core.check, __name__)
check_layout = signed(_core.check_layout, __name__)
devices = signed(_core.devices, __name__)
format_bytes = signed(_core.format_bytes, __name__)
load_graph = signed(_core.load_graph, __name__)
load_layout = signed(_core.load_layout, __name__)
load_plan = signed(_core.load_plan, __name__)
parse_bytes = signed(_core.parse_bytes, __name__)
parse_device = signed(_core.parse_device, __name__)
planners = signed(_core.planners, __name__)
simulate = signed(_core.simulate, __name__)
simulate_allocator = signed(_core.simulate_allocator, __name__)
