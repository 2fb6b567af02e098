"""A run as a Flower app: the only code that imports flwr.

    server_app.py   `app`, the ServerApp            client_app.py   `app`, the ClientApp: two handlers,
    run_server.py   a server's run from its                         who are you (query) and do this round (train)
                    settings to its summary         run_client.py   a client's worker, kept between messages
    round_loop.py   its rounds over Flower's grid
    nodes.py        which client is behind a node
    mail.py         messages that wait for replies

    settings.py     run config and node config → the experiment's settings and folders
    records.py      bytes ↔ Flower's records
    warm.py         a SuperNode whose messages find everything imported

Everything that decides something about training is in `fedcef.deployment`, which knows no network.

For apps that are not ours, two lines (two_lines/): `compressed()` and `Compressed(strategy)`, `counted()` and
`Counted(strategy)`, and `CompressedGrid`, `CountedGrid` for messages sent by hand.  They are
imported when they are used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcef.flower.two_lines.client import compressed
    from fedcef.flower.two_lines.counting import CountedGrid, counted
    from fedcef.flower.two_lines.grid import CompressedGrid
    from fedcef.flower.two_lines.strategy import Compressed, Counted

__all__ = ["Compressed", "CompressedGrid", "Counted", "CountedGrid", "compressed", "counted"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedcef.flower' has no attribute {name!r}")
    if name == "compressed":  # a node needs nothing else, and begins anew with every message
        from fedcef.flower.two_lines import client

        return client.compressed
    from fedcef.flower.two_lines import counting, grid, strategy

    return next(getattr(home, name) for home in (counting, grid, strategy) if hasattr(home, name))
