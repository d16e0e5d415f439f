"""The Common Expression Language: parser, type checker, cost estimates and interpreter, compatible
with cel-go.

`environment.Environment` compiles an expression; `Expression.program` evaluates it with a cost
limit. The files with functions (`stdlib`, `strings`, `sets`) are tables. This package knows nothing
about Kubernetes; `machinery.cel` adds Kubernetes' types and libraries. Evaluation is cheap to
interrupt: it raises when its cost limit is exceeded.
"""
