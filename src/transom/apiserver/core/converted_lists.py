"""Lists of custom resources with a conversion webhook.

Selectable fields are those of the requested version, so objects are selected after their conversion.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from transom.apiserver.core.call import RecordListing
from transom.apiserver.core.lists import encode_token, list_in_turns
from transom.apiserver.core.options import ListOptions
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.storage import Storage
from transom.machinery.field_selectors import FieldSelector
from transom.store.api import StoreRecord


async def list_readable(
    storage: Storage, res: Resource, namespace: str, options: ListOptions
) -> RecordListing:
    """The list in the requested version; waits only for a conversion webhook."""
    if res.ops.converter is None:
        return await list_in_turns(storage, res, namespace, options)
    fields = options.fields.of_content() if options.fields is not None else None
    if fields is None or fields.empty:
        return await _page(storage, res, namespace, options)
    return await _selected(storage, res, namespace, options, fields)


async def _page(
    storage: Storage, res: Resource, namespace: str, options: ListOptions
) -> RecordListing:
    listing = await list_in_turns(storage, res, namespace, options)
    assert res.ops.converter is not None
    records = await res.ops.converter.records(list(listing.records), res.version)
    return listing._replace(records=records)


async def _selected(
    storage: Storage, res: Resource, namespace: str, options: ListOptions, fields: FieldSelector
) -> RecordListing:
    """Reads pages until there are enough objects."""
    found: list[StoreRecord] = []
    limit = max(options.limit, 0)
    page = await _page(storage, res, namespace, options)
    first = page
    while True:
        found += [record for record in page.records if is_selected(res, fields, record)]
        if not page.token or (limit and len(found) > limit):
            break
        more = replace(options, token=page.token, version="", version_match="")
        page = await _page(storage, res, namespace, more)
    token = ""
    if limit and len(found) > limit:
        del found[limit:]
        token = encode_token(first.revision, found[-1].key, res.key_prefix(namespace))
    return RecordListing(found, first.revision, token, None)


def is_selected(res: Resource, fields: FieldSelector, record: StoreRecord) -> bool:
    """`record` has the requested version."""
    return fields.matches_object(res.kind, orjson.loads(record.value))
