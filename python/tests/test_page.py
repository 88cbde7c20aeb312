"""The page of reports in a browser: Playwright drives Debian's Chromium, without a network."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import remat
from graphs import chain

playwright = pytest.importorskip("playwright.sync_api", reason="there is no package playwright")
BROWSER = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="there is no chromium: apt-get install chromium"),
    # One browser and one report for all of them: see conftest.py.
    pytest.mark.xdist_group("browser"),
]
WORK: dict[str, Any] = {"time_limit": None, "work_limit": 300_000}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


def generated(folder: Path, *settings: str) -> remat.Graph:
    path = folder / "graph.json"
    command = [sys.executable, "-m", "remat", "generate", "gpt", "--durations", "roofline", "-o", str(path)]
    subprocess.run([*command, *settings], check=True, capture_output=True)
    return remat.load_graph(path)


class Written:
    """A report of two plans and its graph, as a file."""

    def __init__(self, folder: Path) -> None:
        self.graph = generated(
            folder,
            "--depth",
            "3",
            "--batch",
            "32",
            "--width",
            "256",
            "--heads",
            "4",
            "--vocabulary",
            "500",
            "--sequence",
            "128",
        )
        self.plans: dict[str, remat.Plan] = {}
        for title, budget in (("tight", "60%"), ("loose", "80%")):
            plan = remat.plan(self.graph, budget, check=True, **WORK).plan
            assert plan is not None
            self.plans[title] = plan
        self.sweep = remat.sweep(self.graph, points=6, **WORK)
        self.path = folder / "report.html"
        remat.report(self.graph, self.plans, sweeps=self.sweep).save(self.path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("page"))


class Opened:
    """The page in the browser, offline; what it says on the console and asks for."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        self.context.set_offline(True)
        self.context.set_default_timeout(10_000)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#total")

    def bytes_of(self, selector: str) -> list[int]:
        return [int(each.get_attribute("data-bytes")) for each in self.page.locator(selector).all()]

    def total(self) -> int:
        return self.bytes_of("#total")[0]

    def step(self) -> int:
        self.settle()
        return int(self.page.locator("#at-step").get_attribute("data-step"))

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.page.evaluate("() => new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))")

    def choose(self, label: str, value: str) -> None:
        self.page.get_by_role("combobox", name=label, exact=True).select_option(value)
        self.settle()

    def click(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).first.click()
        self.settle()

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.inner_text())


@pytest.fixture
def opened(browser: Any, written: Written) -> Iterator[Opened]:
    opened = Opened(browser, written.path)
    # One plan alone is what most tests look at.
    opened.choose("Beside it", "")
    yield opened
    assert opened.complaints == []
    opened.context.close()


def test_it_opens_without_a_network_and_without_a_word_on_the_console(browser: Any, written: Written) -> None:
    opened = Opened(browser, written.path)
    assert opened.complaints == []
    assert [url for url in opened.asked if not url.startswith(("file:", "data:"))] == []
    assert "could not be shown" not in opened.text("#sentence")
    assert opened.page.title() == f"{written.graph.name} \u2013 Remat"
    opened.context.close()


@pytest.mark.parametrize(
    ("depth", "ops"), [(100, 5_000), pytest.param(2000, 100_000, marks=pytest.mark.long)]
)
def test_many_ops_open_in_two_seconds_and_five_megabytes(
    browser: Any, tmp_path: Path, depth: int, ops: int
) -> None:
    graph = generated(tmp_path, "--depth", str(depth))
    assert graph.num_ops >= ops
    plan = remat.plan(graph, "80%", "retention", check=True, time_limit=None, work_limit=100_000_000).plan
    path = tmp_path / "big.html"
    remat.report(graph, {"big": plan} if plan else (), points=0).save(path)
    assert path.stat().st_size < 5e6
    context = browser.new_context()
    page = context.new_page()
    session = context.new_cdp_session(page)
    # Of the page's own thread: other work on this machine does not count.
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    page.wait_for_selector("#total")
    metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
    assert metrics["TaskDuration"] < 2
    assert plan is not None
    assert int(page.locator("#total").get_attribute("data-bytes")) == plan.peak
    context.close()


