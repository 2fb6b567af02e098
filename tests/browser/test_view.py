"""What the page answers first, views that can be shared, many curves, what can be saved, print, and accessibility."""

import csv
import re

import pytest


def curves(page, panel=0):
    return page.evaluate(f"document.getElementById('plot-{panel}').data.filter(t => t.name).map(t => t.name)")


def colors(page, panel=0):
    """Colour and marker of every curve, by its name."""
    found = page.evaluate(f"document.getElementById('plot-{panel}').data.filter(t => t.name)")
    return {trace["name"]: (trace["line"]["color"], trace["marker"]["symbol"]) for trace in found}


def test_opens_with_an_answer(visit):
    page = visit().page
    assert re.search(r"reaches [\d.]+% after [\d.]+ [kM]B", page.locator(".sentence").text_content())
    assert page.locator(".tiles li").count() == 3
    assert page.locator("h1").text_content() == "demo on digits"
    assert re.search(r"\d+ \w+ 20\d\d · 3 methods", page.locator(".facts").text_content())
    place = page.locator(".sentence").bounding_box()
    assert place["y"] < 250


def test_the_costs_begin_with_those_of_the_answer(visit):
    page = visit().page
    said = page.locator(".sentence").text_content()
    assert page.locator("#target-0").input_value() == re.search(r"reaches ([\d.]+)%", said)[1].removesuffix(".0")
    told, unit = re.search(r"after ([\d.]+) ([kM]B)", said).groups()
    least = page.locator("#prices-0 td.best:nth-child(3)").text_content().split()
    assert (float(least[0]), least[1]) == (pytest.approx(float(told), rel=5e-3), unit)


def test_commands_are_not_broken_between_hyphens(visit):
    options = visit(width=390).page.locator(".commands i")
    assert set(options.all_text_contents()) == {"--set"}
    assert options.evaluate_all("all => Math.max(...all.map(one => one.getClientRects().length))") == 1


def test_the_view_is_in_the_address_and_survives_a_reload(visit):
    found = visit()
    page = found.page
    assert "#" not in page.url
    page.get_by_label("Rounds").check(force=True)
    page.get_by_label("log scale").check()
    page.locator("#legend button[aria-pressed]").nth(1).click()
    page.locator("#log-y-1").click()
    page.locator("nav a", has_text="Bytes").click()
    left = curves(page)
    assert len(left) == 2
    page.reload()
    assert curves(page) == left
    assert page.get_by_label("Rounds").is_checked()
    assert page.get_by_label("log scale").is_checked()
    assert page.locator("#legend button[aria-pressed=false]").count() == 1
    assert "axis=round" in page.url
    assert "at=bytes" in page.url
    page.locator("#show-all").click()
    page.get_by_label("Wire bytes").check(force=True)
    page.locator("#log-y-1").click()
    assert page.url.endswith("#bytes")
    assert found.complaints == []


def test_an_address_from_elsewhere_is_read_and_nonsense_is_not(visit):
    page = visit(view="#axis=paper_bytes&hide=Zhang+%26+others&logx=0").page
    assert "Zhang &amp; others" not in curves(page)
    assert page.get_by_label("Paper's bytes").is_checked()
    assert not page.get_by_label("log scale").is_checked()
    found = visit(view="#axis=money&hide=nobody&up_mbit=-3&logy=1&group=x")
    assert len(curves(found.page)) == 3
    assert found.complaints == []


def test_a_method_has_one_colour_and_marker_on_every_page(visit):
    every = colors(visit("report.html").page)
    assert colors(visit("paper.html").page) == every
    alone = visit("report.html", view="#only=Zhang+%26+others").page
    assert colors(alone).items() <= every.items()
    swatch = visit().page.locator("#legend button use").nth(0).get_attribute("href")
    assert swatch == "#look-0"


def test_many_curves_have_a_legend_beside_them_a_filter_and_groups(visit):
    found = visit("many.html", width=1440)
    page = found.page
    legend, charts = page.locator(".side").bounding_box(), page.locator(".charts").bounding_box()
    assert legend["x"] > charts["x"] + charts["width"]
    page.locator("#plot-0").scroll_into_view_if_needed()
    page.locator("#plot-0 .main-svg").first.wait_for()
    assert len(curves(page)) == 50
    page.locator("#filter").fill("zhang")
    assert len(curves(page)) == 25
    assert page.locator("table.results tbody tr:visible").count() == 25
    assert page.locator("#count").text_content() == "25 of 50 shown"
    page.locator("#filter").fill("")
    page.locator("#group").select_option("algorithm.name")
    heads = page.locator(".group-of")
    assert heads.all_text_contents() == ["fedcef (25)", "zhang (25)"]
    heads.nth(0).click()
    assert len(curves(page)) == 25
    assert "group=algorithm.name" in page.url
    assert found.complaints == []


