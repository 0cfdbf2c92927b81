"""The page in real Chromium: what people do with it, and that its numbers are the library's."""

import csv
import io
import itertools
import json
import re
import shlex
import xml.etree.ElementTree
from pathlib import Path

import pytest
from tests.cli.invoke import run as command
from tests.exploring.served import LONG, RUN

import filet
from filet.planning.run_file import parse_run
from settings import SETTINGS

pytestmark = pytest.mark.long
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
SLOW = 150_000  # milliseconds: the machine may be busy; a page that works needs a fraction
SCHEME = filet.CappedPoisson(60_000, 256 / 60_000, 300)


def epsilon(scheme=SCHEME, noise=1.0, steps=14_000, delta=1e-5, adjacency="zero-out"):
    curve = filet.account(scheme, noise_multiplier=noise, steps=steps, adjacency=adjacency)
    return filet.round_up(curve.epsilon(delta))


@pytest.fixture
def visit(server, browser):
    """Open the page, once or more often; fails at the end if a page complained or asked another machine."""
    opened, complaints = [], []

    def open_page(path="", **options):
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "accept_downloads": True, **options}
        )
        context.set_default_timeout(SLOW)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url.rstrip("/"))
        page = context.new_page()
        opened.append(context)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda entry: complaints.append(entry.text) if said_by_us(entry) else None)
        page.on("request", lambda asked: complaints.append(asked.url) if not local(asked.url, server.url) else None)
        page.goto(server.url + path)
        page.locator("html[data-ready]").wait_for()
        return page

    yield open_page
    for context in opened:
        context.close()
    assert complaints == []


def said_by_us(entry):
    """Errors and warnings but the browser's own line for each refused question, which the page shows in words."""
    return entry.type in ("error", "warning") and "Failed to load resource" not in entry.text


def local(url, home):
    return url.startswith((home, "blob:", "data:"))


def shows(page, text):
    page.locator("#epsilon-value", has_text=re.compile(f"^{re.escape(text)}$")).wait_for()


def fill(page, name, value):
    page.locator(f"#{name}").fill(str(value))


def whole(page, view):
    page.locator(f"#view-{view}[data-state=whole]").wait_for()


def test_it_loads_and_every_view_fills(visit):
    page = visit()
    shows(page, epsilon())
    for view in ("batch-sizes", "compare", "epsilon-cap", "utilization", "delta-epsilon", "trade-off", "risk"):
        whole(page, view)
        drawn = page.locator(f"#view-{view} svg.chart path, #view-{view} svg.chart rect").count()
        assert drawn > (2 if view == "risk" else 3)
        assert len(page.locator(f"#view-{view} .caption").inner_text()) > 80
    bars = page.locator("#view-compare svg.chart").text_content()
    reject = filet.CappedPoisson(60_000, 256 / 60_000, 300, "reject")
    assert epsilon(reject) in bars
    assert "∞" in bars  # the union bound
    assert page.locator("#view-utilization svg.chart path.point").count() >= 2  # the planner's stars


def test_dragging_moves_the_point_while_the_button_is_down_and_ends_at_the_librarys_number(visit):
    page = visit()
    shows(page, epsilon())
    slider = page.locator("#max_batch_size-slider").bounding_box()
    y = slider["y"] + slider["height"] / 2
    page.mouse.move(slider["x"] + 0.6 * slider["width"], y)
    page.mouse.down()
    for share in range(58, 40, -2):
        page.mouse.move(slider["x"] + share / 100 * slider["width"], y)
    cap = int(page.locator("#max_batch_size").input_value())
    assert cap != 300
    shows(page, epsilon(filet.CappedPoisson(60_000, 256 / 60_000, cap)))  # the button is still down
    page.mouse.up()
    page.wait_for_function("text => location.hash.includes(text)", arg=f"max_batch_size={cap}")


