"""The trained model as a file for elsewhere, shrunk to what is not zero; see docs/export.md."""

from fedcef.core.chain import NotAChainError
from fedcef.export.formats import FORMATS
from fedcef.export.shrink import shrink
from fedcef.export.trained import load_trained
from fedcef.export.write import Exported, export_model

__all__ = ["FORMATS", "Exported", "NotAChainError", "export_model", "load_trained", "shrink"]
