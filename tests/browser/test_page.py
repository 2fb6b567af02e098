"""The report in a real browser: nothing is complained about or asked for, and every control does what it says."""

import numpy as np
import pytest

from fedcef.report import find_runs, load_runs
from fedcef.report.data.groups import group_runs
from fedcef.report.data.link_time import ClientLink

TITLES = {
    "Wire bytes": "Sent on the wire, up and down",
    "Paper's bytes": "Sent by the paper's count, up and down",
    "Rounds": "Round",
    "Wall time": "Wall time",
    "Network time": "Simulated network time",
}


def curves(page, panel=0):
    """The names of the curves that a panel shows, without bands and crosses."""
    return page.evaluate(f"document.getElementById('plot-{panel}').data.filter(t => t.name).map(t => t.name)")


def axis(page, name="xaxis", panel=0):
    return page.evaluate(f"document.getElementById('plot-{panel}').layout.{name}")


@pytest.mark.parametrize("name", ["report.html", "frontier.html", "paper.html", "many.html"])
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (1200, "light"), (400, "dark")])
def test_opens_without_a_complaint_and_fits_the_window(visit, name, width, scheme):
    found = visit(name, width, scheme)
    page = found.page
    assert found.complaints == []
    assert [url for url in found.requests if not url.startswith("data:")] == [page.url]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if name != "many.html":  # there a panel is drawn when it comes into view
        assert page.locator(".plot .main-svg").count() >= page.locator(".plot").count() > 0
    wide = page.locator("table").evaluate_all(
        "tables => tables.filter(t => t.offsetWidth > innerWidth && !t.closest('.scroll')).length"
    )
    assert wide == 0
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(21, 24, 28)" if scheme == "dark" else "rgb(255, 255, 255)")


def test_the_results_fit_a_window_of_1200(visit):
    page = visit(width=1200).page
    box = page.locator(".scroll:has(table.results)")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_axes_and_scales(visit):
    found = visit()
    page = found.page
    for switch, title in TITLES.items():
        page.locator("#axes").get_by_text(switch, exact=True).click()
        assert axis(page)["title"]["text"].partition(" (")[0] == title
        page.get_by_label("log scale").set_checked(True)
        assert axis(page)["type"] == "log"
        page.get_by_label("log scale").set_checked(False)
        assert axis(page)["type"] == "linear"
    before = axis(page, "yaxis", 1)["type"]
    page.locator("#log-y-1").click()
    assert {before, axis(page, "yaxis", 1)["type"]} == {"log", "linear"}
    page.get_by_label("Wire bytes").focus()  # by keyboard
    page.keyboard.press("ArrowRight")
    assert axis(page)["title"]["text"].startswith(TITLES["Paper's bytes"])
    assert found.complaints == []


def test_curves_can_be_hidden_and_seen_alone(visit):
    page = visit().page
    legend = page.locator("#legend button[aria-pressed]")
    every = curves(page)
    assert len(every) == 3
    assert all("&lt;" in name or "<" not in name for name in every)
    legend.nth(0).click()
    assert curves(page) == every[1:]
    assert page.locator("table.results tr.off").count() == 1
    legend.nth(1).click(modifiers=["Shift"])
    assert curves(page) == every[1:2]
    page.keyboard.press("Shift+Enter")  # on the same button
    assert curves(page) == every
    legend.nth(0).click()
    page.locator("#show-all").click()
    assert curves(page) == every
    assert page.locator("#show-all").is_hidden()
    legend.nth(2).focus()
    page.keyboard.press("Space")
    assert curves(page) == every[:2]
    page.keyboard.press("Space")
    legend.nth(2).dblclick()
    assert curves(page) == every[2:]


def point_at(page, name, i, panel=0):
    """Move the pointer to the i-th point of a curve, and return what it is told."""
    page.locator(f"#plot-{panel}").scroll_into_view_if_needed()
    x, y = page.evaluate(f"""() => {{
        const plot = document.getElementById("plot-{panel}"), box = plot.getBoundingClientRect();
        const {{ xaxis, yaxis }} = plot._fullLayout;
        const trace = plot.data.find((t) => t.name && t.name.startsWith("{name}"));
        const i = {i} < 0 ? trace.x.length + {i} : {i};
        return [box.x + xaxis._offset + xaxis.d2p(trace.x[i]) + 1, box.y + yaxis._offset + yaxis.d2p(trace.y[i])];
    }}""")
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y)
    return page.locator(f"#plot-{panel} + .hover")


