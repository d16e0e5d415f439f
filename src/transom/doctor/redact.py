"""Redacts secrets in texts and objects: passwords, tokens, keys. Prefers redacting too much to too
little.

A secret is recognized by its name (`password=...`, the variable DB_PASSWORD) or by its form (a JSON
web token, a private key, a URL with a password), also when it is encoded in base64 or in nested
JSON. All patterns are bounded or linear, because the texts are container logs.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

MASK: Final = "[redacted]"
_SECRET: Final = (
    r"(?:password|passwort|passwd|passphrase|passcode|pass(?![a-z])|(?<![a-z])pw(?![a-z])|pwd|token|secret|credentials?|connection[-_]?string|set-cookie|client-key-data|htpasswd"
    r"|kennwort|contrase(?:ñ|n)a|mot[-_ ]de[-_ ]passe|bindpw|requirepass|masterauth|sess(?:ion)?[-_]?id"
    r"|mnemonic|seed[-_ ]?phrase|(?<=[-_])pat(?![a-z])|(?<![a-z])pin(?![a-z])|(?<![a-z])_auth(?![a-z])"
    r"|(?:secret|api|app|access|admin|auth|private|encryption|signing|master|session|storage|account"
    r"|shared|preshared|hmac|license|subscription|instrumentation|certificate|cookie|crypt|webhook)"
    r"[-_]?key(?:[-_]?base)?)"
)
_NAMED: Final = re.compile(
    rf"(?i){_SECRET}$|(?:authorization|(?:^|[-_.])pass|^auth)$|^{_SECRET}(?!name$)"
)
_DROPPED: Final = ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
_DATA: Final = ("data", "stringData", "binaryData")
_QUOTE: Final = r"\\{0,7}[\"']"  # quotes are escaped in nested JSON
_QUOTED: Final = rf"({_QUOTE})(?:(?!(?<!\\)\2).){{0,65536}}(?:\2)?"  # as the second group
# The header of a JSON web token, after other words of the same run of characters (the first group).
# It starts at the first `eyJ` of the run: if no token starts there, none starts at a later one,
# because all of them end where the run ends. So every run is searched only once.
_WEB_TOKEN: Final = r"(?<![\w-])((?:(?!eyJ)\w*+-)*+)eyJ[\w-]{8,}+"
# Rules for texts with one of a few words; most texts have none of them.
_BY_WORD: Final = tuple(
    (words.split("|"), re.compile(pattern, flags), to)
    for words, pattern, flags, to in (
        (
            "login",
            r"(\b(?:docker|podman|nerdctl|helm\s{1,8}registry|oras|crane|az\s{1,8}acr)\s{1,8}login"
            r"\s[^\n|;&]{0,512}?(?<=\s)-p[\s=]{0,8})[^\s\"']{1,512}",
            0,
            rf"\1{MASK}",
        ),
        (
            "psexec|winrs|mongo|wmic|smbclient|rdesktop|xfreerdp",
            r"(\b(?:psexec\w{0,8}(?:\.exe)?|winrs|mongo\w{0,16}|wmic|smbclient|rdesktop|xfreerdp)"
            r"\s[^\n|;&]{0,512}?(?<=\s)[-/]p[\s:=]{1,8}[\"']?)[^\s\"']{1,512}",
            0,
            rf"\1{MASK}",
        ),
        (
            "sqlcmd|bcp|osql",
            r"(\b(?:sqlcmd|bcp|osql)\s[^\n|;&]{0,512}?(?<=\s)-P\s{0,8}[\"']?)[^\s\"']{1,512}",
            0,
            rf"\1{MASK}",
        ),
        (
            "redis-cli",
            r"(\bredis-cli\s[^\n|;&]{0,512}?(?<=\s)-a\s{1,8})[^\s]{1,512}",
            0,
            rf"\1{MASK}",
        ),
        (
            "ldap",
            r"(\bldap\w{1,16}\s[^\n|;&]{0,512}?(?<=\s)-w\s{0,8})[^\s]{1,512}",
            0,
            rf"\1{MASK}",
        ),
        (
            "schtasks",
            r"(\bschtasks\b[^\n]{0,512}?\s/rp\s{1,8})\S{1,512}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            "/user:",
            r"(\bnet1?(?:\.exe)?\s{1,8}use\s{1,8}[^\n]{0,512}?/user:\S{1,256}\s{1,8})(?!/)\S{1,512}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            "use \\\\|: \\\\",
            r"(\bnet1?(?:\.exe)?\s{1,8}use\s{1,8}(?:\w:\s{1,8})?\\\S{1,512}\s{1,8})(?!/)\S{1,512}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            "net user|net.exe user|net1 user",
            r"(\bnet1?(?:\.exe)?\s{1,8}user\s{1,8}[^\s/]{1,256}\s{1,8})(?![/*])\S{1,512}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            "securestring",
            r"(\bConvertTo-SecureString\s{1,8}(?:-String\s{1,8})?)"
            r"(?!-(?!String\b))(?:'[^'\n]{0,4096}'|\"[^\"\n]{0,4096}\"|[^\s'\"$(|-][^\s|)]{0,4096})",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        # Statements of SQL
        (
            "identified|password",
            r"(\b(?:IDENTIFIED\s{1,8}(?:WITH\s{1,8}\S{1,128}\s{1,8})?(?:BY|AS)"
            r"|PASSWORD(?:\s{1,8}FOR\s{1,8}\S{1,256})?\s{0,8}=?)\s{0,8})'[^'\n]{1,1024}'",
            re.IGNORECASE,
            rf"\1'{MASK}'",
        ),
        # Without a sign between the name and the value: not a digest, which is of this form too
        (
            "token|secret|key|password|credential",
            r"(\b(?:token|secret|key|password|credentials?)\s{1,8})[0-9a-f]{32,256}\b",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        ("digest", r"(\bDigest\s{1,8}username=)[^\r\n]{1,4096}", re.IGNORECASE, rf"\1{MASK}"),
        ("-us", r"\b[0-9a-f]{32}-us\d{1,2}\b", 0, MASK),  # Mailchimp
        (":aa", r"(?<!\d)\d{8,10}:[\w-]{35}(?![\w-])", 0, MASK),  # Telegram
        (
            "q~",
            r"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])",
            0,
            MASK,
        ),  # Microsoft Entra ID
        (
            "webhook|/services/",
            r"(/(?:IncomingWebhook|webhooks?|services)/)[\w-]{8,128}(?:/[\w-]{1,128}){1,3}",
            0,
            rf"\1{MASK}",
        ),
        ("incomingwebhook", r"(/IncomingWebhook/)[\w-]{16,128}", 0, rf"\1{MASK}"),
        (":::", r"\b[0-9a-fA-F]{32}:[0-9a-fA-F]{32}(?=:::)", 0, MASK),  # NTLM hashes
        # .pgpass
        (
            ":5432:|:6432:|:*:",
            r"((?<![\w.*-])(?:localhost|\*|[\w-]{1,64}\.[\w.-]{1,190}):(?:\d{4,5}|\*):[\w*-]{1,64}"
            r":[\w*-]{1,64}:)[^\s:]{1,256}",
            0,
            rf"\1{MASK}",
        ),
        (
            "signature=",
            r"((?:[?&]|\bX-\w{2,8}-)?\bsignature=)[\w%+/=-]{20,1024}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            "key=|code=|auth=|sid=|session=",
            r"([?&](?:key|code|auth|sid|session)=)[\w%.~+-]{16,1024}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            "k\"|k'",
            rf"({_QUOTE}k{_QUOTE}\s{{0,8}}:\s{{0,8}}{_QUOTE})[\w-]{{16,1024}}",
            0,
            rf"\1{MASK}",
        ),
        # Variables as pairs of a name and a value: JSON, YAML, XML, Go
        (
            "value",
            rf"(\b(?:name|key)(?:{_QUOTE})?\s{{0,8}}[:=]\s{{0,8}}(?:{_QUOTE})?[\w.-]{{0,64}}{_SECRET}[\w.-]{{0,64}}"
            rf"(?:{_QUOTE})?[\s,;]{{1,64}}(?:{_QUOTE})?value(?:{_QUOTE})?\s{{0,8}}[:=]\s{{0,8}})"
            rf"(?:{_QUOTED}|(?!\[redacted\])[^\s\"',}}\\]{{1,65536}})",
            re.IGNORECASE,
            rf"\1\2{MASK}\2",
        ),
        (
            "value",
            rf"(\bvalue{_QUOTE}\s{{0,8}}:\s{{0,8}}){_QUOTED}(?=\s{{0,64}},\s{{0,64}}{_QUOTE}name{_QUOTE}\s{{0,8}}:"
            rf"\s{{0,8}}{_QUOTE}[\w.-]{{0,64}}{_SECRET})",
            re.IGNORECASE,
            rf"\1\2{MASK}\2",
        ),
        (
            "name=",
            rf"(\bname={_QUOTE}[\w.-]{{0,64}}{_SECRET}[\w.-]{{0,64}}{_QUOTE}\r?\n\r?\n)[^\r\n]{{1,65536}}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),  # forms
        (
            "<value>",
            rf"(<[\w:.-]{{0,64}}{_SECRET}[\w:.-]{{0,64}}>\s{{0,64}}<Value>)[^<]{{1,65536}}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            "setx|requirepass|masterauth|bindpw",
            rf"(\b(?:setx|requirepass|masterauth|bindpw)\s{{1,8}}(?:[\w.-]{{0,64}}{_SECRET}[\w.-]{{0,64}}\s{{1,8}})?)"
            r"[^\s=:]\S{0,4096}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            "password|passphrase",
            r"(\bpass(?:word|phrase)\s{1,4}(?:for|of)\s{1,4}\S{1,128}\s{1,4}(?:is|was|:)\s{1,4})\S{1,4096}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            "password|passphrase",
            rf"(\bpass(?:word|phrase)\s{{1,4}}){_QUOTED}",
            re.IGNORECASE,
            rf"\1\2{MASK}\2",
        ),
        (
            "mnemonic|phrase",
            r"(\b(?:mnemonic|seed[-_ ]?phrase)\s{0,8}[:=]\s{0,8}+)(?!\[redacted\])[^\n]{1,4096}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
    )
)
_BY_FORM: Final = tuple(
    (re.compile(pattern, flags), to)
    for pattern, flags, to in (
        (
            r"-----BEGIN ([A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----.*?(?:-----END \1-----|\Z)",
            re.DOTALL,
            MASK,
        ),
        (
            rf"{_WEB_TOKEN}\.\s{{0,4}}[\w-]{{8,}}+(?:\.\s{{0,4}}[\w-]*+){{0,3}}",
            0,
            rf"\1{MASK}",
        ),  # JSON web tokens, signed and encrypted
        (
            rf"{_WEB_TOKEN}%2[Ee][\w-]{{8,}}+(?:%2[Ee][\w-]*+){{0,3}}",
            0,
            rf"\1{MASK}",
        ),  # also in a URL
        (
            r"(Private-Lines: \d{1,5}\s{1,4}).{1,65536}?(?=Private-MAC|\Z)",
            re.DOTALL,
            rf"\1{MASK}\n",
        ),  # PuTTY keys
        (
            rf"(\b(?:proxy-)?authorization(?:{_QUOTE})?\s{{0,8}}[:=]\s{{0,8}}(?:{_QUOTE})?)[^\r\n\"'\\]{{1,65536}}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            rf"(\bcookie(?:{_QUOTE})?\s{{0,8}}:\s{{0,8}}(?:{_QUOTE})?)[^\r\n\"'\\]{{1,65536}}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            r"\b(Bearer|Basic|Negotiate|Digest)\s{1,8}[\w+/=.~-]{6,65536}",
            re.IGNORECASE,
            rf"\1 {MASK}",
        ),
        (r"(?<=://)[^/\s:@\"']{0,256}:[^/\s\"']{1,512}(?=@)", 0, MASK),  # URLs with a password
        (
            r"(?<=://)[^/\s:@\"']{0,256}:(?!\d{1,5}(?:[/?#\s]|$))[^\s\"']{1,512}(?=@)",
            0,
            MASK,
        ),  # also with a slash in the password
        (r"(?<=://)[^/\s:@\"']{16,512}(?=@)", 0, MASK),
        # Database connection strings that are not URLs
        (r"(\b[\w.-]{1,128}:)[^\s:@/\"']{1,256}(?=@(?:tcp|udp|unix)\()", 0, rf"\1{MASK}"),
        (r"(\bjdbc:[\w:]{1,64}:[^/\s\"'@:]{1,128}/)[^@\s\"']{1,256}(?=@)", 0, rf"\1{MASK}"),
        # Arguments of well-known programs
        (
            r"((?:^|[\s\"'])(?:-u|-U|--user|--proxy-user)[\s=]{0,8}[\"']?[^\s:\"',]{1,128}:)[^\s\"',]{1,512}",
            re.MULTILINE,
            rf"\1{MASK}",
        ),
        (r"(\bsshpass\s{1,8}-p\s{0,8})\S{1,512}", 0, rf"\1{MASK}"),
        (
            r"(\b(?:mysql|mariadb)\w{0,16}\s[^\n|;&]{0,512}?(?<=\s)-p)[^\s\"']{1,512}",
            0,
            rf"\1{MASK}",
        ),
        (r"(\blogin\s{1,8}\S{1,128}\s{1,8}password\s{1,8})\S{1,512}", 0, rf"\1{MASK}"),
        (r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", 0, MASK),  # bootstrap tokens
        (r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b", 0, MASK),  # AWS
        (
            r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|xapp-|dckr_pat_|npm_|pypi-|hvs\.|sk-|[sr]k_(?:live|test)_|whsec_"
            r"|SG\.|ya29\.|AIza|hf_|do[opr]_v1_|shp(?:at|ss|ca|pa)_|gl(?:ptt|dt|rt|soat|cbt|ft|imt|agent)-"
            r"|AGE-SECRET-KEY-1|GOCSPX-|NRAK-|NRJS-|pul-|sq0[a-z]{3}-|rubygems_|cio(?=\w{32}\b)|ATBB|GR1348941"
            r"|sbp_|dapi(?=[0-9a-f]{32})|key-(?=[0-9a-f]{32})|(?:SK|AC)(?=[0-9a-f]{32}\b)|lin_api_|ntn_"
            r"|PMAK-|fo1_|fm[12]_|dckr_oat_|tskey-|sntry[su]_|gls[ac]_|glc_|hvb\.|hvr\."
            r"|s\.(?=[A-Za-z0-9]{24}\b)|0\.(?=A[A-Za-z0-9_-]{60}))"
            r"[\w.-]{16,1024}",
            0,
            MASK,
        ),
        (
            r"\$(?:2[abxy]|[156y]|apr1|scrypt|7|argon2\w{1,2})\$[./A-Za-z0-9$=,+]{20,256}",
            0,
            MASK,
        ),  # password hashes
        (r"(?i)(\bsig=)[\w%+/=-]{20,256}", 0, rf"\1{MASK}"),  # Azure's signed URLs
    )
)
# None of the following rules matches a text without such a name. Most texts have none, and one
# search takes less time than all of the rules.
_NAME: Final = re.compile(rf"{_SECRET}|auth", re.IGNORECASE)
_BY_NAME: Final = tuple(
    (re.compile(pattern, flags), to)
    for pattern, flags, to in (
        (
            rf"({_SECRET}[-_]\w{{1,64}}=)(?!{_QUOTE}|[\[{{])[^\s\"',;&\\]{{1,65536}}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            (
                rf"(^([ \t-]{{0,64}})[\w.-]{{0,64}}{_SECRET}: [|>][^\n]{{0,8}}\n)(?:\2[ "
                r"\t]+[^\n]*(?:\n|\Z))+"
            ),
            re.IGNORECASE | re.MULTILINE,
            rf"\1\2  {MASK}\n",
        ),
        (
            rf"({_SECRET}[\w-]{{0,64}}\s{{0,8}}=\s{{0,8}})(\"\"\"|''').{{0,65536}}?(?:\2|\Z)",
            re.IGNORECASE | re.DOTALL,
            rf"\1\2{MASK}\2",
        ),
        (
            rf"(<[\w:.-]{{0,64}}{_SECRET}[\w:.-]{{0,64}}(?:\s[^<>]{{0,512}})?>)[^<]{{1,65536}}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            rf"({_SECRET}(?:{_QUOTE})?\s{{0,8}}(?:=>|:=|->|(?<=password)\s(?:is|was)\s)\s{{0,8}}(?:{_QUOTE})?)[^\s\"',;&\\]{{1,65536}}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            rf"({_SECRET}[\w-]{{0,64}}(?:{_QUOTE})?\s{{0,8}}[:=]\s{{0,8}}){_QUOTED}",
            re.IGNORECASE,
            rf"\1\2{MASK}\2",
        ),
        (
            rf"({_SECRET}(?:{_QUOTE})?\s{{0,8}}[:=]\s{{0,8}})(?!{_QUOTE}|[\[{{])[^\s\"',;&\\]{{1,65536}}",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            rf"({_QUOTE}(?:auth|pass){_QUOTE}\s{{0,8}}:\s{{0,8}}){_QUOTED}",
            re.IGNORECASE,
            rf"\1\2{MASK}\2",
        ),
        (
            rf"((?<![\w-])-{{1,2}}[\w-]{{0,64}}{_SECRET}\s{{1,8}})([^\s-]\S{{0,65536}})",
            re.IGNORECASE,
            rf"\1{MASK}",
        ),
        (
            rf"(^[ \t-]{{0,64}}[\w.-]{{0,64}}{_SECRET}: )(?![|>])[^\n]{{1,65536}}",
            re.IGNORECASE | re.MULTILINE,
            rf"\1{MASK}",
        ),
    )
)
# The data of Secrets inside a text.
_IN_SECRETS: Final = tuple(
    (re.compile(pattern, re.MULTILINE), to)
    for pattern, to in (
        (
            rf"({_QUOTE}(?:{'|'.join(_DATA)}){_QUOTE}\s{{0,8}}:\s{{0,8}})\{{[^{{}}]{{0,1048576}}\}}",
            rf'\1"{MASK}"',
        ),
        (
            rf"^([ \t]{{0,64}})({'|'.join(_DATA)}):[ \t]*\n(?:\1[ \t]+[^\n]*(?:\n|\Z))+",
            rf"\1\2: {MASK}\n",
        ),
        (
            rf"^([ \t]{{0,64}}(?:{'|'.join(_DATA)}):[ \t]{{0,8}})\{{[^{{}}]{{0,1048576}}\}}",
            rf"\1{MASK}",
        ),
        (r"\b(Data:|StringData:)(map\[[^{}]{0,64}\])\{[^{}]{0,1048576}\}", rf"\1\2{{{MASK}}}"),
    )
)
_ENCODED: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,1048576}={0,2}")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}){12,}")
# registry credentials in base64
_USER_AND_PASSWORD: Final = re.compile(r"[\w.@-]{1,128}:[!-~]{4,512}")
_SHORT: Final = 256  # characters; longer strings rarely repeat
_LEVELS: Final = 4  # in base64 or nested JSON
_LONG: Final = 40  # a run of letters and digits like AWS secret keys


def redact_text(content: str, level: int = 0) -> str:
    return (_redact_again if len(content) <= _SHORT else _redact)(content, level)


def _redact(content: str, level: int) -> str:
    lower = content.lower()
    for words, pattern, to in _BY_WORD:
        if any(word in lower for word in words):
            content = pattern.sub(to, content)
    for pattern, to in _BY_FORM:
        content = pattern.sub(to, content)
    if _NAME.search(content):
        for pattern, to in _BY_NAME:
            content = pattern.sub(to, content)
    if "Secret" in content:
        for pattern, to in _IN_SECRETS:
            content = pattern.sub(to, content)
    return _ENCODED.sub(lambda found: _decoded(found[0], level), content)


# Objects of one kind repeat most of their strings: types, images, labels, times.
_redact_again: Final = lru_cache(maxsize=16384)(_redact)


def _decoded(run: str, level: int) -> str:
    """A run of letters and digits: kept, unless it is a base64-encoded secret or looks like a
    random key.
    """
    if _is_random(run):
        return MASK
    if level >= _LEVELS:
        return run
    if _HEX.fullmatch(run):
        try:
            inner = bytes.fromhex(run).decode()
        except UnicodeDecodeError:
            return run
        return MASK if redact_text(inner, level + 1) != inner else run
    plain = run.rstrip("=").replace("-", "+").replace("_", "/")
    # It may have a prefix, as in a path.
    for begin in range(4) if "+" in plain or "/" in plain else (0,):
        part = plain[begin:]
        part = part[: len(part) - (len(part) % 4 == 1)]
        try:
            inner = base64.b64decode(part + "=" * (-len(part) % 4)).decode(
                "utf-8" if not begin else "latin-1"
            )
        except (binascii.Error, UnicodeDecodeError):
            continue
        if redact_text(inner, level + 1) != inner or (
            not begin and _USER_AND_PASSWORD.fullmatch(inner)
        ):
            return MASK
    return run


def _is_random(run: str) -> bool:
    """Like AWS secret keys. Hashes have no capital letters, names have few digits."""
    if len(run) < _LONG:
        return False
    small, large, digits = (sum(map(test, run)) for test in (str.islower, str.isupper, str.isdigit))
    other = run.count("+") + run.count("/")
    return (
        min(small, large) >= 4
        and digits > 0
        and digits + other > 1
        and run.count("-") + run.count("_") <= len(run) // 8
    )


def redact_value(found: Any, name: str = "", level: int = 0) -> Any:
    """A redacted copy of an object: without the data of Secrets, values of variables, fields that
    look like secrets by name or form, and fields that repeat the whole object.
    """
    if isinstance(found, Mapping):
        if (
            found.get("kind") in ("Secret", "SecretList")
            or found.get("type") == "kubernetes.io/dockerconfigjson"
        ):
            found = _without_data(found)
        if isinstance(found.get("value"), str) and _NAMED.search(str(found.get("name", ""))):
            found = {**found, "value": MASK}
        return {
            key: redact_value(inner, str(key), level)
            for key, inner in found.items()
            if key not in _DROPPED
        }
    if isinstance(found, list | tuple):
        return [
            MASK
            if isinstance(inner, str) and (_is_flag(before) or _is_login(before, inner))
            else redact_value(inner, name, level)
            for before, inner in zip([None, *found], found, strict=False)
        ]
    if isinstance(found, str):
        return MASK if found and _NAMED.search(name) else _string(found, level)
    return found


def _without_data(found: Mapping[str, Any]) -> dict[str, Any]:
    items = found.get("items")
    out = {key: MASK if key in _DATA else inner for key, inner in found.items()}
    if isinstance(items, list):
        out["items"] = [
            _without_data(item) if isinstance(item, Mapping) else item for item in items
        ]
    return out


def _is_flag(before: Any) -> bool:
    """`--token VALUE` as two arguments."""
    return (
        isinstance(before, str)
        and before.startswith("-")
        and "=" not in before
        and bool(_NAMED.search(before.lstrip("-")))
    )


def _is_login(before: Any, argument: str) -> bool:
    """`-u USER:PASSWORD` as two arguments."""
    return before in ("-u", "-U", "--user", "--proxy-user") and ":" in argument


def _string(found: str, level: int) -> str:
    """JSON in a string, as in annotations, is treated as an object."""
    if level < _LEVELS and found[:1] in ("{", "["):
        try:
            inner = json.loads(found)
        except (ValueError, RecursionError):
            return redact_text(found)
        if isinstance(inner, dict | list):
            shown = redact_value(inner, "", level + 1)
            return redact_text(found if shown == inner else json.dumps(shown))
    return redact_text(found)