def test_the_bytes_of_each_step_add_up_to_the_simulators_memory(opened: Opened, written: Written) -> None:
    plan = written.plans["tight"]
    memory = plan.memory(written.graph).tolist()
    opened.page.locator(".pane").focus()
    opened.page.keyboard.press("Home")
    for step in [*range(12), len(plan) // 2, len(plan) - 1]:
        while (now := opened.step()) < step:
            far = max(1, len(plan) // 10 + 1)
            opened.page.keyboard.press("Shift+ArrowRight" if step - now >= far else "ArrowRight")
        assert opened.step() == step
        assert opened.total() == memory[step]
        assert sum(opened.bytes_of("#panel .legend tr")) == memory[step]
        listed = sum(opened.bytes_of("#panel .alive tbody tr"))
        assert listed <= memory[step] - written.graph.workspaces[plan.steps[step]]
        if "other" not in opened.text("#panel .scroll"):
            assert listed == memory[step] - written.graph.workspaces[plan.steps[step]]


def test_the_pointer_shows_the_step_below_it_and_a_click_holds_it(opened: Opened, written: Written) -> None:
    plan = written.plans["tight"]
    memory = plan.memory(written.graph).tolist()
    box = opened.page.locator("#charts .u-over").bounding_box()
    for share in (0.1, 0.5, 0.83):
        opened.page.mouse.move(box["x"] + share * box["width"], box["y"] + 90)
        step = opened.step()
        assert abs(step - share * len(plan)) <= len(plan) / 100 + 1
        assert opened.total() == memory[step]
    opened.page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 90)
    held = opened.step()
    opened.page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 90)
    assert opened.step() == held
    opened.page.locator(".pane").focus()
    opened.page.keyboard.press("Escape")
    opened.page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 90)
    assert opened.step() > held


def test_the_command_that_makes_a_plan_again_is_said_where_it_does(browser: Any, tmp_path: Path) -> None:
    graph = chain(8)
    exact = remat.plan(graph, "70%", planner="search", seed=3, options={"retention": False}, **WORK).plan
    by_clock = remat.plan(graph, "70%", planner="greedy", time_limit=5, gap="1%").plan
    assert exact is not None
    assert by_clock is not None
    remat.report(graph, {"exact": exact, "by clock": by_clock}, points=0).save(tmp_path / "r.html")
    text = Opened(browser, tmp_path / "r.html").text("#verdict-body")
    limits = f"--work-limit {WORK['work_limit']} --set retention=off"
    assert f"remat plan GRAPH --budget {exact.budget} --planner search --seed 3 {limits}" in text
    assert f"remat plan GRAPH --budget {by_clock.budget} --planner greedy --time-limit 5s --gap 1%" in text
    assert [text.count(name) for name in ("Made again by", "Similar by")] == [1, 1]


def test_what_was_measured_is_drawn_and_said(browser: Any, written: Written, tmp_path: Path) -> None:
    plan = written.plans["tight"]
    predicted = plan.memory(written.graph)
    measured = predicted.copy()
    measured[3] += 4096
    remat.report(written.graph, {"tight": plan}, measured={"tight": measured.tolist()}, points=0).save(
        tmp_path / "r.html"
    )
    opened = Opened(browser, tmp_path / "r.html")
    opened.page.locator(".pane").focus()
    opened.page.keyboard.press("Home")
    for step in range(5):
        assert opened.step() == step
        assert opened.bytes_of("#panel .measured") == [measured[step]]
        said = "4 KiB more than predicted" if step == 3 else "as predicted"
        assert said in opened.text("#panel .measured")
        opened.page.keyboard.press("ArrowRight")
    assert opened.text(".key.measured") == "measured when it ran"
    assert "4 KiB" in opened.text("#verdict-body")
    # The line is drawn: without it the canvas is another one.
    canvas = "document.querySelector('#charts canvas').toDataURL()"
    with_line = opened.page.evaluate(canvas)
    remat.report(written.graph, {"tight": plan}, points=0).save(tmp_path / "plain.html")
    plain = Opened(browser, tmp_path / "plain.html")
    assert plain.page.locator(".key.measured").count() == 0
    assert plain.page.evaluate(canvas) != with_line
    for each in (opened, plain):
        assert each.complaints == []
        each.context.close()