def test_the_last_of_many_quick_changes_is_what_stays(visit):
    page = visit()
    for steps in (1_000, 2_000, 3_000, 4_000, 5_000):
        fill(page, "steps", steps)
    shows(page, epsilon(steps=5_000))
    whole(page, "compare")
    shows(page, epsilon(steps=5_000))
    assert epsilon(steps=5_000) in page.locator("#view-compare svg.chart").text_content()


def test_a_bad_value_explains_itself_in_place_in_the_librarys_words(visit):
    page = visit()
    shows(page, epsilon())
    for name, value in (("max_batch_size", "0"), ("dataset_size", "many"), ("delta", "2"), ("noise_multiplier", "-1")):
        fill(page, name, value)
        error = page.locator(f"#{name}-error", has_text=name)
        error.wait_for()
        with pytest.raises(filet.InvalidArgumentError) as caught:
            parse_run({**RUN, name: value if value == "many" else float(value) if "." in value else int(value)})
        assert error.inner_text() == str(caught.value)
        assert page.locator(f"#{name}").get_attribute("aria-invalid") == "true"
        fill(page, name, RUN[name])
        page.locator(f"#{name}:not([aria-invalid])").wait_for()
        assert page.locator(f"#{name}-error").inner_text() == ""
    shows(page, epsilon())


def test_a_late_refusal_of_an_old_value_does_not_refuse_the_new_one(visit):
    page = visit()
    shows(page, epsilon())
    held = []

    def answer(route):
        if route.request.post_data_json["max_batch_size"] == 0:
            held.append(route)
        else:
            route.continue_()

    page.route("**/api/batch-sizes", answer)
    fill(page, "max_batch_size", "0")
    page.locator("#max_batch_size-error", has_text="max_batch_size").wait_for()
    while not held:
        page.wait_for_timeout(20)
    fill(page, "max_batch_size", "280")
    with page.expect_response("**/api/batch-sizes"):  # the refusal
        held[0].continue_()
    shows(page, epsilon(filet.CappedPoisson(60_000, 256 / 60_000, 280)))
    whole(page, "compare")
    assert page.locator("#max_batch_size").get_attribute("aria-invalid") is None


def held(page, view, when=lambda asked: True):
    """Hold back the questions of a view that `when` picks, and hand them out one by one."""
    waiting = []

    def hold(route):
        if when(route.request.post_data_json):
            waiting.append(route)
        else:
            route.continue_()

    page.route(f"**/api/{view}", hold)

    def first():
        while not waiting:
            page.wait_for_timeout(20)
        return waiting.pop(0)

    return first


def test_a_number_of_an_older_run_is_pale(visit):
    page = visit(reduced_motion="reduce")  # colours change at once
    shows(page, epsilon())
    page.locator("#now[data-state=whole]").wait_for()
    colour = "() => getComputedStyle(document.querySelector('.large')).color"
    strong = page.evaluate(colour)
    question = held(page, "epsilon", lambda asked: asked["steps"] == 500)
    fill(page, "steps", 500)
    route = question()
    page.locator("#now[data-state=waiting]").wait_for()
    page.wait_for_function(f"old => ({colour})() !== old", arg=strong)
    assert page.locator("#epsilon-value").inner_text() == epsilon()
    route.continue_()
    shows(page, epsilon(steps=500))
    page.wait_for_function(f"old => ({colour})() === old", arg=strong)


def test_an_answer_that_comes_after_the_next_change_does_not_pass_for_the_new_one(visit):
    page = visit()
    shows(page, epsilon())
    question = held(page, "epsilon", lambda asked: asked["steps"] in (500, 600))
    fill(page, "steps", 500)
    old = question()
    fill(page, "steps", 600)
    old.continue_()
    shows(page, epsilon(steps=500))
    new = question()
    assert page.locator("#now").get_attribute("data-state") == "waiting"
    new.continue_()
    shows(page, epsilon(steps=600))
    page.locator("#now[data-state=whole]").wait_for()


