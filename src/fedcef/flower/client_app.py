"""The client as a Flower app: say who you are, and do a round.

Flower starts a new process for every message of a deployment, so nothing heavy is imported before it is needed.
"""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedcef.core.origin import fingerprint
from fedcef.flower.records import bytes_of, masks_of, with_bytes, with_number
from fedcef.flower.settings import client_number

app = ClientApp()


@app.query()
def who(message: Message, context: Context) -> Message:
    """Say which client this is."""
    return Message(with_number(client_number(context.node_config), fingerprint()), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Do the round that the message orders."""
    from fedcef.flower.run_client import handle

    reply = handle(bytes_of(message), context.run_config, context.node_config, masks_of(message))
    return Message(with_bytes(reply), reply_to=message)


@app.query("secure")
def secure(message: Message, context: Context) -> Message:
    """Answer a stage of secure aggregation; a process for it imports no torch."""
    from fedcef.flower.run_stage import handle_stage

    return Message(
        with_bytes(handle_stage(bytes_of(message), context.run_config, context.node_config)), reply_to=message
    )
