"""Runs while they go on: on the terminal, and as a page in a browser.

Everything here is read from run folders, so that a run of another process, of a sweep or of a deployment is followed
just as well.  Nothing here writes into them.
"""

from fedcef.watch.follow import Followed
from fedcef.watch.live import Watched, follow
from fedcef.watch.screen import draw_screen
from fedcef.watch.site import Site

__all__ = ["Followed", "Site", "Watched", "draw_screen", "follow"]
