"""Custom resources: serves the resources of CustomResourceDefinitions.

`controller.py` watches the definitions and updates their status, `definition.py` parses one,
`types.py` has the operations of a served version, `conversion.py` converts objects between
versions, `finalizer.py` deletes the instances of a deleted definition. Pure rules on schemas are in
`machinery.structural`.
"""