def test_a_noise_found_for_an_older_target_is_not_used(visit):
    page = visit("#epsilon=3")
    page.locator("#now[data-state=whole]").wait_for()
    question = held(page, "calibrate", lambda asked: asked["epsilon"] in (2, 1.5))
    fill(page, "epsilon", 2)
    old = question()
    fill(page, "epsilon", 1.5)
    new = question()
    new.continue_()
    noise = filet.calibrate_noise_multiplier(SCHEME, steps=14_000, epsilon=1.5, delta=1e-5, adjacency="zero-out")
    page.locator("#fact-noise", has_text=filet.round_up(noise)).wait_for()
    page.locator("#now[data-state=whole]").wait_for()
    old.continue_()
    whole(page, "compare")
    assert page.locator("#fact-noise").inner_text() == filet.round_up(noise)


def test_a_plan_is_for_the_run_of_the_fields_even_while_its_epsilon_is_computed(visit):
    page = visit()
    shows(page, epsilon())
    page.locator("#now[data-state=whole]").wait_for()
    question = held(page, "epsilon", lambda asked: asked["steps"] == 500)
    fill(page, "steps", 500)
    page.get_by_role("button", name="Plan", exact=True).click()
    page.locator("#plan-status", has_text="waiting for epsilon").wait_for()
    with page.expect_request("**/api/plan") as asked:
        question().continue_()
    given = asked.value.post_data_json
    assert (given["steps"], given["epsilon"]) == (500, float(epsilon(steps=500)))
    page.locator("#plan-table tbody tr").first.wait_for()
    page.wait_for_load_state("networkidle")
    assert "changed" not in page.locator("#plan-status").inner_text()
    fill(page, "steps", 700)
    page.locator("#plan-status", has_text="The run has changed since").wait_for()


def test_a_plan_that_waits_for_a_value_that_is_refused_says_so(visit):
    page = visit()
    shows(page, epsilon())
    question = held(page, "epsilon", lambda asked: asked["steps"] == 0)
    held(page, "batch-sizes", lambda asked: asked["steps"] == 0)
    fill(page, "steps", 0)
    page.locator("#now[data-state=waiting]").wait_for()
    page.get_by_role("button", name="Plan", exact=True).click()
    question().continue_()
    page.locator("#plan-status", has_text="has to be mended first").wait_for()
    assert page.locator("#plan").is_enabled()
    page.get_by_role("button", name="Plan", exact=True).click()
    page.locator("#plan-status", has_text="has to be mended first").wait_for()


@pytest.mark.parametrize("lines", [20, 60])
def test_a_half_computed_curve_has_no_line_across_a_gap(visit, server, lines):
    both = {name: value for name, value in RUN.items() if name != "overflow"}
    text = server.ask("epsilon-cap", both, headers={"accept": "application/x-ndjson"}).text.splitlines()[:lines]
    parts = [json.loads(line)["part"] for line in text]
    caps = parts[0]["caps"]
    there = sorted(part["max_batch_size"] for part in parts if "epsilon_truncate_refined" in part)
    pairs = [(a, b) for a, b in itertools.pairwise(caps) if a in there and b in there]
    page = visit()
    page.route(
        "**/api/epsilon-cap",
        lambda route: route.fulfill(body="\n".join(text) + "\n", content_type="application/x-ndjson"),
    )
    fill(page, "steps", 13_999)
    page.wait_for_function(
        """count => {
            const drawn = [...document.querySelectorAll("#view-epsilon-cap path.line.s-refined")];
            const joined = drawn.reduce((sum, one) => sum + one.getAttribute("d").split("L").length - 1, 0);
            return document.querySelector("#view-epsilon-cap").dataset.state === "filling" && joined === count;
        }""",
        arg=len(pairs),
    )
    assert page.locator("#view-epsilon-cap [data-form=csv]").is_disabled()


