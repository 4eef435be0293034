"""rsswarden keeps a training job inside its memory limit. This package holds the program:
rsswarden run -- python train.py, or python -m rsswarden run -- python train.py."""

from importlib import metadata
from pathlib import Path

__version__ = metadata.version(__name__)


def program() -> str:
    """Returns the path of the program. Raises FileNotFoundError where it is gone."""
    recorded = [f.locate() for f in metadata.files(__name__) or () if f.match("bin/" + __name__)]
    # After pip install --target DIR the list of installed files has a wrong path.
    for path in recorded + [Path(__file__).parents[1] / "bin" / __name__]:
        if path.is_file():
            return str(path.resolve())
    raise FileNotFoundError("cannot find the program rsswarden: install the package again")