def test_hovering_compares_all_curves_at_one_place(visit):
    page = visit().page
    page.get_by_label("Rounds").check(force=True)
    box = point_at(page, "Zhang", 5)
    assert box.is_visible()
    lines = box.locator("li")
    assert lines.count() == 3
    named = page.evaluate("document.getElementById('plot-0').data.filter(t => t.name)")
    drawn = [trace["y"][min(5, len(trace["y"]) - 1)] for trace in named]
    told = [float(text.split()[0].rstrip("%")) for text in lines.locator(".value").all_text_contents()]
    assert told == pytest.approx(sorted(drawn, reverse=True), rel=1e-3)
    assert "Zhang & others" in box.locator(".near").text_content()
    for word in ("Until round 5", "round 5 ·", "wire ", "network "):
        assert word in box.text_content()
    page.mouse.move(5, 5)
    assert not box.is_visible()


def test_network_time_is_that_of_link_time_py(visit, runs):
    found = visit()
    page = found.page
    page.get_by_text("Network time", exact=True).first.click()
    page.locator("#up_mbit").fill("0.5")
    page.locator("#down_mbit").fill("4")
    page.locator("#latency_ms").fill("20")
    assert not page.locator("#compute").is_checked()  # unless it is asked for
    items = group_runs(load_runs(find_runs(runs)), ClientLink(0.5, 4.0, 20.0, compute=False))
    expected = next(item for item in items if item.label.startswith("Zhang")).curve("accuracy").x["network_s"]
    drawn = page.evaluate("document.getElementById('plot-0').data.find(t => t.name && t.name.startsWith('Zhang')).x")
    assert axis(page)["title"]["text"].endswith("(s)")
    np.testing.assert_allclose(drawn, expected, rtol=1e-4)
    page.locator("#compute").check()
    slower = page.evaluate("document.getElementById('plot-0').data.find(t => t.name && t.name.startsWith('Zhang')).x")
    wall = next(item for item in items if item.label.startswith("Zhang")).curve("accuracy").x["wall_s"]
    np.testing.assert_allclose(slower, expected + wall / 5, rtol=1e-4)  # per client, of whom there are five
    page.locator("#up_mbit").fill("0")
    assert page.locator("#up_mbit").get_attribute("aria-invalid") == "true"
    assert found.complaints == []


def test_the_price_of_a_target(visit):
    page = visit().page
    rounds = page.locator("#prices-0 tbody td:nth-child(2)")
    assert "not reached" not in rounds.nth(0).text_content() or "not reached" not in rounds.nth(2).text_content()
    page.locator("#target-0").fill("100")
    assert set(rounds.all_text_contents()) == {"not reached"}
    page.locator("#target-0").fill("0")
    assert rounds.all_text_contents()[1:] == ["0", "0"]


def test_tables_sort(visit):
    page = visit().page
    head = page.locator("table.results thead button", has_text="wire total")
    column = "rows => rows.map(row => parseFloat(row.cells[7].firstChild.textContent.replace(/,/g, '')))"
    head.click()
    assert page.locator("table.results th[aria-sort=ascending]").count() == 1
    up = page.locator("table.results tbody tr").evaluate_all(column)
    head.click()
    down = page.locator("table.results tbody tr").evaluate_all(column)
    assert up == sorted(up)
    assert down == sorted(up, reverse=True)


def test_pictures_and_settings_can_be_saved_and_commands_copied(visit):
    found = visit()
    page = found.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<svg")):
        with page.expect_download() as download:
            page.locator(f".save[data-format={kind}]").first.click()
        assert download.value.suggested_filename == f"fedcef-accuracy-wire_bytes.{kind}"
        with open(download.value.path(), "rb") as file:
            assert file.read(4) == start
    page.locator("summary", has_text="The settings of every run").click()
    page.locator("summary", has_text="Zhang").last.click()
    with page.expect_download() as download:
        page.locator(".save-text:visible").click()
    with open(download.value.path(), encoding="utf-8") as file:
        assert 'label = "Zhang & others"' in file.read()
    page.locator(".copy").first.click()
    page.locator(".copy", has_text="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert len(copied) == 4
    assert all(line.startswith("fedcef run demo --set ") for line in copied)
    assert found.complaints == []


def test_clients_messages_and_layers_are_there(visit):
    page = visit().page
    assert page.locator("table.heat tbody tr").first.locator("td:not(.sum)").count() == 10
    assert "delta" in page.locator("table.parts").text_content()
    assert page.locator("table.layers tbody tr").count() == 2
    page.locator(".what-is summary").click()
    assert page.locator(".what-is p").is_visible()
