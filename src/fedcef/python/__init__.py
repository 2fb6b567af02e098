"""The way in from Python: `run`, and what a `History` shows of itself."""
