from __future__ import annotations

from tools.go_columns import Column, documented, kind_columns

_PRINTERS = """
package internalversion

import (
	apiv1 "k8s.io/api/core/v1"
)

func AddHandlers(h printers.PrintHandler) {
	eventColumnDefinitions := []metav1.TableColumnDefinition{
		{Name: "Reason", Type: "string", Description: apiv1.Event{}.SwaggerDoc()["reason"]},
		{Name: "Subobject", Type: "string", Priority: 1, Description: apiv1.Event{}.InvolvedObject.SwaggerDoc()["fieldPath"]},
		{Name: "Age", Type: "string", Description: "How \\"old\\"."},
	}
	h.TableHandler(eventColumnDefinitions, printEvent)
}

func printEvent(obj *api.Event, options printers.GenerateOptions) {
"""
_DOCS = """
var map_Event = map[string]string{
	"reason": "Why.",
}

var map_ObjectReference = map[string]string{
	"fieldPath": "Which piece.",
}
"""


def test_descriptions_come_from_the_documentation_of_the_field_or_of_its_type() -> None:
    docs = documented([("k8s.io/api/core/v1", _DOCS)])
    assert dict(kind_columns(_PRINTERS, docs)) == {
        "Event": [
            Column("Reason", "string", "", 0, "Why."),
            Column("Subobject", "string", "", 1, "Which piece."),
            Column("Age", "string", "", 0, 'How "old".'),
        ]
    }