def test_plan_is_beside_the_sliders_and_epsilon_stays_in_sight(visit):
    page = visit()
    shows(page, epsilon())
    plan, sliders = page.locator("#plan").bounding_box(), page.locator("#fields").bounding_box()
    assert plan["y"] + plan["height"] < 900
    assert plan["x"] > sliders["x"] + sliders["width"]
    for view in ("trade-off", "risk"):
        whole(page, view)
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.wait_for_function("scrollY > 1000")
    box = page.locator("#epsilon-value").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 900


def test_a_row_of_the_plan_can_be_used_on_a_phone(visit):
    page = visit("#epsilon=3", viewport={"width": 390, "height": 844})
    page.get_by_role("button", name="Plan", exact=True).click()
    use = page.get_by_role("button", name="Use reject")
    use.wait_for()
    assert page.locator("#planning .scroll").evaluate("one => one.scrollWidth > one.clientWidth && !one.scrollLeft")
    use.scroll_into_view_if_needed()
    box = use.bounding_box()
    assert box["x"] + box["width"] <= 390
    use.click()
    page.locator("#announce", has_text="option reject").wait_for()
    assert page.locator("#overflow-reject").is_checked()


def test_help_says_what_each_word_means_and_its_links_are_pages_that_exist(visit):
    page = visit()
    topics = page.evaluate("import('/help.js').then(({ TOPICS, SITE }) => ({ TOPICS, SITE }))")
    project = Path(filet.__file__).parents[2]
    assert f'Documentation = "{topics["SITE"]}"' in (project / "pyproject.toml").read_text()
    told = {word for topic in topics["TOPICS"].values() for word in topic["words"]}
    assert {*filet.Adjacency, *filet.Analysis, *filet.Overflow, *filet.Size} <= told
    for name in ("adjacency", "overflow", "size"):
        page.locator(f".choice[data-name={name}] .help").click()
        for word, text in topics["TOPICS"][name]["words"].items():
            page.locator("#help dd", has_text=text).wait_for()
            assert page.locator(f"label[for={name}-{word}]").get_attribute("title") == text
        page.keyboard.press("Escape")
        page.locator("#help").wait_for(state="hidden")
    whole(page, "compare")
    page.locator("#view-compare .help").click()
    page.locator("#help a").wait_for()
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert [one["id"] for one in found["violations"]] == []
    assert page.locator("#view-compare svg.chart text.name title").count() == 6
    links = page.locator("a[href^=http]").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
    assert len(links) > 6
    for link in links:
        assert (project / "docs" / re.sub(r"\.html.*", ".md", link.removeprefix(topics["SITE"]))).exists(), link


@pytest.mark.parametrize("name", ["A", "B", "C", "D", "E"])
def test_presets_are_the_settings_of_the_theory_page(name):
    presets = json.loads((Path(filet.__file__).parent / "exploring" / "assets" / "presets.json").read_text())
    run = next(preset["run"] for preset in presets if preset["id"] == name)
    one = SETTINGS[name]
    assert run == {"dataset_size": one.n, "poisson_batch_size": one.batch, "max_batch_size": one.cap,
                   "noise_multiplier": one.sigma, "steps": one.steps, "delta": one.delta}  # fmt: skip


def test_a_preset_fills_the_fields(visit):
    page = visit()
    page.get_by_role("button", name="CIFAR-10").click()
    one = SETTINGS["B"]
    shows(page, epsilon(one.scheme(), one.sigma, one.steps, one.delta))
    assert page.locator("#max_batch_size").input_value() == str(one.cap)
    assert page.get_by_role("button", name="CIFAR-10").get_attribute("aria-pressed") == "true"
    fill(page, "steps", 100)
    page.locator("#presets button[data-id=B][aria-pressed=false]").wait_for()


