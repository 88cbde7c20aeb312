"""Results on the host: same gradients, the plan confirmed by the simulator, errors in one line.

Plans are for an H100, and nothing is compiled for it: for_gpus.py does that. They run on the CPU, where JAX
has a memory of that name and XLA leaves everything in the only one.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402
import remat  # noqa: E402
import remat.jax as rj  # noqa: E402
from programs import program  # noqa: E402
from remat.jax import api, cuts, regions  # noqa: E402
from remat.jax.devices import DEVICES  # noqa: E402
from remat.jax.plans import offloads  # noqa: E402
from steps import arguments, double, jitted, mlp, newer, program_of, same  # noqa: E402, F401

H100 = DEVICES["h100"]
FAST = remat.Host(1e12, 1e12)


@pytest.fixture(scope="module")
def moved() -> Any:
    """A plan below the least without a host."""
    jax.config.update("jax_enable_x64", True)  # before `double` does
    without, _ = program_of(mlp, arguments(), H100)
    least = without.smallest({}).peak
    planned, _ = program_of(mlp, arguments(), H100, FAST)
    found = planned.best([least - 100_000])[0]
    assert found is not None
    assert found.peak < least
    return found


def stepped(found: Any) -> Any:
    def loss(*given: Any) -> Any:
        return found.run(jax.tree_util.tree_leaves(given))[0]

    return loss


def test_a_plan_below_the_least_without_a_host_has_copies_that_the_simulator_confirms(moved: Any) -> None:
    plan = moved.result.plan
    assert offloads(moved.policy)
    assert {way for _, way, _, _ in plan.copies} == {"out", "in"}
    graph = program_of(mlp, arguments(), H100, FAST)[0].levels[0][1].graph
    # The core's graph may have larger workspaces, never smaller ones.
    again = remat.Plan(graph, plan.steps, copies=plan.copies, host=FAST, budget=moved.result.budget)
    assert again.peak <= plan.peak <= moved.result.budget
    assert again.duration == plan.duration


@newer(reason="older JAX cannot move results to the host outside of jit")
def test_gradients_are_those_of_the_plain_step(moved: Any) -> None:
    args = arguments()
    step, plain = jax.value_and_grad(stepped(moved)), jax.value_and_grad(mlp)
    assert same(jitted(step)(*args), jax.jit(plain)(*args))
    with jax.disable_jit():
        got, wanted = map(jax.tree_util.tree_leaves, (step(*args), plain(*args)))
    assert all((a == b).all() for a, b in zip(got, wanted, strict=True))


def test_each_result_is_copied_out_and_back(moved: Any) -> None:
    text = str(jax.make_jaxpr(jax.grad(stepped(moved)))(*arguments()))
    places = [("Host", "pinned_host"), ("Device", "device")]
    copies = [
        text.count(f"devices=(MemorySpace.{space},)") + text.count(f"(memory_kind='{kind}')")
        for space, kind in places
    ]
    assert copies == [len(moved.policy["offloaded"])] * 2, text


def test_a_policy_with_copies_runs_from_its_file(moved: Any, tmp_path: Any) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(moved.policy))
    fn = rj.apply(mlp, path)
    assert same(jitted(jax.value_and_grad(fn))(*arguments()), jax.jit(jax.value_and_grad(mlp))(*arguments()))
    assert regions.load(path)["offloaded"] == moved.policy["offloaded"] != []


def test_bodies_of_scans_may_offload_too() -> None:
    body = lambda x, w: (jnp.tanh(jnp.sin(x @ w) @ w), None)  # noqa: E731
    primal = regions.primal_of(lambda xs, ws: jax.lax.scan(body, xs, ws)[0].sum(), scan_arguments())
    number = next(i for i, op in enumerate(primal.ops) if op.kind == "scan")
    inner = regions.primal_of_jaxpr(primal.ops[number].params["jaxpr"])
    dots = [inner.number[op.outs[0]] for op in inner.ops if op.kind == "dot_general"]
    scans = {str(number): cuts.Cuts(inner, [], offloaded=dots).policy()}
    planned = regions.with_scans(primal, scans)
    xs, ws = scan_arguments()
    step = jax.value_and_grad(lambda *a: planned.evaluate(a)[0])
    plain = jax.value_and_grad(lambda *a: primal.evaluate(a)[0])
    text = str(jax.make_jaxpr(step)(xs, ws))
    assert "<host>" in text or "memory_kind='pinned_host'" in text
    assert same(jitted(step)(xs, ws), jax.jit(plain)(xs, ws))


def scan_arguments() -> Any:
    weights = jnp.linspace(-0.1, 0.1, 4 * 256).reshape(4, 16, 16)
    return jnp.linspace(0.0, 1.0, 32 * 16).reshape(32, 16), weights


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(s, marks=pytest.mark.long) for s in range(3, 12))]
)
def test_random_programs_with_random_results_on_the_host(seed: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(cuts, "SMALL", 16)
    loss, args = program(seed)
    call = api.Call.of(args)
    primal, tree = api.traced(loss, call)
    r = random.Random(seed)
    fates = {n: r.choice(["again", "saved", "offloaded"]) for n in primal.number.values()}
    chosen = {fate: [n for n, f in fates.items() if f == fate] for fate in ("saved", "offloaded")}
    policy = cuts.Cuts(primal, chosen["saved"], [], chosen["offloaded"]).policy()

    def planned(*given: Any) -> Any:
        made = regions.run_regions(primal, policy, jax.tree_util.tree_leaves(given))
        return jax.tree_util.tree_unflatten(tree, made)

    def step(fn: Any) -> Any:
        return jax.value_and_grad(lambda *a: jax.tree_util.tree_leaves(fn(*a))[0], argnums=(0, 1))

    assert same(jitted(step(planned))(*args), jitted(step(loss))(*args))


def test_what_a_device_or_an_executor_cannot_have_is_refused_in_one_line() -> None:
    with pytest.raises(remat.UsageError, match="^host= needs device= of a GPU or TPU"):
        rj.checkpoint(mlp, "50%", host=True)
    for host, executor, words in (
        (True, "auto", 'the link of tpu_v5e to its host is not known: host="25GB/s" says it'),
        ("25GB/s", "full", 'host= goes with executor "names" or "auto"'),
        ("fast", "auto", "fast"),
    ):
        with pytest.raises(remat.UsageError, match=words):
            api.host_of(host, DEVICES["tpu_v5e"], executor)
    assert api.host_of(True, DEVICES["a100"], "auto") == remat.Host(32e9, 32e9)
    assert api.host_of(None, DEVICES["a100"], "full") is None
