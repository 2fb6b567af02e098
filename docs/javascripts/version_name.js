// The button that shows the version is called what it shows; the theme calls it "Select version", and readers hear that alone.
function nameVersion() {
  document.querySelector(".md-version__current")?.removeAttribute("aria-label")
}

new MutationObserver(nameVersion).observe(document.querySelector(".md-header"), { childList: true, subtree: true })
nameVersion()