def test_zooming_and_the_keys_of_the_chart(opened: Opened, written: Written) -> None:
    plan = written.plans["tight"]

    def shown() -> tuple[int, int]:
        opened.settle()
        text = opened.text(".range")
        found = re.match(r"steps (\d+) to (\d+) of", text)
        return (int(found[1]), int(found[2])) if found else (0, len(plan) - 1)

    def width() -> int:
        first, last = shown()
        return last - first + 1

    opened.click("Zoom in")
    assert width() == pytest.approx(len(plan) / 2, abs=1)
    opened.click("Zoom in")
    opened.click("Zoom out")
    assert width() == pytest.approx(len(plan) / 2, abs=2)
    opened.click("Show all steps")
    assert width() == len(plan)
    opened.page.locator(".pane").focus()
    for key, step in [("End", len(plan) - 1), ("ArrowLeft", len(plan) - 2), ("Home", 0), ("ArrowRight", 1)]:
        opened.page.keyboard.press(key)
        assert opened.step() == step
    opened.page.keyboard.press("+")
    assert width() == pytest.approx(len(plan) / 2, abs=1)
    opened.page.keyboard.press("p")
    peak = remat.simulate(written.graph, plan.steps).peak_step
    assert opened.step() == peak
    assert shown()[0] <= peak <= shown()[1]
    opened.page.keyboard.press("0")
    assert width() == len(plan)
    opened.click("Zoom in")
    opened.page.keyboard.press("Home")
    opened.click("Go to the peak")
    assert opened.step() == peak
    opened.click("Show all steps")
    box = opened.page.locator("#charts .u-over").bounding_box()
    opened.page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 50)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 60, steps=4)
    opened.page.mouse.up()
    assert width() == pytest.approx(len(plan) / 4, rel=0.15)


def test_the_line_stays_at_its_step_whatever_the_chart_shows(opened: Opened, written: Written) -> None:
    plan = written.plans["tight"]
    costs = remat.simulate(written.graph, plan.steps)
    durations = written.graph.durations[plan.steps]
    shares = {
        "steps": costs.peak_step / len(plan),
        "time": durations[: costs.peak_step].sum() / durations.sum(),
    }
    for across, share in [("time", shares["time"]), ("step", shares["steps"])]:
        opened.choose("Across", across)
        for colours in ("1", "kind"):
            opened.choose("Colours", colours)
            line = opened.page.locator(".marker").bounding_box()
            box = opened.page.locator("#charts .u-over").bounding_box()
            assert line["x"] - box["x"] == pytest.approx(share * box["width"], abs=2)
            assert sum(opened.bytes_of("#panel .legend tr")) == plan.peak


def test_the_life_of_a_value(opened: Opened, written: Written) -> None:
    assert opened.page.locator(".spans i").count() == 0
    row = opened.page.locator(".alive tbody tr").first
    size = int(row.get_attribute("data-bytes"))
    row.get_by_role("button").click()
    assert opened.bytes_of(".card .total") == [size]
    assert opened.page.locator(".spans i").count() >= 1
    link = opened.page.locator(".card .steps button").first
    step = int(link.inner_text().removeprefix("step "))
    link.click()
    assert opened.step() == step
    opened.click("Close")
    assert opened.page.locator(".card").count() == 0