def test_a_plan_fills_a_table_and_a_chosen_row_moves_the_sliders(visit):
    page = visit("#epsilon=3")
    page.get_by_role("button", name="Plan", exact=True).click()
    page.locator("#plan-table tbody tr").first.wait_for()
    plan = filet.plan(
        dataset_size=60_000, max_batch_size=300, steps=14_000, epsilon=3.0, delta=1e-5, adjacency="zero-out"
    )
    names = [re.split(r"\s", row)[0] for row in page.locator("#plan-table tbody th").all_inner_texts()]
    assert names == [option.name for option in plan.options]
    before = page.locator("#noise_multiplier-slider").input_value()
    page.get_by_role("button", name="Use reject").click()
    best = plan.option("reject")
    shows(page, epsilon(best.scheme, best.noise_multiplier))
    assert page.locator("#overflow-reject").is_checked()
    assert float(page.locator("#noise_multiplier").input_value()) == best.noise_multiplier
    assert float(page.locator("#sampling_probability").input_value()) == best.scheme.sampling_probability
    assert page.locator("#noise_multiplier-slider").input_value() != before


def test_a_target_finds_the_noise(visit):
    page = visit("#epsilon=3&overflow=reject")
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300, "reject")
    noise = filet.calibrate_noise_multiplier(scheme, steps=14_000, epsilon=3.0, delta=1e-5, adjacency="zero-out")
    page.locator("#fact-noise", has_text=filet.round_up(noise)).wait_for()
    shows(page, epsilon(scheme, noise))
    page.locator("label[for=adjacency-add-remove]").click()
    fill(page, "max_batch_size", 256)
    fill(page, "epsilon", "0.001")
    page.locator("#epsilon-error", has_text="cannot be met by any noise").wait_for()


def test_an_address_brings_back_the_view(visit):
    page = visit()
    fill(page, "steps", "777")
    page.locator("label[for=rate-sampling_probability]").click()
    page.locator("label[for=adjacency-add-remove]").click()
    shows(page, epsilon(steps=777, adjacency="add-remove"))
    page.get_by_role("button", name="copy this view's address").click()
    page.get_by_role("button", name="copied").wait_for()
    address = page.evaluate("navigator.clipboard.readText()")
    other = visit(address.split("/", 3)[3])
    shows(other, epsilon(steps=777, adjacency="add-remove"))
    assert other.locator("#steps").input_value() == "777"
    assert other.locator("#sampling_probability").is_visible()


def test_an_address_copied_right_after_a_change_has_the_change(visit):
    page = visit()
    page.locator("#steps").wait_for()
    page.evaluate("""() => {
        const steps = document.querySelector("#steps");
        steps.value = "777";
        steps.dispatchEvent(new Event("input", { bubbles: true }));
        document.querySelector("[data-copy=url]").click();
    }""")
    page.get_by_role("button", name="copied").wait_for()
    assert "steps=777" in page.evaluate("navigator.clipboard.readText()")


def test_a_size_that_is_not_public_says_which_numbers_of_records_it_holds_for(visit, tmp_path):
    page = visit("#steps=500&adjacency=add-remove")
    for size, policy, other in (("secret", "reject", "truncate"), ("at-most", "truncate", "reject")):
        page.locator(f"label[for=overflow-{other}]").click()
        page.locator(f"label[for=size-{size}]").click()
        with pytest.raises(filet.InvalidArgumentError) as caught:
            filet.CappedPoisson(60_000, 256 / 60_000, 300, other, size=size)
        page.locator("#size-error", has_text=str(caught.value)).wait_for()
        page.locator(f"label[for=overflow-{policy}]").click()
        scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300, policy, size=size)
        curve = filet.account(scheme, noise_multiplier=1.0, steps=500, adjacency="add-remove")
        page.locator("#epsilon-words", has_text=f"{policy}; for {curve.holds_for}").wait_for()
        shows(page, filet.round_up(curve.epsilon(1e-5)))
        assert page.locator("#size-error").inner_text() == ""
        page.wait_for_function("text => location.hash.includes(text)", arg=f"size={size}")
        page.locator("#recipe-command", has_text=f"--size {size}").wait_for()
        words = shlex.split(page.locator("#recipe-command").inner_text().replace("\\\n", " "))
        printed = json.loads(command(*words[1:], "--json").stdout)
        assert printed["result"]["epsilon"] == curve.epsilon(1e-5)
        assert f'size="{size}"' in page.locator("#recipe-python").text_content()
        page.locator("#view-compare .reading", has_text=f"the epsilon at the top is for size {size}").wait_for()
        page.locator("#view-epsilon-cap .legend", has_text=f"truth for {policy}").wait_for()
        whole(page, "delta-epsilon")
        with page.expect_download() as waiting:
            page.locator("#view-delta-epsilon [data-form=csv]").click()
        waiting.value.save_as(tmp_path / size)
        rows = list(csv.DictReader(io.StringIO((tmp_path / size).read_text())))
        assert {float(row["delta"]): float(row["epsilon_upper"]) for row in rows}[1e-5] == curve.epsilon(1e-5)
        assert {row["size"] for row in rows} == {size}
    other = visit(page.url.split("/", 3)[3])
    other.locator("#epsilon-words", has_text="up to 60,000").wait_for()
    assert other.locator("#size-at-most").is_checked()


