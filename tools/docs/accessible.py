"""What the theme leaves out for screen readers: a name for the dialog of the search."""

DIALOG = 'data-md-component="search" role="dialog"'


def on_post_page(output: str, **_: object) -> str:
    return output.replace(DIALOG, f'{DIALOG} aria-label="Search"')
