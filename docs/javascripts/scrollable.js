// Whatever scrolls sideways can be reached by the keyboard: wide tables, drawings and equations.
const WIDE = ".md-typeset__scrollwrap, .md-typeset p, .md-typeset pre, .md-typeset .equation"

function makeFocusable() {
  for (const element of document.querySelectorAll(WIDE)) {
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible") {
      element.tabIndex = 0
    }
  }
}

addEventListener("load", () => setTimeout(makeFocusable))
addEventListener("resize", makeFocusable)
