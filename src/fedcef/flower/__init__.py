"""A run as a Flower app: the only code that imports flwr.

    server_app.py   `app`, the ServerApp            client_app.py   `app`, the ClientApp: two handlers,
    run_server.py   a server's run from its                         who are you (query) and do this round (train)
                    settings to its summary         run_client.py   a client's worker, kept between messages
    round_loop.py   its rounds over Flower's grid
    nodes.py        which client is behind a node
    mail.py         messages that wait for replies

    settings.py     run config and node config → the experiment's settings and folders
    records.py      bytes ↔ Flower's records

Everything that decides something about training is in `fedcef.deployment`, which knows no network.
"""