def test_copies_to_the_host_are_shown_with_their_steps(
    browser: Any, written: Written, tmp_path: Path
) -> None:
    path = tmp_path / "host.html"
    host = remat.Host(25e9, 25e9)
    plan = remat.plan(written.graph, "50%", host=host, check=True, **WORK).plan
    assert plan is not None
    remat.report(written.graph, plan, points=0).save(path)
    opened = Opened(browser, path)
    value, _, issue, _ = next(copy for copy in plan.copies if copy[1] == "out")
    opened.page.locator("#charts .pane").focus()
    opened.page.keyboard.press("Home")
    for _ in range(issue):
        opened.page.keyboard.press("ArrowRight")
    assert opened.step() == issue
    sizes = [entry["bytes"] for entry in written.graph.to_dict()["values"]]
    shown = int(opened.page.locator("#on-host").get_attribute("data-bytes"))
    assert shown == sum(sizes[v] for v, way, i, _ in plan.copies if way == "out" and i == issue)
    opened.page.locator(f'.alive tr[data-value="{value}"] button').click()
    lines = opened.page.locator(".card .copy").all_inner_texts()
    assert [line.split(":")[0] for line in lines] == ["To the host", "Back"]
    copied = opened.page.locator('#prices-table tfoot [data-column="copied"]').get_attribute("data-bytes")
    out = [sizes[v] for v, way, _, _ in plan.copies if way == "out"]
    assert int(copied) == sum(out)
    assert opened.complaints == []


def test_a_step_and_a_value_name_their_line_of_the_program(browser: Any, tmp_path: Path) -> None:
    ops = [
        remat.Op("mm", 5, [], [0], module="head", source="model.py:42"),
        remat.Op("loss", 5, [0], [1], source="train.py:7"),
    ]
    graph = remat.Graph([8, 4], ops, outputs=[1])
    path, snapshot = tmp_path / "lines.html", tmp_path / "lines.pickle"
    remat.report(graph, points=0).save(path)
    opened = Opened(browser, path)
    opened.page.locator("#charts .pane").focus()
    for key, step, line in (("Home", 0, "model.py:42"), ("End", 1, "train.py:7")):
        opened.page.keyboard.press(key)
        assert opened.step() == step
        assert opened.text("#source") == line
    opened.page.locator('.alive tr[data-value="0"] button').click()
    opened.settle()
    assert "model.py:42" in opened.text(".card")
    opened.context.close()
    remat.report(graph, format="memory_viz", points=0).save(snapshot)
    frames = [event["frames"] for event in pickle.loads(snapshot.read_bytes())["device_traces"][0]]
    assert {"name": "op 0 'mm'  in head", "filename": "model.py", "line": 42} in [each[0] for each in frames]


def test_plans_side_by_side(browser: Any, written: Written) -> None:
    opened = Opened(browser, written.path)
    tight, loose = written.plans["tight"], written.plans["loose"]
    assert opened.page.locator(".pane").count() == 2
    assert opened.text("#comparison thead").split("\t")[1:3] == ["tight", "loose"]
    assert opened.bytes_of("#fact-peak") == [tight.peak]
    opened.choose("Plan", "1")
    assert opened.bytes_of("#fact-peak") == [loose.peak]
    assert opened.page.locator(".pane").count() == 1, "a plan is not shown beside itself"
    assert opened.page.locator("#plans label").nth(1).locator("option").all_inner_texts() == [
        "nothing",
        "tight",
        "keep all",
    ]
    opened.choose("Beside it", "2")
    assert opened.text("#comparison thead").split("\t")[1:3] == ["loose", "keep all"]
    opened.page.locator(".pane").nth(1).focus()
    opened.page.keyboard.press("p")
    opened.settle()
    assert opened.total() == written.graph.keep_all_peak
    assert opened.complaints == []
    opened.context.close()


