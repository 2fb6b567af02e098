"""A run as a Flower app: the only code that imports flwr.

    server_app.py   `app`, the ServerApp: settings, run folder, evaluation, progress
    client_app.py   `app`, the ClientApp: two handlers, who are you (query) and do this round (train)

    settings.py     run config and node config → the experiment's settings and folders
    records.py      bytes ↔ Flower's records
    nodes.py        which client is behind a node
    drive.py        the round loop over Flower's grid
    work.py         a client's worker, kept between messages

Everything that decides something about training is in `fedcef.deployment`, which knows no network.
"""
