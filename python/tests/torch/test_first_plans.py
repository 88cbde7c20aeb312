"""Whether a budget is found does not depend on the clock."""

from __future__ import annotations

import copy

import pytest
import remat
import remat.torch
import torch
from models import Encoder, case
from remat.torch.plan.cache import PlanCache
from remat.torch.plan.options import Options
from remat.torch.plan.part import Part
from remat.torch.plan.search import search
from remat.torch.plan.together import plan_together
from remat.torch.session.captured import captured_step
from torch import nn
from training import fit, step_peak, train

NO_TIME_S = 1e-9


class Blocks(nn.Module):
    """Three blocks with graph breaks between them."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first, self.second, self.third = (
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Tanh())
            for _ in range(3)
        )

    def forward(self, x):
        x = self.first(x)
        torch._dynamo.graph_break()
        x = self.second(x)
        torch._dynamo.graph_break()
        return self.third(x).square().mean()


@pytest.fixture(scope="module")
def captured():
    _, inputs = case("encoder").build()
    # Of three layers: short searches prove less about them.
    return captured_step(Encoder(depth=3), inputs, None, {"costs": "roofline"})


def test_a_search_without_time_finds_the_first_plan(captured) -> None:
    graph = captured.graph
    target = int(0.7 * graph.keep_all_peak)
    # With a work limit nothing that the process knows of the graph is a start.
    assert remat.plan(graph, target, work_limit=1).plan is None
    found = search(graph, target, Options(target, time_limit=NO_TIME_S))
    assert found.plan is not None
    assert found.peak <= target
    # Other planners too: what an error names as known to work does so within any limits.
    assert search(graph, target, Options(target, planner="search", work_limit=1)).peak <= target


def test_planning_ends_where_the_step_is_proved_near_the_fastest(captured) -> None:
    graph = captured.graph
    target = int(0.8 * graph.keep_all_peak)
    found = search(graph, target, Options(target))
    assert found.stopped_by in ("gap", "proof")
    assert found.gap is not None
    assert found.gap <= 0.001
    # Who gives a limit alone wants what can be had within it.
    assert Options(target, time_limit=2.0).effort()["gap"] is None
    assert Options(target, work_limit=2).effort()["gap"] is None
    assert Options(target, time_limit=2.0, gap="3%").effort()["gap"] == "3%"
    with pytest.raises(remat.UsageError, match="gap '3' is not a percentage: write 0.1%"):
        Options.from_mapping({"budget": "80%", "gap": "3"})


def scaled(graph: remat.Graph, by: float) -> remat.Graph:
    """The same step at another size."""
    described = graph.to_dict()
    for value in described["values"]:
        value["bytes"] = int(by * value["bytes"])
    for op in described["ops"]:
        op["duration"] = int(by * op["duration"])
    return remat.Graph.from_dict(described)


def test_a_step_at_another_size_is_planned_as_near_to_the_fastest_in_a_moment(captured, monkeypatch) -> None:
    graph = captured.graph
    limits: list[float | None] = []
    planned = remat.plan

    def plan(*args, time_limit=None, work_limit=None, **kwargs):
        limits.append(time_limit)
        # What an idle core does in that time, so that a busy one does it too.
        work = work_limit if time_limit is None else int(1e7 * time_limit)
        return planned(*args, time_limit=None, work_limit=work, **kwargs)

    monkeypatch.setattr(remat, "plan", plan)

    def gap_at(size: float, share: float) -> float:
        step = scaled(graph, size)
        limits.clear()
        found = search(step, int(share * step.keep_all_peak), Options("50%"))
        assert found.plan is not None
        assert found.gap is not None
        return found.gap

    first = gap_at(1, 0.45)
    assert first > 0.0025, "the test needs a step that is not proved near the fastest"
    assert len(limits) > 1
    assert gap_at(1.25, 0.45) <= first + 0.001
    assert len(limits) == 1
    # Another share of the memory is another question.
    gap_at(1.25, 0.7)
    assert len(limits) > 1


def test_graphs_in_flight_together_are_planned_without_time() -> None:
    torch.manual_seed(0)
    model, x = Blocks(), torch.randn(256, 64)
    expected = train(copy.deepcopy(model), (x,), 1)
    budget = int(0.75 * step_peak(copy.deepcopy(model), (x,)))
    fitted = fit(model, (x,), budget, time_limit=NO_TIME_S, executor="boxed")
    assert len(fitted.remat.parts) == 2 * 3
    assert sum(part.recomputed_steps for part in fitted.remat.parts) > 0
    assert expected.differences(train(fitted, (x,), 1)) == []
    model.zero_grad()
    assert step_peak(fitted, (x,)) <= max(part.predicted_peak for part in fitted.remat.parts) <= budget


def test_all_parts_get_their_plans_of_one_decision(captured, monkeypatch) -> None:
    step, graph = captured.step, captured.graph
    first = Part.of(step, graph, number=0)
    second = Part.of(step, graph, number=1, before=frozenset({0}))
    limit = int(1.4 * graph.keep_all_peak)
    cache, options = PlanCache(), Options(limit, time_limit=0.5)
    one, beside_one = plan_together([first, second], options, limit, cache)

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("this was decided")

    monkeypatch.setattr(remat, "plan", fail)
    two, beside_two = plan_together([second, first], options, limit, cache)
    assert one.peak + beside_one <= limit
    assert two.peak + beside_two <= limit
    # The first holds what its own plan keeps while the second runs.
    held = first.held_bytes(list(one.plan.steps))
    assert beside_two >= held - first.made_bytes(graph.op_outputs(first.loss))


def test_without_room_for_any_plan_the_error_names_what_works(captured) -> None:
    part = Part.of(captured.step, captured.graph, copies=3)
    with pytest.raises(
        remat.NoPlanError, match="no plans for 3 calls in flight together within 0.977 KiB .1000 bytes."
    ) as e:
        plan_together([part], Options(1000, time_limit=NO_TIME_S), 1000, PlanCache())
    known = e.value.smallest_known
    assert plan_together([part], Options(known, time_limit=NO_TIME_S), known, PlanCache())[0].plan is not None