def test_the_price_list_adds_up_sorts_and_filters(opened: Opened, written: Written) -> None:
    plan = written.plans["tight"]
    foot = "#prices-table tfoot td[data-column={}]"
    for by in ("1", "2", "kind", "value"):
        opened.choose("By", by)
        assert opened.bytes_of(foot.format("before")) == [written.graph.keep_all_peak]
        assert opened.bytes_of(foot.format("after")) == [plan.peak]
        runs = opened.page.locator(foot.format("runs")).get_attribute("data-count")
        assert int(runs) == len(plan) - written.graph.num_ops
        time = int(opened.page.locator(foot.format("time")).get_attribute("data-duration"))
        assert time == (plan.duration or 0) - written.graph.base_duration
    opened.choose("By", "2")
    for column in ("after", "kept"):
        heading = opened.page.locator(f"#prices-table thead [data-column={column}]")
        heading.click()
        falling = opened.bytes_of(f"#prices-table tbody td[data-column={column}]")
        assert falling == sorted(falling, reverse=True)
        opened.page.keyboard.press("Enter")  # it has kept the focus
        assert opened.bytes_of(f"#prices-table tbody td[data-column={column}]") == sorted(falling)
        sorting = opened.page.locator("#prices-table th[aria-sort=ascending]")
        assert sorting.locator(f"[data-column={column}]").count() == 1
    opened.page.get_by_role("searchbox", name="Filter").fill("layers.1")
    names = opened.page.locator("#prices-table tbody th").all_inner_texts()
    assert names == ["layers.1"]
    opened.page.get_by_role("searchbox", name="Filter").fill("")
    opened.choose("Show", "again")
    runs = opened.page.locator("#prices-table tbody td[data-column=runs]").all_inner_texts()
    assert runs
    assert "\u2013" not in runs


def test_the_tree_of_modules_opens_and_adds_up(opened: Opened, written: Written) -> None:
    plan = written.plans["tight"]
    rows = opened.page.locator("#layers-table tbody tr")
    opened.click("Close all modules")
    closed = rows.count()
    assert opened.bytes_of("#layers-table tbody tr:first-child td:nth-child(2)") == [plan.peak]
    toggle = opened.page.locator("#layers-table [data-path=layers] button")
    toggle.focus()
    opened.page.keyboard.press("Enter")
    assert rows.count() > closed
    assert opened.page.locator("[data-path=layers]").get_attribute("aria-expanded") == "true"
    whole = opened.bytes_of("#layers-table [data-path=layers] td:nth-child(2)")[0]
    parts = [opened.bytes_of(f"#layers-table [data-path='layers.{i}'] td:nth-child(2)")[0] for i in range(3)]
    assert sum(parts) == whole
    opened.click("Open all modules")
    assert rows.count() > closed + 3


def test_the_curve_is_that_of_the_sweep(opened: Opened, written: Written) -> None:
    opened.page.locator("#curve-table summary").click()
    points = [point for point in written.sweep.points if point.duration is not None]
    assert opened.bytes_of("#curve-table tbody tr") == [point.budget for point in points]
    durations = [
        int(row.get_attribute("data-duration")) for row in opened.page.locator("#curve-table tbody tr").all()
    ]
    assert durations == [point.duration for point in points]
    slider = opened.page.get_by_role("slider", name="Memory that may be used")
    slider.focus()
    opened.page.keyboard.press("End")
    assert "0 % more time" in opened.text("#curve-read")
    assert slider.get_attribute("aria-valuetext") == opened.text("#curve-read")
    opened.page.keyboard.press("Home")
    assert "no plan found, and proved that there is none" in opened.text("#curve-read")


