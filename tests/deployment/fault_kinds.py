"""The faults that `Loopback` knows, by where they happen."""

DOWN = ("drop order", "double order", "delay order", "cut order", "flip order", "slow link")
CLIENT = (
    "kill client before its work",
    "kill client while it saves",
    "kill client before it replies",
    "client's disk is full",
    "damage client's newest state",
    "lose client's state",
    "client with another run's state",
    "power failure at client",
    "client's state from a copy",
)
UP = (
    "drop reply",
    "double reply",
    "delay reply",
    "cut reply",
    "flip reply",
    "NaN in reply",
    "huge numbers in reply",
    "large norm in reply",
    "reply of another run",
    "reply of another round",
    "reply as another client",
    "reply by a stranger",
)
SERVER = (
    "kill server between steps",
    "kill server while it saves",
    "server's disk is full",
    "power failure at server",
    "damage server's log",
    "empty server's log",
    "server's state from a copy",
)


ALL = DOWN + CLIENT + UP + SERVER
