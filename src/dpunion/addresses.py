"""Addresses of sources and ledgers: how to parse them, what to show of them, and which to refuse.

Ledgers, records, errors and pages show addresses, and people put passwords into addresses. This module alone decides
what they show: a plain path in full; of an address in a known form, the scheme, the host and the path; of any other
text, the scheme or a fixed phrase.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from dataclasses import dataclass

from dpunion.errors import BadSource, CannotWrite

POSTGRESQL = ("postgresql", "postgres")
DATABASE_FILES = ("sqlite", "duckdb")
STORES = ("s3", "gs", "abfs", "abfss")
ICEBERG = "iceberg"
LOCAL = (*POSTGRESQL, *DATABASE_FILES, *STORES, ICEBERG)
"""The schemes that dpunion itself reads; Spark reads those of its file systems."""
WEB = ("http", "https")
NOT_SHOWN = "an address that is not shown"

NAME, PORT = r"[A-Za-z0-9._-]", r"(?::\d{1,5})?"
AZURE_FORM = re.compile(r"//(?P<place>[a-z0-9$-]+@[a-z0-9.-]+)(?P<path>/.*)?", re.DOTALL)
BUCKET_FORM = re.compile(rf"//(?P<place>{NAME}+)(?P<path>/.*)?", re.DOTALL)
OTHER_FORM = re.compile(rf"(?://(?P<place>{NAME}*{PORT}))?(?P<path>/.*)?", re.DOTALL)
FORMS = {
    **dict.fromkeys(
        POSTGRESQL, re.compile(rf"//(?:[^@/?#]*@)?(?P<place>{NAME}*{PORT})(?P<path>/{NAME}*)?(?P<settings>\?[^@]*)?")
    ),
    **dict.fromkeys(DATABASE_FILES, re.compile(r"//(?P<place>)(?P<path>/.+)", re.DOTALL)),
    **dict.fromkeys(("s3", "s3a", "s3n", "gs"), BUCKET_FORM),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), AZURE_FORM),
    ICEBERG: re.compile(r"//(?P<place>[\w-]+)(?P<path>/[\w.-]+)"),
    **dict.fromkeys(WEB, re.compile("(?!)")),  # never: the path of a web address may itself be a secret
}
"""The text after each scheme and its colon; `public_address` shows the groups `place` and `path`."""
# Without a slash after the colon, a text may be a file such as posts-10:30.csv, unless it begins with a known scheme or
# with letters only.
SCHEME = re.compile(rf"\s*(?:([A-Za-z][A-Za-z0-9+.-]+):(?=/)|(?:{'|'.join(FORMS)}|[A-Za-z+]{{2,}}):)", re.IGNORECASE)

USER_AND_PASSWORD = re.compile(r":.*@|@.*:|://", re.DOTALL)
PARTITION = re.compile(r"(?P<key>[^=?&;#@:]+)=[^=]*", re.DOTALL)
SECRET = re.compile(
    r"secret|passw|passphrase|passfile|pwd|token|credential|(?:access|account|api)\W?_?key", re.IGNORECASE
)
"""Names of settings with values that may be secret."""
SECRET_FOLDER = re.compile(
    r"(?<![a-z])(?<!is_)(?<!has_)(?:secret|passw(?:or)?d|passphrase|passfile|pwd|credentials?)(?![a-z])"
    r"|(?:access|account|api|auth|sas|session|motherduck)[\W_]?(?:key|token)(?![a-z])",
    re.IGNORECASE,
)
"""The same for folders key=value, where the key is a column: `token=the` and `is_secret=1` are folders."""

SUPPORTED = (
    "Supported are paths, the databases postgresql://…, sqlite:///path and duckdb:///path, the object stores s3://,"
    " gs:// and abfs://, and tables as iceberg://catalog/space.table."
)
WITHOUT = (
    "Leave out keys, passwords and settings: they come from the environment (AWS_ACCESS_KEY_ID, PGPASSWORD and "
    "others). If a file name looks like an address, write ./ or its folder in front of it."
)


@dataclass(frozen=True, slots=True)
class Address:
    """The public part of an address.

    scheme: in lower case, empty for paths. place: two slashes and the bucket, container@account, or host and port; None
    if the form is not known. path: the rest. settings: whether the address has settings, which are not shown.
    """

    scheme: str
    place: str | None
    path: str = ""
    settings: bool = False

    @classmethod
    def of(cls, text: str) -> Address:
        """Parse an address."""
        found = SCHEME.match(text)
        if found is None:
            return cls("", "", text) if is_plain(text) else cls("", None)
        scheme = (found[1] or "").lower()
        rest = text[found.end() :]
        parts = FORMS.get(scheme, OTHER_FORM).fullmatch(rest) if scheme else None
        if parts is None or not is_plain(parts["path"] or ""):
            return cls(scheme, None)
        place = f"//{parts['place']}" if rest.startswith("//") else ""
        return cls(scheme, place, parts["path"] or "", bool(parts.groupdict().get("settings")))

    @property
    def is_known(self) -> bool:
        """Say whether the form is known, so that the public part cannot have a password."""
        return self.place is not None

    def __str__(self) -> str:
        if self.place is None:
            return f"{self.scheme}://…" if self.scheme else NOT_SHOWN
        return f"{self.scheme}:{self.place}{self.path}" if self.scheme else self.path


def is_plain(path: str) -> bool:
    """Say whether a text is just a path; patterns and folders named key=value are paths."""
    for part in re.split(r"[/\\{},]", path):
        found = PARTITION.fullmatch(part)
        if "=" in part if found is None else SECRET_FOLDER.search(urllib.parse.unquote(found["key"])):
            return False
    return not USER_AND_PASSWORD.search(path)


def public_address(text: str | os.PathLike[str]) -> str:
    """Return the public part of an address: never a user, a password, a key or settings."""
    return str(Address.of(os.fspath(text)))


def check_address(text: str | os.PathLike[str], *, on_spark: bool = False) -> None:
    """Refuse the address of a source with a password, key or settings, or of an unknown form.

    Guarantees: only the text is read, and the error does not show it. PostgreSQL addresses may have users, passwords
    and settings, as dpunion shows only their host and database.
    """
    given = os.fspath(text)
    address = Address.of(given)
    if address.scheme in WEB:
        raise BadSource(
            f"dpunion does not read sources at {address.scheme}://.",
            "Download the file and name it; or pipe it in: curl --fail … | dpunion release - …",
        )
    if address.scheme and not on_spark and address.scheme not in LOCAL:
        raise BadSource(f"The source is an address with the unknown scheme {address.scheme!r}.", SUPPORTED)
    if not address.is_known and (on_spark or address.scheme not in POSTGRESQL):
        named = f"The {address.scheme} address of a source" if address.scheme else "The address of a source"
        raise BadSource(
            f"{named} contains a user, a password, a key or settings, or is malformed.", f"{WITHOUT} {SUPPORTED}"
        )
    if address.scheme and not given.startswith(f"{address.scheme}:/" if on_spark else f"{address.scheme}://"):
        raise BadSource(
            "The scheme of an address is not in lower case, or something is in front of it, or slashes are missing.",
            f"Write, for example, {address.scheme}://… . {SUPPORTED}",
        )


def check_output(text: str | os.PathLike[str]) -> None:
    """Refuse an output that is an address, or that may have a password, and do not show it."""
    address = Address.of(os.fspath(text))
    if address.scheme or not address.is_known:
        raise CannotWrite(
            "An output is an address, or looks like one with a password.",
            "Name a file on this machine, and copy it from there. On Spark, --out-folder (Folder) takes addresses.",
        )
