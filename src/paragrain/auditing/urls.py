"""Addresses of images in one spelling, so that equal places compare as equal."""

import re
from urllib.parse import urlsplit

_TRACKING = re.compile(
    r"(?:utm_\w*|fbclid|gclid|gclsrc|dclid|msclkid|yclid|twclid|igshid|mc_cid|mc_eid|_ga|_gl"
    r"|ref_src)\Z",
    re.IGNORECASE,
)
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_TO_ESCAPE = re.compile(r"[^\x21-\x7e]|[\"<>\\^`{|}]")
_PORTS = {"http": 80, "https": 443}


def normalise_url(url: str) -> str | None:
    """One spelling for addresses that lead to the same picture; None if it is no web address.

    http and https count as one, and so do host names in any case; default ports, fragments,
    trailing slashes and the parameters by which visitors are tracked go; escapes are written as
    RFC 3986 (section 6.2.2) says. What a server may tell apart (the case of a path, the order of
    parameters) stays.

    >>> normalise_url("HTTP://Example.org:80/a%7eb/%c3%a9/?utm_source=x&id=7#top")
    'example.org/a~b/%C3%A9?id=7'
    >>> normalise_url("https://example.org/a~b/é?id=7")
    'example.org/a~b/%C3%A9?id=7'
    >>> normalise_url("photos/7.jpg") is None
    True
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or not host:
        return None
    place = host.rstrip(".") + ("" if port in (None, _PORTS[scheme]) else f":{port}")
    query = "&".join(
        part for part in parts.query.split("&") if part and not _TRACKING.match(part.split("=")[0])
    )
    return place + _spelled(parts.path).rstrip("/") + (f"?{_spelled(query)}" if query else "")


def _spelled(text: str) -> str:
    """Escapes in capitals, none for what needs none, and one for whatever does."""

    def plain(match: re.Match[str]) -> str:
        char = chr(int(match[1], 16))
        return char if char.isascii() and (char.isalnum() or char in "-._~") else match[0].upper()

    def escaped(match: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "replace"))

    return _TO_ESCAPE.sub(escaped, _ESCAPE.sub(plain, text))
