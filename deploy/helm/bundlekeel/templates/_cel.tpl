{{/* A value as a CEL expression. Arguments: the value, its CEL type such as Object.spec.volumes; "" for a map with free keys.
     Values of such a map are strings: Kubernetes reads quantities, labels and attributes from strings. A field that is null
     is omitted: the server skips a patch with it. */}}
{{- define "bundlekeel.cel" -}}
{{- $value := index . 0 -}}
{{- $type := index . 1 -}}
{{- $parts := list -}}
{{- if kindIs "map" $value -}}
{{- range $key, $item := $value -}}
{{- if not (kindIs "invalid" $item) -}}
{{- $free := has $key (list "requests" "limits" "labels" "annotations" "matchLabels" "volumeAttributes") -}}
{{- $child := ternary "" (printf "%s.%s" $type $key) (or $free (not $type)) -}}
{{- $parts = append $parts (printf "%s: %s" (ternary $key (toRawJson $key) (ne $type "")) (include "bundlekeel.cel" (list $item $child))) -}}
{{- end -}}
{{- end -}}
{{- printf "%s{%s}" $type (join ", " $parts) -}}
{{- else if kindIs "slice" $value -}}
{{- range $value -}}{{- $parts = append $parts (include "bundlekeel.cel" (list . $type)) -}}{{- end -}}
{{- printf "[%s]" (join ", " $parts) -}}
{{- else if not $type -}}
{{- toString $value | toRawJson -}}
{{- else if and (kindIs "float64" $value) (eq $value (floor $value)) -}}
{{- int64 $value -}}
{{- else -}}
{{- toRawJson $value -}}
{{- end -}}
{{- end }}

{{/* One operation of a JSON patch. Arguments: its path as CEL, the value, the CEL type of the value. */}}
{{- define "bundlekeel.add" -}}
JSONPatch{op: "add", path: {{ index . 0 }}, value: {{ include "bundlekeel.cel" (list (index . 1) (index . 2)) }}}
{{- end }}