def test_a_secret_size_of_the_plan_can_be_used(visit):
    page = visit("#epsilon=3")
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_role("button", name="Use secret").click()
    page.locator("#epsilon-words", has_text="for every number of records").wait_for()
    assert page.locator("#size-secret").is_checked()
    whole(page, "utilization")
    page.locator("#view-utilization .reading", has_text="Planner, reject").wait_for()
    page.get_by_role("button", name="Use truncate").click()
    page.locator("#epsilon-words", has_text="a public number").wait_for()
    assert page.locator("#size-public").is_checked()


def test_a_bad_address_is_explained_and_harmless(visit):
    page = visit("#dataset_size=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&steps=7&nonsense=1")
    page.locator("#dataset_size-error", has_text="dataset_size='<img").wait_for()
    assert page.locator("img[src=x]").count() == 0


def test_a_delta_above_one_in_the_examples_is_noticed(visit):
    page = visit("#steps=100&delta=1e-3")
    page.locator("#delta-notice", has_text="above 1 / dataset size").wait_for()
    fill(page, "delta", "1e-6")
    shows(page, epsilon(steps=100, delta=1e-6))
    assert page.locator("#delta-notice").is_hidden()


def test_downloads_hold_what_is_shown(visit, tmp_path):
    page = visit("#overflow=reject&steps=100")

    def saved(view, form):
        with page.expect_download() as waiting:
            page.locator(f"#view-{view} [data-form={form}]").click()
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        assert path.name == f"filet-{view}.{form}"
        return path.read_bytes()

    whole(page, "delta-epsilon")
    rows = list(csv.DictReader(io.StringIO(saved("delta-epsilon", "csv").decode())))
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300, "reject")
    curve = filet.account(scheme, noise_multiplier=1.0, steps=100, adjacency="zero-out")
    assert {float(row["delta"]): float(row["epsilon_upper"]) for row in rows}[1e-5] == curve.epsilon(1e-5)
    answer = json.loads(saved("delta-epsilon", "json"))
    assert answer["schema"] == "filet.delta-epsilon.v1"
    assert answer["result"]["columns"]["epsilon_upper"] == [float(row["epsilon_upper"]) for row in rows]
    picture = xml.etree.ElementTree.fromstring(saved("delta-epsilon", "svg"))
    words = "".join(picture.itertext())
    assert "Delta at every epsilon" in words
    assert "dataset_size 60000" in words
    assert b"class=" not in saved("delta-epsilon", "svg")  # it looks the same without the page
    assert saved("delta-epsilon", "png").startswith(b"\x89PNG")
    law = list(csv.DictReader(io.StringIO(saved("batch-sizes", "csv").decode())))
    assert sum(float(row["probability"]) for row in law) == pytest.approx(1.0, abs=1e-6)


