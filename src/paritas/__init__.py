"""Paritas: do the two programs that evaluate one policy still agree?"""

__version__ = "0.1.0"

__all__ = ["__version__"]
