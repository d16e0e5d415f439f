"""The API as calls and results: verbs, storage, strategies, lists and watches. Independent of
HTTP.
"""