def test_tables_are_complete(visit, tmp_path):
    page = visit("#steps=100")
    expected = {
        "compare": {"policy", "analysis", "adjacency", "epsilon"},
        "epsilon-cap": {"max_batch_size", "epsilon_truncate_refined", "epsilon_reject_attack", "epsilon_no_cap"},
        "utilization": {"utilization_reject", "effective_noise_truncate", "planner_noise_multiplier_reject", "epsilon"},
        "batch-sizes": {"size", "sizes", "probability", "probability_without_cap"},
        "delta-epsilon": {"epsilon_upper", "epsilon_lower", "epsilon_attack"},
        "trade-off": {"false_positive_rate", "true_positive_rate_upper", "true_positive_rate_lower"},
        "risk": {"prior", "belief", "membership_advantage", "true_positive_rate_at_0.01", "bayes_error_at_0.5"},
    }
    for view, names in expected.items():
        whole(page, view)
        with page.expect_download() as waiting:
            page.locator(f"#view-{view} [data-form=csv]").click()
        waiting.value.save_as(tmp_path / view)
        rows = list(csv.DictReader(io.StringIO((tmp_path / view).read_text())))
        assert names <= set(rows[0]), view
        assert all(None not in row and None not in row.values() for row in rows), view
        assert {row["dataset_size"] for row in rows} == {"60000"}, view
        if view in ("compare", "epsilon-cap", "delta-epsilon", "risk"):
            assert {(row["steps"], row["noise_multiplier"], row["adjacency"]) for row in rows} == {
                ("100", "1", "zero-out")
            }
    rows = list(csv.DictReader(io.StringIO((tmp_path / "epsilon-cap").read_text())))
    free = filet.account(SCHEME.uncapped(60_000, 256 / 60_000), noise_multiplier=1.0, steps=100, adjacency="zero-out")
    assert {float(row["epsilon_no_cap"]) for row in rows} == {free.epsilon(1e-5)}


def test_recipes_give_the_same_epsilon(visit):
    page = visit("#steps=500&max_batch_size=270")
    number = epsilon(filet.CappedPoisson(60_000, 256 / 60_000, 270), steps=500)
    shows(page, number)
    words = shlex.split(page.locator("#recipe-command").inner_text().replace("\\\n", " "))
    assert words[0] == "filet"
    printed = json.loads(command(*words[1:], "--json").stdout)
    assert filet.round_up(printed["result"]["epsilon"]) == number
    page.get_by_role("tab", name="Python").click()
    page.get_by_role("button", name="copy the Python lines").click()
    page.get_by_role("button", name="copied").wait_for()
    shown = io.StringIO()
    exec(page.evaluate("navigator.clipboard.readText()"), {"print": lambda *found: shown.write(repr(found[-1]))})
    assert filet.round_up(float(shown.getvalue())) == number
    page.get_by_role("tab", name="Run file").click()
    import tomllib

    run = parse_run(tomllib.loads(page.locator("#recipe-file").inner_text()))
    assert filet.round_up(run.curve.epsilon(run.delta)) == number


