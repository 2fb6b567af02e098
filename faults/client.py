"""The ClientApp, with faults."""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedcef.flower.client_app import who
from fedcef.flower.records import bytes_of, with_bytes

app = ClientApp()
app.query()(who)


@app.train()
def train(message: Message, context: Context) -> Message:
    from faults.reply import reply_to  # heavy

    return Message(with_bytes(reply_to(bytes_of(message), context)), reply_to=message)
