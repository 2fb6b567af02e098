"""The one error of the wire format."""

from fedcef.core.errors import FedcefError


class WireError(FedcefError):
    """Bytes that are not a valid frame, or a message that cannot be written as one."""