def test_it_can_be_used_by_keyboard_alone(visit):
    page = visit()
    shows(page, epsilon())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#max_batch_size-slider").focus()
    page.keyboard.press("ArrowLeft")
    cap = int(page.locator("#max_batch_size").input_value())
    assert cap < 300
    shows(page, epsilon(filet.CappedPoisson(60_000, 256 / 60_000, cap)))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "help"
    page.keyboard.press("Enter")
    page.locator("#help a").wait_for()
    page.keyboard.press("Escape")
    page.locator("#help").wait_for(state="hidden")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "overflow-truncate"
    page.keyboard.press("ArrowRight")
    shows(page, epsilon(filet.CappedPoisson(60_000, 256 / 60_000, cap, "reject")))
    whole(page, "batch-sizes")
    page.locator("#view-batch-sizes svg.chart").focus()
    page.keyboard.press("Home")
    page.locator("#view-batch-sizes .reading", has_text="Chances of exactly").wait_for()
    page.keyboard.press("Escape")
    page.locator("#tab-command").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#panel-python").is_visible()
    page.route("**/api/plan", lambda route: route.continue_(post_data=json.dumps(LONG)))
    page.locator("#plan").focus()
    page.keyboard.press("Enter")
    page.locator("#plan-stop").wait_for()
    assert page.evaluate("document.activeElement.id") == "plan-stop"
    page.keyboard.press("Enter")
    page.locator("#plan-status", has_text="stopped").wait_for()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_it_fits_reads_well_and_has_no_accessibility_violation(visit, width, scheme):
    page = visit(viewport={"width": width, "height": 844}, color_scheme=scheme, reduced_motion="reduce")
    shows(page, epsilon())
    for view in ("compare", "epsilon-cap", "delta-epsilon"):
        page.locator(f"#view-{view}[data-state]:not([data-state=waiting])").wait_for()
    fill(page, "delta", "2")
    page.locator("#delta-error", has_text="delta=2").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    light = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] > 128")
    assert light == (scheme == "light")
    assert page.evaluate("getComputedStyle(document.querySelector('.large')).transitionDuration") == "0s"
    page.evaluate(AXE)
    # Whatever a view is waiting for when it is looked at: each state of all of them, one after the other.
    for state in ("as it is", "waiting", "filling", "refused", "whole"):
        if state != "as it is":
            page.evaluate(
                "state => document.querySelectorAll('.card[data-state]').forEach((card) => { card.dataset.state = state; })",
                state,
            )
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert (state, [(one["id"], one["nodes"][0]["target"]) for one in found["violations"]]) == (state, [])
        assert found["testEngine"]["name"] == "axe-core"


def test_closing_the_page_in_the_middle_of_a_plan_ends_the_plan(visit, server):
    page = visit("#epsilon=3")
    page.route("**/api/plan", lambda route: route.continue_(post_data=json.dumps(LONG)))
    page.get_by_role("button", name="Plan", exact=True).click()
    page.locator("#plan-status", has_text="%").wait_for()
    before = server.workers()
    page.close()
    assert server.replaces(before)  # the process of the plan


def test_what_cannot_be_drawn_says_why_and_an_old_picture_does_not_pass_for_a_new_one(visit):
    page = visit()
    for view in ("epsilon-cap", "utilization", "delta-epsilon"):
        whole(page, view)
    fill(page, "noise_multiplier", "0")
    shows(page, "∞")
    page.locator("#view-epsilon-cap[data-state=whole] .reading", has_text="No finite epsilon").wait_for()
    page.locator("#view-utilization .reading", has_text="there is no finite one").wait_for()
    assert page.locator("#view-epsilon-cap svg.chart path").count() == 0
    page.goto("about:blank")
    page = visit()
    whole(page, "epsilon-cap")
    page.evaluate("location.hash = 'dataset_size=1&poisson_batch_size=1&max_batch_size=1&steps=1&delta=0.1'")
    shows(
        page, epsilon(filet.CappedPoisson(1, 1.0, 1), steps=1, delta=0.1)
    )  # one cap in all: too few for a first picture
    label = page.locator("#view-epsilon-cap svg.chart[aria-label*='from 1 to 1 rows']")
    label.wait_for()


def test_the_page_rounds_upper_bounds_up_and_lower_bounds_down(visit):
    page = visit()
    values = [(1 + (37 * number % 999) / 991) * 10.0**power for number in range(120) for power in range(-9, 10)]
    script = """async (values) => {
        const { down, padded, up } = await import("/format.js");
        return values.map((value) => [up(value), down(value), padded(up(value), 4)]);
    }"""
    for value, texts in zip(values, page.evaluate(script, values), strict=True):
        above, below, padded = (float(text.replace(",", "").replace("−", "-")) for text in texts)
        assert above * (1 - 1.1e-3) <= value <= above == padded
        assert below <= value <= below * (1 + 1.1e-3)
        if 1e-3 <= value < 1e4:
            assert len(texts[2].replace(".", "").lstrip("0")) >= 4
