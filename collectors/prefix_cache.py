"""How much of a prompt came from the prefix cache, as attributes of a trace.

Stale caches after a weight update show as drift that grows with this share.
"""

__all__ = ["cache_attributes"]

# From this share of the prompt on, "most" of it came from the cache.
MOST = 0.5


def cache_attributes(cached: int | None, prompt: int | None) -> dict[str, str]:
    """Return a slice with three values, and the number of tokens; nothing where it is not told.

    Examples
    --------
    >>> cache_attributes(48, 64), cache_attributes(None, 64)
    ({'prefix_cache': 'most', 'cached_prompt_tokens': '48'}, {})
    """
    if cached is None or not prompt:
        return {}
    share = cached / prompt
    name = "none" if cached <= 0 else "most" if share >= MOST else "part"
    return {"prefix_cache": name, "cached_prompt_tokens": str(cached)}