def test_a_report_claims_only_what_was_planned_or_proved(
    browser: Any, written: Written, tmp_path: Path
) -> None:
    graph = written.graph
    result = remat.plan(graph, "60%", gap=None, **WORK)
    report = remat.report(graph, result, points=3, **WORK)
    path = tmp_path / "claims.html"
    report.save(path)
    data = json.loads(remat.report(graph, result, format="json", points=3, **WORK).content)
    curve, plan = data["curves"][0], data["plans"][0]
    at = {point["budget"]: point["duration"] for point in curve["points"]}
    base = data["graph"]["base_duration"]
    opened = Opened(browser, path)
    # What some more and some less memory does was planned for: both budgets are points.
    more, less = at[plan["budget"] + curve["apart"]], at[plan["budget"] - curve["apart"]]
    saved = re.search(r"save at least ([\d.]+) %", opened.text("#curve-sentence"))
    cost = re.search(r"cost at most ([\d.]+) %", opened.text("#curve-sentence"))
    assert saved
    assert float(saved[1]) == pytest.approx(100 * (plan["duration"] - more) / base, rel=0.01)
    assert cost
    assert float(cost[1]) == pytest.approx(100 * (less - plan["duration"]) / base, rel=0.01)
    # The card, the floor of the curve and the details say one gap.
    verdict = opened.text("#facts .fact:last-child b")
    within = re.fullmatch(r"within ([\d.]+) % of optimal", verdict)
    assert within, verdict
    bound = max(point["bound"] for point in curve["points"] if point["budget"] >= plan["budget"])
    bound = max(bound, plan["duration_bound"]["duration"])
    gap = 100 * (plan["duration"] / bound - 1)
    assert gap <= float(within[1]) <= 1.1 * gap + 0.01
    floor = re.search(r"not below ([\d.]+) %", opened.text("#curve-read"))
    assert floor
    assert float(floor[1]) == pytest.approx(100 * (bound / base - 1), rel=0.01)
    assert opened.complaints == []
    opened.context.close()


def test_keeping_everything_stands_behind_a_plan(browser: Any, written: Written) -> None:
    opened = Opened(browser, written.path)
    assert opened.page.get_by_text("keeping everything, at the same op").count() == 2
    opened.choose("Plan", "2")
    opened.choose("Beside it", "")
    assert opened.page.get_by_text("keeping everything, at the same op").count() == 0
    assert opened.text("#facts .fact:last-child b") == "fastest"
    panel, chart = (opened.page.locator(one).first.bounding_box() for one in ("#panel", "#charts .plot"))
    assert panel
    assert chart
    assert panel["height"] - 80 < chart["height"] <= panel["height"], "as tall as what stands beside it"
    opened.context.close()


def test_what_cannot_be_chosen_is_not_offered(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "chain.html"
    graph = chain(4)
    remat.report(graph, points=0).save(path)
    opened = Opened(browser, path)
    names = opened.page.locator("select").evaluate_all("all => all.map(one => one.labels[0].innerText)")
    assert not [name for name in names if "Colours" in name or "Beside" in name]
    assert any("Across" in name for name in names)
    opened.context.close()


def test_dark_and_light(browser: Any, written: Written) -> None:
    for scheme, other in (("dark", "light"), ("light", "dark")):
        opened = Opened(browser, written.path, color_scheme=scheme)
        theme = lambda page=opened.page: page.evaluate("document.documentElement.dataset.theme")  # noqa: E731
        assert theme() == scheme
        opened.click("Dark or light")
        assert theme() == other
        assert opened.complaints == []
        opened.context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(browser: Any, written: Written, width: int) -> None:
    opened = Opened(browser, written.path, viewport={"width": width, "height": 844})
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    opened.page.locator(".alive button").first.click()
    opened.click("Open all modules")
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    opened.context.close()


def test_everything_that_can_be_used_has_a_name(opened: Opened) -> None:
    opened.page.locator(".alive button").first.click()
    session = opened.context.new_cdp_session(opened.page)
    used = {"button", "combobox", "slider", "searchbox", "application", "image", "link", "table", "treegrid"}
    seen: set[str] = set()
    for node in session.send("Accessibility.getFullAXTree")["nodes"]:
        role = node.get("role", {}).get("value")
        if role in used and not node.get("ignored"):
            seen.add(role)
            assert node.get("name", {}).get("value"), f"a {role} without a name"
    assert {"button", "combobox", "slider", "searchbox", "application", "treegrid"} <= seen
    # The keyboard gets to the chart.
    opened.page.locator("#theme button").focus()
    for _ in range(12):
        opened.page.keyboard.press("Tab")
        if opened.page.evaluate("document.activeElement.classList.contains('pane')"):
            return
    pytest.fail("Tab does not get to the chart")
