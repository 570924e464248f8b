{{/*
A value as a CEL expression.  CEL refuses maps and lists of values that differ in type, so those are cast to `dyn`.
*/}}
{{- define "paritas.cel" -}}
{{- if kindIs "map" . -}}
{{- $fields := list -}}
{{- range $name, $value := . -}}
{{- $fields = append $fields (printf "%s: dyn(%s)" (toJson $name) (include "paritas.cel" $value)) -}}
{{- end -}}
{ {{- join ", " $fields -}} }
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . -}}{{- $items = append $items (printf "dyn(%s)" (include "paritas.cel" .)) -}}{{- end -}}
[ {{- join ", " $items -}} ]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}