def test_tables_and_panels_can_be_saved_as_csv(visit):
    page = visit().page
    with page.expect_download() as download:
        page.locator(".save[data-format=csv]").first.click()
    with open(download.value.path(), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["method"].partition(" (")[0] for row in rows} == {"FedCEF <r=0.1>", "Zhang & others", "Diverged"}
    zhang = [row for row in rows if row["method"].startswith("Zhang")]
    assert [row["round"] for row in zhang] == [str(i) for i in range(15)]
    assert float(zhang[-1]["wire_bytes"]) > 0
    with page.expect_download() as download:
        page.locator(".save-table").first.click()
    with open(download.value.path(), encoding="utf-8") as file:
        (sparse,) = [row for row in csv.DictReader(file) if row["method"] == "FedCEF <r=0.1>"]
    assert float(sparse["accuracy %"]) > 0
    assert float(sparse["accuracy % ±"]) > 0


def test_saved_pictures_are_light_on_a_dark_screen(visit):
    page = visit(scheme="dark").page
    with page.expect_download() as download:
        page.locator(".save[data-format=svg]").first.click()
    with open(download.value.path(), encoding="utf-8") as file:
        svg = file.read()
    assert "rgb(255, 255, 255)" in svg
    assert "rgb(0, 114, 178)" in svg  # the light page's blue
    assert "rgb(21, 24, 28)" not in svg
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"


def test_charts_and_sortable_heads_say_what_they_are(visit):
    page = visit().page
    plot = page.locator("#plot-0")
    assert plot.get_attribute("role") == "img"
    label = plot.get_attribute("aria-label")
    assert label.startswith("Test accuracy (%) against sent on the wire, up and down, 3 curves. At the end: ")
    assert "Zhang & others" in label
    cue = page.locator("table.results thead button").nth(1)
    assert "⇅" in cue.evaluate("button => getComputedStyle(button, '::after').content")
    cue.click()
    assert "↑" in cue.evaluate("button => getComputedStyle(button, '::after').content")
    assert visit("frontier.html").page.locator("#plot-frontier").get_attribute("role") == "img"


def test_a_table_that_scrolls_on_a_phone_has_shadows(visit):
    page = visit(width=390).page
    box = page.locator(".scroll:has(table.results)")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    assert box.evaluate("box => getComputedStyle(box).backgroundAttachment") == "local, local, scroll, scroll"


def test_on_paper_nothing_is_folded_cut_or_dark(visit):
    page = visit("many.html", scheme="dark").page
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 1030, "height": 700})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open]):not(.whole)").count() == 0
    assert page.locator(".plot .main-svg").count() >= page.locator(".plot").count()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    cut = page.locator("table, .plot svg, pre").evaluate_all(
        "parts => parts.filter(p => p.getBoundingClientRect().right > 1032).map(p => p.className)"
    )
    assert cut == []
    assert page.locator("#legend").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.className") == ""


def test_tables_that_fit_a_sheet_are_printed_in_full_size(visit):
    page = visit(width=1440).page
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("table.results").evaluate("table => table.style.zoom") == ""


def test_a_page_of_many_long_runs_is_small_and_draws_little(visit, pages):
    """What makes a redraw slow is elements: a line for each curve and some ten markers, not one for every point."""
    assert (pages / "many.html").stat().st_size < 5e6
    found = visit("many.html")
    page = found.page
    assert page.locator(".plot .main-svg").count() < page.locator(".plot").count()  # what is out of view waits
    page.locator("#plot-0").scroll_into_view_if_needed()
    page.locator("#plot-0 .main-svg").first.wait_for()
    assert len(curves(page)) == 50
    assert page.locator("#plot-0 path").count() < 1500
    assert found.complaints == []


@pytest.mark.parametrize(
    ("name", "scheme"), [("report.html", "dark"), ("frontier.html", "light"), ("many.html", "light")]
)
def test_axe_finds_nothing_serious(visit, axe, name, scheme):
    page = visit(name, scheme=scheme).page
    page.locator("details").evaluate_all("all => all.slice(0, 3).forEach(part => { part.open = true; })")
    page.add_script_tag(content=axe)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    serious = [
        (one["id"], one["nodes"][0]["html"][:200])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
