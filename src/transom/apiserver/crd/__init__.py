"""Custom resources: definitions become served resources.

`controller.py` watches the definitions and keeps their status, `definition.py` reads one, `types.py` is what a served
version knows how to do, `conversion.py` moves objects between versions, `finalizer.py` clears the instances of a
definition that is deleted. Pure rules on schemas live in `machinery.structural`.
"""
